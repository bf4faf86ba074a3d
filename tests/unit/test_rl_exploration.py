"""Behaviour that explores: how often it does, and that it never takes what is forbidden."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rl_orch.rl.policies.exploration import EpsilonGreedy, NoisyActions, epsilon_at
from rl_orch.rl.policies.policy import Decision, PolicyInput, PolicyModule, Setup
from rl_orch.spec.groups import TrainGroup
from rl_orch.spec.model import Spec

ROWS = 20_000
CHOICES = 5


class Settled(PolicyModule):
    """Always decides for the same, or for the first that is allowed; and asks for no generator."""

    def __init__(self, action_space: spaces.Space[Any], action: Any) -> None:
        spec = Spec.model_validate({"env": {"id": "Any-v0"}})
        super().__init__(Setup(spec, spaces.Box(-1.0, 1.0, (1,)), action_space))
        self.action = np.asarray(action)

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        if seen.masks is not None:
            return Decision(seen.masks.argmax(-1))
        rows = len(seen.first)
        return Decision(np.broadcast_to(self.action, (rows, *self.action.shape)).copy())

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return actions + 7


def a_greedy() -> EpsilonGreedy:
    return EpsilonGreedy(Settled(spaces.Discrete(CHOICES, start=7), 2), CHOICES)


def a_noisy(deviation: float) -> NoisyActions:
    box = spaces.Box(-1.0, 1.0, (2,))
    return NoisyActions(Settled(box, np.array([0.9, -0.2], np.float32)), deviation)


def seen(rows: int = ROWS, masks: Any = None) -> PolicyInput:
    return PolicyInput(np.zeros((rows, 1), np.float32), np.zeros(rows, np.bool_), masks=masks)


def a_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 1.0])
def test_a_share_of_the_actions_is_random_and_those_are_all_as_likely(epsilon: float) -> None:
    behaviour = a_greedy()
    behaviour.epsilon = epsilon
    actions = behaviour.decide(seen(), a_generator()).actions
    shares = np.bincount(actions, minlength=CHOICES) / ROWS
    expected = np.full(CHOICES, epsilon / CHOICES)
    expected[2] += 1.0 - epsilon
    # Five standard errors of a share.
    assert shares == pytest.approx(expected, abs=5 * np.sqrt(0.25 / ROWS))


def test_without_a_generator_nothing_is_random() -> None:
    assert set(a_greedy().decide(seen(), None).actions) == {2}
    assert np.array_equal(
        a_noisy(0.5).decide(seen(9), None).actions,
        np.tile(np.array([0.9, -0.2], np.float32), (9, 1)),
    )


def test_a_generator_decides_what_is_explored() -> None:
    behaviour = a_greedy()
    one, same, other = (behaviour.decide(seen(99), a_generator(s)).actions for s in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 999), st.sampled_from([0.0, 0.3, 1.0]))
def test_a_forbidden_action_is_never_taken(seed: int, epsilon: float) -> None:
    rng = np.random.default_rng(seed)
    masks = rng.random((200, CHOICES)) < 0.4
    masks[np.arange(200), rng.integers(CHOICES, size=200)] = True
    behaviour = a_greedy()
    behaviour.epsilon = epsilon
    actions = behaviour.decide(seen(200, masks), a_generator(seed)).actions
    assert masks[np.arange(200), actions].all()


def test_random_actions_are_all_as_likely_among_those_that_are_allowed() -> None:
    mask = np.array([False, True, False, True, True])
    actions = a_greedy().decide(seen(masks=np.tile(mask, (ROWS, 1))), a_generator()).actions
    shares = np.bincount(actions, minlength=CHOICES) / ROWS
    assert shares == pytest.approx(mask / 3, abs=5 * np.sqrt(0.25 / ROWS))


def test_actions_reach_the_environment_as_the_policy_sends_them() -> None:
    assert a_greedy().to_env(np.array([0, 3])).tolist() == [7, 10]
    assert a_noisy(0.1).to_env(np.array([0.0])).tolist() == [7.0]
    assert a_greedy().device == a_noisy(0.1).device == torch.device("cpu")


def test_noise_has_its_deviation_and_stays_within_the_unit_box() -> None:
    actions = a_noisy(0.1).decide(seen(), a_generator()).actions
    assert actions.dtype == np.float32
    assert (actions[:, 1].mean(), actions[:, 1].std()) == pytest.approx((-0.2, 0.1), abs=0.005)
    assert actions.max() == 1.0
    assert a_noisy(5.0).decide(seen(), a_generator()).actions.min() == -1.0


def test_without_deviation_the_policys_actions_are_taken() -> None:
    actions = a_noisy(0.0).decide(seen(9), a_generator()).actions
    assert np.array_equal(actions, np.tile(np.array([0.9, -0.2], np.float32), (9, 1)))


def test_at_random_actions_are_anything_in_the_unit_box() -> None:
    behaviour = a_noisy(0.0)
    behaviour.random = True
    actions = behaviour.decide(seen(), a_generator()).actions
    assert np.abs(actions).max() <= 1.0
    assert actions.mean(0) == pytest.approx([0.0, 0.0], abs=0.03)
    assert actions.std(0) == pytest.approx(np.full(2, np.sqrt(1 / 3)), abs=0.02)


def options(**train: Any) -> TrainGroup:
    return TrainGroup.model_validate(train)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("linear", [1.0, 0.55, 0.1, 0.1, 0.1]),
        ("cosine", [1.0, 0.55, 0.1, 0.1, 0.1]),
        ("constant", [1.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_the_share_of_random_actions_falls_over_its_part_of_the_run(
    schedule: str, expected: list[float]
) -> None:
    train = options(
        exploration_final_eps=0.1, exploration_fraction=0.5, exploration_schedule=schedule
    )
    shares = [epsilon_at(train, progress) for progress in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert shares == pytest.approx(expected)


def test_the_share_of_random_actions_may_start_and_stay_anywhere() -> None:
    still = options(exploration_initial_eps=0.3, exploration_final_eps=0.3)
    assert [epsilon_at(still, progress) for progress in (0.0, 0.05, 1.0)] == [0.3] * 3
    at_once = options(exploration_fraction=0.0, exploration_final_eps=0.2)
    assert epsilon_at(at_once, 0.0) == 0.2
    rising = options(
        exploration_initial_eps=0.0, exploration_final_eps=1.0, exploration_fraction=1.0
    )
    assert epsilon_at(rising, 0.25) == pytest.approx(0.25)
