"""Contract suites of every sink, and of every tracker, whose sinks are made for runs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_orch.errors import BadInput
from rl_orch.io.trackers.pump import Sink, Tracker
from rl_orch.records import Event, EventKind, State
from rl_orch.testing.fakes import a_run, a_spec


class SinkContract(ABC):
    """The contract of every sink."""

    @abstractmethod
    def make_sink(self, folder: Path) -> Sink:
        """The sink under test, keeping what it keeps in the folder."""

    @abstractmethod
    def read_back(self, folder: Path) -> dict[str, list[tuple[int, float]]]:
        """The numbers that the sink keeps in the folder: by key, (step, value), oldest first."""

    def test_numbers_come_back_once_they_are_flushed(self, tmp_path: Path) -> None:
        """Every metric that is a number, in order; binary fractions, so that none is rounded."""
        sink = self.make_sink(tmp_path)
        told = {"losses/value_loss": [(8, 1.5), (16, 0.25)], "charts/learning_rate": [(8, 2.0)]}
        for key, points in told.items():
            sink.write([_event(EventKind.METRIC, key, value, step=step) for step, value in points])
        sink.write([_event(EventKind.METRIC, "losses/value_loss", "text", step=24)])
        sink.flush()
        kept = self.read_back(tmp_path)
        assert {key: kept.get(key) for key in told} == told
        sink.close()

    def test_every_kind_of_event_is_taken(self, tmp_path: Path) -> None:
        """A sink may ignore an event, but never refuses one."""
        sink = self.make_sink(tmp_path)
        for kind in EventKind:
            values = (1.5, "text", None, {"nested": [1]})
            sink.write([_event(kind, "k", value, step=1) for value in values])
        sink.write([])
        sink.flush()
        sink.close()

    def test_flushing_and_closing_an_empty_sink_is_fine(self, tmp_path: Path) -> None:
        """A run may end before anything has happened."""
        sink = self.make_sink(tmp_path)
        sink.flush()
        sink.close()


class TrackerContract(SinkContract):
    """The contract of every tracker: that of its sinks, and how it is chosen and told of runs."""

    @abstractmethod
    def make_tracker(self) -> Tracker:
        """The tracker under test, as its entry point gives it."""

    def make_options(self, folder: Path) -> Mapping[str, Any]:
        """Options with which it keeps what it keeps in the folder, the directory of the run."""
        return {}

    def make_sink(self, folder: Path) -> Sink:
        """A sink for a run in the folder."""
        return self.make_tracker()(a_run(folder), a_spec(), self.make_options(folder))

    def test_its_options_are_known_before_anything_is_spent(self, tmp_path: Path) -> None:
        """Its own pass the check, another is refused as bad input."""
        tracker, options = self.make_tracker(), self.make_options(tmp_path)
        tracker.check(options)
        try:
            tracker.check({**options, "no-such-option": 1})
        except BadInput:
            return
        raise AssertionError("an option that it cannot have was taken")

    def test_another_sink_for_the_same_run_goes_on(self, tmp_path: Path) -> None:
        """A process that takes over opens its own; what was kept stays."""
        for step, value in ((8, 1.5), (16, 0.25)):
            sink = self.make_sink(tmp_path)
            sink.write([_event(EventKind.METRIC, "k", value, step=step)])
            sink.flush()
            sink.close()
        assert self.read_back(tmp_path)["k"] == [(8, 1.5), (16, 0.25)]

    def test_every_end_of_a_run_can_be_told(self, tmp_path: Path) -> None:
        """Also that of a run whose checkpoint is gone by then."""
        run = a_run(tmp_path)
        for state in State:
            sink = self.make_sink(tmp_path)
            sink.write([_event(EventKind.CHECKPOINT, "saved", "step_1", step=1)])
            sink.write([_event(EventKind.ARTIFACT, "video", "videos/gone.mp4", step=1)])
            sink.flush()
            sink.close(run.model_copy(update={"state": state}))


def _event(kind: EventKind, key: str, value: Any, *, step: int) -> Event:
    return Event(seq=1, attempt=1, ts=1.0, run="r", step=step, kind=kind, key=key, value=value)
