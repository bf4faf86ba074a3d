"""Runs whose files somebody has deleted under them can still be looked at, stopped and removed."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rl_orch.io.run.directory import RunDir
from rl_orch.records import Run, State
from tests.faults import programs
from tests.faults.lab import Lab
from tests.integration.conftest import Shell, until

Loss = Callable[[RunDir], None]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("gone"))
    yield made
    made.close()


@pytest.fixture
def lab(home: Lab) -> Lab:
    """A lab whose service is up."""
    if home.service.place is None:
        home.service.start()
    return home


def lose_the_spec(directory: RunDir) -> None:
    directory.spec_file.unlink()


def damage_the_spec(directory: RunDir) -> None:
    directory.spec_file.write_text("- not a spec")


def lose_everything(directory: RunDir) -> None:
    while directory.path.exists():  # Its processes still write into it.
        shutil.rmtree(directory.path, ignore_errors=True)


def begun(lab: Lab) -> Run:
    """A run at work that nobody but a stop would end soon."""
    spec = programs.a_count(lab.program, "runner.stop_grace_s=30", lasts_s=3600.0)
    run = lab.client().submit(spec, consent=True).runs[0]
    until(lambda: lab.store.get(run.id).state is State.RUNNING)
    return run


def alive(lab: Lab, run: Run) -> bool:
    return any(str(process.directory) == run.path for process in lab.watcher.marked())


def told(lab: Lab, *words: str, code: int) -> str:
    """What a command says, with no trace of how it is made."""
    done = Shell(lab.service.home, lab.folder).run(*words)
    said = " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in said, said
    assert done.returncode == code, said
    return said


@pytest.mark.parametrize("served", [True, False], ids=["served", "orphaned"])
@pytest.mark.parametrize("lose", [lose_the_spec, damage_the_spec])
def test_a_run_without_its_spec_is_stopped_and_removed(lab: Lab, lose: Loss, served: bool) -> None:
    run = begun(lab)
    if not served:
        lab.service.kill()
    lose(RunDir.of(run))
    assert run.id in told(lab, "ls", code=0)
    for words in (("show", run.id), ("compare", run.id, run.id)):
        said = told(lab, *words, code=1 if lose is damage_the_spec else 2)
        assert "spec.yaml" in said
    assert "stopped" in told(lab, "stop", run.id, code=0)
    assert lab.store.get(run.id).state is State.STOPPED
    assert not alive(lab, run)
    said = told(lab, "resume", run.id, code=1 if lose is damage_the_spec else 2)
    assert f"rlctl rm {run.id}" in said
    assert f"removed {run.id}" in told(lab, "rm", run.id, "--yes", code=0)
    assert not Path(run.path).exists()


@pytest.mark.parametrize("served", [True, False], ids=["served", "orphaned"])
def test_a_run_without_its_directory_is_ended_and_forgotten(lab: Lab, served: bool) -> None:
    run = begun(lab)
    if not served:
        lab.service.kill()
    lose_everything(RunDir.of(run))
    if served:  # Its service has seen it by itself.
        until(lambda: not lab.store.get(run.id).active)
    else:
        said = told(lab, "stop", run.id, code=0)
        assert "its directory is gone" in said
    ended = lab.store.get(run.id)
    assert (ended.state, "directory is gone" in ended.reason) == (
        State.FAILED if served else State.STOPPED,
        True,
    )
    assert not alive(lab, run)
    assert run.id in told(lab, "ls", code=0)
    for words in ("show", "logs", "resume"):
        assert "is gone" in told(lab, words, run.id, code=2)
    assert json.loads(told(lab, "wait", run.id, "--json", code=1 if served else 4))["id"] == run.id
    assert f"removed {run.id}" in told(lab, "rm", run.id, "--yes", code=0)


def test_a_queued_run_without_its_directory_is_stopped(lab: Lab) -> None:
    spec = programs.a_count(lab.program, "schedule.after=[waits]", name="next")
    first = lab.client().submit(
        programs.a_count(lab.program, lasts_s=3600.0, name="waits"), consent=True
    )
    run = lab.client().submit(spec, consent=True).runs[0]
    lose_everything(RunDir.of(run))
    assert "stopped" in told(lab, "stop", run.id, code=0)
    assert lab.store.get(run.id).state is State.STOPPED
    assert "stopped" in told(lab, "stop", first.runs[0].id, "--force", code=0)
