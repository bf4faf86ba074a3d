"""Signs of life: a run process touches a file once a second, and its supervisor sees it change.

Whether a process lives is seen by whether the time in the file changes, never by which time it is,
so that clocks may jump.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BEAT_S = 1.0


@contextmanager
def beating(file: Path) -> Iterator[None]:
    """Touch the file once a second, in a thread, as long as this lasts."""
    ended = threading.Event()
    thread = threading.Thread(target=_beat, args=(file, ended), name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def last_beat(file: Path) -> int | None:
    """A value that changes with every beat, the time of the file in ns; None before the first."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None


def _beat(file: Path, ended: threading.Event) -> None:
    while True:
        # On a full disk an existing file can still be touched; one that was deleted comes back.
        with suppress(OSError):
            file.touch()
        if ended.wait(BEAT_S):
            return
