"""Disk space that is set aside: a run whose disk is full can still say so."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rl_orch.io.files import regular

RESERVE_BYTES = 256 << 10
"""Room for an attempt's last events, and for what a database on the same disk must write."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """A file that only takes up room."""

    path: Path

    def release(self) -> None:
        """Give the room back to the disk."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


@contextmanager
def reserved(folder: Path) -> Iterator[Reserve]:
    """Some room on the folder's disk; none if the disk has none left to begin with."""
    reserve = Reserve(folder / ".reserve")
    try:
        with suppress(OSError):
            _take(reserve.path)
        yield reserve
    finally:
        reserve.release()


def _take(path: Path) -> None:
    regular.write(path, bytes(RESERVE_BYTES))
