"""Another account of the machine, which has nothing but the address of a service.

As root, its processes have another uid. Elsewhere they have ours, but use nothing except the
address, and who may read a file is told by its mode.
"""

import contextlib
import http.client
import json
import os
import pty
import re
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rl_orch.api.app import description
from rl_orch.cli.commands.up import INSECURE
from rl_orch.io.service_note import ServiceEndpoint
from tests.faults.lab import Up
from tests.integration.conftest import RLCTL

NOBODY = 65534
IS_ROOT = os.geteuid() == 0
OPEN = {("GET", "/health"): 200, ("GET", "/ready"): 200, ("POST", "/sessions"): 401}
"""What answers them: that the service lives, and the exchange, whose code they do not know."""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every account can enter, whatever the folders of tests are like."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def up(open_folder: Path) -> Iterator[Up]:
    """A service that was started under a umask that hides nothing."""
    service = Up(open_folder / "home")
    before = os.umask(0)
    try:
        service.start()
        os.umask(before)
        yield service
    finally:
        os.umask(before)
        service.close()


def as_another_account(work: Callable[[], Any]) -> Any:
    """What a function returns in a process of another account; it may use what is loaded."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if IS_ROOT:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(writing, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return json.loads(said)


def requests() -> list[tuple[str, str]]:
    """Every operation of the description, and the description itself."""
    paths = description()["paths"]
    pairs = [(method.upper(), path) for path in paths for method in paths[path]]
    return [*pairs, ("GET", "/openapi.json")]


def status(address: str, method: str, path: str, body: dict[str, Any] | None = None) -> int:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    headers = {"Content-Type": "application/json"}
    connection.request(method, path, json.dumps(body or {}), headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def endpoint(service: Up) -> ServiceEndpoint:
    place = service.place
    assert place is not None
    return place


def test_the_address_alone_opens_no_route_and_runs_no_code(up: Up, open_folder: Path) -> None:
    address, mark = endpoint(up).url, open_folder / "mark"
    program = {
        "env": {"id": "CartPole-v1"},
        "runner": {"name": "external", "command": ["/bin/sh", "-c", f"touch {mark}"]},
    }

    def attack() -> list[int]:
        fill = {"{ref}": "last", "{id}": "x", "{path}": "spec.yaml"}
        answers = []
        for method, path in requests():
            for name, value in fill.items():
                path = path.replace(name, value)
            body = {"code": "0000-0000-0000"} if path == "/sessions" else None
            answers.append(status(address, method, path, body))
        told = {"spec": program, "consent": True}
        answers.append(status(address, "POST", "/experiments", told))
        answers.append(status(address, "POST", "/tokens", {"name": "mine", "scope": "admin"}))
        return answers

    expected = [OPEN.get(pair, 401) for pair in requests()]
    assert as_another_account(attack) == [*expected, 401, 401]
    assert json.loads(up.run("ls", "--json").stdout)["runs"] == []
    assert json.loads(up.run("token", "ls", "--json").stdout)["tokens"] == []
    assert not mark.exists()


def test_no_file_of_the_home_can_be_read_and_its_socket_cannot_be_used(up: Up) -> None:
    submitted = up.run("launch", "--detach", "--env", "CartPole-v1", "--total-timesteps", "256")
    assert submitted.returncode == 0, submitted.stderr
    assert up.run("wait", "last").returncode == 0
    files = [up.home, *up.home.rglob("*")]
    assert up.home / "service.sock" in files
    assert any(file.suffix == ".safetensors" for file in files)
    wide = {str(file): oct(file.lstat().st_mode) for file in files if file.lstat().st_mode & 0o077}
    assert wide == {}

    def attack() -> list[str]:
        return [str(file) for file in files if readable(file)]

    assert not IS_ROOT or as_another_account(attack) == []


def readable(file: Path) -> bool:
    """Whether this process gets at what a file, a folder or a socket holds."""
    try:
        mode = file.lstat().st_mode
        if stat.S_ISDIR(mode):
            os.listdir(file)
            return True
        return os.access(file, os.R_OK) or os.access(file, os.W_OK)
    except OSError:
        return False


def test_the_socket_knows_its_user_and_asks_others_for_a_token(up: Up) -> None:
    socket = endpoint(up).socket
    assert socket is not None
    curl = ["curl", "--silent", "--unix-socket", socket, "http://localhost/tokens"]
    ours = subprocess.run(curl, capture_output=True, text=True, check=True)
    assert json.loads(ours.stdout) == {"tokens": []}
    wrong = [*curl, "-H", "Authorization: Bearer wrong"]
    refused = subprocess.run(wrong, capture_output=True, text=True, check=True)
    assert json.loads(refused.stdout)["status"] == 401


def on_a_terminal(service: Up, *words: str) -> str:
    """What a command shows on a terminal of its own."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*RLCTL, *words], env=service.environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as command:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # The end of a terminal that nobody has open any more.
            while part := os.read(ours, 4096):
                shown += part
        os.close(ours)
    assert command.returncode == 0, shown
    return shown.decode()


def test_a_code_that_its_user_was_shown_opens_once_and_is_in_no_log(up: Up) -> None:
    piped = up.run("token", "code")
    assert piped.returncode == 2
    shown = re.search(r"[0-9A-Z]{4}(-[0-9A-Z]{4}){2}", on_a_terminal(up, "token", "code"))
    assert shown is not None
    address, code = endpoint(up).url, {"code": shown[0]}
    exchange = partial(status, address, "POST", "/sessions", code)
    assert [as_another_account(exchange) for _ in range(2)] == [201, 401]
    (made,) = json.loads(up.run("token", "ls", "--json").stdout)["tokens"]
    assert (made["scope"], made["name"][:8]) == ("operate", "browser-")
    assert shown[0] not in up.told()


def test_the_old_way_is_there_for_those_who_ask_and_says_what_it_means(open_folder: Path) -> None:
    service = Up(open_folder / "home", options=("--insecure-loopback",))
    try:
        for _ in range(2):
            service.start()
            address = endpoint(service).url
            assert as_another_account(partial(status, address, "GET", "/runs")) == 200
            service.kill()
        assert " ".join(service.told().split()).count(INSECURE) == 2
    finally:
        service.close()
