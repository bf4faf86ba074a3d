"""PPO on CartPole, Acrobot and Pendulum: the level that is generally called solved, three seeds."""

from contextlib import closing
from typing import Any

import pytest

from rl_orch.rl.evaluate import evaluate, final_evaluation_seed
from rl_orch.rl.train import Training
from rl_orch.spec.model import Spec
from tests.learning.outlet import MemoryOutlet

CARTPOLE: dict[str, Any] = {
    "env": {"id": "CartPole-v1", "num_envs": 16},
    "rollout": {"steps": 128},
    "train": {
        "total_timesteps": 102_400,
        "lr": 2.5e-3,
        "batch_size": 512,
        "gamma": 0.98,
        "gae_lambda": 0.9,
    },
    "eval": {"every": 10_240, "episodes": 20},
    "gates": {"min_return": 475, "stop_when_solved": True},
}
ACROBOT: dict[str, Any] = {
    "env": {"id": "Acrobot-v1", "num_envs": 16},
    "rollout": {"steps": 128},
    "train": {"total_timesteps": 81_920, "lr": 2.5e-3, "batch_size": 512},
    "eval": {"every": 10_240, "episodes": 16},
    "gates": {"min_return": -92, "stop_when_solved": True},
}
PENDULUM: dict[str, Any] = {
    "env": {"id": "Pendulum-v1", "num_envs": 16},
    "obs": {"normalize": "running"},
    "agent": {"network": {"activation": "relu"}},
    "rollout": {"steps": 128},
    "train": {"total_timesteps": 122_880, "lr": 1e-3, "batch_size": 256, "gamma": 0.9},
    "eval": {"every": 20_480, "episodes": 32},
    "gates": {"min_return": -260, "stop_when_solved": True},
}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("document", "threshold"), [(CARTPOLE, 475.0), (ACROBOT, -100.0), (PENDULUM, -300.0)]
)
def test_ppo_reaches_the_level_that_counts_as_solved(
    document: dict[str, Any], threshold: float, seed: int
) -> None:
    spec = Spec.model_validate(document | {"env": document["env"] | {"seed": seed}})
    with closing(Training(spec, MemoryOutlet())) as training:
        outcome = training.run()
    report = evaluate(
        training.policy,
        spec,
        episodes=32,
        seed=final_evaluation_seed(spec),
        deterministic=True,
        step=outcome.env_steps,
    )
    assert report.summary.mean >= threshold
