"""Services that share a database, and keys to their API."""

from typing import Literal

from rl_orch.records.record import Record
from rl_orch.spec.runner_traits import RunnerTraits


class Token(Record):
    """A key to the HTTP API. Only a digest of the secret is kept, and it is never shown."""

    id: str
    name: str
    scope: Literal["read", "operate", "admin"]
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None


class Service(Record):
    """A service that carries out the runs of a database. `id` is the lease that it holds them by;
    `beat` counts up while it lives."""

    id: str
    host: str
    url: str
    beat: int
    started_at: float


class RunnerCapabilities(Record):
    """A runner that a spec may name, and what it can do."""

    name: str
    traits: RunnerTraits
