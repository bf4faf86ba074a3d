"""Rollouts in one call: they play what Gymnasium plays, decide as the policy does, and go on."""

from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_orch.rl.collect.rollout import LocalCollector
from rl_orch.rl.data.batch import on_host
from rl_orch.rl.envs import vector
from rl_orch.rl.kernels.engine import KernelEngine
from rl_orch.rl.learn.learner import Learner, build_learner
from rl_orch.rl.policies.policy import Decision, PolicyInput, Setup
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve

COPIES, STEPS = 3, 70
PLAYED = [
    ("ppo", "CartPole-v1"),
    ("ppo", "Acrobot-v1"),
    ("ppo", "Pendulum-v1"),
    ("ppo", "MountainCarContinuous-v0"),
    ("dqn", "CartPole-v1"),
    ("qrdqn", "MountainCar-v0"),
    ("sac", "Pendulum-v1"),
    ("td3", "Pendulum-v1"),
    ("tqc", "Pendulum-v1"),
]


def a_spec(algorithm: str, env_id: str, *overrides: str) -> Spec:
    return resolve(
        {"env": {"id": env_id, "seed": 3}, "agent": {"algorithm": algorithm}},
        overrides=["env.max_episode_steps=25", "agent.network.hidden_sizes=[8]", *overrides],
    )


class Collecting:
    """A learner and the collector of its experience, over native environments."""

    def __init__(self, spec: Spec) -> None:
        self.envs = vector.make(spec, num_envs=COPIES, backend="native")
        space: Any = self.envs.single_observation_space
        self.learner: Learner = build_learner(Setup(spec, space, self.envs.single_action_space))
        self.actor = KernelEngine().actor(self.learner.policy)
        self.collector = LocalCollector(
            self.envs,
            seed=spec.env.seed,
            device="cpu",
            stepper=KernelEngine().stepper(self.envs),
        )


class Played:
    """An actor that takes the actions that were taken."""

    memory_size = 0
    device = torch.device("cpu")

    def __init__(self, learner: Learner, actions: Any) -> None:
        self.to_env = learner.behaviour.to_env
        self._actions = iter(actions)

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        return Decision(next(self._actions))


@pytest.mark.parametrize(("algorithm", "env_id"), PLAYED)
def test_the_same_actions_lead_gymnasium_to_the_same_places(algorithm: str, env_id: str) -> None:
    spec = a_spec(algorithm, env_id)
    ours = Collecting(spec)
    sync = vector.make(spec, num_envs=COPIES, backend="sync")
    with closing(ours.envs), closing(sync):
        theirs = LocalCollector(sync, seed=spec.env.seed, device="cpu")
        for _ in range(2):
            batch = ours.collector.collect(ours.learner.behaviour, STEPS)
            taken = on_host(batch.column("actions"))
            by_time = taken.reshape(COPIES, STEPS, *taken.shape[1:]).swapaxes(0, 1)
            again = theirs.collect(Played(ours.learner, by_time), STEPS)
            for name in ("observations", "next_observations", "rewards"):
                mine, other = on_host(batch.column(name)), on_host(again.column(name))
                np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)
            for name in ("actions", "terminated", "truncated", "first", "valid"):
                assert np.array_equal(on_host(batch.column(name)), on_host(again.column(name)))
        found, expected = ours.collector.drain_episodes(), theirs.drain_episodes()
        assert len(found) == len(expected) > COPIES
        assert [(e.step, e.env, e.length) for e in found] == [
            (e.step, e.env, e.length) for e in expected
        ]
        assert [e.ret for e in found] == pytest.approx([e.ret for e in expected], rel=1e-5)


@pytest.mark.parametrize("normalize", ["none", "running"])
def test_without_exploration_decisions_are_those_of_the_policy(normalize: str) -> None:
    spec = a_spec("dqn", "CartPole-v1", f"obs.normalize={normalize}", "obs.clip_range=0.4")
    ours = Collecting(spec)
    with closing(ours.envs):
        behaviour: Any = ours.learner.behaviour
        behaviour.epsilon = 0.0
        for _ in range(2):
            batch = ours.collector.collect(behaviour, STEPS)
            shown = on_host(batch.column("observations"))
            seen = PolicyInput(shown, np.zeros(len(shown), np.bool_))
            decided = ours.actor.decide(seen, None).actions
            assert np.array_equal(on_host(batch.column("actions")), decided)
            ours.learner.policy.pipeline.update(shown)


def test_random_shares_are_as_large_as_asked_for() -> None:
    ours = Collecting(a_spec("dqn", "CartPole-v1"))
    with closing(ours.envs):
        behaviour: Any = ours.learner.behaviour
        behaviour.epsilon = 0.5
        batch = ours.collector.collect(behaviour, 2000)
        shown = on_host(batch.column("observations"))
        greedy = ours.actor.decide(PolicyInput(shown, np.zeros(len(shown), np.bool_)), None)
        differs = on_host(batch.column("actions")) != greedy.actions
        assert differs.mean() == pytest.approx(0.25, abs=0.02)


def test_samples_follow_the_policys_probabilities() -> None:
    ours = Collecting(a_spec("ppo", "CartPole-v1"))
    with closing(ours.envs):
        policy: Any = ours.learner.policy
        with torch.no_grad():
            policy.actor.layers[-1].bias.copy_(torch.tensor([0.0, 1.0]))
        actions = on_host(ours.collector.collect(ours.learner.behaviour, 2000).column("actions"))
        assert actions.mean() == pytest.approx(1.0 / (1.0 + np.exp(-1.0)), abs=0.02)


def test_gaussian_actions_have_the_policys_deviation_and_are_kept_as_drawn() -> None:
    ours = Collecting(a_spec("ppo", "Pendulum-v1", "agent.network.log_std_init=1"))
    with closing(ours.envs):
        actions = on_host(ours.collector.collect(ours.learner.behaviour, 2000).column("actions"))
        assert actions.std() == pytest.approx(np.e, rel=0.05)
        box = ours.envs.single_action_space
        assert isinstance(box, spaces.Box)
        assert np.abs(actions).max() > box.high.max()


@pytest.mark.parametrize(("algorithm", "env_id"), [("ppo", "CartPole-v1"), ("sac", "Pendulum-v1")])
def test_a_collector_goes_on_bit_for_bit(algorithm: str, env_id: str) -> None:
    spec = a_spec(algorithm, env_id)
    first, second = Collecting(spec), Collecting(spec)
    with closing(first.envs), closing(second.envs):
        first.collector.collect(first.learner.behaviour, STEPS)
        assert second.collector.load_state(first.collector.state()) is False
        for _ in range(2):
            expected = first.collector.collect(first.learner.behaviour, STEPS)
            found = second.collector.collect(first.learner.behaviour, STEPS)
            for name in ("observations", "actions", "rewards", "next_observations", "first"):
                assert (
                    on_host(found.column(name)).tobytes()
                    == on_host(expected.column(name)).tobytes()
                )


def test_short_episodes_begin_as_often_as_there_are_steps() -> None:
    ours = Collecting(a_spec("ppo", "CartPole-v1", "env.max_episode_steps=1"))
    with closing(ours.envs):
        batch = ours.collector.collect(ours.learner.behaviour, STEPS)
        assert on_host(batch.column("truncated")).all()
        starts = on_host(batch.column("observations"))
        assert len(np.unique(starts, axis=0)) == STEPS * COPIES
        assert len(ours.collector.drain_episodes()) == STEPS * COPIES
