"""A sink in a process of its own, for trackers that are named as `module:Class`.

Code that need not be installed is found in the folders of its run and may do anything: in here, two
runs have the modules of their own folders each, and one that dies takes no service with it.
"""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rl_orch.errors import BadInput
from rl_orch.io.processes.task_worker import TaskEnded, TaskWorker
from rl_orch.records import Event, Run
from rl_orch.records.tasks import TrackAnswer, TrackTask
from rl_orch.spec.model import Spec

CHECKED_WITHIN_S = 60.0


def check(name: str, options: Mapping[str, Any], module_path: Sequence[str]) -> None:
    """Raise if such a tracker cannot be imported, or does not take its options."""
    task = TrackTask(do="check", name=name, options=dict(options), module_path=tuple(module_path))
    try:
        _worker(name).answer(task, timeout_s=CHECKED_WITHIN_S)
    except TaskEnded as error:
        raise BadInput(f"importing it ended the process: {error.last_line}") from error
    except subprocess.TimeoutExpired:
        raise BadInput(f"importing it took longer than {CHECKED_WITHIN_S:.0f} s") from None


class SinkProcess:
    """The sink of a run in a child, which is started anew where it has died.

    Events that were taken and not flushed are told to the next child too.
    """

    def __init__(
        self,
        name: str,
        run: Run,
        spec: Spec,
        options: Mapping[str, Any],
        module_path: Sequence[str],
    ) -> None:
        self._opening = TrackTask(
            do="open",
            name=name,
            run=run,
            spec=spec,
            options=dict(options),
            module_path=tuple(module_path),
        )
        self._unflushed: list[Event] = []
        self._worker: TaskWorker[TrackAnswer] | None = None
        self._start()

    def write(self, batch: Sequence[Event]) -> None:
        """Hand events over."""
        worker = self._started()
        self._ask(worker, TrackTask(do="write", events=tuple(batch)))
        self._unflushed += batch

    def flush(self) -> None:
        """Return once every event taken is where it belongs."""
        self._ask(self._started(), TrackTask(do="flush"))
        self._unflushed.clear()

    def close(self, end: Run | None = None) -> None:
        """Close the sink, and end the child."""
        worker = self._started()
        try:
            self._ask(worker, TrackTask(do="close", run=end))
        finally:
            worker.close()

    def _started(self) -> TaskWorker[TrackAnswer]:
        """The child, or another one in its place that has been told all that counts."""
        return self._start() if self._worker is None else self._worker

    def _start(self) -> TaskWorker[TrackAnswer]:
        worker = _worker(self._opening.name)
        try:
            self._ask(worker, self._opening)
            if self._unflushed:
                self._ask(worker, TrackTask(do="write", events=tuple(self._unflushed)))
        except BaseException:
            worker.close()
            raise
        self._worker = worker
        return worker

    def _ask(self, worker: TaskWorker[TrackAnswer], task: TrackTask) -> None:
        try:
            worker.ask(task)
        except TaskEnded:
            self._worker = None
            with suppress(OSError):
                worker.close()
            raise


def _worker(name: str) -> TaskWorker[TrackAnswer]:
    return TaskWorker(TrackAnswer, ("track",), doing=f"the tracker {name}", hint=None)
