"""Plugins without a package: `module:Class` wherever a name is taken, and what changes of their
source mean for a run."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_orch import plugins
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.errors import BadInput, SpecInvalid
from rl_orch.io.processes import import_path
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import read
from rl_orch.records import State
from rl_orch.runners.inline import InlineRunner
from rl_orch.spec import code
from rl_orch.spec.named_plugins import importable, modules_of
from rl_orch.worker.checks.environment import answer
from rl_orch.worker.train import run_attempt
from tests.unit.test_live_changes import a_run, a_spec, crash_after

SOURCE = """
from torch import nn

import its_helper
from rl_orch import plugins
from rl_orch.errors import BadInput
from rl_orch.rl.algos.ppo import PPO as Learner
from rl_orch.rl.envs.entry_point import make as vector
from rl_orch.rl.learn.engine import Engine as Base
from rl_orch.rl.observe import Observer


class Algorithm(Learner):
    pass


class Engine(Base):
    pass


class Encoder(nn.Module):
    def __init__(self, pipeline, feature, generator):
        super().__init__()
        self.size = 4

    def forward(self, inputs):
        (values,) = inputs.values()
        return values.flatten(1)


def collector(spec, *how):
    return plugins.load("collectors", "local")(spec, *how)


class Watcher(Observer):
    def __init__(self, spec):
        its_helper.SEEN.append("observer")


class Half:
    def step(self, action, reward, terminated, truncated, info):
        pass

    def value(self):
        return 0.5


class Tracker:
    def __init__(self, run, spec, options):
        self.file = open(f"{run.path}/tracked", "a")
        self.flush = self.file.flush

    @staticmethod
    def check(options):
        if options:
            raise BadInput("it has no options")

    def write(self, batch):
        self.file.writelines(event.key + chr(10) for event in batch)

    def close(self, end=None):
        self.file.close()
"""
NAMED = (
    *("agent.algorithm=its_parts:Algorithm", "train.engine=its_parts:Engine"),
    *("rollout.collector=its_parts:collector", "train.observers=[its_parts:Watcher]"),
    *("eval.metrics=[its_parts:Half]", "store.trackers=[its_parts:Tracker]"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with modules, which is searched and is no package's."""
    home = tmp_path / "modules"
    home.mkdir()
    (home / "its_parts.py").write_text(SOURCE)
    (home / "its_helper.py").write_text("SEEN = []\n")
    (home / "its_end.py").write_text("raise RuntimeError('out of order')\n")
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.setenv(import_path.VARIABLE, json.dumps([str(home)]))
    yield home
    for name in ("its_parts", "its_helper", "its_end"):
        sys.modules.pop(name, None)


def test_every_kind_of_plugin_is_taken_from_a_module(folder: Path, tmp_path: Path) -> None:
    spec = a_spec("ppo", *NAMED)
    assert {each.kind for each in importable(spec)} == {
        *("algorithms", "engines", "collectors", "observers", "metrics", "trackers")
    }
    run = Orchestrator(tmp_path / "home", InlineRunner()).launch(spec).run
    assert run.state is State.SUCCEEDED, run.reason
    assert sys.modules["its_helper"].SEEN == ["observer"]
    assert "ended" in (Path(run.path) / "tracked").read_text().split()
    report = RunDir.of(run).read_report("final")
    assert report is not None
    assert "its_parts:Half" in report.model_dump_json()


def test_encoders_and_vector_environments_are_taken_from_a_module(folder: Path) -> None:
    parts = ("feature.encoder=its_parts:Encoder", "env.backend=its_parts:vector")
    spec = a_spec("ppo", *parts, "env.max_episode_steps=null")
    assert answer(spec).problems == ()
    assert modules_of(spec) == ["its_parts"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("nowhere:Thing", "searched"),
        ("its_parts:Enginé", None),
        ("its_parts:Trackr", "its_parts:Tracker"),
        ("its_end:Thing", None),
        ("its_parts.inner:Thing", None),
    ],
)
def test_what_cannot_be_imported_is_refused_by_check(
    folder: Path, name: str, hint: str | None
) -> None:
    refusals = (BadInput, SpecInvalid)
    with pytest.raises(refusals):
        plugins.load("observers", name)
    found = answer(a_spec("ppo").changed({"train.observers": (name,)})).problems
    if plugins.is_importable(name):
        assert [(problem.path, problem.value) for problem in found] == [("train.observers", name)]
        assert hint is None or hint in str(found[0].hint)


def test_to_name_a_module_is_to_name_code() -> None:
    named = code.named_by(a_spec("ppo", *NAMED))
    assert {each.module for each in named} == {"its_parts"}
    assert {each.path.split(".0")[0] for each in named} == {
        *("agent.algorithm", "train.engine", "rollout.collector", "train.observers"),
        *("eval.metrics", "store.trackers"),
    }


@pytest.mark.parametrize("file", ["its_parts.py", "its_helper.py", None])
def test_a_run_whose_source_has_changed_goes_on_approximately_and_names_the_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str | None
) -> None:
    run = a_run(tmp_path / "run", a_spec("ppo", "train.observers=[its_parts:Watcher]"))
    with monkeypatch.context() as patch:
        crash_after(patch, 3)
        assert run_attempt(run, 1) == 1
    if file is not None:
        (folder / file).write_text((folder / file).read_text() + "\n# changed\n")
    assert run_attempt(run, 2) == 0
    told = [event for event in read(run.events) if event.key == "resume" and event.attempt == 2]
    level = "bitwise" if file is None else "approximate"
    assert told[0].value == level
    assert file is None or f"source {file}" in str(told[0].tags)
