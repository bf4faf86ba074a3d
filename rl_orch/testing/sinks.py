"""A contract suite of every sink."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from rl_orch.io.trackers.pump import Sink
from rl_orch.records import Event, EventKind


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


def _event(kind: EventKind, key: str, value: Any, *, step: int) -> Event:
    return Event(seq=1, attempt=1, ts=1.0, run="r", step=step, kind=kind, key=key, value=value)
