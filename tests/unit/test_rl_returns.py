"""Advantages and rollouts, against numbers worked out by hand, in both ways of resetting."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rl_orch.errors import BadInput, Diverged
from rl_orch.rl.collect.collector import Episode
from rl_orch.rl.collect.rollout import LocalCollector
from rl_orch.rl.data.batch import Batch, on_host
from rl_orch.rl.data.returns import explained_variance, gae
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.state.seeded_episodes import SeededEpisodes
from rl_orch.rl.finite_numbers import FiniteNumbers
from rl_orch.rl.learn.on_policy import Rollouts
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import Decision, PolicyInput, Setup
from rl_orch.spec.model import Spec
from tests.learning import known_envs

LADDER = f"{known_envs.MODULE}:Ladder-v0"


def a_policy(spec: Spec) -> ActorCritic:
    """A policy that values an observation at ten times what it shows."""
    setup = Setup(spec, known_envs.Ladder.observation_space, known_envs.Ladder.action_space)
    policy = ActorCritic.build(setup)
    with torch.no_grad():
        for parameter in policy.critic.parameters():
            parameter.fill_(10.0 if parameter.ndim == 2 else 0.0)
    return policy


def a_spec(steps: int = 1, **train: Any) -> Spec:
    return Spec.model_validate(
        {
            "env": {"id": LADDER, "num_envs": 1},
            "agent": {"network": {"hidden_sizes": []}},
            "rollout": {"steps": steps},
            "train": train,
        }
    )


class Still:
    """Does nothing."""

    device = torch.device("cpu")
    memory_size = 0

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        return Decision(np.zeros(len(seen.first), np.int64))

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return actions


def a_collector(mode: AutoresetMode, num_envs: int = 1, **kwargs: Any) -> LocalCollector:
    """A collector over ladders, which Gymnasium resets in the given way."""
    envs: vector.Envs = gymnasium.make_vec(
        LADDER,
        num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode, "copy": False},
        wrappers=[SeededEpisodes],
        disable_env_checker=True,
        **kwargs,
    )
    return LocalCollector(envs, seed=0, device="cpu")


def rows(batch: Batch, name: str) -> Any:
    return on_host(batch.column(name)).reshape(-1).tolist()


def advantages(batch: Batch) -> list[float]:
    """Of a rollout with one copy, but for its resets; gamma and lambda are a half."""
    spec = a_spec(len(batch), gamma=0.5, gae_lambda=0.5)
    return Rollouts(a_policy(spec), spec).prepare(batch).advantages.tolist()


def next_values(batch: Batch) -> list[float]:
    """What is expected after each row: with lambda 0, the return is r + V(s')."""
    spec = a_spec(len(batch), gamma=1.0, gae_lambda=0.0)
    returns = Rollouts(a_policy(spec), spec).prepare(batch).returns
    kept = on_host(batch.column("valid"))
    found: list[float] = (returns.numpy() - on_host(batch.column("rewards"))[kept]).tolist()
    return found


def test_gae_by_hand_for_two_environments() -> None:
    rewards = np.array([[1.0, 0.0], [2.0, 4.0]])
    values = np.array([[3.0, 1.0], [1.0, 2.0]])
    next_values = np.array([[1.0, 0.0], [5.0, 6.0]])
    dones = np.array([[False, True], [False, False]])
    found = gae(rewards, values, next_values, dones, gamma=0.9, lam=0.8)
    # Second row: 2 + 0.9 * 5 - 1 and 4 + 0.9 * 6 - 2. First: 1 + 0.9 - 3 + 0.72 * 5.5 and 0 - 1.
    assert found == pytest.approx(np.array([[2.86, -1.0], [5.5, 7.4]]))


def test_lambda_one_sums_all_rewards_and_lambda_zero_looks_one_step_ahead() -> None:
    rewards, zeros = np.ones((3, 1)), np.zeros((3, 1))
    never = np.zeros((3, 1), np.bool_)
    full = gae(rewards, zeros, zeros, never, gamma=0.5, lam=1.0)
    assert full[:, 0].tolist() == [1.75, 1.5, 1.0]
    assert gae(rewards, zeros, zeros, never, gamma=0.5, lam=0.0)[:, 0].tolist() == [1.0, 1.0, 1.0]


def test_explained_variance_is_one_for_the_truth_and_zero_for_a_constant() -> None:
    targets = np.array([1.0, 2.0, 3.0])
    assert explained_variance(targets, targets) == 1.0
    assert explained_variance(np.zeros(3), targets) == 0.0
    assert explained_variance(np.ones(3), np.ones(3)) == 0.0


def test_a_truncated_episode_bootstraps_from_its_final_observation() -> None:
    batch = a_collector(AutoresetMode.SAME_STEP, end="truncated").collect(Still(), 3)
    assert rows(batch, "observations") == [0.0, 1.0, 0.0]
    assert next_values(batch) == [10.0, 20.0, 10.0]
    assert advantages(batch) == [6.5, 2.0, 6.0]


def test_a_terminated_episode_bootstraps_from_nothing() -> None:
    batch = a_collector(AutoresetMode.SAME_STEP, end="terminated").collect(Still(), 3)
    assert next_values(batch) == [10.0, 0.0, 10.0]
    assert advantages(batch) == [4.0, -8.0, 6.0]


@pytest.mark.parametrize(
    ("end", "expected"), [("truncated", [6.5, 2.0]), ("terminated", [4.0, -8.0])]
)
def test_a_step_spent_on_the_reset_is_masked_and_leaks_nothing(
    end: str, expected: list[float]
) -> None:
    batch = a_collector(AutoresetMode.NEXT_STEP, end=end).collect(Still(), 4)
    assert rows(batch, "observations") == [0.0, 1.0, 2.0, 0.0]
    assert rows(batch, "valid") == [True, True, False, True]
    assert advantages(batch) == [*expected, 6.0]


def test_a_reset_that_falls_into_the_next_rollout_is_masked_there() -> None:
    collector = a_collector(AutoresetMode.NEXT_STEP, end="truncated")
    first = collector.collect(Still(), 2)
    second = collector.collect(Still(), 2)
    assert next_values(first) == [10.0, 20.0]
    assert rows(second, "valid") == [False, True]
    assert collector.env_steps == 3


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_episodes_are_told_with_the_step_at_which_they_ended(mode: AutoresetMode) -> None:
    collector = a_collector(mode, num_envs=2, length=3)
    for _ in range(6):
        collector.collect(Still(), 2)
    same_step = [6, 12, 18, 24] if mode is AutoresetMode.SAME_STEP else [6, 12, 18]
    episodes = collector.drain_episodes()
    assert episodes == [Episode(step, env, 6.0, 3) for step in same_step for env in (0, 1)]
    assert collector.drain_episodes() == []
    assert collector.env_steps == (24 if mode is AutoresetMode.SAME_STEP else 18)


def test_rows_are_ordered_by_copy_then_time_and_outlive_the_next_rollout() -> None:
    collector = a_collector(AutoresetMode.SAME_STEP, num_envs=2, length=9)
    batch = collector.collect(Still(), 3)
    collector.collect(Still(), 3)
    assert rows(batch, "observations") == [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]
    assert rows(batch, "rewards") == [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]


def test_a_reward_that_is_not_a_number_is_named_with_its_step() -> None:
    collector = a_collector(AutoresetMode.SAME_STEP, num_envs=2, length=5, poison=3)
    with pytest.raises(Diverged, match="non-finite reward at step 6, copy 0: nan") as diverged:
        FiniteNumbers(8).collected(collector.collect(Still(), 8), collector.env_steps)
    assert diverged.value.step == 6


def test_an_environment_without_final_observations_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collector = a_collector(AutoresetMode.SAME_STEP, end="truncated")
    monkeypatch.setattr(
        gymnasium.vector.SyncVectorEnv, "_add_info", lambda self, infos, info, i: {}
    )
    with pytest.raises(BadInput, match="no infos\\['final_obs'\\]"):
        collector.collect(Still(), 3)
