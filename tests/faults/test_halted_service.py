"""A service that is there and does not answer: who looks goes on without it, who changes waits."""

import json
from collections.abc import Iterator

import pytest

from rl_orch.cli import connection
from rl_orch.records import State
from tests.faults import programs
from tests.faults.lab import Lab
from tests.integration.conftest import Shell, until

SAID = "has not answered for"


@pytest.fixture
def halted(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab whose service was halted beside a run that has ended and one at work."""
    monkeypatch.setattr(connection, "ANSWERS_WITHIN_S", 0.5)
    monkeypatch.setattr(connection, "GONE_FOR_S", 1.0)
    lab.service.start()
    client = lab.client()
    for name, lasts_s in (("ended", 0.1), ("works", 3600.0)):
        spec = programs.a_count(lab.program, lasts_s=lasts_s, name=name)
        client.submit(spec, consent=True)
    until(lambda: client.get("ended").state is State.SUCCEEDED)
    until(lambda: client.get("works").state is State.RUNNING)
    with lab.store.writing():  # It must not be halted in the middle of a write.
        lab.service.halt()
    yield lab
    lab.service.go_on()


def test_who_looks_beside_a_halted_service_reads_the_database_and_says_so(halted: Lab) -> None:
    shell = Shell(halted.service.home, halted.folder)
    listed = shell.run("ls", "--json")
    runs = json.loads(listed.stdout)["runs"]
    assert (listed.returncode, SAID in listed.stderr) == (0, True)
    assert {run["name"]: run["state"] for run in runs} == {"ended": "succeeded", "works": "running"}
    for words in (
        ("show", "ended"),
        ("logs", "works"),
        ("logs", "ended", "--events", "-f"),
        ("compare", "ended", "works"),
        ("registry", "list"),
        ("wait", "ended"),
    ):
        done = shell.run(*words)
        assert (done.returncode, SAID in done.stderr) == (0, True), (words, done.stderr)
        assert f"pid {halted.service.process.pid}" in done.stderr


def test_what_changes_runs_waits_for_a_halted_service_and_changes_nothing_without_it(
    halted: Lab,
) -> None:
    shell = Shell(halted.service.home, halted.folder)
    before = [halted.store.find(name) for name in ("ended", "works")]
    ended = before[0].id
    for words in (("rm", ended, "--yes"), ("stop", "works", "--force"), ("rollback", "best")):
        done = shell.run(*words)
        assert (done.returncode, done.stdout) == (1, "")
        assert "nothing was changed" in done.stderr
        assert f"kill -CONT {halted.service.process.pid}" in done.stderr
    assert [halted.store.find(name) for name in ("ended", "works")] == before
    halted.service.go_on()
    assert shell.run("stop", "works", "--force").returncode == 0


def test_a_change_that_waits_goes_on_once_the_service_answers(halted: Lab) -> None:
    shell = Shell(halted.service.home, halted.folder)
    removing = shell.start("rm", halted.store.find("ended").id, "--yes")
    assert removing.stderr is not None
    assert "so this waits" in removing.stderr.readline()
    halted.service.go_on()
    out, err = removing.communicate(timeout=60)
    assert (removing.returncode, "removed ended" in out) == (0, True), err


def test_a_run_can_be_stopped_once_its_halted_service_was_killed(halted: Lab) -> None:
    halted.service.kill()
    shell = Shell(halted.service.home, halted.folder)
    done = shell.run("stop", "works", "--force")
    assert (done.returncode, "stopped" in done.stdout) == (0, True), done.stderr
    assert halted.store.find("works").state is State.STOPPED
