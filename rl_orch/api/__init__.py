"""The HTTP API: thin routes over the orchestrator's verbs, and the server that carries them."""
