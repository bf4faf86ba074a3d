"""Supervision, a tick at a time, with roots that are functions and clocks that are told."""

import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.ports import Exit, Task
from rl_orch.core.runs.progress import Progress, after_training
from rl_orch.core.runs.supervisor import APPEARS_WITHIN_S, LAST_WORDS_S, Supervisor
from rl_orch.core.store.tables import MODELS
from rl_orch.errors import Conflict, LeaseLost, NotFound, OptionPending, RunLocked
from rl_orch.io.files import sealed
from rl_orch.io.processes import pids
from rl_orch.io.run import gate_evidence
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.io.run.gate_evidence import Baseline, EvidenceRequest, GateEvidence
from rl_orch.records import Attempt, Event, EventKind, Run, State
from rl_orch.stats import summarize
from rl_orch.testing import (
    FakeClock,
    FakeRunner,
    Script,
    a_report,
    a_spec,
    seal_checkpoint,
    trains_to,
)

GATED = ("gates.min_return=400",)


def orchestrator_with(home: Path, script: Script, *, at_once: bool = True) -> Orchestrator:
    """An orchestrator whose roots are that script."""
    return Orchestrator(home, FakeRunner(script, at_once=at_once))


def a_supervisor(home: Path, runner: FakeRunner, clock: FakeClock, *overrides: str) -> Supervisor:
    """A supervisor of a queued run."""
    made = Orchestrator(home, runner)
    run = made.create(a_spec(*overrides))
    made.store.take_lease(run.id, held_by=None, lease="mine")
    return Supervisor(made.store, made.registry, runner, run, "mine", clock=clock, timer=clock)


def an_event(kind: EventKind, key: str, value: object = None, **tags: object) -> Event:
    """An event at step 70."""
    fields = {"kind": kind, "key": key, "value": value, "tags": tags}
    return Event.model_validate(
        fields | {"seq": 1, "attempt": 1, "ts": 0.0, "run": "r", "step": 70}
    )


def test_a_run_that_passes_its_gate_succeeds_and_its_model_is_validated(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, trains_to([500.0, 500.0]))
    result = made.launch(a_spec(*GATED))
    assert result.succeeded
    assert (result.run.verdict, result.run.env_steps) == ("passed", 100)
    assert result.run.model_id is not None
    model = made.registry.get(result.run.model_id)
    assert model.validated
    assert (model.mean_reward, model.mean_episode_length, model.total_timesteps) == (
        500.0,
        10.0,
        100,
    )


def test_a_run_that_fails_its_gate_is_rejected_and_its_model_is_not_validated(
    tmp_path: Path,
) -> None:
    made = orchestrator_with(tmp_path, trains_to([300.0, 310.0]))
    result = made.launch(a_spec(*GATED))
    assert result.run.state is State.REJECTED
    assert "at least 400 is asked" in result.run.reason
    assert result.run.model_id is not None
    assert not made.registry.get(result.run.model_id).validated


def evaluated_at(events: list[tuple[EventKind, int, float]]) -> Script:
    """A script of a training to 500 that tells of further events first: kind, step and value."""
    train = trains_to([500.0] * 10)

    def script(directory: RunDir, task: Task) -> int:
        code = train(directory, task)
        if task.checkpoint is None:
            _insert(directory.events, events, directory.path.name, task.attempt)
        return code

    return script


def _insert(file: Path, events: list[tuple[EventKind, int, float]], run: str, attempt: int) -> None:
    """Put events before the last one of a file, which says how training ended."""
    *before, last = file.read_text("utf-8").splitlines(keepends=True)
    seq = len(before)
    for kind, step, value in events:
        seq += 1
        tags = {"summary": summarize([value] * 2).model_dump(mode="json")}
        fields = {"kind": kind, "key": "key", "value": value, "step": step, "tags": tags}
        event = Event.model_validate(fields | {"seq": seq, "attempt": attempt, "ts": 0, "run": run})
        before.append(event.model_dump_json() + "\n")
    end = Event.model_validate_json(last).model_copy(update={"seq": seq + 1})
    file.write_text("".join([*before, end.model_dump_json() + "\n"]), "utf-8")


@pytest.mark.parametrize(("gain", "passes"), [(0.0, True), (20.0, False)])
def test_convergence_is_judged_by_the_evaluations_during_training(
    tmp_path: Path, gain: float, passes: bool
) -> None:
    curve = [(EventKind.EVAL, step, 500.0 + gain * (step - 99)) for step in range(10, 100)]
    made = orchestrator_with(tmp_path, evaluated_at(curve))
    result = made.launch(a_spec(*GATED, "gates.converged=true", "eval.every=1000"))
    assert result.succeeded is passes
    assert result.verdict is not None
    assert "over the last third of training" in result.verdict.checks[-1].sentence


def test_a_run_whose_guardrails_spoke_up_is_rejected(tmp_path: Path) -> None:
    for spoken, passes in ((False, True), (True, False)):
        said = [(EventKind.GUARDRAIL, 50, 1.0)] if spoken else []
        made = orchestrator_with(tmp_path / str(spoken), evaluated_at(said))
        result = made.launch(a_spec(*GATED, "gates.guardrail_clean=true"))
        assert result.succeeded is passes


def test_a_gate_that_nobody_has_gathered_evidence_for_rejects_and_says_what_to_run(
    tmp_path: Path,
) -> None:
    made = orchestrator_with(tmp_path, trains_to([500.0] * 10))
    result = made.launch(a_spec(*GATED, "gates.improvement=production"))
    assert result.run.state is State.REJECTED
    assert "not known: how the model at 'production' does" in result.run.reason


def compared_with(
    returns: list[float], champions: list[float], asked: list[EvidenceRequest]
) -> Script:
    """A script of a training to some returns, whose evaluation has champions play to others."""
    train = trains_to(returns)

    def script(directory: RunDir, task: Task) -> int:
        if task.checkpoint is None:
            seal_checkpoint(directory, "step_000000000100")
            return train(directory, task)
        wanted = gate_evidence.asked(directory, task.checkpoint)
        asked.append(wanted)
        played = a_report(champions).model_copy(update={"model": "1"})
        baselines = {
            alias: Baseline(champion=champion, report=played if champion else None)
            for alias, champion in wanted.champions.items()
        }
        digest = sealed.manifest_digest(directory.checkpoints / task.checkpoint)
        found = GateEvidence(digest=digest, baselines=baselines)
        report = a_report(returns, checkpoint=task.checkpoint)
        gate_evidence.write(directory, "final", report, found)
        return 0

    return script


def test_the_evaluation_is_told_whom_to_compare_with_and_the_verdict_keeps_what_it_read(
    tmp_path: Path,
) -> None:
    asked: list[EvidenceRequest] = []
    made = orchestrator_with(tmp_path, compared_with([500.0] * 10, [480.0] * 10, asked))
    spec = a_spec(*GATED, "gates.improvement=production")
    first = made.launch(spec)
    assert first.succeeded
    assert asked[0].champions == {"production": None}
    made.models.promote(str(first.run.model_id), "production")
    second = made.launch(spec)
    assert second.succeeded
    champion = asked[1].champions["production"]
    assert champion is not None
    assert (champion.model_id, champion.directory) == (first.run.model_id, first.run.path)
    assert champion.digest == made.registry.get(champion.model_id).digest
    (stored,) = made.registry.verdicts_on(second.run.model_id or 0)
    assert stored.report_path == made.models.validate(second.run.id).report_path
    assert made.models.verify().ok
    file = Path(str(stored.report_path))
    file.write_text(file.read_text().replace("480", "400"))
    assert [fault.kind for fault in made.models.verify().faults] == ["report"]


def test_a_run_says_what_is_gathered_for_its_gate_while_it_is(tmp_path: Path) -> None:
    clock, asked = FakeClock(), list[EvidenceRequest]()
    runner = FakeRunner(compared_with([500.0] * 10, [480.0] * 10, asked), at_once=False)
    watched = a_supervisor(tmp_path, runner, clock, *GATED, "gates.improvement=production")
    watched.tick()
    runner.finish()
    watched.tick()
    trained = watched.run.reason
    assert (watched.run.state, trained) == (State.EVALUATING, "trained")
    gate_evidence.say(watched.directory, "making a bundle")
    watched.tick()
    assert watched.run.reason == "trained; making a bundle"
    again = Supervisor(
        watched.store, watched.registry, runner, watched.run, "mine", clock=clock, timer=clock
    )
    gate_evidence.say(watched.directory, None)
    runner.finish()
    again.tick()
    assert again.run.reason == "trained; the final evaluation passed the gate"


def test_nothing_is_asked_of_an_evaluation_whose_gate_reads_the_report_alone(
    tmp_path: Path,
) -> None:
    asked: list[EvidenceRequest] = []
    made = orchestrator_with(tmp_path, compared_with([500.0] * 10, [1.0], asked))
    result = made.launch(a_spec(*GATED))
    assert not asked[0].anything
    assert not RunDir.of(result.run).report_file("wanted").exists()
    (stored,) = made.registry.verdicts_on(result.run.model_id or 0)
    assert Path(str(stored.report_path)).name == "final.json"


def test_without_a_gate_a_run_succeeds_without_a_verdict_and_validates_nothing(
    tmp_path: Path,
) -> None:
    made = orchestrator_with(tmp_path, trains_to([300.0]))
    result = made.launch(a_spec())
    assert result.succeeded
    assert result.run.verdict is None
    assert result.run.model_id is not None
    assert not made.registry.get(result.run.model_id).validated


def test_what_training_says_of_itself_does_not_pass_the_gate(tmp_path: Path) -> None:
    boast, truth = trains_to([500.0, 500.0]), trains_to([20.0, 21.0])

    def script(directory: RunDir, task: Task) -> int:
        return (boast if task.checkpoint is None else truth)(directory, task)

    result = orchestrator_with(tmp_path, script).launch(a_spec(*GATED))
    assert result.run.state is State.REJECTED
    assert result.run.eval is not None
    assert result.run.eval.mean == 20.5


def test_with_the_registry_off_nothing_is_registered(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, trains_to([500.0, 500.0]))
    result = made.launch(a_spec("registry.enable=false", *GATED))
    assert result.succeeded
    assert result.run.model_id is None
    assert made.registry.of_run(result.run.id) == []


def test_a_pruned_checkpoint_leaves_the_registry(tmp_path: Path) -> None:
    def script(directory: RunDir, task: Task) -> int:
        code = trains_to([500.0])(directory, task)
        if task.checkpoint is None:
            shutil.rmtree(directory.checkpoints / "step_000000000100", ignore_errors=True)
            with EventWriter(directory.events, run="r", attempt=1) as writer:
                tags = {"best": False, "evaluated": False, "removed": ["step_000000000100"]}
                writer.emit(EventKind.CHECKPOINT, "saved", "step_000000000200", step=200, tags=tags)
        return code

    made = orchestrator_with(tmp_path, script)
    result = made.launch(a_spec())
    assert made.registry.of_run(result.run.id) == []


def sealing(script: Script) -> Script:
    """A script that also leaves the checkpoint that it tells of."""

    def sealed(directory: RunDir, task: Task) -> int:
        if task.checkpoint is None:
            seal_checkpoint(directory, "step_000000000100")
        return script(directory, task)

    return sealed


def test_a_run_that_ends_lets_go_of_models_beyond_the_number_that_its_spec_keeps(
    tmp_path: Path,
) -> None:
    made = orchestrator_with(tmp_path, sealing(trains_to([500.0, 500.0])))
    for _ in range(3):
        made.launch(a_spec(*GATED))
    assert len(made.models.list()) == 3
    last = made.launch(a_spec(*GATED, "registry.keep_top_n=2")).run
    kept = made.models.list()
    assert len(kept) == 2
    assert last.model_id in {model.id for model in kept}
    assert made.models.verify().ok


def test_a_full_disk_does_not_make_a_run_fail_that_only_had_models_to_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = orchestrator_with(tmp_path, sealing(trains_to([500.0, 500.0])))
    made.launch(a_spec(*GATED))

    def refuse(_path: Path) -> None:
        raise OSError("read-only")

    monkeypatch.setattr("rl_orch.io.policies.artefacts.remove", refuse)
    assert made.launch(a_spec(*GATED, "registry.keep_top_n=1")).succeeded
    assert [fault.kind for fault in made.models.verify().faults] == ["retiring"]


def test_a_new_attempt_is_told_which_checkpoints_the_registry_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(directory: RunDir, task: Task) -> int:
        broken = task.attempt == 1 and task.checkpoint is not None
        return 1 if broken else trains_to([500.0, 500.0])(directory, task)

    made = orchestrator_with(tmp_path, sealing(script))
    run = made.launch(a_spec()).run
    assert run.state is State.FAILED
    directory = RunDir.of(run)
    assert directory.pinned() == frozenset()
    (model,) = made.registry.of_run(run.id)
    made.models.promote(model.id, "canary", force=True, reason="a look at it")
    checkpoint = directory.checkpoints / "step_000000000100"
    with made.store.writing() as connection:  # As an earlier release has registered it.
        files = {"model_path": str(checkpoint), "digest": model.checkpoint_digest}
        connection.execute(sa.update(MODELS).values(**files, checkpoint_digest=None))
    made.resume(run.id)
    assert directory.pinned() == {checkpoint.name}
    assert made.registry.get(model.id).model_path == model.model_path


def test_an_evaluation_that_leaves_no_report_fails_the_run(tmp_path: Path) -> None:
    def script(directory: RunDir, task: Task) -> int:
        return 1 if task.checkpoint is not None else trains_to([500.0])(directory, task)

    result = orchestrator_with(tmp_path, script).launch(a_spec())
    assert result.run.state is State.FAILED
    assert "final evaluation failed" in result.run.reason


def test_training_without_an_evaluated_checkpoint_fails_the_run(tmp_path: Path) -> None:
    def script(directory: RunDir, task: Task) -> int:
        with EventWriter(directory.events, run="r", attempt=task.attempt) as writer:
            writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
            writer.emit(EventKind.STATE, "ended", "trained", step=1, tags={"reason": "done"})
        return 0

    result = orchestrator_with(tmp_path, script).launch(a_spec())
    assert (result.run.state, result.run.reason) == (
        State.FAILED,
        "training ended without an evaluated checkpoint",
    )


def test_a_root_that_dies_without_a_word_fails_the_run_with_its_exit_code(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, lambda _directory, _task: 1)
    result = made.launch(a_spec())
    assert result.run.state is State.FAILED
    assert "exit code 1" in result.run.reason
    assert made.store.attempts(result.run.id)[0].exit_code == 1


def test_the_end_of_training_follows_from_its_last_words_and_its_exit() -> None:
    ended = EventKind.STATE, "ended"
    trained = Progress().after(an_event(*ended, "trained", reason="done"))
    stopped = Progress().after(an_event(*ended, "stopped", reason="asked"))
    failed = Progress().after(an_event(*ended, "failed", reason="boom"))
    silent = Progress(started=True).after(an_event(EventKind.LOG, "charts/SPS", 10.0))
    cases = [
        (trained, Exit(0), False, State.EVALUATING, "done"),
        (trained, Exit(None), False, State.EVALUATING, "done"),
        (trained, Exit(0), True, State.STOPPED, "stopped before the final evaluation"),
        (stopped, Exit(0), True, State.STOPPED, "asked"),
        (failed, Exit(1), False, State.FAILED, "boom"),
        (silent, Exit(-9), False, State.FAILED, "SIGKILL at step 70"),
        (silent, Exit(7), False, State.FAILED, "exit code 7"),
        (silent, Exit(None), False, State.LOST, "vanished at step 70"),
        (silent, Exit(-9), True, State.STOPPED, "killed at step 70"),
    ]
    for progress, gone, stopping, state, words in cases:
        to, why = after_training(progress, gone, stopping=stopping)
        assert to is state
        assert words in why


def test_stopping_asks_kindly_first_and_forces_after_the_grace(tmp_path: Path) -> None:
    clock, runner = FakeClock(), FakeRunner(trains_to([1.0]), at_once=False)
    supervisor = a_supervisor(tmp_path, runner, clock)
    supervisor.tick()
    supervisor.ask_to_stop()
    supervisor.tick()
    assert runner.stopped == [False]
    clock.advance((120.0 + LAST_WORDS_S) + 1)
    supervisor.tick()
    assert runner.stopped == [False, True]
    supervisor.tick()
    assert supervisor.run.state is State.STOPPED
    assert "killed" in supervisor.run.reason


def test_asking_twice_forces_at_once(tmp_path: Path) -> None:
    runner = FakeRunner(trains_to([1.0]), at_once=False)
    supervisor = a_supervisor(tmp_path, runner, FakeClock())
    supervisor.tick()
    supervisor.ask_to_stop()
    supervisor.ask_to_stop()
    assert runner.stopped == [False, True]


def test_a_clock_that_jumps_a_day_forces_nothing(tmp_path: Path) -> None:
    wall, runner = FakeClock(), FakeRunner(trains_to([1.0]), at_once=False)
    supervisor = a_supervisor(tmp_path, runner, FakeClock())
    supervisor.clock = wall
    supervisor.tick()
    supervisor.ask_to_stop()
    wall.advance(86_400)
    supervisor.tick()
    assert runner.stopped == [False]
    assert supervisor.run.active


def test_a_stop_that_was_asked_for_elsewhere_is_passed_on_and_forced_after_the_grace(
    tmp_path: Path,
) -> None:
    clock, runner = FakeClock(), FakeRunner(trains_to([1.0]), at_once=False)
    supervisor = a_supervisor(tmp_path, runner, clock)
    supervisor.tick()
    supervisor.directory.request_stop()
    supervisor.tick()
    clock.advance((120.0 + LAST_WORDS_S) + 1)
    supervisor.tick()
    assert runner.stopped == [False, True]


def test_a_queued_run_that_is_stopped_never_starts(tmp_path: Path) -> None:
    runner = FakeRunner(trains_to([1.0]))
    supervisor = a_supervisor(tmp_path, runner, FakeClock())
    supervisor.ask_to_stop()
    assert supervisor.run.state is State.STOPPED
    assert runner.started == []


def test_a_supervisor_that_lost_its_lease_writes_nothing_more(tmp_path: Path) -> None:
    runner = FakeRunner(trains_to([1.0]), at_once=False)
    supervisor = a_supervisor(tmp_path, runner, FakeClock())
    supervisor.tick()
    supervisor.store.take_lease(supervisor.run.id, held_by="mine", lease="theirs")
    runner.finish()
    with pytest.raises(LeaseLost):
        supervisor.tick()
    assert supervisor.store.get(supervisor.run.id).state is State.STARTING


def test_events_of_another_attempt_do_not_count(tmp_path: Path) -> None:
    runner = FakeRunner(trains_to([1.0]), at_once=False)
    supervisor = a_supervisor(tmp_path, runner, FakeClock())
    supervisor.tick()
    with EventWriter(supervisor.directory.events, run="r", attempt=7) as writer:
        writer.emit(EventKind.METRIC, "charts/x", 1.0, step=999)
    supervisor.tick()
    assert supervisor.run.env_steps == 0


def test_a_run_whose_supervisor_died_is_lost_once_its_root_is_gone(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, lambda _directory, _task: 0, at_once=False)
    run = made.create(a_spec())
    made.store.take_lease(run.id, held_by=None, lease="999999999:1/dead")
    assert made.get(run.id).state is State.LOST
    assert [seen.state for seen in made.ls().runs] == [State.LOST]


def test_a_run_whose_supervisor_lives_is_left_alone(tmp_path: Path) -> None:
    runner = FakeRunner(trains_to([1.0]), at_once=False)
    made = Orchestrator(tmp_path, runner)
    run = made.create(a_spec())
    assert made.store.take_lease(run.id, held_by=None, lease=_my_lease())
    assert made.get(run.id).state is State.QUEUED


def test_a_queued_run_that_nobody_has_taken_yet_is_left_alone(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, trains_to([1.0]))
    run = made.create(a_spec())
    assert made.get(run.id).state is State.QUEUED


@pytest.mark.parametrize("state", [State.STARTING, State.EVALUATING])
def test_a_run_whose_supervisor_died_while_starting_a_root_is_lost_once_none_has_appeared(
    tmp_path: Path, state: State
) -> None:
    made, dead = orchestrator_with(tmp_path, trains_to([1.0])), "999999999:1/dead"
    run = made.create(a_spec(), lease=dead)
    made.store.save(run.model_copy(update={"state": state, "attempt": 1}), lease=dead)
    attempt = Attempt(run_id=run.id, number=1, started_at=time.time())
    made.store.put_attempt(attempt, lease=dead)
    assert made.get(run.id).state is state
    made.store.take_lease(run.id, held_by=None, lease=dead)
    before = attempt.model_copy(update={"started_at": time.time() - APPEARS_WITHIN_S})
    made.store.put_attempt(before, lease=dead)
    assert made.get(run.id).state is State.LOST


def test_a_stop_reaches_a_root_that_lives_on_though_its_run_has_ended(tmp_path: Path) -> None:
    runner = FakeRunner(trains_to([1.0]), at_once=False)
    made = Orchestrator(tmp_path, runner)
    run = made.create(a_spec(), lease="mine")
    lost = run.model_copy(update={"state": State.LOST, "attempt": 1})
    made.store.save(lost, lease="mine")
    made.store.release(run.id, lease="mine")
    directory = RunDir(Path(run.path))
    runner.start(directory.path, Task(1))

    with directory.locked():
        threading.Timer(0.3, (directory.path / "lock").write_text, [""]).start()
        assert made.stop(run.id).state is State.LOST
    assert runner.stopped == [False]
    with pytest.raises(Conflict, match="is lost already"):
        made.stop(run.id)


def test_an_evaluation_that_is_stopped_from_elsewhere_is_a_stopped_run(tmp_path: Path) -> None:
    def script(directory: RunDir, task: Task) -> int:
        if task.checkpoint is None:
            return trains_to([500.0])(directory, task)
        directory.request_stop()
        return -15

    result = orchestrator_with(tmp_path, script).launch(a_spec())
    assert (result.run.state, result.run.reason) == (
        State.STOPPED,
        "the final evaluation was stopped",
    )


def test_an_active_run_cannot_be_removed(tmp_path: Path) -> None:
    made = Orchestrator(tmp_path, FakeRunner(trains_to([1.0])))
    run = made.create(a_spec())
    made.store.take_lease(run.id, held_by=None, lease=_my_lease())
    with pytest.raises(Conflict, match="must end before"):
        made.remove(run.id)


def test_removing_a_run_removes_directory_row_and_models(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, trains_to([500.0]))
    run = made.launch(a_spec(*GATED)).run
    made.remove(run.id)
    assert not Path(run.path).exists()
    assert list(Path(run.path).parent.iterdir()) == []
    assert made.registry.of_run(run.id) == []
    with pytest.raises(NotFound):
        made.get(run.id)


def test_a_removal_that_was_cut_short_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = orchestrator_with(tmp_path, trains_to([500.0]))
    run = made.launch(a_spec(*GATED)).run

    def power_cut(path: Path, **_how: Any) -> None:
        if path.exists():
            raise SystemExit("no power")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", power_cut)
        with pytest.raises(SystemExit, match="no power"):
            made.remove(run.id)
    assert [path.name for path in Path(run.path).parent.iterdir()] == [f".removing-{run.id}"]
    made.remove(run.id)
    assert list(Path(run.path).parent.iterdir()) == []
    assert (made.registry.of_run(run.id), made.ls().runs) == ([], ())


def test_an_ended_run_cannot_be_stopped(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, trains_to([500.0]))
    run = made.launch(a_spec()).run
    with pytest.raises(Conflict, match="nothing to stop"):
        made.stop(run.id)


def test_a_queued_run_that_nobody_has_taken_can_be_stopped_and_removed(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, trains_to([1.0]))
    run = made.create(a_spec())
    assert made.stop(run.id).state is State.STOPPED
    made.remove(run.id)
    assert made.ls().runs == ()


def test_a_failing_watcher_ends_the_run_and_is_heard(tmp_path: Path) -> None:
    runner = FakeRunner(trains_to([1.0]), at_once=False)
    made = Orchestrator(tmp_path, runner)

    def watch(_run: Run, _events: Sequence[Event]) -> None:
        runner.finish(code=0)
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        made.launch(a_spec(), watch=watch)
    assert made.get("last").state is State.STOPPED
    assert runner.stopped == [False]
    assert made.store.lease_of(made.get("last").id) is None


def test_events_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    def script(directory: RunDir, task: Task) -> int:
        if task.checkpoint is None:
            with EventWriter(directory.events, run="r", attempt=1) as writer:
                for kind in EventKind:
                    for value in (None, "text", {"a": 1}, [1], -1.0, True, "../../etc"):
                        writer.emit(kind, "charts/SPS", value, step=1)
                        writer.emit(kind, "saved", value, step=1, tags={"best": True})
        return trains_to([500.0, 500.0])(directory, task)

    made = orchestrator_with(tmp_path, script)
    result = made.launch(a_spec(*GATED))
    assert result.succeeded
    assert [model.run_id for model in made.registry.of_run(result.run.id)] == [result.run.id]


def test_one_damaged_run_does_not_hide_the_others(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, trains_to([1.0]))
    good = made.launch(a_spec()).run
    bad = made.create(a_spec(), lease="999999999:1/dead")
    script = trains_to([1.0])
    script(RunDir(Path(bad.path)), Task(attempt=1))
    running = bad.model_copy(update={"state": State.RUNNING, "attempt": 1})
    made.store.save(running, lease="999999999:1/dead")
    RunDir(Path(bad.path)).spec_file.unlink()
    assert {run.id for run in made.ls().runs} == {good.id, bad.id}


def test_a_run_that_ended_in_the_meantime_is_not_overwritten_by_an_older_look(
    tmp_path: Path,
) -> None:
    made = orchestrator_with(tmp_path, trains_to([500.0]))
    stale = made.create(a_spec(), lease="999999999:1/dead")
    ended = stale.model_copy(update={"state": State.FAILED, "reason": "the truth"})
    made.store.save(ended, lease="999999999:1/dead")
    assert made.orphans.refreshed(stale).reason == "the truth"


def test_a_tracker_that_cannot_be_opened_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = orchestrator_with(tmp_path, trains_to([500.0]))

    def refuse(_kind: str, _name: str) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr("rl_orch.plugins.load", refuse)
    assert made.launch(a_spec()).succeeded


def test_a_home_that_was_moved_takes_its_runs_and_models_along(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "öfter %_"
    run = orchestrator_with(before, trains_to([500.0])).launch(a_spec(*GATED)).run
    before.rename(after)
    moved = orchestrator_with(after, trains_to([500.0]))
    shown = moved.show(run.id)
    assert shown.run.path == str(after / "runs" / run.id)
    assert shown.models[0].model_path.startswith(str(after))
    assert shown.report is not None


def test_removing_a_run_from_a_copied_home_leaves_the_original_alone(tmp_path: Path) -> None:
    run = orchestrator_with(tmp_path / "home", trains_to([500.0])).launch(a_spec()).run
    shutil.copytree(tmp_path / "home", tmp_path / "copy")
    orchestrator_with(tmp_path / "copy", trains_to([500.0])).remove(run.id)
    assert not (tmp_path / "copy" / "runs" / run.id).exists()
    assert (tmp_path / "home" / "runs" / run.id / "spec.yaml").exists()


def test_a_run_whose_directory_is_in_use_cannot_be_removed(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, trains_to([500.0]))
    run = made.launch(a_spec()).run
    with RunDir(Path(run.path)).locked(), pytest.raises(RunLocked):
        made.remove(run.id)
    assert made.get(run.id) == run


def test_a_spec_with_pending_options_makes_no_run(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, trains_to([1.0]))
    with pytest.raises(OptionPending, match=r'store\.backend is "mlflow"'):
        made.launch(a_spec("store.backend=mlflow"))
    assert not (tmp_path / "runs").exists()


def test_looking_into_a_home_without_runs_makes_nothing_there(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path / "home", trains_to([1.0]))
    assert made.ls().runs == ()
    with pytest.raises(NotFound, match="no runs"):
        made.get("last")
    assert not (tmp_path / "home").exists()


def _my_lease() -> str:
    return f"{pids.identity(os.getpid())}/test"
