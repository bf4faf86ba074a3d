"""`rlctl up`: start the service of a home, here or in the background."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from rl_orch import plugins
from rl_orch.addresses import masked
from rl_orch.cli.arguments import ArgumentGroup, Home, Json, ServiceDatabase
from rl_orch.cli.connection import home_folder, make_home, same_database
from rl_orch.cli.output import err, out, print_json, safe
from rl_orch.client import Client
from rl_orch.client.link import error_from
from rl_orch.errors import BadInput, Conflict, MissingExtra, RlctlError
from rl_orch.http.settings import PORT
from rl_orch.io import service_note
from rl_orch.io.files import private
from rl_orch.io.processes import import_path as modules
from rl_orch.io.service_note import ServiceEndpoint

LOG_FILE = "service.log"
PATIENCE_S = 15.0
LOOK_EVERY_S = 0.05
TAIL_LINES = 12
NEEDED = ("fastapi", "uvicorn", "httptools")
INSECURE = (
    "warning: --insecure-loopback: every account and every program of this machine may now read "
    "your runs, change them and run code as you, without a token"
)
PROGRAM = "from rl_orch.cli.rlctl import main; main()"


@dataclass(frozen=True, slots=True)
class ServiceOptions(ArgumentGroup):
    """The service that is asked for; None is all that the machine has, as `spares` one, and as a
    port the usual one, or any other if that is taken."""

    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond loopback only with tokens.")
    ] = "127.0.0.1"
    port: Annotated[
        int | None,
        typer.Option(
            help="Port to listen on; 0 is any that is free.",
            min=0,
            max=65535,
            show_default=f"{PORT}, or any if that is taken",
        ),
    ] = None
    database: ServiceDatabase = None
    cpus: Annotated[int | None, typer.Option(help="Cores for runs.", min=1, show_default="all")] = (
        None
    )
    memory_mb: Annotated[
        int | None, typer.Option(help="Memory for runs, in MiB.", min=1, show_default="all")
    ] = None
    spares: Annotated[
        int | None,
        typer.Option(
            help="Processes kept ready to become runs; 0 is none.",
            min=0,
            max=64,
            show_default="1",
        ),
    ] = None
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A name that callers know the service by; may be repeated."
        ),
    ] = None
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN", help="Where web pages that may use it are from; may be repeated."
        ),
    ] = None
    allow_modules: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE",
            help="A module that tokens with the scope operate may name; may be repeated.",
        ),
    ] = None
    module_path: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER",
            help="A folder that modules are searched for in, besides what is installed; may be "
            "repeated.",
        ),
    ] = None
    insecure_loopback: Annotated[
        bool,
        typer.Option(
            "--insecure-loopback",
            help="Ask callers on this machine for no token. Every account of it may then run code "
            "as you.",
        ),
    ] = False

    def words(self, home: Path) -> Iterator[str]:
        """The command line that asks for it, but for the database, which may hold a password."""
        yield from ("up", "--json", "--home", str(home))
        for name in (field.name for field in fields(self) if field.name != "database"):
            value = getattr(self, name)
            for word in value if isinstance(value, list) else [value]:
                if word is not None and word is not False:
                    yield f"--{name.replace('_', '-')}"
                    yield from () if word is True else (str(word),)


def command(
    wanted: ServiceOptions,
    detach: Annotated[
        bool, typer.Option("-d", "--detach", help="Start it in the background and return.")
    ] = False,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Start the service of a home: scheduler and HTTP API.

    It carries out what is queued, as many runs at once as cores, memory and GPUs allow. While it is
    up, other commands of this home talk to it. Ctrl-C ends it, and its runs go on: the next
    `rlctl up` takes them over. The home keeps its --database in mind, until another is named.

    Examples:

      rlctl up --detach

      rlctl up --database postgresql://lab@db/rlctl --cpus 16

      rlctl up --host 0.0.0.0 --allow-host trainer.example.org
    """
    _refuse_odd(wanted)
    folder = home_folder(home)
    _refuse_missing()
    _refuse_another(folder)
    before = service_note.noted_database(folder)

    def tell(endpoint: ServiceEndpoint) -> None:
        for sentence in _news(wanted, before, endpoint):
            err().print(safe(sentence), soft_wrap=True)
        if as_json:
            print_json({"url": endpoint.url, "socket": endpoint.socket, "pid": endpoint.pid})
        else:
            out().print(f"service ready at {safe(endpoint.url)} (pid {endpoint.pid})")
        sys.stdout.flush()

    if detach:
        tell(_started(folder, wanted))
        return
    plugins.part("service").serve_home(folder, wanted, tell)


def _refuse_odd(wanted: ServiceOptions) -> None:
    for name in wanted.allow_modules or ():
        if not all(part.isidentifier() for part in name.split(".")):
            raise BadInput(
                f"--allow-modules is {name!r}; must be the name of a module, as `import` takes it",
                hint="For example: --allow-modules my_envs. It allows what is inside as well.",
            )
    for folder in wanted.module_path or ():
        if not folder.is_dir():
            raise BadInput(f"--module-path is {str(folder)!r}, which is no folder")


def _news(wanted: ServiceOptions, before: str | None, endpoint: ServiceEndpoint) -> Iterator[str]:
    """What is otherwise than one who asked for this might think."""
    if wanted.insecure_loopback:
        yield INSECURE
    now = endpoint.database
    if before is not None and now is not None and not same_database(before, now):
        yield f"the database of this home is {masked(now)} now; it was {masked(before)}"
    if wanted.port is None and urlsplit(endpoint.url).port != PORT:
        yield f"port {PORT} is taken by another program; the service took one that is free"


def _refuse_missing() -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"the service needs {' and '.join(missing)}, which this environment does not have",
            hint="Install it with `pip install 'rl-orch[server]'`.",
        )


def _refuse_another(home: Path) -> None:
    endpoint = service_note.living(home)
    if endpoint is not None:
        raise Conflict(
            f"the service of {str(home)!r} is up already: {endpoint.url} (pid {endpoint.pid})",
            hint="`rlctl down` ends it.",
        )


def _started(home: Path, wanted: ServiceOptions) -> ServiceEndpoint:
    """Start the service in a session of its own, and return once it is ready."""
    make_home(home)
    log = home / LOG_FILE
    # By a variable, since everybody can read the command lines of a machine.
    database = {} if wanted.database is None else {"RL_REGISTRY_DB": wanted.database}
    with open(log, "ab", opener=private.own_file) as opened:
        begin = opened.tell()
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM, *wanted.words(home)],
            stdin=subprocess.DEVNULL,
            stdout=opened,
            stderr=opened,
            start_new_session=True,
            env=modules.absolute(os.environ) | database,
        )
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise _why(log, begin)
        endpoint = service_note.living(home)
        if endpoint is not None and endpoint.pid == child.pid and _is_ready(endpoint):
            return endpoint
        time.sleep(LOOK_EVERY_S)
    raise RlctlError(
        f"the service (pid {child.pid}) is not ready after {PATIENCE_S:.0f} s; it goes on trying",
        hint=f"Its log is {log}; `rlctl down` ends it.",
    )


def _is_ready(endpoint: ServiceEndpoint) -> bool:
    with Client(endpoint.url, endpoint.token, patience_s=0.0) as client:
        return client.ready()


def _why(log: Path, begin: int) -> RlctlError:
    """The error that a service has ended with, or else one with the last lines that it wrote."""
    with log.open("rb") as opened:
        opened.seek(begin)
        lines = opened.read().decode("utf-8", "replace").strip().splitlines()
    error = next(filter(None, map(_error, reversed(lines))), None)
    if error is not None:
        return error
    said = "\n".join(lines[-TAIL_LINES:]) or "it said nothing"
    return RlctlError(f"the service ended at once: {said}", hint=f"Its log is {log}")


def _error(line: str) -> RlctlError | None:
    """The error that a line tells of, if it is the document of one."""
    try:
        error = json.loads(line)["error"]
        return error_from(500, error | {"detail": error["message"]})
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
