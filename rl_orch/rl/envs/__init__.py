"""Environments: make them, seed them, say what they are. No torch here: `check` must be quick."""
