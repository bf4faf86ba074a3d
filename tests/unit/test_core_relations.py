"""Relations of runs: parent, role and tags, in rows, in directories and on the command line."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.runs.state import advance
from rl_orch.errors import BadInput, RlctlError, SpecInvalid
from rl_orch.io.run.directory import RunDir
from rl_orch.records import State
from rl_orch.spec.resolve import resolve
from rl_orch.spec.tags import validated, validated_note
from rl_orch.testing import FakeRunner, a_spec, trains_to
from tests.conftest import Ran


def a_home(folder: Path) -> Orchestrator:
    return Orchestrator(folder, FakeRunner(trains_to([500.0] * 10)))


def test_the_runs_of_a_group_are_its_seeds(tmp_path: Path) -> None:
    group = a_home(tmp_path).submit(a_spec("seeds=2")).group
    assert group is not None
    for run in a_home(tmp_path).group_runs(group.id):
        assert (run.group, run.parent, run.role) == (group.id, group.id, "seed")


def test_a_tag_that_is_set_while_a_supervisor_writes_stays(tmp_path: Path) -> None:
    home = a_home(tmp_path)
    run = home.create(a_spec(), lease="mine")
    home.tag(run.id, {"team": "vision"})
    home.store.save(advance(run, State.STARTING, "begun"), lease="mine")
    found = home.store.get(run.id)
    assert (found.state, found.tags) == (State.STARTING, {"team": "vision"})


def test_tags_that_cannot_be_kept_in_the_directory_are_not_in_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = a_home(tmp_path)
    run = home.create(a_spec("tags={a: b}"), lease="mine")

    def full(_directory: RunDir, _tags: object) -> None:
        raise RlctlError("no room")

    monkeypatch.setattr(RunDir, "write_tags", full)
    with pytest.raises(RlctlError, match="no room"):
        home.tag(run.id, {"team": "vision"})
    assert home.store.get(run.id).tags == RunDir.of(run).tags() == {"a": "b"}


def test_a_note_that_cannot_be_kept_in_the_directory_is_not_in_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = a_home(tmp_path)
    run = home.create(a_spec(), lease="mine")
    home.note(run.id, "before")

    def full(_directory: RunDir, _text: str) -> None:
        raise RlctlError("no room")

    monkeypatch.setattr(RunDir, "write_note", full)
    with pytest.raises(RlctlError, match="no room"):
        home.note(run.id, "after")
    assert home.store.get(run.id).note == RunDir.of(run).note() == "before"


def test_notes_that_are_taken_at_once_end_alike_in_row_and_directory(tmp_path: Path) -> None:
    home = a_home(tmp_path)
    run = home.create(a_spec(), lease="mine")
    texts = [f"note {number}" for number in range(24)]
    with ThreadPoolExecutor(4) as threads:
        assert [one.note for one in threads.map(partial(home.note, run.id), texts)] == texts
    assert home.store.get(run.id).note == RunDir.of(run).note()
    assert not [*RunDir.of(run).path.glob(".note*")]


def test_a_run_that_is_imported_keeps_its_relations(tmp_path: Path) -> None:
    there, here = a_home(tmp_path / "there"), a_home(tmp_path / "here")
    first = there.launch(a_spec("name=first")).run
    run = there.launch(a_spec("parent=first", "role=student", "tags={a: b}")).run
    there.tag(run.id, {"c": "d"}, remove=["a"])
    assert RunDir.of(run).manifest()["parent"] == first.id
    found = here.import_run(Path(run.path))
    assert (found.parent, found.role, found.tags) == (first.id, "student", {"c": "d"})
    assert here.get(run.id).tags == {"c": "d"}


@pytest.mark.parametrize("noted", ['{"a": 3}', '["a"]', "nothing", '{"": "x"}'])
def test_what_cannot_be_tags_is_none_in_an_imported_run(tmp_path: Path, noted: str) -> None:
    there, here = a_home(tmp_path / "there"), a_home(tmp_path / "here")
    run = there.launch(a_spec()).run
    (Path(run.path) / "tags.json").write_text(noted)
    manifest = RunDir.of(run).manifest()
    RunDir.of(run).write_manifest(manifest | {"parent": ["x"], "role": "Not A Role"})
    found = here.import_run(Path(run.path))
    assert (found.parent, found.role, found.tags) == (None, None, {})


@pytest.mark.parametrize(
    "tags", [{"": "x"}, {"a b": "x"}, {"a": ""}, {"a": "x\ny"}, {"n" * 64: "x"}, {"a=b": "x"}]
)
def test_what_is_no_tag_is_refused_in_a_spec_and_later(tags: dict[str, str]) -> None:
    with pytest.raises(SpecInvalid) as caught:
        resolve({"env.id": "CartPole-v1", "tags": tags})
    assert [problem.path for problem in caught.value.problems] == ["tags"]
    with pytest.raises(BadInput):
        validated(tags)


def test_runs_are_tagged_found_and_shown_on_the_command_line(
    rlctl: Callable[..., Ran], tmp_path: Path
) -> None:
    home = a_home(tmp_path / "rlruns")
    group = home.submit(a_spec("seeds=2", "name=whole")).group
    assert group is not None
    (run,) = home.submit(a_spec("tags={team: vision}", f"parent={group.id}", "role=trial")).runs
    assert rlctl("tag", run.id, "note=good", "--remove", "team").out == f"{run.id}  note=good\n"
    tagged = json.loads(rlctl("tag", group.id, "note=bad", "--json").out)
    assert [each["tags"] for each in tagged["runs"]] == [{"note": "bad"}] * 2
    listed = json.loads(rlctl("ls", "--tag", "note=good", "--json").out)
    assert [each["id"] for each in listed["runs"]] == [run.id]
    assert run.id in rlctl("ls", "--parent", group.id, "--role", "trial").out
    assert run.id in rlctl("ls", "--parent", "whole", "--role", "trial").out
    for filters in (("--tag", "note=ugly"), ("--state", "failed"), ("--role", "student")):
        assert rlctl("ls", *filters).out.startswith(f"no run matches {filters[1]}")
    assert rlctl("ls", "--tag", "note").code == 2
    shown = rlctl("show", run.id).out
    assert f"{group.id}, as trial" in shown
    assert "note=good" in shown


@pytest.mark.parametrize("text", ["\x1b[31m", "a\x9b31m", "turned\u202e", "x" * 2001])
def test_a_note_is_printable_text(text: str) -> None:
    assert validated_note(" two\nlines\tand ü ") == "two\nlines\tand ü"
    with pytest.raises(BadInput, match="note has"):
        validated_note(text)
