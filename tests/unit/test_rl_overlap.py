"""Collecting while learning: who acts in which rollout, and that a resumed training is the same."""

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest

from rl_orch.errors import SpecInvalid
from rl_orch.rl.collect.overlap import OverlappedCollector
from rl_orch.rl.data.batch import Batch, host_column, on_host
from rl_orch.rl.policies.policy import load_weights, policy_tensors
from rl_orch.rl.seeding import seed_all
from rl_orch.rl.snapshot import Resumption
from rl_orch.rl.train import Training
from rl_orch.spec.checks import problems
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from tests.learning.known_envs import Dice, Step
from tests.learning.recorder import MemoryOutlet


class SlowDice(Dice):
    """Draws from the process-wide generators, while others are at work."""

    def step(self, action: Any) -> Step:
        time.sleep(0.0005)
        return super().step(action)


gymnasium.register("SlowDice-v0", f"{__name__}:SlowDice")

VARIANTS = {
    "kernels": (),
    "torch": ("train.engine=torch",),
    "stepped in Python": ("env.backend=sync",),
    "one copy": ("env.num_envs=1",),
    "normalised": ("obs.normalize=running", "env.backend=sync", "train.normalize_reward=true"),
    "recurrent": ("feature.encoder=gru", "feature.embed_dim=8"),
    "continuous": ("env.id=Pendulum-v1",),
}


def spec_of(*overrides: str) -> Spec:
    asked = {
        "env": {"id": "CartPole-v1", "num_envs": 4, "seed": 3},
        "rollout": {"steps": 32, "overlap": True},
        "train": {"batch_size": 32, "update_epochs": 2, "total_timesteps": 100_000},
    }
    return resolve(asked, overrides=overrides)


def made(spec: Spec) -> Training:
    seed_all(spec.env.seed)
    return Training(spec, MemoryOutlet())


def seen_by_the_learner(training: Training, monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """The batches that the learner is given from now on."""
    seen: list[Batch] = []
    update = training.learner.update

    def noted(batch: Batch) -> dict[str, float]:
        seen.append(batch)
        return update(batch)

    monkeypatch.setattr(training.learner, "update", noted)
    return seen


def log_probs(training: Training, weights: dict[str, Any], batch: Batch) -> Any:
    """What the actions of a batch are worth to a policy with these weights."""
    load_weights(training.policy, weights)
    policy: Any = training.policy
    actions = on_host(batch.column("actions"))
    return policy.assess(host_column(batch.observations), actions, masks=None)[0]


@pytest.mark.parametrize("engine", ["kernels", "torch"])
def test_a_rollout_is_by_the_policy_before_its_last_update(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(made(spec_of(f"train.engine={engine}"))) as training:
        seen = seen_by_the_learner(training, monkeypatch)
        policies = []
        for _ in range(4):
            policies.append(policy_tensors(training.policy))
            training.train_step()
        for number, batch in enumerate(seen):
            said = on_host(batch.column("log_probs"))
            actor = policies[max(number - 1, 0)]
            np.testing.assert_allclose(said, log_probs(training, actor, batch), atol=1e-5)
            if number > 0:
                other = log_probs(training, policies[number], batch)
                assert np.abs(said - other).max() > 1e-4


def test_the_first_rollout_is_the_one_that_would_be_collected_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = []
    for overlap in ("true", "false"):
        with closing(made(spec_of(f"rollout.overlap={overlap}"))) as training:
            seen = seen_by_the_learner(training, monkeypatch)
            training.train_step()
            batches.append(seen[0])
    for name in ("observations", "actions", "rewards"):
        ahead, plain = (on_host(batch.column(name)) for batch in batches)
        np.testing.assert_array_equal(ahead, plain)


@pytest.mark.parametrize("overrides", VARIANTS.values(), ids=VARIANTS)
def test_a_resumed_training_is_bit_for_bit_the_same(overrides: Sequence[str]) -> None:
    spec = spec_of(*overrides)
    with closing(made(spec)) as whole:
        for _ in range(3):
            whole.train_step()
        snapshot = whole.snapshot()
        for _ in range(3):
            whole.train_step()
        expected, steps = whole.snapshot(), whole.env_steps
    with closing(made(spec)) as resumed:
        resumed.resume(Resumption(snapshot, None))
        for _ in range(3):
            resumed.train_step()
        found = resumed.snapshot()
        assert resumed.env_steps == steps == 6 * spec.rollout_size
    assert found.document == expected.document
    assert found.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        np.testing.assert_array_equal(found.tensors[name], tensor, err_msg=name)


def test_a_snapshot_before_the_first_rollout_can_be_gone_on_from() -> None:
    ends = []
    for resumes in (False, True):
        with closing(made(spec_of())) as training:
            if resumes:
                training.resume(Resumption(training.snapshot(), None))
            training.train_step()
            training.train_step()
            ends.append(policy_tensors(training.policy))
    for name, tensor in ends[0].items():
        np.testing.assert_array_equal(ends[1][name], tensor)


def test_episodes_and_steps_are_told_with_the_rollout_that_has_them() -> None:
    with closing(made(spec_of())) as training:
        assert isinstance(training.collector, OverlappedCollector)
        training.train_step()
        assert training.env_steps == 128
        recorder: Any = training._recorder
        steps = [event.step for event in recorder.events if event.key == "charts/episodic_return"]
        assert steps
        assert max(steps) <= 128


def test_what_goes_wrong_while_collecting_ends_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(made(spec_of("env.backend=sync"))) as training:
        training.train_step()
        collector: Any = training.collector
        collector._next.result()

        def broken(*_: Any) -> Any:
            raise ValueError("the environment broke")

        monkeypatch.setattr(collector._collector, "_step", broken)
        training.train_step()
        with pytest.raises(ValueError, match="the environment broke"):
            training.train_step()


def test_evaluations_do_not_move_the_dice_of_a_rollout_that_is_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    often = ("env.id=SlowDice-v0", "train.total_timesteps=512", "eval.every=128", "eval.episodes=2")
    ends, collecting = [], list[bool]()

    def noting(collector: Any, evaluate: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            collecting.append(not collector._next.done())
            return evaluate(*given, **named)

        return call

    for _ in range(2):
        with closing(made(spec_of(*often))) as training:
            evaluator = training._evaluator
            heard = noting(training.collector, evaluator.evaluate)
            monkeypatch.setattr(evaluator, "evaluate", heard)
            training.run()
            ends.append(training.snapshot())
    assert collecting == [False] * 8
    assert ends[0].document == ends[1].document
    for name, tensor in ends[0].tensors.items():
        np.testing.assert_array_equal(ends[1].tensors[name], tensor, err_msg=name)


@pytest.mark.parametrize("algorithm", ["a2c", "dqn", "sac"])
def test_only_ppo_can_learn_from_an_older_policy(algorithm: str) -> None:
    env = "Pendulum-v1" if algorithm == "sac" else "CartPole-v1"
    with pytest.raises(SpecInvalid, match="overlap is true") as refused:
        resolve(
            {"agent": {"algorithm": algorithm}, "env": {"id": env}, "rollout": {"overlap": True}}
        )
    assert "ppo" in str(refused.value.problems[0].hint)
    assert list(problems(spec_of())) == []
