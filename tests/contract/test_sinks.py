"""Every sink, and every tracker, keeps the same contract."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
    EventAccumulator,
)

from rl_orch import plugins
from rl_orch.errors import BadInput
from rl_orch.io.metrics import names
from rl_orch.io.trackers import sink_process
from rl_orch.io.trackers.pump import Sink, Tracker
from rl_orch.io.trackers.sink_process import SinkProcess
from rl_orch.records import Event, Run
from rl_orch.spec.model import Spec
from rl_orch.testing import TrackerContract


class JsonLines:
    """A tracker that appends a line for each number, and one for the end."""

    def __init__(self, run: Run, spec: Spec, options: Mapping[str, Any]) -> None:
        self.check(options)
        self._file = open(Path(run.path) / options["file"], "a")  # noqa: SIM115
        self._lines: list[list[Any]] = []

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        if set(options) != {"file"}:
            raise BadInput("the one option is `file`")

    def write(self, batch: Sequence[Event]) -> None:
        self._lines += [[*number, e.step] for e in batch for number in names.of_event(e)]

    def flush(self) -> None:
        self._file.writelines(f"{json.dumps(line)}\n" for line in self._lines)
        self._file.flush()
        self._lines.clear()

    def close(self, end: Run | None = None) -> None:
        self._file.close()


class TestTensorBoard(TrackerContract):
    """TensorBoard's event files."""

    def make_tracker(self) -> Tracker:
        tracker: Tracker = plugins.load("trackers", "tensorboard")
        return tracker

    def read_back(self, folder: Path) -> dict[str, list[tuple[int, float]]]:
        reader = EventAccumulator(str(folder / "tensorboard"))
        reader.Reload()
        keys = reader.Tags()["scalars"]
        return {key: [(point.step, point.value) for point in reader.Scalars(key)] for key in keys}


class Elsewhere:
    """The tracker of lines in a process of its own, as one is that need not be installed."""

    NAME = "tests.contract.test_sinks:JsonLines"
    FOLDERS = (str(Path(__file__).parents[2]),)

    def check(self, options: Mapping[str, Any]) -> None:
        sink_process.check(self.NAME, options, self.FOLDERS)

    def __call__(self, run: Run, spec: Spec, options: Mapping[str, Any]) -> Sink:
        return SinkProcess(self.NAME, run, spec, options, self.FOLDERS)


class TestJsonLines(TrackerContract):
    """A file of lines, as a plugin would write it."""

    def make_tracker(self) -> Tracker:
        return JsonLines

    def make_options(self, folder: Path) -> Mapping[str, Any]:
        return {"file": "numbers.jsonl"}

    def read_back(self, folder: Path) -> dict[str, list[tuple[int, float]]]:
        numbers: dict[str, list[tuple[int, float]]] = {}
        for line in (folder / "numbers.jsonl").read_text().splitlines():
            key, value, step = json.loads(line)
            numbers.setdefault(key, []).append((step, value))
        return numbers


class TestElsewhere(TestJsonLines):
    """The same file, written by a child."""

    def make_tracker(self) -> Tracker:
        return Elsewhere()
