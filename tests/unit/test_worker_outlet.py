"""What the worker keeps of a training, and the orders that it takes."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from rl_orch.errors import BadInput
from rl_orch.io import checkpoints, events
from rl_orch.io.commands import Request
from rl_orch.io.events import EventWriter
from rl_orch.io.rundir import RunDir
from rl_orch.records import EventKind
from rl_orch.rl.train import Snapshot
from rl_orch.testing import a_report, a_spec
from rl_orch.worker.outlet import FileOutlet


@pytest.fixture
def directory(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "run")
    made.create(a_spec(), {"run_id": "run"})
    return made


@pytest.fixture
def outlet(directory: RunDir) -> Iterator[FileOutlet]:
    with EventWriter(directory.events, run="run", attempt=1) as writer:
        yield FileOutlet(directory, a_spec(), writer, 1)


def test_stop_beats_whatever_was_ordered_before_it(outlet: FileOutlet) -> None:
    for name in ("checkpoint", "pause", "stop"):
        outlet.order(name)
    assert outlet.command() == "stop"


def test_stop_is_not_forgotten(outlet: FileOutlet) -> None:
    outlet.order("stop")
    assert [outlet.command(), outlet.command()] == ["stop", "stop"]


def test_one_checkpoint_waits_however_often_it_was_ordered(outlet: FileOutlet) -> None:
    outlet.order("checkpoint")
    outlet.order("checkpoint")
    assert [outlet.command(), outlet.command()] == ["checkpoint", None]


def test_a_paused_loop_waits_until_it_may_go_on(outlet: FileOutlet) -> None:
    outlet.order("pause")
    with after(0.1, lambda: outlet.order("unpause")):
        assert outlet.command() is None


def test_a_signal_reaches_a_loop_that_is_paused(outlet: FileOutlet) -> None:
    outlet.order("pause")
    with after(0.1, lambda: outlet.order("stop")):
        assert outlet.command() == "stop"


def test_a_command_that_it_does_not_know_is_refused(outlet: FileOutlet) -> None:
    assert outlet.handle(Request("stop", {})) == {"accepted": "stop"}
    with pytest.raises(BadInput, match="cannot render; it knows stop, checkpoint, pause, unpause"):
        outlet.handle(Request("render", {}))


@pytest.mark.parametrize("evaluated", [False, True])
def test_a_checkpoint_knows_the_event_that_tells_of_it(
    directory: RunDir, outlet: FileOutlet, evaluated: bool
) -> None:
    outlet.emit(EventKind.METRIC, "losses/value_loss", 1.0, step=16)
    document: dict[str, Any] = {"trainer_state": {}, "replay_meta": {}, "rng_state": {}}
    outlet.save(
        Snapshot(16, {"policy/w": np.zeros(1)}, document), a_report([1.0]) if evaluated else None
    )
    saved = list(events.read(directory.events))[-1]
    assert (saved.key, saved.tags["evaluated"]) == ("saved", evaluated)
    loaded = checkpoints.load(directory.checkpoints / str(saved.value))
    assert loaded.document["meta"]["seq"] == saved.seq


@contextmanager
def after(seconds: float, action: Callable[[], None]) -> Iterator[None]:
    """Carry something out in a signal handler, a little later."""

    def handler(_number: int, _frame: FrameType | None) -> None:
        action()

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
