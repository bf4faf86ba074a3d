"""One attempt: whatever happens, its last event says how it ended."""

import errno
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest

from rl_orch import plugins
from rl_orch.errors import Conflict, Diverged, NotFound, RlctlError, RunLocked, place_of
from rl_orch.io.checkpoints import catalog
from rl_orch.io.run import command_socket
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import read
from rl_orch.records import Clock, Event, EventKind
from rl_orch.rl.snapshot import TrainingSnapshot
from rl_orch.rl.train import Outcome
from rl_orch.rl.training_recorder import TrainingRecorder
from rl_orch.spec.model import Spec
from rl_orch.testing import a_spec
from rl_orch.worker import evaluate
from rl_orch.worker import train as worker
from rl_orch.worker.attempt import lifecycle
from rl_orch.worker.train import run_attempt
from tests.unit.test_live_changes import a_spec as live_spec
from tests.waiting import PATIENCE_S

Patch = pytest.MonkeyPatch


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: Patch) -> RunDir:
    """A run directory; its training ends at once."""
    made = RunDir(tmp_path / "run")
    made.create(a_spec(), {"run_id": "run"})
    monkeypatch.setattr(worker, "train", trained)
    return made


def trained(_spec: Spec, _recorder: TrainingRecorder, **_how: Any) -> Outcome:
    return Outcome("budget", Clock("env_steps", 64), "trained for its budget of 64 steps")


def raising(error: BaseException) -> Callable[..., NoReturn]:
    """A function that fails."""

    def fail(*_arguments: Any, **_options: Any) -> NoReturn:
        raise error

    return fail


def last_event(directory: RunDir) -> Event:
    return list(read(directory.events))[-1]


def test_training_that_ends_well_says_so(directory: RunDir) -> None:
    assert run_attempt(directory, 1) == 0
    last = last_event(directory)
    assert (last.key, last.value, last.step) == ("ended", "trained", 64)
    assert last.tags == {"reason": "trained for its budget of 64 steps"}


def test_a_spec_that_cannot_be_read_is_an_end_with_a_reason(directory: RunDir) -> None:
    directory.spec_file.write_text("- not a spec")
    assert run_attempt(directory, 1) == 1
    assert [event.key for event in read(directory.events)] == ["started", "ended"]
    assert "spec.yaml' cannot be read" in last_event(directory).tags["reason"]


def test_a_sweep_that_fails_is_an_end_with_a_reason(directory: RunDir, monkeypatch: Patch) -> None:
    monkeypatch.setattr(catalog, "sweep", raising(PermissionError("no")))
    assert run_attempt(directory, 1) == 1
    assert last_event(directory).tags["reason"].startswith("PermissionError: no (")


@pytest.mark.parametrize("error", [RuntimeError("it tripped"), SystemExit("it tripped")])
def test_an_environment_cannot_end_the_attempt_unseen(
    directory: RunDir, monkeypatch: Patch, error: BaseException
) -> None:
    monkeypatch.setattr(worker, "train", raising(error))
    assert run_attempt(directory, 1) == 1
    last = last_event(directory)
    place = f"{os.path.relpath(__file__)}, line {raising.__code__.co_firstlineno + 4}"
    reason = f"{type(error).__name__}: it tripped ({place})"
    assert (last.value, last.tags["reason"]) == ("failed", reason)


def test_the_place_of_an_error_is_in_the_user_s_own_code(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    (tmp_path / "own_env.py").write_text(
        "import json\n\n\ndef step():\n    return json.loads('{')\n\n\ndef chained():\n    1 / 0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    own = import_module("own_env")

    def wrapped() -> None:
        try:
            own.chained()
        except ZeroDivisionError:
            json.loads("{")

    def place(failing: Callable[[], object]) -> str | None:
        try:
            failing()
        except Exception as error:
            below = error.__traceback__
            return place_of(error.with_traceback(below and below.tb_next))
        return None

    assert place(own.step) == "own_env.py, line 5"
    assert "test_worker_train.py, line " in str(place(lambda: json.loads("{")))
    assert str(place(partial(json.loads, "{"))).partition(", line ")[0].endswith("decoder.py")
    assert "test_worker_train.py, line " in str(place(wrapped))
    assert place_of(ValueError("raised nowhere")) is None


def test_an_error_in_the_final_evaluation_is_named_with_its_place(
    directory: RunDir, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(evaluate, "_evaluated", raising(ZeroDivisionError("rare boom")))
    with pytest.raises(ZeroDivisionError):
        evaluate.run_evaluation(directory, "step_1")
    said = str(directory.evaluation_problem())
    assert said.startswith("ZeroDivisionError: rare boom (")
    assert "test_worker_train.py, line" in said


def test_a_reason_of_any_length_is_recorded(directory: RunDir, monkeypatch: Patch) -> None:
    monkeypatch.setattr(worker, "train", raising(ValueError("x" * (2 << 20))))
    assert run_attempt(directory, 1) == 1
    assert last_event(directory).value == "failed"


def test_people_see_what_an_error_advises(directory: RunDir, monkeypatch: Patch) -> None:
    error = Diverged("the loss is not finite at step 8", hint="Lower train.lr.")
    monkeypatch.setattr(worker, "train", raising(error))
    assert run_attempt(directory, 1) == 1
    assert last_event(directory).tags == {
        "reason": "the loss is not finite at step 8. Lower train.lr.",
        "hint": "Lower train.lr.",
        "final": True,
    }


def test_a_module_that_is_missing_may_be_there_the_next_time(
    directory: RunDir, monkeypatch: Patch
) -> None:
    error = NotFound("'parts:Cb': there is no module 'parts'")
    monkeypatch.setattr(worker, "train", raising(error))
    assert run_attempt(directory, 1) == 2
    assert "final" not in last_event(directory).tags


def test_a_number_that_is_not_finite_ends_at_its_step(
    directory: RunDir, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(worker, "train", raising(Diverged("a non-finite reward", step=168)))
    assert run_attempt(directory, 1) == 1
    assert last_event(directory).step == 168


def test_a_run_does_without_the_socket_where_there_are_none(
    directory: RunDir, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("socket.socket.bind", raising(OSError(errno.EPERM, "not permitted")))
    assert run_attempt(directory, 1) == 0
    assert last_event(directory).value == "trained"
    assert [r.levelname for r in caplog.records if "no command socket" in r.message] == ["WARNING"]


def test_a_socket_that_somebody_else_answers_is_not_passed_over(
    directory: RunDir, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(command_socket, "serve", raising(RunLocked("another process answers")))
    assert run_attempt(directory, 1) == 2
    assert last_event(directory).tags["reason"] == "another process answers"


def test_code_of_others_that_raises_leaves_its_traceback_in_the_log(
    directory: RunDir, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    def with_an_observer(*_: Any, **_how: Any) -> NoReturn:
        try:
            raise KeyError("nothing there")
        except KeyError as error:
            raise RlctlError("the observer 'mine' failed", path="train.observers") from error

    monkeypatch.setattr(worker, "train", with_an_observer)
    assert run_attempt(directory, 1) == 1
    assert last_event(directory).tags["reason"] == "the observer 'mine' failed"
    assert "KeyError: 'nothing there'" in caplog.text


class Witness:
    """Keeps what it hears of snapshots."""

    def __init__(self, spec: Spec) -> None:
        self.heard: list[TrainingSnapshot] = []

    def saved(self, snapshot: TrainingSnapshot, step: int) -> None:
        self.heard.append(snapshot)


def test_a_resumed_training_tells_observers_of_the_snapshot_that_it_goes_on_from(
    tmp_path: Path,
) -> None:
    made: list[Witness] = []

    def make(spec: Spec) -> Witness:
        made.append(Witness(spec))
        return made[-1]

    spec = live_spec("dqn", "train.observers=[witness:Witness]")
    with plugins.provided("observers", "witness:Witness", make):
        directory = RunDir(tmp_path / "run")
        directory.create(spec, {"run_id": "run"})
        assert (run_attempt(directory, 1), run_attempt(directory, 2)) == (0, 0)
    whole, resumed = (each.heard for each in made)
    (last, again) = whole[-1], resumed[0]
    assert len(resumed) == 1
    assert (again.step, again.segments, again.unit) == (last.step, last.segments, last.unit)
    assert last.segments
    assert again.document == json.loads(json.dumps(last.document))
    assert again.tensors.keys() == last.tensors.keys()
    assert all(again.tensors[n].tobytes() == last.tensors[n].tobytes() for n in last.tensors)


def test_an_end_that_cannot_be_recorded_is_logged_without_a_second_traceback(
    directory: RunDir, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fill_the_disk(_spec: Spec, _recorder: TrainingRecorder, **_how: Any) -> Outcome:
        monkeypatch.setattr(os, "write", full)
        return trained(_spec, _recorder)

    monkeypatch.setattr(worker, "train", fill_the_disk)
    code = run_attempt(directory, 1)
    monkeypatch.undo()
    assert code == 1
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert "No space left" in errors[0].message
    assert errors[0].exc_info is None


def test_signals_stop_the_loop_and_are_the_callers_again_afterwards(
    directory: RunDir, monkeypatch: Patch
) -> None:
    seen: list[str | None] = []

    def stopped(_spec: Spec, recorder: TrainingRecorder, **_how: Any) -> Outcome:
        os.kill(os.getpid(), signal.SIGTERM)
        seen.append(recorder.command())
        return Outcome("stopped", Clock("env_steps", 8), "stopped at step 8")

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(worker, "train", stopped)
    assert run_attempt(directory, 1) == 0
    assert seen == ["stop"]
    assert last_event(directory).value == "stopped"
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("step", "how"), [(0, "stopped"), (8, "failed")])
def test_an_attempt_that_fails_as_it_begins_after_it_was_asked_to_stop_has_stopped(
    directory: RunDir, monkeypatch: Patch, step: int, how: str
) -> None:
    def fail(_spec: Spec, recorder: TrainingRecorder, **_how: Any) -> Outcome:
        recorder.emit(EventKind.LOG, "x", 1.0, step=step)
        os.kill(os.getpid(), signal.SIGTERM)
        raise ImportError("Failed to load GLFW3 shared library")

    monkeypatch.setattr(worker, "train", fail)
    run_attempt(directory, 1)
    last = last_event(directory)
    assert last.value == how
    assert "GLFW3" in last.tags["reason"]


def test_another_thread_than_the_main_one_leaves_signals_alone(directory: RunDir) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run_attempt(directory, 1)))
    thread.start()
    thread.join()
    assert codes == [0]


def test_a_directory_in_use_gets_no_events(directory: RunDir, monkeypatch: Patch) -> None:
    monkeypatch.setattr(lifecycle, "LOCK_PATIENCE_S", 0.1)
    with directory.locked(), pytest.raises(RunLocked):
        run_attempt(directory, 1)
    assert directory.events.read_bytes() == b""


def test_a_root_that_comes_after_the_next_one_gives_way(directory: RunDir) -> None:
    directory.note_attempt(2)
    with pytest.raises(Conflict, match="attempt 1 comes too late"):
        run_attempt(directory, 1)
    assert directory.events.read_bytes() == b""
    assert run_attempt(directory, 2) == 0


def test_an_attempt_is_made_once(directory: RunDir) -> None:
    assert run_attempt(directory, 1) == 0
    with pytest.raises(Conflict, match="attempt 1 comes too late"):
        run_attempt(directory, 1)


def test_a_root_waits_for_one_that_is_about_to_give_way(directory: RunDir) -> None:
    held = threading.Event()

    def hold() -> None:
        with directory.locked():
            held.set()
            time.sleep(0.2)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(PATIENCE_S)
    assert run_attempt(directory, 1) == 0
    thread.join()
