"""The numbers of runs for those who look at them: the newest, whole curves, and exports.

Apart from the verbs, since it loads NumPy, which a listing does without.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_orch.core.verbs import Verbs
from rl_orch.io.metrics import recent, series
from rl_orch.io.trackers.pump import Sink
from rl_orch.records import Event, Run


class Telemetry:
    """The metrics of the runs of a home. Those of runs that are watched here are held in memory."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._recent = recent.Recent()

    def sink(self, run: Run) -> Sink:
        """Takes in what a run tells, as long as it is followed."""
        return _RingSink(self._recent, run.id)

    def recent_metrics(
        self, run_id: str, count: int = 100, keys: Sequence[str] = ()
    ) -> list[recent.TrainingStep]:
        """The newest numbers of a run, oldest first."""
        run, directory = self._verbs.there(run_id)
        held = self._recent.recent(run.id, count, keys)
        return recent.of_run(directory.path, count, keys) if held is None else held

    def series(
        self,
        run_id: str,
        keys: Sequence[str] = (),
        *,
        points: int = 2000,
        from_step: int | None = None,
        to_step: int | None = None,
    ) -> tuple[series.Series, ...]:
        """Metrics of a run over its steps, thinned out without losing a peak."""
        _, directory = self._verbs.there(run_id)
        return series.of_run(directory.path, keys, points, from_step, to_step)

    def export_to_tensorboard(self, run_id: str, target: Path) -> Path:
        """The history of a run as files for TensorBoard, in a new folder."""
        return series.export_to_tensorboard(self._verbs.there(run_id)[1].path, target)


@dataclass(frozen=True, slots=True)
class _RingSink:
    """The newest numbers of one run, as a sink. Once it is closed, the run's files tell all."""

    recent: recent.Recent
    run_id: str

    def write(self, batch: Sequence[Event]) -> None:
        """Take some events."""
        self.recent.take(self.run_id, batch)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self, end: Run | None = None) -> None:
        """Let go of the run."""
        self.recent.forget(self.run_id)
