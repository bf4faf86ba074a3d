"""`python -m rl_orch.worker.tasks.track`: a tracker that is named as `module:Class`, at work.

Each line asks for a step: to check its options, to open the sink of a run, to take events, to flush
them, to close. Errors of the tracker are answers; only what ends the process is none.
"""

import sys
from typing import Any

from rl_orch import plugins
from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.processes import import_path
from rl_orch.records.tasks import TrackAnswer, TrackTask
from rl_orch.worker.task import Tell, answer_lines


class TrackerAtWork:
    """A tracker, and its sink once that is open."""

    def __init__(self) -> None:
        self._sink: Any = None

    def answer(self, task: TrackTask, _tell: Tell) -> TrackAnswer:
        """Carry a step out; whatever the tracker raises is told in a sentence."""
        try:
            getattr(self, f"_{task.do}")(task)
        except RlctlError:
            raise
        except (Exception, SystemExit) as error:
            raise RlctlError(f"{type(error).__name__}: {error}") from error
        return TrackAnswer()

    def _check(self, task: TrackTask) -> None:
        tracker = _tracker(task)
        if not callable(tracker) or not callable(getattr(tracker, "check", None)):
            raise BadInput(
                f"{task.name!r} is no tracker: it must be callable and have `check(options)`",
                hint="docs/extending.md has a whole one.",
            )
        tracker.check(task.options)

    def _open(self, task: TrackTask) -> None:
        self._sink = _tracker(task)(task.run, task.spec, task.options)

    def _write(self, task: TrackTask) -> None:
        self._sink.write(task.events)

    def _flush(self, _task: TrackTask) -> None:
        self._sink.flush()

    def _close(self, task: TrackTask) -> None:
        self._sink.close(task.run)


def _tracker(task: TrackTask) -> Any:
    import_path.search(task.module_path)
    return plugins.load("trackers", task.name)


def main() -> int:
    """Answer until nobody asks any more."""
    return answer_lines(TrackTask, TrackerAtWork().answer, iter(sys.stdin.readline, ""))


if __name__ == "__main__":
    sys.exit(main())
