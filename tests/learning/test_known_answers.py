"""PPO in environments whose best return, or whose value, is known by hand."""

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from rl_orch.rl.evaluate import evaluate
from rl_orch.rl.policy import ActorCritic
from rl_orch.rl.train import Training
from rl_orch.spec.model import Spec
from tests.learning import known_envs
from tests.learning.outlet import MemoryOutlet

FAST: dict[str, Any] = {"lr": 3e-3, "batch_size": 128, "update_epochs": 5, "gamma": 0.9}


def a_spec(env: str, steps: int, **train: Any) -> Spec:
    """Small networks and short rollouts; the environments are simple."""
    return Spec.model_validate(
        {
            "env": {"id": f"{known_envs.MODULE}:{env}-v0", "num_envs": 16, "seed": 1},
            "agent": {"network": {"hidden_sizes": [32]}},
            "rollout": {"steps": 32},
            "train": FAST | {"total_timesteps": steps} | train,
            "eval": {"every": steps, "episodes": 4},
        }
    )


def trained(spec: Spec) -> ActorCritic:
    """The policy that a training of the spec ends with."""
    with closing(Training(spec, MemoryOutlet())) as training:
        training.run()
        return training.policy


def mean_return(spec: Spec) -> float:
    """The mean return of the trained policy over 20 fresh episodes."""
    report = evaluate(
        trained(spec),
        spec,
        episodes=20,
        seed=7,
        deterministic=True,
        step=spec.train.total_timesteps,
    )
    return report.summary.mean


def test_the_best_arm_of_a_bandit_is_found() -> None:
    assert mean_return(a_spec("Bandit", 4_096)) == 1.0


def test_a_reward_is_credited_to_an_action_five_steps_before() -> None:
    assert mean_return(a_spec("DelayedReward", 8_192, gae_lambda=0.95)) == 1.0


def test_discrete_observations_are_told_apart_and_answered() -> None:
    assert mean_return(a_spec("Identity", 10_240, gamma=0.5)) >= 15.5


def test_continuous_actions_follow_what_is_shown() -> None:
    assert mean_return(a_spec("IdentityBox", 30_720, gamma=0.5, gae_lambda=0.5)) >= -16 * 0.02


def test_an_episode_cut_short_is_worth_what_it_would_have_gone_on_to_pay() -> None:
    policy = trained(a_spec("Forever", 20_480, lr_schedule="linear"))
    assert policy.values(np.zeros((1, 1), np.float32)) == pytest.approx(10.0, abs=0.3)


def test_an_episode_that_terminates_is_worth_only_what_is_left_of_it() -> None:
    policy = trained(a_spec("Countdown", 20_480, lr_schedule="linear"))
    values = policy.values(np.eye(4, dtype=np.float32))
    assert values == pytest.approx([3.439, 2.71, 1.9, 1.0], abs=0.1)
