"""Notes of where a home's service is and which database the home has: files that only their user
can read.

The note of a service holds a token that counts while that service lives, so that commands of the
same user on the same machine need none of their own. That of the database outlives it.
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rl_orch.errors import RlctlError
from rl_orch.io.files import private, regular
from rl_orch.io.processes import pids

FILE = "service.json"
SOCKET = "service.sock"
DATABASE_FILE = "database"


@dataclass(frozen=True, slots=True)
class ServiceEndpoint:
    """A service: its address, its Unix socket if it has one, which process it is and where, and
    the token that it accepts."""

    url: str
    identity: str
    host: str
    token: str = field(repr=False)
    database: str | None = None
    socket: str | None = None

    @property
    def pid(self) -> int:
        """The service's process id."""
        return pids.pid_of(self.identity)


def write(home: Path, place: ServiceEndpoint) -> None:
    """Note the place, whole or not at all."""
    _write(home / FILE, json.dumps(asdict(place)), _secret)


def read(home: Path) -> ServiceEndpoint | None:
    """The place that was noted, if it can be read."""
    with suppress(OSError, ValueError, TypeError, RecursionError):
        return ServiceEndpoint(**json.loads(regular.read_text(home / FILE)))
    return None


def living(home: Path) -> ServiceEndpoint | None:
    """The place of the home's service, if its process lives on this machine."""
    place = read(home)
    if place is None or place.host != pids.host() or not pids.alive(place.identity):
        return None
    return place


def forget(home: Path, place: ServiceEndpoint) -> None:
    """Remove the note, if it is still this one."""
    if read(home) == place:
        with suppress(OSError):
            (home / FILE).unlink()


def database_of(home: Path, named: str | Path | None) -> str | None:
    """The database that is meant: the one that is named, or else the one that the home has noted.

    None is the home's own, where nothing was ever noted.
    """
    return str(named) if named else noted_database(home)


def note_database(home: Path, location: str | Path) -> None:
    """Note the database of a home. What lies in the home is found there also after a move."""
    if isinstance(location, Path) and location.is_relative_to(home):
        location = location.relative_to(home)
    # An address may hold a password; a path is for whoever may read the home.
    opener = _secret if isinstance(location, str) else private.own_file
    _write(home / DATABASE_FILE, f"{location}\n", opener)


def noted_database(home: Path) -> str | None:
    """The database that a home has noted, if it has noted one."""
    file = home / DATABASE_FILE
    try:
        noted = regular.read_text(file).strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise RlctlError(
            f"{str(file)!r}, which names the database of this home, cannot be read: {error}",
            hint="Name the database: --registry-db, or RL_REGISTRY_DB.",
        ) from None
    if not noted or "://" in noted:
        return noted or None
    return str(home / noted)


def _write(file: Path, text: str, opener: Callable[[str, int], int]) -> None:
    """Write a file, whole or not at all."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    try:
        with open(temporary, "x", opener=opener) as opened:
            opened.write(text)
        temporary.replace(file)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise RlctlError(
            f"{str(file)!r} cannot be written: {error.strerror}",
            hint="Free space on that disk, or correct its permissions.",
        ) from error


def _secret(path: str, flags: int) -> int:
    """Open a file that only this user can read."""
    return os.open(path, flags, 0o600)
