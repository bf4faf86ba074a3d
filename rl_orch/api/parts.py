"""The parts that the routes of the API work with, handed to each of them by FastAPI."""

from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from fastapi import Depends, Request

from rl_orch.api.feeds import FeedHub
from rl_orch.core.jobs.queue import JobQueue
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.store.tokens import Tokens
from rl_orch.core.telemetry import Telemetry
from rl_orch.core.uploads import UploadRoom
from rl_orch.http.codes import OneTimeCodes
from rl_orch.http.limits import HeldSlots
from rl_orch.http.settings import Settings


class ServiceStatus(Protocol):
    """What the API asks of the scheduler beside it."""

    @property
    def ready(self) -> bool:
        """Whether it looks after the runs by now."""

    def status(self) -> dict[str, Any]:
        """What it is doing, for people."""

    def wake(self) -> None:
        """Look at the queue soon."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the routes work with."""

    orchestrator: Orchestrator
    settings: Settings
    hub: FeedHub
    streams: HeldSlots
    codes: OneTimeCodes
    telemetry: Telemetry
    jobs: JobQueue
    upload_room: UploadRoom
    service: ServiceStatus | None

    @property
    def tokens(self) -> Tokens:
        """The keys that let callers in."""
        return Tokens(self.orchestrator.store)

    def close(self) -> None:
        """Bring streams to their end."""
        self.hub.close()

    def wake(self) -> None:
        """Let the scheduler look at what has changed."""
        if self.service is not None:
            self.service.wake()


async def _parts(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


Here = Annotated[Parts, Depends(_parts)]
