"""`rlctl up` and `down`: a service in the background, and runs that outlive it."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from rl_orch.client import Client
from rl_orch.http.settings import PORT
from rl_orch.io import service_note
from rl_orch.io.processes import pids
from rl_orch.records import Run
from tests.integration.conftest import SMALL, Shell, until
from tests.waiting import PATIENCE_S

LONG = ("launch", "--detach", "--env", "CartPole-v1", *SMALL, "train.total_timesteps=1e9")


@pytest.fixture
def up(shell: Shell) -> Iterator[dict[str, Any]]:
    """A service of the shell's home, in the background."""
    yield shell.json("up", "--detach", "--spares", "0", "--port", "0")
    shell.run("down")


def training(shell: Shell) -> Run:
    """A run that the service has begun, and that goes on for ever."""
    run_id = shell.json(*LONG)["id"]
    with Client.of_home(shell.home) as client:
        until(lambda: client.get(run_id).env_steps > 0)
        return client.get(run_id)


def lives(pid: int) -> bool:
    return pids.identity(pid) is not None


def test_runs_outlive_their_service_and_the_next_one_takes_them_over(
    shell: Shell, up: dict[str, Any]
) -> None:
    again = shell.run("up")
    assert again.returncode == 2
    assert f"is up already: {up['url']} (pid {up['pid']})" in again.stderr
    run = training(shell)
    (process,) = shell.run_processes()
    ended = shell.run("down")
    assert ended.returncode == 0
    assert ended.stdout.splitlines() == [
        f"the service at {up['url']} (pid {up['pid']}) has ended",
        "1 run goes on; the next `rlctl up` takes over",
    ]
    assert not lives(up["pid"])
    assert not (shell.home / "service.json").exists()
    assert shell.run_processes() == [process]
    shell.json("up", "--detach", "--spares", "0", "--port", "0")
    with Client.of_home(shell.home) as client:
        until(lambda: client.show(run.id).watched)
    stopped = shell.json("down", "--stop-runs")["stopped"]
    assert stopped == [run.id]
    seen = shell.json("show", run.id)
    assert (seen["state"], seen["attempt"]) == ("stopped", 1)
    assert shell.run_processes() == []


def test_whoever_waits_does_not_mind_a_service_that_is_killed(
    shell: Shell, up: dict[str, Any]
) -> None:
    run = training(shell)
    waiting = shell.start("wait", run.id, "--json")
    following = shell.start("logs", "-f", run.id)
    until(lambda: _talks_to(waiting.pid) and _talks_to(following.pid))
    os.kill(up["pid"], signal.SIGKILL)
    until(lambda: not lives(up["pid"]))
    assert (shell.home / "service.json").exists()
    assert [found["id"] for found in shell.json("ls")["runs"]] == [run.id]
    shell.json("up", "--detach", "--spares", "0", "--port", "0")
    said = shell.run("stop", run.id)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith(f"{run.id}  stopped: ")
    out, _ = waiting.communicate(timeout=PATIENCE_S)
    assert (waiting.returncode, json.loads(out)["state"]) == (4, "stopped")
    log, _ = following.communicate(timeout=PATIENCE_S)
    assert log == (Path(run.path) / "log.txt").read_text()


def _talks_to(pid: int) -> bool:
    """Whether a process has had a connection."""
    return bool(psutil.Process(pid).net_connections("tcp"))


def test_a_service_in_the_foreground_ends_when_it_is_asked_to(shell: Shell) -> None:
    service = shell.start("up", "--port", "0", "--spares", "0", "--cpus", "1", "--memory-mb", "900")
    assert service.stdout is not None
    said = service.stdout.readline()
    found = service_note.living(shell.home)
    assert found is not None
    assert said == f"service ready at {found.url} (pid {service.pid})\n"
    assert (shell.home / "service.json").stat().st_mode & 0o777 == 0o600
    refused = shell.json(*LONG, "resources.memory_mb=901", code=2)["error"]
    assert "900" in refused["message"]
    service.send_signal(signal.SIGTERM)
    _, told = service.communicate(timeout=PATIENCE_S)
    assert (service.returncode, told.splitlines()[-1]) == (0, "service ended")
    assert service_note.read(shell.home) is None


def test_a_service_that_cannot_start_says_why(shell: Shell) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        failed = shell.json("up", "--detach", "--port", str(port), code=2)["error"]
        assert failed == shell.json("up", "--port", str(port), code=2)["error"]
    assert f"cannot listen on port {port}" in failed["message"]
    assert "--port 0 for any that is free" in failed["hint"]
    beyond = shell.run("up", "--host", "0.0.0.0", "--port", "0")
    assert beyond.returncode == 2
    assert "rlctl token create" in beyond.stderr


def test_a_service_takes_another_port_if_nobody_asked_for_one(shell: Shell) -> None:
    with closing(socket.socket()) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # Then somebody else has it, which is as good.
            taken.bind(("127.0.0.1", PORT))
            taken.listen()
        started = shell.run("up", "--detach", "--spares", "0")
    assert started.returncode == 0
    assert f"port {PORT} is taken" in started.stderr
    assert "service ready at http://127.0.0.1:" in started.stdout
    assert shell.json("ls")["runs"] == []
    assert shell.run("down").returncode == 0


def test_a_home_keeps_the_database_in_mind_that_its_service_was_started_with(
    shell: Shell, tmp_path: Path
) -> None:
    first, second = str(tmp_path / "first.db"), str(tmp_path / "second.db")
    refused = shell.run(
        "up", "--detach", "--spares", "0", "--host", "0.0.0.0", "--port", "0", "--database", first
    )
    assert refused.returncode == 2
    assert shell.run("token", "create", "ours").returncode == 0
    started = shell.run("up", "--detach", "--spares", "0", "--host", "0.0.0.0", "--port", "0")
    assert (started.returncode, started.stderr) == (0, "")
    assert shell.run("down").returncode == 0
    assert service_note.noted_database(shell.home) == first
    again = shell.run("up", "--detach", "--spares", "0", "--port", "0", "--database", second)
    assert again.stderr == f"the database of this home is {second} now; it was {first}\n"
    assert shell.run("down").returncode == 0
    assert shell.json("token", "ls")["tokens"] == []
    assert not (shell.home / "rlctl.db").exists()
