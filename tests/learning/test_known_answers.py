"""Every algorithm in environments whose best return, or whose value, is known by hand.

Which actions an algorithm is tried on follows from its traits, so that none is left out.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest

from rl_orch.rl.evaluate import evaluate
from rl_orch.rl.train import Training
from rl_orch.spec.algorithms import BUILT_IN
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from tests.learning import known_envs
from tests.learning.outlet import MemoryOutlet

Options = Mapping[str, Any]
"""Options of a spec by path; those that come later count."""

REPLAYED: Options = {
    "env.num_envs": 8,
    "rollout.steps": 4,
    "buffer.size": 5_000,
    "train.learning_starts": 128,
    "train.gradient_steps": 8,
    "train.batch_size": 32,
    "train.lr": 3e-3,
}
Q_VALUES: Options = {
    **REPLAYED,
    "train.target_update_interval": 64,
    "train.exploration_fraction": 0.5,
}
QUICK: Mapping[str, Options] = {
    "ppo": {
        "env.num_envs": 16,
        "rollout.steps": 16,
        "train.batch_size": 64,
        "train.update_epochs": 4,
        "train.lr": 3e-3,
    },
    "a2c": {"env.num_envs": 16, "rollout.steps": 4, "train.lr": 3e-3},
    "dqn": Q_VALUES,
    "qrdqn": {**Q_VALUES, "train.n_quantiles": 8, "train.exploration_fraction": 0.5},
    "sac": {**REPLAYED, "train.ent_coef": 0.01},
    "td3": REPLAYED,
}
"""Small networks and short rollouts; the environments are simple."""

MYOPIC: Options = {"train.gamma": 0.1, "train.gae_lambda": 0.5}
"""Where each answer is paid at once."""

PIXELS: Options = {**MYOPIC, "train.lr": 1e-3, "feature.embed_dim": 32}

PAIRS = [(name, action) for name, traits in BUILT_IN.items() for action in traits.actions]
DISCRETE = [name for name, action in PAIRS if action == "Discrete"]
MASKABLE = [name for name, traits in BUILT_IN.items() if traits.masks]
RECURRENT = [name for name, traits in BUILT_IN.items() if traits.recurrent]


def a_spec(algorithm: str, env: str, steps: int, options: Options) -> Spec:
    """What an algorithm is to learn in one of the known environments."""
    return resolve(
        {
            "env.id": f"{known_envs.MODULE}:{env}-v0",
            "env.seed": 1,
            "agent.algorithm": algorithm,
            "agent.network.hidden_sizes": [32],
            "train.total_timesteps": steps,
            "eval.every": steps,
            "eval.episodes": 1,
            **QUICK[algorithm],
            **options,
        }
    )


def trained(spec: Spec, outlet: MemoryOutlet | None = None) -> Training:
    """A training that has come to its end."""
    with closing(Training(spec, outlet or MemoryOutlet())) as training:
        training.run()
        return training


def mean_return(algorithm: str, env: str, steps: int, *options: Options) -> float:
    """The mean return of the trained policy over 20 fresh episodes."""
    merged = {path: value for layer in options for path, value in layer.items()}
    spec = a_spec(algorithm, env, steps, merged)
    report = evaluate(
        trained(spec).policy, spec, episodes=20, seed=7, deterministic=True, step=steps
    )
    return report.summary.mean


def best_of(action: str) -> dict[str, Any]:
    """The kind of answer that is asked for."""
    return {"env.kwargs": {"answer": action}}


@pytest.mark.parametrize("algorithm", DISCRETE)
def test_the_best_arm_of_a_bandit_is_found(algorithm: str) -> None:
    assert mean_return(algorithm, "Bandit", 1_024) == 1.0


@pytest.mark.parametrize(("algorithm", "action"), [pair for pair in PAIRS if pair[1] == "Box"])
def test_the_best_point_of_a_box_is_found(algorithm: str, action: str) -> None:
    steps = {"ppo": 6_144, "a2c": 6_144}.get(algorithm, 1_024)
    assert mean_return(algorithm, "BanditBox", steps) >= -0.1
