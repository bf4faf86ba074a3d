"""A place for experiments with faults: real services in homes of their own, started as a user
starts them, halted and killed.
"""

import itertools
import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rl_orch.client import Client
from rl_orch.core.store.database import DATABASE
from rl_orch.core.store.runs import Store
from rl_orch.errors import Unauthorized, Unavailable
from rl_orch.io import service_note as place
from rl_orch.io.service_note import ServiceEndpoint
from tests.faults import programs
from tests.faults.watcher import Watcher
from tests.integration.conftest import RLCTL
from tests.waiting import PATIENCE_S

READY_WITHIN_S = 5.0
LOOK_EVERY_S = 0.02
CPUS = 8
T = TypeVar("T")


@dataclass(slots=True)
class Up:
    """The service of a home: a process that comes and goes.

    Most of them carry out programs that need no torch, so that none has it loaded for them.
    """

    home: Path
    database: str | None = None
    cpus: int = CPUS
    options: tuple[str, ...] = ()
    spares: int = 0
    ready_s: list[float] = field(default_factory=list)
    halted: bool = False
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the service, and return once it is ready."""
        began = time.monotonic()
        self.begin()
        self.await_ready(began)

    def begin(self) -> None:
        """Start the service, and do not wait for it."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *RLCTL,
                    "up",
                    "--port",
                    "0",
                    "--cpus",
                    str(self.cpus),
                    "--memory-mb",
                    "100000",
                    "--spares",
                    str(self.spares),
                    *self.options,
                ],
                env=self.environment,
                cwd=self.home.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def await_ready(self, began: float) -> None:
        """Return once the service is ready, and note how long that took."""
        while not self.is_ready():
            assert self.process.poll() is None, self.told()
            assert time.monotonic() - began < PATIENCE_S, self.told()
            time.sleep(LOOK_EVERY_S)
        self.ready_s.append(time.monotonic() - began)

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The process, which must have been started."""
        assert self._process is not None
        return self._process

    @property
    def log(self) -> Path:
        """What the service has written."""
        return self.home.parent / f"{self.home.name}.log"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that commands of this home are started with."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RL_", "RLCTL_"))}
        database = {} if self.database is None else {"RL_REGISTRY_DB": self.database}
        return inherited | {"RLCTL_HOME": str(self.home)} | database

    @property
    def place(self) -> ServiceEndpoint | None:
        """Where the service is, if it lives and is not halted."""
        found = place.living(self.home)
        if found is None or self._process is None or self.halted:
            return None
        return found if found.pid == self._process.pid else None

    def is_ready(self) -> bool:
        """Whether database and scheduler work."""
        found = self.place
        if found is None:
            return False
        try:
            with urllib.request.urlopen(f"{found.url}/ready", timeout=5.0) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def halt(self) -> None:
        """Let the service do nothing, as on a machine that swaps or is suspended."""
        self.process.send_signal(signal.SIGSTOP)
        self.halted = True

    def go_on(self) -> None:
        """End a halt."""
        self.process.send_signal(signal.SIGCONT)
        self.halted = False

    def kill(self) -> None:
        """Kill the service, not its runs."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Kill the service, if it was ever started."""
        if self._process is not None:
            self.kill()

    def told(self) -> str:
        """The end of the service's log."""
        return self.log.read_text("utf-8", "replace")[-4000:]

    def run(self, *words: str, timeout_s: float = PATIENCE_S) -> "subprocess.CompletedProcess[str]":
        """Carry a command of this home out."""
        return subprocess.run(
            [*RLCTL, *words],
            env=self.environment,
            cwd=self.home.parent,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


class Lab:
    """Some homes that share a database, their services, and somebody who watches them."""

    def __init__(
        self, folder: Path, *, database: str | None = None, homes: int = 1, spares: int = 0
    ) -> None:
        """`database` is a URL or a path; without one, it is in the first home."""
        self.folder = folder
        self.services = [self._service(number, database, spares) for number in range(homes)]
        is_url = database is not None and "://" in database
        file = Path(database or folder / "home-0" / DATABASE)
        self.location: Path | str = database if is_url and database is not None else file
        self.program = programs.counts(folder)
        self._store: Store | None = None
        self._turns = itertools.count()
        self._clients: dict[tuple[str, str], Client] = {}
        self.watcher = Watcher(folder, lambda: self.store)

    def _service(self, number: int, database: str | None, spares: int) -> Up:
        home = self.folder / f"home-{number}"
        home.mkdir()
        return Up(home, database, spares=spares)

    @property
    def service(self) -> Up:
        """The first service."""
        return self.services[0]

    @property
    def store(self) -> Store:
        """The database, as nobody but the checker reads it."""
        if self._store is None:
            self._store = Store(self.location)
        return self._store

    def client(self) -> Client:
        """One of the services that live, by turns."""
        places = [found for up in self.services if (found := up.place) is not None]
        if not places:
            raise Unavailable("no service is up")
        found = places[next(self._turns) % len(places)]
        key = (found.url, found.token)
        if key not in self._clients:
            self._clients[key] = Client(*key, timeout_s=PATIENCE_S, patience_s=0.0)
        return self._clients[key]

    def ask(self, question: Callable[[Client], T], *, patience_s: float = PATIENCE_S) -> T:
        """What a service answers, asked again until one does."""
        deadline, pause = time.monotonic() + patience_s, threading.Event()
        while True:
            try:
                return question(self.client())
            except (Unavailable, Unauthorized):  # One that was started anew has a new token.
                if time.monotonic() > deadline:
                    raise
            pause.wait(0.1)

    def await_end(self, *, timeout_s: float = PATIENCE_S) -> None:
        """Return once no run is left that has yet to end."""
        deadline, pause = time.monotonic() + timeout_s, threading.Event()
        while rest := [run for run, _ in self.store.active()]:
            left = "\n".join(f"{run.id}: {run.state}, {run.reason}" for run in rest)
            assert time.monotonic() < deadline, f"not ended:\n{left}\n{self.service.told()}"
            pause.wait(0.1)

    def close(self) -> None:
        """End whatever is left."""
        for up in self.services:
            up.close()
        self.watcher.close()
        self.watcher.kill_all()
        for client in self._clients.values():
            client.close()
        if self._store is not None:
            self._store.close()
