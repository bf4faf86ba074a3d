"""The charter's spec and the declarative module's usage example, as they stand."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_orch.orchestrator import to_spec
from tests.conftest import Ran

Rlctl = Callable[..., Ran]
TUNED = "hyperparameters tuned for CartPole-v1 (ppo-CartPole-v1.yaml); tuned=false takes none"
DATA = Path(__file__).parents[1] / "data"
MODULE = ["module.yaml", "module_dotted.yaml", "module_flat.yaml", "module.json"]
NOT_BUILT = [
    "store.backend",
    "store.tracking_uri",
    "store.experiment_name",
    "metrics.enable",
    "traces.enable",
    "logs.enable",
]


def test_the_charters_spec_is_accepted(rlctl: Rlctl) -> None:
    ran = rlctl("check", "-f", str(DATA / "charter.yaml"), "--json")
    spec = to_spec(DATA / "charter.yaml")
    assert (ran.code, ran.err) == (0, f"{TUNED}\n")
    assert json.loads(ran.out) == {
        "ok": True,
        "config_hash": spec.config_hash,
        "settled": {
            "env.id": "CartPole-v1",
            "env.backend": "native",
            "train.engine": "kernels",
        },
        "pending": [],
        "seeds": [123],
        "warnings": [],
        "errors": [],
    }
    assert (spec.name, spec.env.id, spec.env.num_envs) == ("ppo_cartpole_mvp", "CartPole-v1", 16)
    assert (spec.env.seed, spec.agent.algorithm, spec.agent.discrete) == (123, "ppo", True)
    assert spec.agent.network.hidden_sizes == (128, 128)
    assert spec.train.total_timesteps == 50 * 4096
    assert (spec.train.batch_size, spec.train.lr, spec.train.gamma) == (2048, 3e-4, 0.99)


@pytest.mark.parametrize("file", MODULE)
def test_the_modules_example_is_accepted_and_what_waits_is_listed(rlctl: Rlctl, file: str) -> None:
    ran = rlctl("check", "-f", str(DATA / file), "--json")
    assert (ran.code, ran.err) == (0, f"{TUNED}\n")
    document = json.loads(ran.out)
    assert (document["ok"], document["errors"]) == (True, [])
    assert document["pending"] == NOT_BUILT


def test_the_modules_example_means_the_same_in_every_form() -> None:
    first, *others = (to_spec(DATA / file) for file in MODULE)
    assert others == [first] * 3
    assert (first.env.id, first.env.num_envs) == ("CartPole-v1", 8)
    assert first.agent.network.hidden_sizes == (64, 64)
    assert (first.train.total_timesteps, first.train.lr) == (100_000, 3e-4)
    assert (first.gates.min_return, first.registry.db_path) == (195.0, "./rl_registry.db")


def test_check_says_in_words_what_it_found(rlctl: Rlctl) -> None:
    ran = rlctl("check", "-f", str(DATA / "module.yaml"))
    assert (ran.code, ran.err) == (0, f"{TUNED}\n")
    first, *rest = ran.out.splitlines()
    assert first == "ok  ppo-CartPole-v1: PPO on CartPole-v1, 100,000 steps, seed 42"
    assert [line.split()[1].rstrip(":") for line in rest if "pending" in line] == NOT_BUILT


def test_launch_refuses_what_waits_in_one_sentence(rlctl: Rlctl, tmp_path: Path) -> None:
    ran = rlctl("launch", "-f", str(DATA / "module.yaml"))
    assert (ran.code, ran.out) == (2, "")
    *told, sentence, advice = ran.err.splitlines()
    assert told == [TUNED]
    assert sentence == (
        'error: store.backend is "mlflow", but the mlflow tracker is not in this release '
        f"(only local is); the same goes for {', '.join(NOT_BUILT[1:])}"
    )
    assert advice.startswith("  Remove it to launch")
    as_json = rlctl("launch", "-f", str(DATA / "module.json"), "--json")
    error = json.loads(as_json.out)["error"]
    assert (as_json.code, error["code"]) == (2, "option_pending")
    assert error["path"] == "store.backend"
    assert list(tmp_path.iterdir()) == []


def test_a_variable_with_a_typo_does_not_stop_a_check(
    rlctl: Rlctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RL_ENV_NUMENVS", "4")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    ran = rlctl("check", "--env", "CartPole-v1")
    assert ran.code == 0
    assert ran.err.splitlines() == [
        "warning: RL_ENV_NUMENVS is set, but no option reads it; did you mean RL_ENV_NUM_ENVS?",
        TUNED,
    ]
