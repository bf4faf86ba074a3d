"""Disk space that is set aside: a run whose disk is full can still say so."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rl_orch.io.files import regular

RESERVE_BYTES = 256 << 10
"""Room for an attempt's last events, and for what a database on the same disk must write."""


@contextmanager
def reserved(folder: Path) -> Iterator[Callable[[], None]]:
    """Some room on the folder's disk, taken up by a file; none if the disk has none left to begin
    with. What it gives is called to have the room back earlier."""
    path = folder / ".reserve"

    def release() -> None:
        with suppress(OSError):
            path.unlink(missing_ok=True)

    try:
        with suppress(OSError):
            regular.write(path, bytes(RESERVE_BYTES))
        yield release
    finally:
        release()
