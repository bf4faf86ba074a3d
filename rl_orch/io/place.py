"""Where the service of a home is, noted in a file that only its user can read.

The note holds a token that counts while that service lives, so that commands of the same user on
the same machine need none of their own.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rl_orch.io import processes

FILE = "service.json"


@dataclass(frozen=True, slots=True)
class Place:
    """A service: its address, which process it is and where, and the token that it accepts."""

    url: str
    identity: str
    host: str
    token: str = field(repr=False)
    database: str | None = None

    @property
    def pid(self) -> int:
        """The service's process id."""
        return processes.pid_of(self.identity)


def write(home: Path, place: Place) -> None:
    """Note the place, whole or not at all."""
    temporary = home / f".{FILE}.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(place), file)
    temporary.replace(home / FILE)


def read(home: Path) -> Place | None:
    """The place that was noted, if it can be read."""
    with suppress(OSError, ValueError, TypeError, RecursionError):
        return Place(**json.loads((home / FILE).read_text()))
    return None


def living(home: Path) -> Place | None:
    """The place of the home's service, if its process lives on this machine."""
    place = read(home)
    if place is None or place.host != processes.host() or not processes.alive(place.identity):
        return None
    return place


def forget(home: Path, place: Place) -> None:
    """Remove the note, if it is still this one."""
    if read(home) == place:
        with suppress(OSError):
            (home / FILE).unlink()
