"""A random episode before training: what is refused, and what is only warned of."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rl_orch.errors import SpecInvalid
from rl_orch.rl.envs.describe import describe
from rl_orch.rl.envs.observations import misfit
from rl_orch.rl.envs.trial import EnvTrial, strange, try_out
from rl_orch.spec.model import Spec
from tests.learning import known_envs

FOUR = spaces.Box(-1.0, 1.0, (4,))


class Written(gymnasium.Env[Any, Any]):
    """An environment as somebody has just written it; what it gives is said when it is made."""

    observation_space = FOUR
    action_space = spaces.Discrete(2)

    def __init__(self, given: Callable[[int], tuple[Any, ...]], length: int) -> None:
        self.given, self.length, self.steps = given, length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        observation, reward, *more = self.given(self.steps)
        return observation, reward, *(more or (self.steps == self.length, False, {}))


def tried(given: Callable[[int], tuple[Any, ...]], *, limit: int | None = 50) -> EnvTrial:
    def make(**_options: Any) -> Written:
        return Written(given, length=5)

    gymnasium.register("Written-v0", make, max_episode_steps=limit)
    try:
        return try_out(Spec.model_validate({"env": {"id": "Written-v0"}}))
    finally:
        del gymnasium.registry["Written-v0"]


def test_an_environment_in_order_is_passed_without_a_word() -> None:
    assert tried(lambda _: (np.zeros(4), 1.0)) == EnvTrial()
    assert try_out(Spec.model_validate({"env": {"id": "CartPole-v1"}})) == EnvTrial()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((np.zeros(4), 1.0, False, {}), "its step gives 4 values; must be 5"),
        ((np.zeros(3), 1.0), "observation of shape (3,); its space has the shape (4,)"),
        ((np.zeros(1), 1.0), "observation of shape (1,); its space has the shape (4,)"),
        ((np.zeros(4), None), "a reward of None; must be a number"),
        ((np.zeros(4), np.array([1.0])), "a reward of array([1.]); must be a number"),
    ],
)
def test_what_cannot_be_trained_in_is_refused(given: tuple[Any, ...], says: str) -> None:
    (problem,) = tried(lambda _: given).problems
    assert problem.path == "env.id"
    assert says in problem.message
    assert problem.hint


@pytest.mark.parametrize(
    ("normalize", "dtype", "warned"),
    [
        ("none", np.float32, ["obs.normalize"]),
        ("running", np.float32, []),
        ("none", np.uint8, []),
    ],
)
def test_pixels_that_are_floats_are_warned_of_once(
    normalize: str, dtype: Any, warned: list[str]
) -> None:
    class Camera(Written):
        observation_space = spaces.Box(0, 255, (4, 4, 3), dtype)

        def reset(self, **_options: Any) -> Any:
            return np.zeros((4, 4, 3), dtype), {}

    pixels = np.zeros((4, 4, 3), dtype)

    def make(**_options: Any) -> Camera:
        return Camera(lambda _: (pixels, 1.0), length=5)

    gymnasium.register("Camera-v0", make, max_episode_steps=9)
    try:
        spec = Spec.model_validate({"env": {"id": "Camera-v0"}, "obs": {"normalize": normalize}})
        assert [warning.path for warning in try_out(spec).warnings] == warned
    finally:
        del gymnasium.registry["Camera-v0"]


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit("boom")])
def test_a_step_that_fails_is_named_with_its_number_and_place(error: BaseException) -> None:
    def given(step: int) -> tuple[Any, ...]:
        if step == 3:
            raise error
        return np.zeros(4), 1.0

    (problem,) = tried(given).problems
    place = f"{os.path.relpath(__file__)}, line {given.__code__.co_firstlineno + 2}"
    said = f"its step 3 failed: {type(error).__name__}: boom ({place})"
    assert problem.message == f"env.id is 'Written-v0'; {said}"


@pytest.mark.parametrize("call", ["making it", "its reset"])
def test_a_call_that_fails_before_any_step_is_named_too(call: str) -> None:
    class Broken(Written):
        def reset(self, **_options: Any) -> Any:
            raise TypeError("boom")

    def make(**_options: Any) -> Broken:
        if call == "making it":
            raise SystemExit(0)
        return Broken(lambda _: (), 5)

    gymnasium.register("Broken-v0", make)
    spec = Spec.model_validate({"env": {"id": "Broken-v0", "kwargs": {"a": 1}}})
    try:
        with pytest.raises(SpecInvalid) if call == "making it" else nullcontext() as refused:
            describe(spec)
        (problem,) = refused.value.problems if refused else try_out(spec).problems
    finally:
        del gymnasium.registry["Broken-v0"]
    assert f"; {call} failed: " in problem.message
    assert "test_rl_trial.py, line " in problem.message


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        ((np.array([0, 0, 7.5, 0]), 1.0), "observation[2] = 7.5, outside [-1, 1]"),
        ((np.array([0, np.nan, 0, 0]), 1.0), "observation with a number that is not finite"),
        ((np.zeros(4), np.inf), "a reward of inf"),
    ],
)
def test_what_will_surprise_is_warned_of_once_with_its_step(
    odd: tuple[Any, ...], says: str
) -> None:
    trial = tried(lambda step: odd if step >= 3 else (np.zeros(4), 1.0))
    (warning,) = trial.warnings
    assert says in warning.message
    assert trial.problems == []
    assert "step 3 of a random episode" in warning.message


def test_an_environment_without_a_limit_is_warned_of() -> None:
    (warning,) = tried(lambda _: (np.zeros(4), 1.0), limit=None).warnings
    assert warning.path == "env.max_episode_steps"
    assert "ended after 5 steps" in warning.message
    assert "has no time limit" not in warning.message
    endless = Spec.model_validate({"env": {"id": "CliffWalking-v1"}})
    (warning,) = try_out(endless).warnings
    assert "has no time limit" in warning.message
    assert try_out(endless.changed({"env.max_episode_steps": 100})) == EnvTrial()


class Unseeded(Written):
    """As they were before resets were seeded."""

    def reset(self) -> Any:  # type: ignore[override]
        return np.zeros(4, np.float32)


def test_a_reset_without_a_seed_is_refused() -> None:
    def make(**_options: Any) -> Unseeded:
        return Unseeded(lambda _: (np.zeros(4), 0.0), 5)

    gymnasium.register("Unseeded-v0", make)
    (problem,) = try_out(Spec.model_validate({"env": {"id": "Unseeded-v0"}})).problems
    assert "its reset cannot be seeded" in problem.message
    assert "seed=None" in (problem.hint or "")


def test_parts_of_observations_are_named() -> None:
    space = spaces.Dict({"a": FOUR, "b": spaces.Tuple([spaces.Discrete(3), FOUR])})
    zeros = np.zeros(4)
    assert misfit(space, {"a": zeros, "b": (2, zeros)}) is None
    assert misfit(space, {"a": zeros, "b": (2, np.zeros(5))}) == (
        "observation['b'][1] of shape (5,); its space has the shape (4,)"
    )
    assert misfit(space, {"a": zeros}) == "observation of ['a']; its space has ['a', 'b']"
    assert list(strange(space, {"a": zeros, "b": (3, zeros + 2)})) == [
        "observation['b'][0]",
        "observation['b'][1]",
    ]


def test_an_environment_without_masks_is_refused_where_they_are_asked_for() -> None:
    masked = {"action_masks": True}
    spec = Spec.model_validate({"env": {"id": "CartPole-v1"}, "agent": masked})
    (problem,) = try_out(spec).problems
    assert (problem.path, problem.value) == ("agent.action_masks", True)
    assert problem.message == "agent.action_masks is true, but the environment gives no mask"
    assert "action_masks()" in (problem.hint or "")
    pair = {"id": f"{known_envs.MODULE}:MaskedPair-v0"}
    assert try_out(Spec.model_validate({"env": pair, "agent": masked})).problems == []
