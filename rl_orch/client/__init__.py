"""The verbs of the orchestrator over HTTP: `Client(url, token)`. Nothing of the server is here."""

from rl_orch.client.client import Client

__all__ = ["Client"]
