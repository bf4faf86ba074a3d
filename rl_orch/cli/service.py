"""The service in this process: scheduler in a thread, HTTP API in the main one, until a signal.

Here the parts of the service meet; nothing else knows them all.
"""

import fcntl
import logging
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from pydantic import BaseModel

from rl_orch import orchestrator
from rl_orch.api.app import create_app
from rl_orch.cli.commands.up import ServiceOptions
from rl_orch.cli.connection import make_home
from rl_orch.cli.live.interrupts import handled
from rl_orch.cli.output import err
from rl_orch.cli.views.text import counted
from rl_orch.core.jobs.queue import JobQueue
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.queue.scheduler import Capacity
from rl_orch.core.service import RunService
from rl_orch.core.telemetry import Telemetry
from rl_orch.errors import BadInput, Conflict, RlctlError
from rl_orch.http.serving import BACKLOG, serve
from rl_orch.http.settings import PORT, Settings
from rl_orch.io import service_note
from rl_orch.io.files import private
from rl_orch.io.files.socket_path import SocketPath, location
from rl_orch.io.machine import hardware
from rl_orch.io.processes import import_path, pids
from rl_orch.io.service_note import ServiceEndpoint
from rl_orch.records import Record
from rl_orch.spec.groups import OptionGroup

LOCK_FILE = "service.lock"
LOOK_EVERY_S = 0.02
FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
UNSPECIFIED = {"//0.0.0.0:": "//127.0.0.1:", "//[::]:": "//[::1]:"}
LOG = logging.getLogger(__name__)


def serve_home(home: Path, wanted: ServiceOptions, tell: Callable[[ServiceEndpoint], None]) -> None:
    """Serve a home until a signal asks to end; `tell` is called once it is ready."""
    _log_to_stderr()
    folders = [str(folder.absolute()) for folder in wanted.module_path or ()]
    os.environ |= import_path.variable(folders)  # And so not the folder that we are in.
    for model in (OptionGroup, Record):  # Before there are threads that would all do it.
        _build(model)
    until = threading.Event()
    with _alone(home), handled(lambda *_: until.set()):
        spares = 1 if wanted.spares is None else wanted.spares
        verbs = orchestrator.connect(
            home, database=wanted.database, resident=True, confined=True, spares=spares
        )
        verbs.capacity = _capacity(wanted)
        _note_database(verbs)
        telemetry = Telemetry(verbs)
        lease = pids.lease()
        jobs = JobQueue(verbs, lease=lease)
        service = RunService(
            verbs, verbs.capacity, url="", also=telemetry.sink, chores=jobs.tend, id=lease
        )
        running = _Running(verbs, service, jobs, secrets.token_urlsafe(32), until, tell)
        app = create_app(
            verbs,
            settings=_settings(wanted, running.token),
            service=service,
            telemetry=telemetry,
            queue=jobs,
        )
        try:
            with _unix_socket(home) as unix:
                running.has_socket = unix is not None
                _serve(app, wanted, until, running.begin, unix)
        finally:
            running.end()
    running.account()


@contextmanager
def _unix_socket(home: Path) -> Iterator[socket.socket | None]:
    """A socket in the home, for whoever the kernel says is its user; None where there can be none.

    The home is ours alone by now, so that a socket which is there is left over.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        yield None
        return
    with closing(SocketPath.open(home, service_note.SOCKET)) as at:
        try:
            listener = at.listener(BACKLOG)
        except OSError as error:  # A file system that has no sockets, for one.
            LOG.warning("no socket in the home: %s", error)
            yield None
            return
        with closing(listener):
            yield listener
        at.unlink()


def _serve(
    app: FastAPI,
    wanted: ServiceOptions,
    until: threading.Event,
    started: Callable[[str], None],
    unix: socket.socket | None,
) -> None:
    """Serve at the port that was asked for; at any that is free, if none was and ours is taken."""
    port = PORT if wanted.port is None else wanted.port
    try:
        serve(app, wanted.host, port, until=until, started=started, also=unix)
    except BadInput as error:
        if wanted.port is not None or error.path != "port":
            raise
        serve(app, wanted.host, 0, until=until, started=started, also=unix)


def _note_database(verbs: Orchestrator) -> None:
    """Let the home keep its database in mind, once that has been opened."""
    with verbs.store.reading():
        service_note.note_database(verbs.home, verbs.location)


def _build(model: type[BaseModel]) -> None:
    """Build what validates a kind of model and all that derive from it, deferred until now."""
    model.model_rebuild(force=True)
    for derived in model.__subclasses__():
        _build(derived)


@dataclass(slots=True)
class _Running:
    """What goes on beside the API: the note of where it is, and the scheduler's thread."""

    verbs: Orchestrator
    service: RunService
    jobs: JobQueue
    token: str
    until: threading.Event
    tell: Callable[[ServiceEndpoint], None]
    has_socket: bool = False
    noted: ServiceEndpoint | None = None
    has_failed: bool = False
    thread: threading.Thread | None = None

    def begin(self, url: str) -> None:
        """The API listens: note where, and let the scheduler begin."""
        self.service.url = url
        for anywhere, here in UNSPECIFIED.items():
            url = url.replace(anywhere, here)
        self.noted = ServiceEndpoint(
            url=url,
            identity=pids.holder_of(self.service.id)[1],
            host=pids.host(),
            token=self.token,
            database=str(self.verbs.location),
            socket=str(location(self.verbs.home, service_note.SOCKET)) if self.has_socket else None,
        )
        service_note.write(self.verbs.home, self.noted)
        self.thread = threading.Thread(target=self._schedule, name="scheduler")
        self.thread.start()
        threading.Thread(target=self._tell_when_ready, daemon=True).start()

    def end(self) -> None:
        """Let the scheduler come to its end, and take the note away."""
        self.until.set()
        self.jobs.close()
        if self.thread is not None:
            self.thread.join()
        pids.let_go(self.service.id)
        if self.noted is not None:
            service_note.forget(self.verbs.home, self.noted)

    def account(self) -> None:
        """Say what is left, or raise if it was the scheduler that ended it all."""
        if self.has_failed:
            raise RlctlError("the scheduler failed; the log above says at what")
        count = self.service.status()["runs"]
        runs = f"{counted(count, 'run')} {'goes' if count == 1 else 'go'}"
        said = f"; {runs} on, and the next `rlctl up` takes over" if count else ""
        err().print(f"service ended{said}")

    def _schedule(self) -> None:
        try:
            self.service.run(self.until)
        except Exception:
            LOG.exception("the scheduler failed")
            self.has_failed = True
        finally:
            self.until.set()

    def _tell_when_ready(self) -> None:
        while not self.until.wait(LOOK_EVERY_S):
            if self.service.ready and self.noted is not None:
                self.tell(self.noted)
                return


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Hold the home against another service; the kernel lets go of it when this process dies."""
    make_home(home)
    with open(home / LOCK_FILE, "a", opener=private.own_file) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"a service of {str(home)!r} is up already, or is just starting or ending",
                hint="`rlctl down` ends it.",
            ) from None
        yield


def _capacity(wanted: ServiceOptions) -> Capacity:
    return Capacity(
        cpus=wanted.cpus or hardware.cores(),
        memory_mb=wanted.memory_mb or hardware.memory_mb(),
        gpus=tuple(gpu.index for gpu in hardware.gpus()),
    )


def _settings(wanted: ServiceOptions, token: str) -> Settings:
    return Settings(
        host=wanted.host,
        port=PORT if wanted.port is None else wanted.port,
        allowed_hosts=tuple(wanted.allow_host or ()),
        allowed_origins=tuple(wanted.allow_origin or ()),
        own_token=token,
        owner_uids=frozenset({os.geteuid(), 0}),
        insecure_loopback=wanted.insecure_loopback,
        allowed_modules=tuple(wanted.allow_modules or ()),
    )


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for name in ("uvicorn", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
