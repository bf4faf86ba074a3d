"""The model registry: models, aliases, verdicts, promotion, retention, integrity."""
