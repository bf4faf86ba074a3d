"""The root of an external run: what its program does becomes events, and nothing stays behind."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rl_orch.errors import Conflict
from rl_orch.io.checkpoints import catalog, external
from rl_orch.io.processes import pids
from rl_orch.io.run import command_socket, heartbeat
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import fold, newest_attempt, read
from rl_orch.orchestrator import to_spec
from rl_orch.records import Event
from rl_orch.worker.external.train import run_attempt
from tests.integration.conftest import until
from tests.waiting import PATIENCE_S

TELL = """
import json, os, pathlib, signal, subprocess, sys, time
def tell(**said):
    with open(os.environ["RLCTL_EVENTS"], "a") as file:
        file.write(json.dumps(said) + "\\n")
def save(step, **more):
    path = pathlib.Path(os.environ["RLCTL_CHECKPOINTS"], f"model_{step}")
    path.write_text(f"weights of {step}")
    tell(step=step, checkpoint=path.name, **more)
"""
"""What the programs here have in common."""

DAEMON = "subprocess.Popen(['sleep', '3600'], start_new_session=True, stdin=-3, stdout=-3)\n"


def made(folder: Path, program: str, *overrides: str, **runner: Any) -> RunDir:
    """A run directory whose program is a piece of Python."""
    command = [sys.executable, "-S", "-c", TELL + program]
    group = {"name": "external", "command": command, **runner}
    directory = RunDir(folder / "run")
    spec = to_spec({"env": {"id": "CartPole-v1"}, "runner": group}, overrides)
    directory.create(spec, {"run_id": "run", "changes": []})
    return directory


def events(directory: RunDir, kind: str) -> list[Event]:
    return [event for event in read(directory.events) if event.kind == kind]


def last_word(directory: RunDir) -> tuple[Any, str]:
    last = list(read(directory.events))[-1]
    assert last.key == "ended"
    return last.value, last.tags["reason"]


def left_of(directory: RunDir) -> list[str]:
    return list(pids.marked(directory.path, through=100))


@contextmanager
def going_on(directory: RunDir) -> Iterator[None]:
    """An attempt under way, once its program has said something."""
    thread = threading.Thread(target=run_attempt, args=(directory, 1))
    thread.start()
    try:
        until(lambda: events(directory, "metric"))
        yield
        thread.join(PATIENCE_S)
    finally:
        pids.sweep(directory.path, through=100)
        thread.join(PATIENCE_S)


def test_what_a_program_says_becomes_events_and_its_end_the_last_of_them(tmp_path: Path) -> None:
    directory = made(
        tmp_path,
        "tell(step=8, key='losses/td', value=0.5)\n"
        "tell(step=8, key='charts/episodic_return', value=9)\n"
        "tell(step=8, key='charts/episodic_length', value=8)\n"
        "save(16)\n"
        "print('to the log')\n",
    )
    assert run_attempt(directory, 1) == 0
    told = [(str(event.kind), event.key, event.step) for event in read(directory.events)]
    assert told[:5] == [
        ("state", "started", 0),
        ("state", "resume", 0),
        ("metric", "losses/td", 8),
        ("episode", "charts/episodic_return", 8),
        ("checkpoint", "saved", 16),
    ]
    assert told[5:] == [("log", "charts/SPS", 16), ("state", "ended", 16)]
    assert last_word(directory) == ("trained", "its program ended well at step 16")
    assert "to the log" in directory.log.read_text()
    assert events(directory, "episode")[0].tags == {"length": 8}


def test_a_program_is_told_what_it_needs_and_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("SECRET_HERE", "s3cret-f00d")
    directory = made(
        tmp_path,
        "import hashlib\n"
        "mine = {k: v for k, v in os.environ.items() if k.startswith(('RLCTL_', 'PYTHONPATH'))}\n"
        "assert os.environ['KEY'] == 's3cret' + '-f00d' and sys.stdin.read() == ''\n"
        "assert json.load(open(mine['RLCTL_SPEC']))['env']['seed'] == 7\n"
        "pathlib.Path('told').write_text(json.dumps(mine))\n",
        "env.seed=7",
        "train.total_timesteps=1000",
        env={"KEY": "env:SECRET_HERE"},
    )
    assert run_attempt(directory, 1) == 0
    told = json.loads((directory.path / "work" / "told").read_text())
    scratch = directory.path / "program" / "attempt_1"
    assert told == {
        "RLCTL_EVENTS": str(scratch / "events.jsonl"),
        "RLCTL_CHECKPOINTS": str(scratch / "checkpoints"),
        "RLCTL_STOP": str(scratch / "stop"),
        "RLCTL_SPEC": str(scratch / "spec.json"),
        "RLCTL_RUN": "run",
        "RLCTL_ATTEMPT": "1",
        "RLCTL_SEED": "7",
        "RLCTL_TOTAL_TIMESTEPS": "1000",
        "RLCTL_ENV_ID": "CartPole-v1",
        "RLCTL_ROOT": f"1:{directory.path}",
    }
    written = [path for path in directory.path.rglob("*") if path.is_file()]
    assert not [path for path in written if b"s3cret-f00d" in path.read_bytes()]


def test_lines_that_are_not_understood_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = made(
        tmp_path,
        "file = open(os.environ['RLCTL_EVENTS'], 'a')\n"
        "file.write('epoch 1\\n' + 'x' * (2 << 20) + '\\n')\n"
        "tell(step=1, checkpoint='nothing there')\n"
        'file.write(\'{"step": 3, "key": "k", "value": 1}\')\n',
    )
    assert run_attempt(directory, 1) == 0
    passed_over = [e.value for e in events(directory, "log") if e.key == "program/passed_over"]
    assert passed_over == [3]
    assert [event.step for event in events(directory, "metric")] == [3]
    assert "checkpoint not kept step=1 why=\"'nothing there' is not there\"" in caplog.messages


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("sys.exit(3)", "its program ended with exit code 3 at step 0; see its log"),
        (
            "tell(step=9, key='k', value=1); os.kill(os.getpid(), signal.SIGKILL)",
            "its program was killed by SIGKILL at step 9; see its log",
        ),
    ],
)
def test_a_program_that_fails_fails_the_attempt(tmp_path: Path, program: str, reason: str) -> None:
    directory = made(tmp_path, program)
    assert run_attempt(directory, 1) == 1
    assert last_word(directory) == ("failed", reason)


def test_a_program_that_cannot_be_started_is_a_failure_for_good(tmp_path: Path) -> None:
    directory = made(tmp_path, "", cwd=str(tmp_path / "gone"))
    assert run_attempt(directory, 1) == 2
    last = list(read(directory.events))[-1]
    assert (last.value, last.tags["final"]) == ("failed", True)
    assert "No such file or directory" in last.tags["reason"]


def test_what_a_program_leaves_behind_is_ended_with_it(tmp_path: Path) -> None:
    directory = made(tmp_path, DAEMON)
    assert run_attempt(directory, 1) == 0
    assert last_word(directory) == (
        "trained",
        "its program ended well at step 0; killed with it: 1 process that it had started",
    )
    assert left_of(directory) == []


def test_a_stop_reaches_the_program_by_a_file_and_by_a_signal(tmp_path: Path) -> None:
    directory = made(
        tmp_path,
        "heard = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: heard.append(1))\n"
        "tell(step=8, key='k', value=1)\n"
        "while not (heard and os.path.exists(os.environ['RLCTL_STOP'])): time.sleep(0.01)\n"
        "save(24)\n",
    )
    with going_on(directory):
        refused = command_socket.send(directory.path, "checkpoint")
        assert refused["error"].startswith("this run cannot checkpoint: its program is not one of")
        assert command_socket.send(directory.path, "stop") == {"ok": True, "accepted": "stop"}
    assert last_word(directory) == ("stopped", "its program ended at step 24, as it was asked to")
    assert [entry.step for entry in catalog.listing(directory.checkpoints)] == [24]


def test_a_program_that_ignores_the_signal_is_killed_with_all_that_it_started(
    tmp_path: Path,
) -> None:
    directory = made(
        tmp_path,
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen(['sleep', '3600'])\n" + DAEMON + "tell(step=8, key='k', value=1)\n"
        "while True: time.sleep(1)\n",
        stop_grace_s=0.5,
    )
    with going_on(directory):
        command_socket.send(directory.path, "stop")
    assert last_word(directory) == (
        "stopped",
        "its program ignored SIGTERM for 0.5 s and was killed at step 8; killed with it: "
        "2 processes that it had started",
    )
    assert left_of(directory) == []


def test_an_attempt_begins_anew_unless_the_program_can_go_on(tmp_path: Path) -> None:
    program = (
        "again = os.environ['RLCTL_ATTEMPT'] == '2'\n"
        "assert 'RLCTL_RESUME' not in os.environ\n"
        "save(5 if again else 50)\n"
        "sys.exit(0 if again else 1)\n"
    )
    directory = made(tmp_path, program)
    assert run_attempt(directory, 1) == 1
    assert run_attempt(directory, 2) == 0
    history = fold(read(directory.events))
    assert [event.attempt for event in history] == [2] * len(history)
    saved = [event for event in history if event.kind == "checkpoint"]
    assert [(event.step, event.tags["removed"]) for event in saved] == [(5, ["step_000000000050"])]
    assert [entry.step for entry in catalog.listing(directory.checkpoints)] == [5]


def test_an_attempt_goes_on_from_the_newest_checkpoint_where_the_program_can(
    tmp_path: Path,
) -> None:
    program = (
        "if os.environ['RLCTL_ATTEMPT'] == '1':\n"
        "    save(10, best=True); save(20); tell(step=30, key='k', value=1)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "assert pathlib.Path(os.environ['RLCTL_RESUME']).read_text() == 'weights of 20'\n"
        "save(40)\n"
    )
    directory = made(tmp_path, program, "checkpoint.keep_last=1", resume="approximate")
    assert run_attempt(directory, 1) == 1
    assert run_attempt(directory, 2) == 0
    history = fold(read(directory.events))
    assert [event.step for event in history if event.key == "saved"] == [10, 20, 40]
    assert [event.step for event in history if event.key == "k"] == []
    started = [event for event in history if event.key == "started"][-1]
    assert started.tags["checkpoint"] == "step_000000000020"
    assert [event.value for event in history if event.key == "resume"][-1] == "approximate"
    names = catalog.all_names(directory.checkpoints)
    assert names == ["step_000000000010", "step_000000000040"]
    assert external.load(directory.checkpoints / names[1]).best == "step_000000000010"


def test_an_attempt_after_a_training_that_ended_well_leaves_it_at_that(tmp_path: Path) -> None:
    directory = made(tmp_path, "assert os.environ['RLCTL_ATTEMPT'] == '1'; save(10)")
    for number in (1, 2):
        assert run_attempt(directory, number) == 0
    assert last_word(directory) == ("trained", "its program ended well at step 10")
    history = fold(read(directory.events))
    assert [event.value for event in history if event.key == "saved"] == ["step_000000000010"]


def test_a_training_that_ended_well_is_not_forgotten_when_the_attempt_after_it_is_killed(
    tmp_path: Path,
) -> None:
    directory = made(tmp_path, "assert os.environ['RLCTL_ATTEMPT'] == '1'; save(10)")
    for number in (1, 2):
        assert run_attempt(directory, number) == 0
    text = directory.events.read_text().splitlines(keepends=True)
    directory.events.write_text("".join(text[:-1]))
    assert events(directory, "state")[-1].key == "resume"
    assert run_attempt(directory, 3) == 0
    assert last_word(directory) == ("trained", "its program ended well at step 10")


def test_a_change_for_an_attempt_that_never_began_still_counts(tmp_path: Path) -> None:
    directory = made(tmp_path, "save(10 * int(os.environ['RLCTL_ATTEMPT']))")
    assert run_attempt(directory, 1) == 0
    note = {"attempt": 2, "set": {"train.total_timesteps": [1, 2]}}
    directory.write_manifest(directory.manifest() | {"changes": [note]})
    assert run_attempt(directory, 3) == 0
    assert last_word(directory) == ("trained", "its program ended well at step 30")


def test_what_a_program_promises_is_not_passed_off_as_proven(tmp_path: Path) -> None:
    directory = made(tmp_path, "", resume="bitwise")
    assert run_attempt(directory, 1) == 0
    (said,) = [event for event in events(directory, "state") if event.key == "resume"]
    assert said.value == "approximate"
    assert said.tags["reason"] == "its program says bitwise; nobody has certified it"


def test_a_sign_of_life_says_how_far_its_attempt_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.01)
    now = iter(range(1_000_000))
    file, pulse = tmp_path / "heartbeat", heartbeat.Pulse(3, timer=lambda: float(next(now)))
    with heartbeat.beating(file, pulse):
        until(file.exists)
        assert heartbeat.reading(file, 3) is None

        def step() -> int | None:
            seen = heartbeat.reading(file, 3)
            return None if seen is None else seen.step

        pulse.reached(100_000)
        until(lambda: step() == 100_000)
        pulse.reached(99_000_000)
        until(lambda: step() == 99_000_000)
        seen = heartbeat.reading(file, 3)
        assert seen is not None
        assert (seen.sps or 0) > 0
        assert heartbeat.reading(file, 2) is None


@pytest.mark.parametrize(
    "said", ["", "3", "3 x 1.0", "3 -1 1.0", f"3 {10**30} 1.0", f"3 5 {'1' * 100}"]
)
def test_a_sign_of_life_that_makes_no_sense_says_nothing(tmp_path: Path, said: str) -> None:
    file = tmp_path / "heartbeat"
    file.write_text(said)
    assert heartbeat.reading(file, 3) is None


def test_a_sign_of_life_that_is_deleted_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.01)
    file = tmp_path / "heartbeat"
    with heartbeat.beating(file):
        until(file.exists)
        file.unlink()
        until(file.exists)


def test_an_attempt_whose_turn_is_over_starts_nothing(tmp_path: Path) -> None:
    directory = made(tmp_path, "")
    assert run_attempt(directory, 2) == 0
    with pytest.raises(Conflict, match="no longer its turn"):
        run_attempt(directory, 1)
    assert newest_attempt(directory.events) == 2


def test_numbers_in_tensorboard_files_become_events(tmp_path: Path) -> None:
    directory = made(
        tmp_path,
        f"sys.path[:] = {sys.path!r}\n"
        "from tensorboard.compat.proto import event_pb2, summary_pb2\n"
        "from tensorboard.summary.writer.event_file_writer import EventFileWriter\n"
        "writer = EventFileWriter('runs/CartPole-v1__ppo')\n"
        "for tag, value in [('charts/episodic_return', 21.0), ('charts/episodic_length', 21),\n"
        "                   ('losses/value_loss', 0.5)]:\n"
        "    summary = summary_pb2.Summary()\n"
        "    summary.value.add(tag=tag, simple_value=value)\n"
        "    writer.add_event(event_pb2.Event(wall_time=1.0, step=64, summary=summary))\n"
        "writer.close()\n",
        tensorboard="runs",
    )
    assert run_attempt(directory, 1) == 0
    (episode,) = events(directory, "episode")
    assert (episode.value, episode.step, episode.tags) == (21.0, 64, {"length": 21})
    assert [(e.key, e.value) for e in events(directory, "metric")] == [("losses/value_loss", 0.5)]


def test_the_root_loads_neither_torch_nor_numpy(tmp_path: Path) -> None:
    code = (
        "import sys, rl_orch.worker.external.train; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'gymnasium')))"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0
