"""A contract suite of every engine: what it computes agrees with torch, up to rounding.

    class TestMine(EngineContract):
        make = Mine

Not among the names of `rl_orch.testing` itself, since it loads torch.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch

from rl_orch import plugins
from rl_orch.rl.data.batch import Batch, host_column, on_host
from rl_orch.rl.learn.engine import Engine, engine_for
from rl_orch.rl.learn.learner import Learner, algorithm, build_learner
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.exploration import NoisyActions
from rl_orch.rl.policies.policy import PolicyInput, Setup, policy_tensors
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.testing.algorithms import setup_of

NAME = "engine-under-test"
STEPS = 24
CLOSE: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-5}


class EngineContract:
    """The contract of every engine. A subclass says how one is made."""

    make: Callable[[], Engine]

    algorithms: tuple[str, ...] = ("ppo", "a2c", "dqn", "qrdqn", "sac", "td3", "tqc")
    """Algorithms that it can train."""

    def setup_method(self) -> None:
        """One thread, which is faster for small networks and the same everywhere."""
        torch.set_num_threads(1)

    def test_its_actors_decide_as_policies_do(self) -> None:
        """With the weights as they are at each decision."""
        for name in self.algorithms:
            ours, theirs = self._pair(name)
            actor = type(self).make().actor(ours.policy)
            shown = host_column(_experience(name).observations)
            seen = PolicyInput(shown, np.ones(STEPS, np.bool_))
            for _ in range(2):
                found, expected = (each.decide(seen, None) for each in (actor, theirs.policy))
                np.testing.assert_allclose(found.actions, expected.actions, **CLOSE)
                for policy in (ours.policy, theirs.policy):
                    with torch.no_grad():
                        next(policy.parameters()).add_(0.5)

    def test_its_estimates_are_those_of_the_policy(self) -> None:
        """log π(a | s) and V(s)."""
        for name in {"ppo", "a2c"} & {*self.algorithms}:
            policy: Any = self._pair(name)[0].policy
            assert isinstance(policy, ActorCritic)
            assessor, batch = type(self).make().assessor(policy), _experience(name)
            observations, actions = (
                host_column(batch.observations),
                on_host(batch.column("actions")),
            )
            estimates = zip(
                assessor.assess(observations, actions),
                policy.assess(observations, actions),
                strict=True,
            )
            for found, expected in estimates:
                np.testing.assert_allclose(found, expected, **CLOSE)
            values = assessor.values(observations)
            np.testing.assert_allclose(values, policy.values(observations), **CLOSE)

    def test_its_updates_are_those_of_the_algorithm(self) -> None:
        """From the same experience follow the same metrics and the same policies."""
        for name in self.algorithms:
            _learn_alike(name, *self._pair(name), [_experience(name, seed) for seed in range(3)])

    def test_its_updates_heed_weights_cut_episodes_and_normalised_observations(self) -> None:
        """Where transitions are drawn by priority, their weights count as the algorithm says."""
        for name in self.algorithms:
            overrides = ["obs.normalize=running"]
            if algorithm(name).traits.off_policy:
                overrides += [
                    "buffer.prioritized=true",
                    "buffer.beta=1.0",
                    "train.gradient_steps=4",
                ]
            batches = [_experience(name, seed, cut=0.2) for seed in range(3)]
            _learn_alike(name, *self._pair(name, *overrides), batches)

    def test_its_rollouts_are_those_that_single_steps_give(self) -> None:
        """By a policy that does not explore, in an environment of ours."""
        if "td3" not in self.algorithms:
            return
        batches = []
        with plugins.provided("engines", NAME, type(self).make):
            for engine in (NAME, "torch"):
                spec = _spec("td3", engine).changed({"env.backend": "native", "env.num_envs": 2})
                made = plugins.load("collectors", "local")(spec, "captured")
                with closing(made) as collector:
                    setup = Setup(spec, collector.observation_space, collector.action_space)
                    policy = build_learner(setup).policy
                    actor = NoisyActions(engine_for(setup).actor(policy))
                    batches.append(collector.collect(actor, STEPS))
        for column in ("observations", "actions", "rewards", "terminated", "first", "valid"):
            found, expected = (on_host(batch.column(column)) for batch in batches)
            np.testing.assert_allclose(found, expected, **CLOSE)

    def _pair(self, name: str, *overrides: str) -> tuple[Learner, Learner]:
        """Learners of the same policy: by this engine, and by torch."""
        with plugins.provided("engines", NAME, type(self).make):
            ours, theirs = (
                build_learner(setup_of(_spec(name, engine, *overrides)))
                for engine in (NAME, "torch")
            )
        return ours, theirs


def _learn_alike(name: str, ours: Learner, theirs: Learner, batches: Sequence[Batch]) -> None:
    """From the same experience, the same metrics and the same policy in the end."""
    for batch in batches:
        for each in (ours, theirs):
            each.policy.pipeline.update(host_column(batch.observations))
        found, expected = ours.update(batch), theirs.update(batch)
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, err_msg=f"{name} {key}", **CLOSE)
    after = policy_tensors(ours.policy)
    for key, tensor in policy_tensors(theirs.policy).items():
        np.testing.assert_allclose(after[key], tensor, err_msg=f"{name} {key}", **CLOSE)


def _spec(name: str, engine: str, *overrides: str) -> Spec:
    continuous = algorithm(name).traits.bounded_actions
    document = {
        "env": {"id": "Pendulum-v1" if continuous else "CartPole-v1", "num_envs": 1, "seed": 5},
        "agent": {"algorithm": name, "network": {"hidden_sizes": [8]}},
        "rollout": {"steps": STEPS},
        "train": {"total_timesteps": 1000, "learning_starts": 1, "engine": engine},
        "buffer": {"size": 1000},
    }
    return resolve(document, overrides=[f"train.batch_size={STEPS}", *overrides])


def _experience(name: str, seed: int = 0, cut: float = 0.0) -> Batch:
    """Random rows, as if of one copy; that part of them, about, ends in a cut episode."""
    rng = np.random.default_rng(seed)
    continuous = algorithm(name).traits.bounded_actions
    shown = rng.normal(size=(STEPS + 1, 3 if continuous else 4)).astype(np.float32)
    moves = rng.uniform(-1.0, 1.0, (STEPS, 1)).astype(np.float32)
    terminated = rng.random(STEPS) < 0.1
    truncated = (np.random.default_rng(seed + 1).random(STEPS) < cut) & ~terminated
    return Batch(
        observations=shown[:-1],
        actions=moves if continuous else rng.integers(0, 2, STEPS),
        rewards=rng.normal(size=STEPS),
        terminated=terminated,
        truncated=truncated,
        next_observations=shown[1:],
        extras={
            "valid": np.ones(STEPS, np.bool_),
            "first": np.append(True, (terminated | truncated)[:-1]),
        },
    )
