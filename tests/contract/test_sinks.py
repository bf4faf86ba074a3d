"""Every sink keeps the same contract."""

from pathlib import Path

from rl_orch.core.ports import Sink
from rl_orch.io.trackers.tensorboard import TensorBoard
from rl_orch.testing import SinkContract


class TestTensorBoard(SinkContract):
    """TensorBoard's event files."""

    def make_sink(self, folder: Path) -> Sink:
        return TensorBoard(folder)
