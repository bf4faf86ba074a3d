"""Plugins without a package: `module:Class` wherever a name is taken, and what changes of their
source mean for a run."""

import json
import subprocess
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
        return inputs.flatten(1)


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


ENCODERS = """
import torch
from torch import nn


class Silent(nn.Module):
    def __init__(self, pipeline, feature, generator):
        super().__init__()
        self.size, self.layer = 3, nn.Linear(pipeline.size, 3)


class Short(Silent):
    def forward(self, inputs):
        return self.layer(inputs)[:, :2]


class Cut(Silent):
    def forward(self, inputs):
        return self.layer(inputs).detach()


class Broken(Silent):
    def forward(self, inputs):
        return self.layer(inputs) / 0.0


class Unsized(Short):
    def __init__(self, *given):
        super().__init__(*given)
        self.size = 0
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("torch.nn:Linear", "could not be made: TypeError"),
        ("their_encoders:Silent", "its forward fails for [1, 4] of float32: NotImplementedError"),
        ("their_encoders:Short", "its forward gives the shape [1, 2]"),
        ("their_encoders:Cut", "no gradient reaches its parameters"),
        ("their_encoders:Broken", "numbers that are not finite"),
        ("their_encoders:Unsized", "with `size`"),
    ],
)
def test_an_encoder_that_does_not_encode_is_refused_by_the_check(
    folder: Path, name: str, says: str
) -> None:
    (folder / "their_encoders.py").write_text(ENCODERS)
    (problem,) = answer(a_spec("ppo", f"feature.encoder={name}")).problems
    assert (problem.path, problem.value) == ("feature.encoder", name)
    assert says in problem.message
    assert problem.hint is not None


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


WRONG = """
import sys
from rl_orch.errors import BadInput
from rl_orch.rl.observe import Callback

NOTHING = None


class NotCb:
    pass


class Deaf:
    def __init__(self, spec):
        pass


class Threshold(Callback):
    def __init__(self, spec, threshold, most=1):
        super().__init__(spec)
        if threshold < 0:
            raise BadInput("threshold is negative")
        self.threshold = threshold

    def on_update(self, metrics, step):
        self.log("own/threshold", self.threshold)


class Broken(Deaf):
    def __init__(self, spec):
        raise OSError("no room")


class Leaving(Deaf):
    def __init__(self, spec):
        sys.exit(0)


class Half:
    def value(self):
        return 0.5


class Unsure:
    def __init__(self, run, spec, options):
        pass

    @staticmethod
    def check(options):
        if options:
            raise BadInput("it has no options", hint="Leave them out.")


class Unchecked:
    def __init__(self, run, spec, options):
        pass
"""


@pytest.fixture
def wrong(folder: Path) -> Iterator[Path]:
    """A folder with a module of classes that are not what they should be."""
    (folder / "its_wrong.py").write_text(WRONG)
    (folder / "its_exit.py").write_text("raise SystemExit(0)\n")
    yield folder
    for name in ("its_wrong", "its_exit"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("feature.encoder=its_wrong:NotCb", "called with (pipeline, feature, generator)"),
        ("feature.encoder=its_wrong:NOTHING", "a NoneType, which cannot be called"),
        ("train.callbacks=[its_wrong:NotCb]", "called with (spec)"),
        ("train.observers=[os:_exit]", "built into Python"),
        ("train.observers=[its_exit:Mine]", "cannot be imported: SystemExit"),
        ("train.observers=[its_wrong:Deaf]", "makes a Deaf that has none of before,"),
        ("train.observers=[its_wrong:Broken]", "OSError: no room"),
        ("train.observers=[its_wrong:Leaving]", "SystemExit"),
        ("train.observers=[its_wrong:Threshold]", "missing a required argument: 'threshold'"),
        ("train.observers=[{name:'its_wrong:Threshold',threshold:-1}]", "threshold is negative"),
        ("train.observers=[{name:'its_wrong:Threshold',threshold:1,x:1}]", "'x'"),
        ("eval.metrics=[its_wrong:Half]", "has no step()"),
        ("eval.metrics=[its_wrong:Deaf]", "missing a required argument: 'spec'"),
        ("agent.algorithm=its_wrong:Deaf", "called with (policy, setup)"),
        ("train.engine=its_wrong:Deaf", "called with ()"),
        ("rollout.collector=its_wrong:Deaf", "called with (spec, method, traced)"),
        ("env.backend=its_wrong:Deaf", "called with (spec, num_envs)"),
    ],
)
def test_a_class_that_is_not_what_its_option_needs_is_refused_by_check(
    wrong: Path, override: str, said: str
) -> None:
    (problem,) = answer(a_spec("ppo", override)).problems
    option = override.partition("=")[0].replace("callbacks", "observers")
    assert problem.path == option
    assert said in problem.message
    assert problem.value in override


def test_arguments_of_a_callback_are_keywords_besides_the_spec(wrong: Path, tmp_path: Path) -> None:
    named = "train.callbacks=[{name:'its_wrong:Threshold',threshold:5}]"
    assert answer(a_spec("ppo", named)).problems == ()
    assert modules_of(a_spec("ppo", named)) == ["its_wrong"]
    run = Orchestrator(tmp_path / "home", InlineRunner()).launch(a_spec("ppo", named)).run
    assert run.state is State.SUCCEEDED, run.reason
    logged = {event.value for event in read(RunDir.of(run).events) if event.key == "own/threshold"}
    assert logged == {5.0}


def test_an_observer_without_a_name_is_refused() -> None:
    with pytest.raises(SpecInvalid) as refused:
        a_spec("ppo", "train.observers=[{threshold:5}]")
    assert refused.value.path == "train.observers"


def test_the_check_of_plugins_loads_no_torch() -> None:
    program = (
        "import sys; import rl_orch.worker.checks.own_plugins; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
