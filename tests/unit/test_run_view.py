"""A run as it is shown, by what its files say."""

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from rl_orch.cli.views.run_summary import print_summary
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.run_view import QUIET_S, quiet_s
from rl_orch.io.run.directory import RunDir
from rl_orch.records import History, Run, RunView, State
from rl_orch.testing import FakeRunner, a_spec, trains_to

TOLD_AT = 1_800_000_000


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run that is in training, and told of its last step at some time."""
    made = Orchestrator(tmp_path / "home", FakeRunner(trains_to([]))).submit(a_spec()).runs[0]
    file = RunDir.of(made).events
    file.touch()
    os.utime(file, (TOLD_AT, TOLD_AT))
    return made.model_copy(update={"state": State.RUNNING})


def lived_for(run: Run, seconds: float) -> None:
    file, at = RunDir.of(run).heartbeat, TOLD_AT + seconds
    file.touch()
    os.utime(file, (at, at))


def test_a_training_that_lives_and_has_told_nothing_for_long_is_quiet(run: Run) -> None:
    directory = RunDir.of(run)
    assert quiet_s(run, directory) is None
    lived_for(run, QUIET_S - 1)
    assert quiet_s(run, directory) is None
    lived_for(run, 240)
    assert quiet_s(run, directory) == 240
    evaluating = run.model_copy(update={"state": State.EVALUATING})
    assert quiet_s(evaluating, directory) is None


@pytest.mark.parametrize("seconds", [None, 240.0])
def test_a_summary_says_for_how_long_a_run_was_quiet_and_how_it_is_ended(
    run: Run, seconds: float | None
) -> None:
    written = io.StringIO()
    shown = RunView(run=run, spec=a_spec(), quiet_s=seconds)
    print_summary(Console(file=written, width=200), shown, History(), None, flags=" --home x")
    rows = [line for line in written.getvalue().splitlines() if line.split()[:1] == ["quiet"]]
    assert len(rows) == (seconds is not None)
    assert all(f"4 min; if its environment hangs: rlctl stop {run.id} --home x" in r for r in rows)
