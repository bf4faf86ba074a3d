"""An API over a real orchestrator in a temporary home, in this process or behind a real socket."""

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI

from rl_orch.api.app import create_app
from rl_orch.api.parts import ServiceStatus
from rl_orch.core.jobs.queue import JobQueue
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.store.tokens import Scope, Tokens
from rl_orch.http.serving import serve
from rl_orch.http.settings import Settings
from rl_orch.io.processes import pids
from rl_orch.io.run import command_socket
from rl_orch.io.run.command_socket import Handler
from rl_orch.records import Run, State
from rl_orch.spec.model import Spec
from rl_orch.testing import FakeRunner, trains_to
from rl_orch.testing.jobs import InlineJob
from tests.integration.conftest import until
from tests.waiting import PATIENCE_S

OWN = "own-0123"
"""The token of the service itself."""

OWNER = {"Authorization": f"Bearer {OWN}"}
"""The header by which its own user is known."""

OWNER_LINE = f"Authorization: Bearer {OWN}\r\n"

GENEROUS = Settings(
    requests_per_s=1e6,
    burst=10**6,
    request_timeout_s=PATIENCE_S,
    stall_timeout_s=PATIENCE_S,
    own_token=OWN,
)
"""Settings under which no test is refused for asking too often, or for being slow."""


class InProcess(httpx.BaseTransport):
    """Requests that reach an app without a socket."""

    def __init__(self, app: FastAPI, peer: str) -> None:
        self._inner = httpx.ASGITransport(app, raise_app_exceptions=False, client=(peer, 50_000))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def answer() -> httpx.Response:
            response = await self._inner.handle_async_request(request)
            content = await response.aread()
            return httpx.Response(response.status_code, headers=response.headers, content=content)

        request = httpx.Request(
            request.method, request.url, headers=request.headers, content=request.read()
        )
        return asyncio.run(answer())


@dataclasses.dataclass(frozen=True)
class Api:
    """An orchestrator, and ways to reach the API in front of it."""

    orchestrator: Orchestrator

    def app(
        self,
        *,
        service: ServiceStatus | None = None,
        queue: JobQueue | None = None,
        **changes: Any,
    ) -> FastAPI:
        settings = dataclasses.replace(GENEROUS, **changes)
        jobs = queue or JobQueue(self.orchestrator, partial(InlineJob, self.orchestrator))
        return create_app(self.orchestrator, settings=settings, service=service, queue=jobs)

    def client(
        self,
        token: str | None = OWN,
        *,
        peer: str = "127.0.0.1",
        url: str = "http://localhost:7311",
        service: ServiceStatus | None = None,
        **changes: Any,
    ) -> httpx.Client:
        """A client in this process, as if it called from an address; by default the owner's."""
        return httpx.Client(
            transport=InProcess(self.app(service=service, **changes), peer),
            base_url=url,
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
        )

    @contextmanager
    def served(self, **changes: Any) -> Iterator["Server"]:
        """The API behind a socket, until the block is left."""
        app, until, started = self.app(**changes), threading.Event(), threading.Event()
        urls: list[str] = []

        def tell(url: str) -> None:
            urls.append(url)
            started.set()

        arguments = {"until": until, "started": tell}
        thread = threading.Thread(target=serve, args=(app, "127.0.0.1", 0), kwargs=arguments)
        thread.start()
        try:
            assert started.wait(PATIENCE_S)
            yield Server(urls[0], until, thread, app)
        finally:
            until.set()
            thread.join(PATIENCE_S)
        assert not thread.is_alive()

    def carried_out(self, spec: Spec) -> Run:
        """A run of that spec that has ended."""
        lease = pids.lease()
        run = self.orchestrator.create(spec, lease=lease)
        supervisor = self.orchestrator.supervisor(run, lease)
        while supervisor.run.active:
            supervisor.tick()
        self.orchestrator.store.release(run.id, lease=lease)
        return self.orchestrator.get(run.id)

    @contextmanager
    def at_work(self, spec: Spec, handle: Handler) -> Iterator[Run]:
        """A run at work, whose root answers commands."""
        lease = pids.lease()
        run = self.orchestrator.create(spec, lease=lease)
        run = run.model_copy(update={"state": State.RUNNING})
        self.orchestrator.store.save(run, lease=lease)
        with contextlib.closing(command_socket.serve(Path(run.path), handle)):
            yield run

    def token(self, scope: Scope = "admin", *, lifetime_s: float | None = None) -> str:
        """The text of a new token."""
        tokens = Tokens(self.orchestrator.store)
        return tokens.create(f"{scope}-{len(tokens.list())}", scope, lifetime_s=lifetime_s)[1]


@dataclasses.dataclass(frozen=True)
class Server:
    """A server that runs."""

    url: str
    until: threading.Event
    thread: threading.Thread
    app: FastAPI

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port


@pytest.fixture
def runner() -> FakeRunner:
    """Roots that end well as soon as they begin."""
    return FakeRunner(trains_to([4.0, 5.0] * 6))


@pytest.fixture
def api(tmp_path: Path, runner: FakeRunner) -> Api:
    """An API over an empty home."""
    return Api(Orchestrator(tmp_path / "home", runner, confined=True))


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool]], None]:
    """Wait until a condition holds."""

    def wait(condition: Callable[[], bool]) -> None:
        until(condition)

    return wait
