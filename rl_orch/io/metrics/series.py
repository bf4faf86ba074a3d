"""The curves of a run, thinned for whoever draws them. NumPy is loaded when one is asked for.

How they are kept is `io/metrics/index.py`; how they are thinned is `io/metrics/decimate.py`.
"""

import os
import secrets
import shutil
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from rl_orch import plugins
from rl_orch.errors import Conflict, NotFound, RlctlError
from rl_orch.io.metrics import names
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import folded
from rl_orch.records import Event, EventKind, History, Record

POINTS = 2_000
"""As many as a screen can show of one curve."""

_BATCH = 1_000
"""Events that a tracker is given at once."""


class Series(Record):
    """A curve: steps in their order and the value at each, as many of `count` as were asked for.

    Values that are not finite are the strings NaN, Infinity and -Infinity in JSON.
    """

    key: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    count: int


class Key(Record):
    """The name of a curve, how many points it has, and the last of them."""

    key: str
    count: int
    last_step: int
    last_value: float


def of_run(
    path: Path,
    keys: Sequence[str] = (),
    points: int = POINTS,
    from_step: int | None = None,
    to_step: int | None = None,
) -> tuple[Series, ...]:
    """The curves of the run in a directory: those named, or all of them by name.

    `from_step` and `to_step` are the first and the last step that is wanted.
    """
    curves: tuple[Series, ...] = _index(path).query(keys, points, from_step, to_step)
    return curves


def keys_of_run(path: Path) -> tuple[Key, ...]:
    """The curves that the run in a directory has, by name."""
    keys: tuple[Key, ...] = _index(path).keys()
    return keys


def history(path: Path) -> History:
    """The episodes and evaluations of the run in a directory."""
    past: History = _index(path).history()
    return past


def events(path: Path, *kinds: EventKind) -> list[Event]:
    """The events of some kinds that are kept whole; of the run in a directory, in their order."""
    kept: list[Event] = _index(path).events(*kinds)
    return kept


def catch_up(path: Path, most_bytes: int | None = None) -> bool:
    """Bring the index of a run up to date; returns whether the end was seen. It goes as far as so
    many bytes of events. This is work ahead of need, and never an error: whoever asks for a curve
    does it too."""
    done: bool = _index(path).catch_up(most_bytes)
    return done


def export_to_tensorboard(path: Path, target: Path) -> Path:
    """Write the history of a run directory for TensorBoard, in a new folder."""
    source = RunDir(path).events
    if not source.is_file():
        raise NotFound(f"{str(path)!r} is not a run directory: no {source.name}", path=str(path))
    if os.path.lexists(target):
        raise Conflict(
            f"{str(target)!r} is there already, and nothing is written over it",
            path=str(target),
            hint="Name a folder that does not exist yet.",
        )
    temporary = target.with_name(f".tmp-{target.name}-{secrets.token_hex(8)}")
    try:
        temporary.mkdir(parents=True)
        _write_tensorboard(source, temporary)
        temporary.rename(target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RlctlError(f"cannot write {str(target)!r}: {reason}", path=str(target)) from error
    finally:
        with suppress(OSError):
            shutil.rmtree(temporary)
    return target


def _index(path: Path) -> Any:
    """The index of a run; a listing of runs does without what it loads."""
    return plugins.part("metric index").Index(path)


def _write_tensorboard(source: Path, folder: Path) -> None:
    history = folded(source, (EventKind.EPISODE, *names.NUMERIC))
    with closing(plugins.part("tensorboard files").TensorBoardFiles(folder)) as sink:
        while batch := [*islice(history, _BATCH)]:
            sink.write(batch)
            sink.flush()
