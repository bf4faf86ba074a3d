"""Whom a command talks to: a service that is named, the home's own if it is up, or the store.

All of them know the same verbs. What only one of them needs is loaded when it is the one.
"""

import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from rl_orch import plugins
from rl_orch.addresses import is_url, masked
from rl_orch.cli.arguments import (
    DATABASE_VARIABLES,
    SERVER_VARIABLE,
    ArgumentGroup,
    Database,
    Elsewhere,
    Home,
    Server,
)
from rl_orch.cli.output import note, warn
from rl_orch.errors import RlctlError, Unauthorized, Unavailable
from rl_orch.io import service_note
from rl_orch.io.files import private
from rl_orch.io.machine import filesystem
from rl_orch.io.processes import import_path
from rl_orch.io.run.events import Tail
from rl_orch.io.service_note import ServiceEndpoint
from rl_orch.records import Event, Run

if TYPE_CHECKING:
    from rl_orch.client import Client
    from rl_orch.core.orchestrator import Orchestrator
    from rl_orch.core.ports import Runner
    from rl_orch.records.jobs import Job

Connected: TypeAlias = "Orchestrator | Client"
T = TypeVar("T")

GONE_FOR_S = 60.0
"""For how long a command that waits, or changes something, puts up with a service that does not
answer."""

ANSWERS_WITHIN_S = 3.0
"""How long a service may say nothing before who only reads goes on without it."""

TRY_EVERY_S = 0.5
VARIABLES = {"--registry-db": DATABASE_VARIABLES, "--server": (SERVER_VARIABLE,)}
"""What says the same as a flag."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions(ArgumentGroup):
    """The options that say whom a command talks to."""

    home: Home = None
    database: Database = None
    server: Server = None

    @property
    def folder(self) -> Path:
        """The home that is meant."""
        return home_folder(self.home)

    @property
    def flags(self) -> str:
        """The flags that lead another command to the same home and database, as a shell reads them.

        What a variable says already is left out, and no password is repeated.
        """
        database = self.database and masked(self.database)
        given = {"--home": self.home, "--registry-db": database, "--server": self.server}
        typed = {"--registry-db": self.database, "--server": self.server}
        inherited = {
            flag for flag, value in typed.items() if value in map(os.environ.get, VARIABLES[flag])
        }
        return "".join(
            f" {flag} {shlex.quote(str(value))}"
            for flag, value in given.items()
            if value and flag not in inherited
        )

    def find_service(self) -> ServiceEndpoint | None:
        """The living service of the home, unless it keeps another database than is asked for."""
        endpoint = service_note.living(self.folder)
        if endpoint is None or self.database is None or endpoint.database is None:
            return endpoint
        return endpoint if same_database(self.database, endpoint.database) else None

    def connect(self, *, reading: bool = False) -> Connected:
        """The verbs, by way of whoever has them.

        Beside a service of the home that does not answer, who is only `reading` does so from the
        database. What changes anything waits for the service, which may be in the middle of it.
        """
        if self.server is not None:
            return _client(self.server, os.environ.get("RLCTL_TOKEN"), ())
        endpoint = self.find_service()
        if endpoint is None:
            return local_orchestrator(self.home, self.database)
        if _answers(endpoint):
            return _own_client(endpoint)
        if not reading:
            return self._awaited(endpoint)
        silent = f"{_name(endpoint)} has not answered for {ANSWERS_WITHIN_S:g} s"
        warn(f"{silent}; the database was read without it")
        return local_orchestrator(self.home, self.database or endpoint.database)

    def workplace(self) -> Connected:
        """Where laborious requests are carried out: at a service that is named, or else here.

        The home's own service is not asked: paths and modules are those of this folder.
        """
        if self.server is not None:
            return self.connect()
        return local_orchestrator(self.home, self.database)

    def retrying(self, *, reading: bool = False) -> "RetryingConnection":
        """A connection for long waits.

        `connect` has had an answer from the home's own service, so reading from it is tried again
        even if it died right after. A first change never is: it may have been made.
        """
        renew, named = partial(self.connect, reading=reading), self.server is not None
        connected = renew()
        answered = connected.serves and reading and not named
        return RetryingConnection(renew, connected, answered, keeps_token=named)

    def _awaited(self, endpoint: ServiceEndpoint) -> Connected:
        """The verbs once the service answers or has died; if neither happens, nothing changes."""
        name = _name(endpoint)
        warn(f"{name} does not answer; what changes anything goes through it, so this waits")
        deadline = time.monotonic() + GONE_FOR_S
        while time.monotonic() < deadline:
            now = self.find_service()
            if now is None:
                return local_orchestrator(self.home, self.database)
            if _answers(now):
                return _own_client(now)
            time.sleep(TRY_EVERY_S)
        raise Unavailable(
            f"{name} is up and does not answer; nothing was changed",
            hint=f"If it was halted: kill -CONT {endpoint.pid}. "
            f"To do without it: kill -KILL {endpoint.pid}; its runs go on, and the next "
            "`rlctl up` takes them over.",
        )


@dataclass(frozen=True, slots=True)
class LocalOptions(ConnectionOptions):
    """The same for a command that cannot be carried out but where the service is."""

    server: Elsewhere = None


def home_folder(home: Path | None) -> Path:
    """The home that is meant where none, or one, is named."""
    return Path(home or os.environ.get("RLCTL_HOME") or "rlruns").absolute()


def make_home(home: Path) -> None:
    """Make a home, if there is none yet; raise if nothing can be written there."""
    try:
        private.home_folder(home)
        why = filesystem.obstacle(home)
    except OSError as error:
        is_file = home.exists() and not home.is_dir()
        raise RlctlError(
            f"home {str(home)!r} is a file, and no folder"
            if is_file
            else f"home {str(home)!r} cannot be made: {error.strerror}",
            hint="Set RLCTL_HOME to a folder that can be written to.",
        ) from None
    if why is not None:
        raise filesystem.refusal(home, why)


@dataclass(slots=True)
class RetryingConnection:
    """A connection for long waits: it is made anew when a service goes away or comes back.

    `keeps_token` says that a new one would have the same token, so that a refusal is final.
    """

    renew: Callable[[], Connected]
    connected: Connected
    answered: bool = False
    keeps_token: bool = False

    def ask(self, question: Callable[[Connected], T]) -> T:
        """What the question gets for an answer, from whoever there is to ask by then.

        The very first one is asked once: nobody has gone away who was never there.
        """
        gone_at: float | None = None
        while True:
            try:
                answer = question(self.connected)
            except (Unavailable, Unauthorized) as error:
                now = time.monotonic()
                gone_at = now if gone_at is None else gone_at
                # A service that was started anew has a new token.
                refused = isinstance(error, Unauthorized) and self.keeps_token
                if refused or not self.answered or now > gone_at + GONE_FOR_S:
                    raise
            else:
                self.answered = True
                return answer
            time.sleep(TRY_EVERY_S)
            self.connected = self.renew()

    def get(self, reference: str) -> Run:
        """A run as it really is."""
        return self.ask(lambda connected: connected.get(reference))

    def ask_to_stop(self, run_id: str, *, force: bool) -> Run:
        """A run that was asked to end."""
        return self.ask(lambda connected: connected.ask_to_stop(run_id, force=force))

    def stop(self, run_id: str, *, force: bool) -> Run:
        """A run that has ended because it was asked to."""
        return self.ask(lambda connected: connected.stop(run_id, force=force))

    def events(self, run_id: str, offset: int = 0) -> Tail:
        """All events of a run after an offset, however many answers that takes."""
        events: list[Event] = []

        def rest(connected: Connected) -> Tail:
            return connected.events(run_id, offset)

        while True:
            tail = self.ask(rest)
            if tail.offset == offset:
                return Tail(tuple(events), offset)
            events += tail.events
            offset = tail.offset


def same_database(asked: str, kept: str) -> bool:
    """Whether two names, the second one whole, mean the same database, whatever the password."""
    if is_url(asked) or is_url(kept):
        return masked(asked) == masked(kept)
    return Path(asked).absolute() == Path(kept)


def local_orchestrator(
    home: Path | None, database: str | None, runners: "Mapping[str, Runner] | None" = None
) -> "Orchestrator":
    """The home itself, without a service: whoever has it carries out what it is told to."""
    connect = plugins.part("orchestrator").connect
    made: Orchestrator = connect(home, database=database, runners=runners)
    return made


def _answers(endpoint: ServiceEndpoint) -> bool:
    probe = plugins.part("client probe")
    return bool(probe.answers(endpoint.url, within_s=ANSWERS_WITHIN_S))


def _name(endpoint: ServiceEndpoint) -> str:
    return f"the service at {endpoint.url} (pid {endpoint.pid})"


def _own_client(endpoint: ServiceEndpoint) -> "Client":
    """The client of the home's own service, which may be told where modules are."""
    return _client(endpoint.url, endpoint.token, import_path.typed_in())


def _client(url: str, token: str | None, module_path: Sequence[str]) -> "Client":
    client = plugins.part("client").Client
    made: Client = client(url, token, module_path=module_path, tell=_tell_of_job)
    return made


def _tell_of_job(job: "Job") -> None:
    """Say how to find a job again that a command waits for, or that it was cancelled."""
    if job.active:
        note(f"job {job.id}; `rlctl jobs wait {job.id}` finds it again")
    else:
        note(f"job {job.id} was {job.state}")
