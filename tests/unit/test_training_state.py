"""Training state that a succeeded run lets go of, and all that stays whole without it."""

import os
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.ports import Task
from rl_orch.errors import Conflict
from rl_orch.io.checkpoints import catalog, checkpoint_files, training_state
from rl_orch.io.checkpoints import replay_segments as segments
from rl_orch.io.checkpoints.resumable import newest_checkpoint
from rl_orch.io.run.directory import LET_GO, RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.records import EventKind, State
from rl_orch.rl.replay.log import LogSegment
from rl_orch.testing import FakeRunner, a_report, a_spec

PASSED = ("gates.min_return=1", "gates.stability=false")
STEPS = (100, 200, 300, 400)
BEST = 200
NAMES = tuple(map(catalog.name_of, STEPS))
STAY = (catalog.name_of(BEST), NAMES[-1])
SEGMENT = "000000000000000-000000000000999"


def trains(directory: RunDir, task: Task) -> int:
    """A training with a replay buffer, the second of whose four checkpoints is the best."""
    if task.checkpoint is not None:
        directory.write_report("final", a_report([4.0, 5.0] * 6, checkpoint=task.checkpoint))
        return 0
    rows = LogSegment(SEGMENT, {"rewards": np.zeros(1000, np.float32)})
    replay = {"segments": [asdict(segments.write(directory.replay, rows))]}
    with EventWriter(directory.events, run=directory.path.name, attempt=task.attempt) as writer:
        writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
        for step, name in zip(STEPS, NAMES, strict=True):
            weights = {"policies/default/w": np.full(8, step), "learner/critic": np.zeros(100)}
            checkpoint_files.save(
                directory.checkpoints,
                step=step,
                tensors=weights,
                document={"replay_meta": replay},
                meta={"run_id": directory.path.name, "attempt": task.attempt},
            )
            directory.write_report(name, a_report([4.0, 5.0] * 6, step=step, checkpoint=name))
            tags = {"best": step == BEST, "evaluated": True, "removed": []}
            writer.emit(EventKind.CHECKPOINT, "saved", name, step=step, tags=tags)
        writer.emit(EventKind.STATE, "ended", "trained", step=400, tags={"reason": "trained"})
    return 0


@pytest.fixture
def home(tmp_path: Path) -> Orchestrator:
    return Orchestrator(tmp_path / "home", FakeRunner(trains))


def bytes_in(folder: Path) -> int:
    places = os.walk(folder)
    return sum((Path(place) / name).stat().st_size for place, _, names in places for name in names)


def test_a_run_that_succeeded_keeps_its_newest_and_its_best_checkpoint(home: Orchestrator) -> None:
    whole = home.launch(a_spec(*PASSED, "checkpoint.keep_training_state=always")).run
    run = home.launch(a_spec(*PASSED)).run
    assert (whole.state, run.state) == (State.SUCCEEDED, State.SUCCEEDED)
    directory, before = RunDir.of(run), RunDir.of(whole)
    assert tuple(catalog.all_names(before.checkpoints)) == NAMES
    assert before.let_go() is None
    assert tuple(catalog.all_names(directory.checkpoints)) == STAY
    assert not directory.replay.exists()
    shown = home.show(run.id)
    assert shown.let_go is not None
    assert (shown.let_go.checkpoints, shown.let_go.segments) == ((NAMES[0], NAMES[2]), 1)
    gone = (before.checkpoints / NAMES[0], before.checkpoints / NAMES[2], before.replay)
    # Checkpoints name their runs and the moment of their making, a few bytes more or less.
    assert shown.let_go.bytes == pytest.approx(sum(map(bytes_in, gone)), abs=64)
    assert [(each.intact, each.replay_let_go) for each in shown.checkpoints] == [(True, True)] * 2
    assert checkpoint_files.load(directory.checkpoints / STAY[0]).tensors["learner/critic"].size
    assert [model.id for model in shown.models] == [shown.run.model_id]
    assert home.models.verify().ok


@pytest.mark.parametrize(
    "overrides", [("gates.min_return=400",), (*PASSED, "checkpoint.keep_training_state=always")]
)
def test_others_keep_everything(home: Orchestrator, overrides: tuple[str, ...]) -> None:
    run = home.launch(a_spec(*overrides)).run
    assert tuple(catalog.all_names(RunDir.of(run).checkpoints)) == NAMES
    assert home.show(run.id).let_go is None
    assert {each.replay_let_go for each in home.show(run.id).checkpoints} == {False}
    newest_checkpoint(RunDir.of(run), deep=True)


def test_a_run_of_before_the_option_is_left_alone(tmp_path: Path) -> None:
    def forgotten(directory: RunDir, task: Task) -> int:
        text = directory.spec_file.read_text()
        kept = [line for line in text.splitlines() if "keep_training_state" not in line]
        directory.spec_file.write_text("\n".join(kept))
        broken = task.attempt == 1 and task.checkpoint is not None
        return 1 if broken else trains(directory, task)

    former = Orchestrator(tmp_path / "former", FakeRunner(forgotten))
    run = former.launch(a_spec(*PASSED)).run
    assert run.state is State.FAILED
    run = former.resume(run.id).run
    assert run.state is State.SUCCEEDED
    assert tuple(catalog.all_names(RunDir.of(run).checkpoints)) == NAMES
    assert RunDir.of(run).let_go() is None


def test_a_checkpoint_that_lacks_segments_without_a_note_is_damaged(home: Orchestrator) -> None:
    run = home.launch(a_spec(*PASSED)).run
    (RunDir.of(run).path / LET_GO).unlink()
    entries = catalog.listing(RunDir.of(run).checkpoints)
    assert [entry.intact for entry in entries] == [False, False]


def test_nobody_goes_on_without_the_replay_buffer(home: Orchestrator) -> None:
    run = home.launch(a_spec(*PASSED)).run
    with pytest.raises(Conflict, match="replay buffer"):
        home.requeue(run.id, overrides=[f"train.total_timesteps={2 * run.total_timesteps}"])
    assert home.get(run.id) == run


@pytest.mark.parametrize("where", ["catalog.retain", "shutil.rmtree", "none"])
def test_a_supervisor_that_dies_meanwhile_leaves_a_whole_run_and_the_next_finishes(
    home: Orchestrator, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power_cut(*_: object, **__: object) -> None:
        raise SystemExit("no power")

    with monkeypatch.context() as patch:
        if where == "none":
            patch.setattr("rl_orch.core.runs.supervisor.retain_models", power_cut)
        else:
            module, _, name = where.partition(".")
            patch.setattr(getattr(training_state, module), name, power_cut)
        with pytest.raises(SystemExit):
            home.launch(a_spec(*PASSED))
    (path,) = (home.home / "runs").iterdir()
    assert all(entry.intact for entry in catalog.listing(RunDir(path).checkpoints))
    assert RunDir(path).let_go() is not None
    found = Orchestrator(home.home, FakeRunner(trains))
    run = found.get(path.name)
    if run.active:
        run = found.resume(path.name).run
    assert run.state is State.SUCCEEDED
    assert tuple(catalog.all_names(RunDir(path).checkpoints)) == STAY
    assert not RunDir(path).replay.exists()
    assert found.models.verify().ok


def test_to_let_go_twice_counts_once(home: Orchestrator) -> None:
    run = home.launch(a_spec(*PASSED, "checkpoint.keep_training_state=always")).run
    directory = RunDir.of(run)
    first = training_state.let_go(directory, STAY, now=1.0)
    assert training_state.let_go(directory, STAY, now=2.0) == first == directory.let_go()
    shutil.rmtree(directory.checkpoints / STAY[0])
    assert training_state.let_go(RunDir(directory.path), STAY, now=3.0) == first


def test_where_there_is_nothing_to_let_go_of_nothing_is_noted(home: Orchestrator) -> None:
    run = home.launch(a_spec(*PASSED, "checkpoint.keep_training_state=always")).run
    directory = RunDir.of(run)
    shutil.rmtree(directory.replay)
    assert training_state.let_go(directory, NAMES, now=1.0) is None
    assert directory.let_go() is None
