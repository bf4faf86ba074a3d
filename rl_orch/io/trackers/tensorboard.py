"""TensorBoard: the numbers of a run as scalars, in the files that TensorBoard reads.

The one module that knows tensorboard, whose writer and messages need neither torch nor tensorflow.
"""

import math
from pathlib import Path
from typing import Any

from tensorboard.compat.proto import event_pb2, summary_pb2  # type: ignore[import-untyped]
from tensorboard.summary.writer import event_file_writer  # type: ignore[import-untyped]

from rl_orch.io import events
from rl_orch.records import Event, EventKind

_QUEUE = 1000
_LARGEST_STEP = 2**63 - 2
_SCALARS = (EventKind.METRIC, EventKind.LOG, EventKind.EVAL)


class TensorBoard:
    """A sink that writes numeric metrics, logs and evaluations under their keys, and episodes as
    `charts/episodic_return` and `charts/episodic_length`.

    The start of a resumed attempt makes TensorBoard forget the steps that it repeats.
    """

    def __init__(self, directory: Path) -> None:
        self._writer = event_file_writer.EventFileWriter(str(directory), max_queue_size=_QUEUE)

    def write(self, event: Event) -> None:
        """Queue the scalars of one event, if it has any."""
        if event.step > _LARGEST_STEP:
            return
        if events.is_start(event):
            self._add_start(event)
        for key, value in _scalars(event).items():
            self._add_scalar(event, key, value)

    def flush(self) -> None:
        """Return once everything queued is in the file."""
        self._writer.flush()

    def close(self) -> None:
        """Write what is queued and close the file."""
        self._writer.close()

    def _add_scalar(self, event: Event, key: str, value: float) -> None:
        summary = summary_pb2.Summary()
        summary.value.add(tag=key, simple_value=value)
        self._writer.add_event(
            event_pb2.Event(wall_time=event.ts, step=event.step, summary=summary)
        )

    def _add_start(self, event: Event) -> None:
        """Make TensorBoard drop what it has after the step of the checkpoint."""
        first = event.step + 1 if event.tags.get("after") else 0
        log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._writer.add_event(event_pb2.Event(wall_time=event.ts, step=first, session_log=log))


def _scalars(event: Event) -> dict[str, float]:
    """The numbers of an event by the name TensorBoard shows."""
    if event.kind is EventKind.EPISODE:
        named = {
            "charts/episodic_return": event.value,
            "charts/episodic_length": event.tags.get("length"),
        }
    elif event.kind in _SCALARS:
        named = {event.key: event.value}
    else:
        named = {}
    numbers = {key: _number(value) for key, value in named.items()}
    return {key: number for key, number in numbers.items() if number is not None}


def _number(value: Any) -> float | None:
    """The value as a number, or None if it is none. Not finite ones are shown as such."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity"):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return None
