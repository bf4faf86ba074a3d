"""A home of the release before models were artefacts: what its aliases meant, they go on to mean.

`tests/data/home_before_artefacts.sh` made it, and noted what each alias answered then.
"""

import json
import shutil
import signal
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from rl_orch import orchestrator
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.registry.sealing import as_artefact
from rl_orch.io.policies import artefacts
from rl_orch.io.run.directory import RunDir
from rl_orch.records import ModelVersion
from rl_orch.records.tasks import PolicyFiles
from rl_orch.rl.evaluate import Evaluator
from rl_orch.rl.policies.policy import PolicyInput
from rl_orch.stats import summarize
from rl_orch.worker.policies import sources

ARCHIVE = Path(__file__).parents[1] / "data" / "home_before_artefacts.tar.gz"
KILLED = """
import importlib, os, signal, sys
from rl_orch import orchestrator
from rl_orch.core.registry.sealing import as_artefact

name, _, function = f"rl_orch.{sys.argv[1]}".rpartition(".")
module = importlib.import_module(name)
real, count = getattr(module, function), 0

def killed(*arguments):
    global count
    count += 1
    if count == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)

setattr(module, function, killed)
known = orchestrator.connect(sys.argv[2])
for model in known.models.list():
    as_artefact(known.store, model)
"""
"""Seals the models of a home, and is killed at the third."""

OBSERVATIONS = np.random.default_rng(7).normal(0.0, 1.0, (1000, 4)).astype(np.float32)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "home"


def actions_of(model: ModelVersion) -> str:
    """What a policy answers to the observations, a digit each."""
    actor = sources.load(Path(model.model_path)).actor
    seen = PolicyInput(OBSERVATIONS, np.zeros(len(OBSERVATIONS), np.bool_))
    return "".join(map(str, actor.to_env(actor.decide(seen, None).actions).tolist()))


def mean_of(model: ModelVersion) -> float:
    """The mean return of a policy over the episodes of then."""
    path = Path(model.model_path)
    with (
        sources.playable(
            PolicyFiles(directory=str(path.parents[1]), checkpoint=path.name)
        ) as playable,
        closing(Evaluator(playable.spec)) as evaluator,
    ):
        played = evaluator.play(playable.policy, episodes=20, seed=3, deterministic=True)
    return summarize([episode.ret for episode in played]).mean


def refuse_otherwise(known: Orchestrator) -> None:
    """Hold every alias against what it answered before."""
    actions = json.loads((known.home / "actions.json").read_text())
    evaluations = json.loads((known.home / "evaluations.json").read_text())
    assert {alias.alias for alias in known.models.aliases()} >= evaluations.keys()
    for alias, expected in actions.items():
        assert actions_of(known.models.get(alias)) == expected, alias
    assert mean_of(known.models.get("theirs")) == evaluations["theirs"]["mean"]


def state_of(known: Orchestrator) -> tuple[dict[str, int], object, object]:
    """Every file of the runs, when it was written, and all that the registry says."""
    files = {str(path): path.stat().st_mtime_ns for path in (known.home / "runs").rglob("*")}
    views = [known.models.show(model.id) for model in known.models.list()]
    return files, views, known.models.history()


def seal(known: Orchestrator) -> None:
    for model in known.models.list():
        as_artefact(known.store, model)


def test_every_alias_of_a_former_home_means_what_it_meant(home: Path) -> None:
    known = orchestrator.connect(home)
    refuse_otherwise(known)  # As checkpoints, which they still are.
    before = {model.id: model for model in known.models.list()}
    state = state_of(known)
    assert known.models.verify().ok
    assert state_of(known) == state
    seal(known)
    after = {model.id: model for model in known.models.list()}
    assert after.keys() == before.keys()
    for number, model in after.items():
        assert artefacts.is_artefact(Path(model.model_path))
        assert model.checkpoint_digest == before[number].digest
        assert (model.validated, model.aliases) == (
            before[number].validated,
            before[number].aliases,
        )
    known.models.promote("staging", "another")  # By the verdict of then.
    state = state_of(known)
    assert known.models.verify().ok
    assert state_of(known) == state
    for folder in (home / "runs").glob("*/checkpoints"):
        shutil.rmtree(folder)
    refuse_otherwise(known)
    assert known.models.verify().ok


def test_runs_of_a_former_home_let_go_of_nothing(home: Path) -> None:
    for path in (home / "runs").iterdir():
        assert RunDir(path).spec().checkpoint.keep_training_state == "always"


def test_a_kill_while_a_former_home_is_sealed_is_survived(home: Path) -> None:
    known = orchestrator.connect(home)
    for function in ("core.registry.sealing._exchange", "io.files.sealed._publish"):
        child = [sys.executable, "-c", KILLED, function, str(home)]
        assert subprocess.run(child, check=False).returncode == -signal.SIGKILL
    done = [artefacts.is_artefact(Path(model.model_path)) for model in known.models.list()]
    assert any(done)
    assert not all(done)
    refuse_otherwise(known)
    seal(known)
    assert known.models.verify().ok
    assert not [*(home / "runs").glob("*/models/.tmp-*")]
    refuse_otherwise(known)
