"""Wrappers that a spec names: found, made with their arguments, and around every copy."""

from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest

from rl_orch.errors import BadInput, SpecInvalid
from rl_orch.rl.collect.replay_episode import rendered, replay
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.describe import describe
from rl_orch.rl.envs.state.probe import probe
from rl_orch.rl.envs.trial import try_out
from rl_orch.rl.evaluate import Evaluator, extras_of
from rl_orch.spec import code
from rl_orch.spec.model import Spec
from rl_orch.spec.native import why_not_native
from rl_orch.spec.resolve import resolve
from rl_orch.spec.wrappers import FREE
from tests.unit.test_rl_evaluate import a_policy

OURS = f"{__name__}:Tiring"


class Tiring(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pays less with every step of an episode, by a state of its own."""

    def __init__(self, env: gymnasium.Env[Any, Any], by: float = 0.1) -> None:
        super().__init__(env)
        self.by, self.tired = by, 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.tired = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        self.tired += self.by
        return observation, float(reward) - self.tired, *rest


def a_spec(*wrappers: Any, env_id: str = "CartPole-v1", **groups: Any) -> Spec:
    return resolve({"env": {"id": env_id, "wrappers": list(wrappers)}, **groups})


def rewards(spec: Spec, backend: str, steps: int = 3) -> list[float]:
    with closing(vector.make(spec, num_envs=2, backend=backend)) as envs:
        vector.reset(envs, seed=1)
        action = np.zeros(envs.action_space.shape or (), envs.action_space.dtype)
        return [float(envs.step(action)[1][1]) for _ in range(steps)]


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_wrappers_are_around_every_copy_with_their_arguments(backend: str) -> None:
    spec = a_spec({"name": OURS, "by": 0.5}, OURS)
    assert rewards(spec, backend) == pytest.approx([0.4, -0.2, -0.8])


@pytest.mark.parametrize(
    "written",
    [
        {"name": "TimeLimit", "max_episode_steps": 7},
        {"gymnasium.wrappers.TimeLimit": {"max_episode_steps": 7}},
        {"name": "gymnasium.wrappers:TimeLimit", "max_episode_steps": 7},
    ],
)
def test_one_wrapper_has_one_spelling_in_the_resolved_spec_and_the_hash(written: Any) -> None:
    spec = a_spec(written)
    assert spec.env.wrappers == ({"name": "TimeLimit", "max_episode_steps": 7},)
    assert a_spec({"name": "ClipAction"}).env.wrappers == ("ClipAction",)
    assert spec.config_hash != a_spec().config_hash


def test_a_policy_is_described_evaluated_and_replayed_inside_its_wrappers() -> None:
    rescaled = {"name": "RescaleAction", "min_action": -0.5, "max_action": 0.5}
    spec = a_spec(rescaled, OURS, env_id="Pendulum-v1", eval={"max_episode_steps": 9})
    assert describe(a_spec("FlattenObservation", env_id="FrozenLake-v1")).observation.kind == "Box"
    assert why_not_native(spec) is not None
    assert try_out(spec).problems == []
    with closing(Evaluator(spec)) as evaluator:
        (played,) = evaluator.play(
            a_policy(spec),
            episodes=1,
            seed=3,
            deterministic=True,
            extras=extras_of((), actions=True),
        )
    assert (played.length, played.cut) == (9, True)
    assert played.actions is not None
    assert played.seed is not None
    driven = replay(rendered(spec, "rgb_array"), played.seed, played.actions.tolist(), None)
    assert driven.ret == pytest.approx(played.ret)
    assert driven.ended


def test_a_wrapper_that_limits_episodes_needs_no_other_limit() -> None:
    limited = a_spec({"name": "TimeLimit", "max_episode_steps": 7}, env_id="CliffWalking-v1")
    assert vector.evaluation_limit(limited) is None
    assert try_out(limited).warnings == []


def test_state_of_wrappers_is_part_of_an_exact_resume() -> None:
    assert probe(a_spec(OURS)).level == "bitwise"


@pytest.mark.parametrize(
    ("wrapper", "says"),
    [
        ("ClipActoin", "Did you mean ClipAction?"),
        ("no_such_module_here:Thing", "there is no module 'no_such_module_here'"),
        (f"{__name__}:NoSuch", "has no 'NoSuch'"),
        ({"name": "TimeLimit", "steps": 5}, "unexpected keyword argument 'steps'"),
        ("FilterObservation", "missing 1 required positional argument"),
    ],
)
def test_a_wrapper_that_is_not_there_or_cannot_be_made_is_refused(wrapper: Any, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        describe(a_spec(wrapper))
    assert caught.value.path == "env.wrappers"
    assert says in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("wrapper", [5, {"a": 1}, {"name": 3}, {"a": {}, "b": {}}])
def test_what_is_no_wrapper_is_refused_at_once(wrapper: Any) -> None:
    with pytest.raises(SpecInvalid) as caught:
        a_spec(wrapper)
    assert [problem.path for problem in caught.value.problems] == ["env.wrappers"]


def test_a_wrapper_that_learns_is_refused_with_the_option_that_does_the_same() -> None:
    with pytest.raises(SpecInvalid) as caught:
        a_spec("NormalizeObservation")
    assert "obs.normalize" in (caught.value.problems[0].hint or "")


def test_a_wrapper_of_ones_own_is_code_that_the_spec_names() -> None:
    assert [each.module for each in code.named_by(a_spec("ClipAction"))] == []
    assert [each.module for each in code.named_by(a_spec("mine.wraps.Cool"))] == ["mine.wraps"]


@pytest.mark.parametrize(
    "wrapper",
    ["HumanRendering", {"gym.wrappers.RecordVideo": {"video_folder": "/x"}}, "OfTomorrow"],
)
def test_a_wrapper_that_does_more_than_wrap_is_code_that_no_list_of_modules_allows(
    wrapper: Any,
) -> None:
    (named,) = code.named_by(a_spec("ClipAction", wrapper))
    assert (named.path, named.module) == ("env.wrappers.1", None)


def test_of_gymnasiums_wrappers_those_are_free_that_touch_the_environment_alone() -> None:
    classes = {name for name in gymnasium.wrappers.__all__ if name[0].isupper()}
    assert classes - FREE == {"ArrayConversion", "HumanRendering", "RecordVideo"}
    assert classes >= FREE
