"""Every sink keeps the same contract."""

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
    EventAccumulator,
)

from rl_orch.io.trackers.pump import Sink
from rl_orch.io.trackers.tensorboard import TensorBoard
from rl_orch.testing import SinkContract


class TestTensorBoard(SinkContract):
    """TensorBoard's event files."""

    def make_sink(self, folder: Path) -> Sink:
        return TensorBoard(folder)

    def read_back(self, folder: Path) -> dict[str, list[tuple[int, float]]]:
        reader = EventAccumulator(str(folder))
        reader.Reload()
        keys = reader.Tags()["scalars"]
        return {key: [(point.step, point.value) for point in reader.Scalars(key)] for key in keys}
