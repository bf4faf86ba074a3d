"""What is gathered of a checkpoint besides its report: champions on the very same episodes, how
long decisions take, and a sentence for whatever cannot be had.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rl_orch.errors import RlctlError
from rl_orch.io.checkpoints import catalog, checkpoint_files, external
from rl_orch.io.files import sealed
from rl_orch.io.run import gate_evidence
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.gate_evidence import Baseline, Champion, EvidenceRequest, GateEvidence
from rl_orch.orchestrator import to_spec
from rl_orch.rl.evaluate import evaluate, final_evaluation_seed
from rl_orch.rl.measure.latency import FEWEST
from rl_orch.rl.policies.policy import PolicyModule, policy_tensors
from rl_orch.worker import evaluate as evaluate_module
from rl_orch.worker.checks import environment
from rl_orch.worker.evaluate import run_evaluation
from rl_orch.worker.policies import sources
from rl_orch.worker.tasks import gather as gather_module
from rl_orch.worker.tasks.gather import Judged, gather
from tests.conftest import python_path
from tests.exported import made

NAME = catalog.name_of(10)
EPISODES = 12
SERVED = (
    "import json, sys\n"
    "for line in sys.stdin:\n"
    "    obs = json.loads(line)['obs']\n"
    "    print(json.dumps({'action': [int(o[2] > 0) for o in obs]}), flush=True)"
)


def a_run(folder: Path, name: str, *, seed: int = 1, **env: object) -> RunDir:
    """A run with a checkpoint that nobody has trained."""
    document = {
        "env": {"id": "CartPole-v1", "seed": seed, "backend": "sync", **env},
        "train": {"engine": "torch"},
        "eval": {"final_episodes": EPISODES},
    }
    case, directory = made(document), RunDir(folder / name)
    directory.create(case.spec, {"run_id": name})
    save(directory, case.policy)
    return directory


def save(directory: RunDir, policy: PolicyModule) -> None:
    checkpoint_files.save(
        directory.checkpoints,
        step=10,
        tensors=policy_tensors(policy),
        document={},
        meta={"run_id": directory.path.name, "attempt": 1},
    )


def judged(directory: RunDir) -> Judged:
    """The checkpoint of a run, with its report."""
    path, spec = directory.checkpoints / NAME, directory.spec()
    seed = final_evaluation_seed(spec)
    report = evaluate(
        sources.load(path).policy,
        spec,
        episodes=EPISODES,
        seed=seed,
        deterministic=True,
        step=10,
        checkpoint=NAME,
    )
    return Judged(directory, path, spec, report)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A checkpoint that is judged."""
    return judged(a_run(tmp_path_factory.mktemp("ours"), "ours"))


@pytest.fixture(scope="module")
def champion_run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """The run of a champion."""
    return a_run(tmp_path_factory.mktemp("theirs"), "theirs", seed=2, num_envs=2)


@pytest.fixture
def theirs(champion_run: RunDir, tmp_path: Path) -> RunDir:
    """A copy of it that may be harmed."""
    shutil.copytree(champion_run.path, tmp_path / "theirs")
    return RunDir(tmp_path / "theirs")


def champion_of(directory: RunDir) -> Champion:
    path = directory.checkpoints / NAME
    return Champion(
        model_id=7,
        directory=str(directory.path),
        checkpoint=NAME,
        digest=sealed.manifest_digest(path),
    )


def unheard(_doing: str, _done: float) -> None:
    """Nobody listens."""


def test_a_champion_plays_the_very_episodes_of_the_report(ours: Judged, theirs: RunDir) -> None:
    champion = champion_of(theirs)
    wanted = EvidenceRequest(checkpoint=NAME, champions={"production": champion, "staging": None})
    found = gather(ours, wanted, unheard)
    assert found.digest == sealed.manifest_digest(ours.path)
    assert found.baselines["staging"] == Baseline()
    report = found.baselines["production"].report
    assert report is not None
    assert (report.model, report.seeds) == ("7", ours.report.seeds)
    assert len(report.seeds) == EPISODES
    alone = evaluate(
        sources.load(theirs.checkpoints / NAME).policy,
        theirs.spec(),
        episodes=EPISODES,
        seed=ours.report.seed,
        deterministic=True,
        step=10,
    )
    assert report.returns == alone.returns
    assert (found.latency, found.bundle, found.problems) == (None, None, {})


def _gone(directory: RunDir) -> None:
    shutil.rmtree(directory.path)


def _damaged(directory: RunDir) -> None:
    (directory.checkpoints / NAME / catalog.TENSORS).write_bytes(b"noise")


def _changed(directory: RunDir) -> None:
    policy = sources.load(directory.checkpoints / NAME).policy
    for parameter in policy.parameters():
        parameter.data.mul_(2.0)
    save(directory, policy)


def _another_game(directory: RunDir) -> None:
    spec = directory.spec()
    limited = spec.env.model_copy(update={"max_episode_steps": 50})
    directory.write_spec(spec.model_copy(update={"env": limited}))


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (_gone, "no spec.yaml"),
        (_damaged, "wrong size: tensors.safetensors"),
        (_changed, "not those that were registered"),
        (_another_game, "env.max_episode_steps is None for one and 50"),
    ],
)
def test_a_champion_that_cannot_be_played_is_a_sentence_and_the_rest_is_gathered(
    harm: Callable[[RunDir], None], why: str, ours: Judged, theirs: RunDir
) -> None:
    champions = {"production": champion_of(theirs), "staging": None}
    harm(theirs)
    found = gather(ours, EvidenceRequest(checkpoint=NAME, champions=champions), unheard)
    assert found.baselines["staging"] == Baseline()
    baseline = found.baselines["production"]
    assert baseline.report is None
    assert baseline.problem is not None
    assert baseline.problem.startswith("model 7 cannot be played: ")
    assert why in baseline.problem


def test_what_an_environment_raises_while_evidence_is_gathered_costs_no_report(
    theirs: RunDir, champion_run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_given: object, **_named: object) -> None:
        raise RuntimeError("the simulator is gone")

    monkeypatch.setattr(gather_module, "Evaluator", broken)
    monkeypatch.setattr(gather_module, "decision_times", broken)
    champions = {"production": champion_of(champion_run)}
    gate_evidence.ask(theirs, EvidenceRequest(checkpoint=NAME, champions=champions, latency=True))
    assert run_evaluation(theirs, NAME) == 0
    assert theirs.read_report("final") is not None
    found = gate_evidence.read(theirs, "final", sealed.manifest_digest(theirs.checkpoints / NAME))
    assert found is not None
    assert found.problems == {"latency": "RuntimeError: the simulator is gone"}
    problem = "model 7 cannot be played: RuntimeError: the simulator is gone"
    assert found.baselines["production"].problem == problem


def test_nobody_is_played_against_itself(ours: Judged) -> None:
    itself = champion_of(ours.directory).model_copy(update={"itself": True})
    found = gather(
        ours, EvidenceRequest(checkpoint=NAME, champions={"production": itself}), unheard
    )
    assert found.baselines == {"production": Baseline(champion=itself)}


def test_latency_is_what_99_of_100_decisions_stay_within(
    ours: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = np.array([0.001] * 990 + [0.004] * 10)
    monkeypatch.setattr(gather_module, "decision_times", lambda *_given, **_named: took)
    found = gather(ours, EvidenceRequest(checkpoint=NAME, latency=True), unheard).latency
    assert found is not None
    assert found.n == 1000
    assert found.p99_ms == pytest.approx(1.03)


def test_the_final_evaluation_gathers_what_is_asked_of_this_checkpoint_and_no_other(
    champion_run: RunDir, theirs: RunDir
) -> None:
    run, digest = theirs, sealed.manifest_digest(theirs.checkpoints / NAME)
    champion = champion_of(champion_run)
    wanted = EvidenceRequest(checkpoint=NAME, champions={"production": champion}, latency=True)
    gate_evidence.ask(run, wanted)
    assert run_evaluation(run, NAME) == 0
    found, report = gate_evidence.read(run, "final", digest), run.read_report("final")
    assert found is not None
    assert found.latency is not None
    assert found.latency.p99_ms > 0.0
    assert found.latency.n >= FEWEST
    assert report is not None
    played = found.baselines["production"].report
    assert played is not None
    assert (played.seeds, played.returns) == (report.seeds, report.returns)
    assert gate_evidence.read(run, "final", "another") is None
    gate_evidence.ask(run, wanted.model_copy(update={"checkpoint": catalog.name_of(20)}))
    assert run_evaluation(run, NAME) == 0
    assert gate_evidence.read(run, "final", digest) is None
    gate_evidence.ask(run, EvidenceRequest(checkpoint=NAME))
    assert not run.report_file(gate_evidence.WANTED).exists()


def test_the_final_evaluation_says_how_many_episodes_are_done(
    theirs: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str | None] = []
    monkeypatch.setattr(evaluate_module, "TELL_EVERY_S", 0.0)
    monkeypatch.setattr(gate_evidence, "say", lambda _directory, doing: said.append(doing))
    assert run_evaluation(theirs, NAME) == 0
    episodes = theirs.spec().eval.final_episodes
    assert (said[0], said[-1]) == (None, None)
    assert f"{episodes} of {episodes} episodes evaluated" in said


def test_a_table_that_cannot_be_written_is_said_in_a_sentence_beside_the_reports(
    theirs: RunDir,
) -> None:
    theirs.episodes_file("final").mkdir()
    with pytest.raises(RlctlError, match=r"cannot write .*final\.parquet: Is a directory"):
        run_evaluation(theirs, NAME)
    said = theirs.evaluation_problem()
    assert said is not None
    assert "final.parquet: Is a directory. Free space" in said
    assert [*theirs.episodes_file("final").parent.glob(".final*")] == []


def test_a_served_policy_is_timed_and_has_no_bundle(tmp_path: Path) -> None:
    directory = RunDir(tmp_path / "run")
    runner = {
        "name": "external",
        "command": ["true"],
        "policy": [sys.executable, "-S", "-c", SERVED, "{checkpoint}"],
    }
    overrides = ("eval.final_episodes=2",)
    spec = to_spec({"env": {"id": "CartPole-v1"}, "runner": runner}, overrides)
    directory.create(spec, {"run_id": "run"})
    weights = tmp_path / "weights"
    weights.write_text("none")
    facts = {"run": "run", "step": 10, "attempt": 1, "seq": 0, "kept": (), "best": None}
    facts |= {"best_said": False, "saved": {}, "created_at": 0.0}
    external.save(directory.checkpoints / NAME, weights, facts)
    gate_evidence.ask(directory, EvidenceRequest(checkpoint=NAME, latency=True, bundle=True))
    assert run_evaluation(directory, NAME) == 0
    found = gate_evidence.read(
        directory, "final", sealed.manifest_digest(directory.checkpoints / NAME)
    )
    assert found is not None
    assert found.latency is not None
    assert found.bundle is None
    assert "policy of an external program, which cannot be exported" in found.problems["bundle"]


def test_without_the_extra_the_bundle_is_missing_with_the_command_that_installs_it(
    ours: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['onnxscript'] = None\n")
    monkeypatch.setenv("PYTHONPATH", python_path(tmp_path))
    found = gather(ours, EvidenceRequest(checkpoint=NAME, bundle=True), unheard)
    assert found == GateEvidence(digest=found.digest, problems=found.problems)
    assert found.problems["bundle"] == (
        "ONNX needs onnxscript, which this environment does not have. "
        "Install it with `pip install 'rl-orch[export]'`."
    )


def test_a_gate_that_needs_the_extra_is_refused_before_a_run_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environment, "ONNX_PACKAGES", ("onnx_that_nobody_has",))
    document = {"env": {"id": "CartPole-v1"}, "gates": {"export_parity": True}}
    (problem,) = environment.answer(to_spec(document)).problems
    assert problem.path == "gates.export_parity"
    assert "which needs onnx_that_nobody_has" in problem.message
    assert "pip install 'rl-orch[export]'" in str(problem.hint)
    assert environment.answer(to_spec({"env": {"id": "CartPole-v1"}})).problems == ()
