"""Lines of JSON by which a foreign program tells us events.

Such a program knows nothing of us. A line is a number, `{"step", "key", "value"}`, or tells of a
checkpoint, `{"step", "checkpoint"}`. What is neither is passed over. A program's numbers about
itself are events and nothing more.
"""

import json
from dataclasses import dataclass
from typing import Any

from rl_orch.io.run.events import EventWriter
from rl_orch.io.run.history import number_of
from rl_orch.records import EventKind
from rl_orch.worker.external.tensorboard_files import Scalar

KEY_CHARS = 200
PATH_CHARS = 4096
STEPS = 10**12
"""Steps from here on have no name for a checkpoint."""

RETURN, LENGTH, SPEED = "charts/episodic_return", "charts/episodic_length", "charts/SPS"
SPELLINGS = {"episodic_return": RETURN, "episodic_length": LENGTH, "SPS": SPEED}
SPEEDS = 1e-3, 1e9
"""Steps a second between which a program can be; what else it says of its speed is a number."""


@dataclass(frozen=True, slots=True)
class Saved:
    """That a checkpoint was written: a path in the folder for checkpoints."""

    step: int
    path: str
    best: bool = False


def understood(line: bytes) -> Scalar | Saved | None:
    """Message in a line, or None if it is torn, foreign or out of bounds."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    step = _step(said.get("step"))
    match said:
        case {"checkpoint": str(path)} if step is not None and 0 < len(path) <= PATH_CHARS:
            return Saved(step, path, best=said.get("best") is True)
        case {"key": str(key), "value": value} if step is not None:
            number = number_of(value)
            return None if number is None else Scalar(step, key, number)
    return None


class Teller:
    """Numbers as events. The return and the length of an episode are two numbers, one event.

    The first of the two waits for the second: `settle` tells it without.
    """

    def __init__(self, writer: EventWriter, step: int = 0) -> None:
        self._writer = writer
        self._waiting: Scalar | None = None
        self.step = step
        self.told_speed = False

    def tell(self, number: Scalar) -> bool:
        """Make the event, at once or with the next number; False if the number cannot be one."""
        if not (0 <= number.step < STEPS and _is_name(number.key)):
            return False
        number = Scalar(number.step, SPELLINGS.get(number.key, number.key), number.value)
        before, self._waiting = self._waiting, None
        if before is not None and _belong_together(before, number):
            self._tell_episode(before, number)
        else:
            self._tell_alone(before)
            self._take(number)
        return True

    def flush(self) -> None:
        """Tell what waits for a second number that may not come."""
        waiting, self._waiting = self._waiting, None
        self._tell_alone(waiting)

    def tell_speed(self, steps_per_second: float) -> None:
        """A reading of the clock at the newest step."""
        self._emit(EventKind.LOG, Scalar(self.step, SPEED, round(steps_per_second, 1)))

    def _take(self, number: Scalar) -> None:
        if number.key in (RETURN, LENGTH):
            self._waiting = number
        elif number.key == SPEED and SPEEDS[0] <= number.value <= SPEEDS[1]:
            self.told_speed = True
            self._emit(EventKind.LOG, number)
        else:
            self._emit(EventKind.METRIC, number)

    def _tell_alone(self, number: Scalar | None) -> None:
        if number is not None:
            kind = EventKind.EPISODE if number.key == RETURN else EventKind.METRIC
            self._emit(kind, number)

    def _tell_episode(self, one: Scalar, other: Scalar) -> None:
        ret, length = (one, other) if one.key == RETURN else (other, one)
        steps = _step(length.value)
        self._emit(EventKind.EPISODE, ret, {} if steps is None else {"length": steps})

    def _emit(self, kind: EventKind, number: Scalar, tags: dict[str, Any] | None = None) -> None:
        self._writer.emit(kind, number.key, number.value, step=number.step, tags=tags)
        self.step = max(self.step, number.step)


def _belong_together(one: Scalar, other: Scalar) -> bool:
    return one.step == other.step and {one.key, other.key} == {RETURN, LENGTH}


def _is_name(key: str) -> bool:
    return 0 < len(key) <= KEY_CHARS and key.isprintable()


def _step(value: object) -> int | None:
    """A step: a whole number, also as 1000.0; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not value.is_integer():
        return None
    return int(value) if 0 <= value < STEPS else None
