"""What is said of an environment, and of one that cannot be made or does not suit."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rl_orch.errors import SpecInvalid
from rl_orch.rl.envs.describe import (
    EnvDescription,
    SpaceDescription,
    describe,
    problems,
    try_out,
)
from rl_orch.spec.model import Spec


def a_spec(env_id: str, **groups: Any) -> Spec:
    env = {"id": env_id} | groups.pop("env", {})
    return Spec.model_validate({"env": env, **groups})


def refusal(env_id: str, **groups: Any) -> tuple[str, str, str | None]:
    """Path, message and hint of the one problem that describing the environment meets."""
    with pytest.raises(SpecInvalid) as caught:
        describe(a_spec(env_id, **groups))
    (problem,) = caught.value.problems
    return problem.path, problem.message, problem.hint


def test_an_environment_is_described_by_its_spaces() -> None:
    assert describe(a_spec("CartPole-v1")) == EnvDescription(
        id="CartPole-v1",
        observation=SpaceDescription("Box", (4,), "float32"),
        action=SpaceDescription("Discrete", (), "int64", 2),
        max_episode_steps=500,
        reward_threshold=475.0,
    )


def test_the_description_is_of_what_the_policy_sees() -> None:
    spec = a_spec("Pendulum-v1", env={"max_episode_steps": 7}, obs={"stack_frames": 4})
    seen = describe(spec)
    assert (seen.observation.shape, seen.max_episode_steps) == ((4, 3), 7)


def test_describing_takes_no_torch() -> None:
    code = "import sys, rl_orch.rl.envs.describe; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("written", ["CartPol-v1", "cartpole-v1"])
def test_a_misspelt_id_is_answered_with_the_nearest(written: str) -> None:
    assert refusal(written) == (
        "env.id",
        f"env.id is {written!r}; no such environment is registered",
        "Did you mean 'CartPole-v1'?",
    )


def test_an_id_that_moved_on_points_to_its_successor() -> None:
    _, message, hint = refusal("LunarLander-v2")
    assert message == "env.id is 'LunarLander-v2'; it has moved on to 'LunarLander-v3'"
    assert hint == "Write 'LunarLander-v3'."


def test_a_version_that_never_was_is_answered_with_the_newest() -> None:
    _, message, hint = refusal("CartPole-v7")
    assert message == "env.id is 'CartPole-v7'; no such version is registered"
    assert hint == "The newest is 'CartPole-v1'."


@pytest.mark.parametrize("written", ["a b c", ":CartPole-v1", "a:b:C-v0"])
def test_what_cannot_be_an_id_is_told_what_ids_look_like(written: str) -> None:
    assert "an id looks like 'Name-v0'" in refusal(written)[1]


def test_a_missing_module_is_named() -> None:
    _, message, hint = refusal("no_such_module_here:Foo-v0")
    assert message.endswith("there is no module 'no_such_module_here'")
    assert hint == "Run from the directory that holds it, or install it."


def test_a_module_that_fails_to_import_is_told_by_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_env_module.py").write_text("import not_there_at_all\n")
    (tmp_path / "worse_env_module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert (
        "importing 'broken_env_module' failed: ModuleNotFoundError"
        in refusal("broken_env_module:A-v0")[1]
    )
    assert "ZeroDivisionError: division by zero" in refusal("worse_env_module:A-v0")[1]


def test_a_module_that_does_not_register_the_id_suggests_with_its_prefix() -> None:
    assert refusal("json:CartPol-v1")[2] == "Did you mean 'json:CartPole-v1'?"


def test_arguments_that_the_environment_refuses_are_quoted() -> None:
    path, message, _ = refusal("CartPole-v1", env={"kwargs": {"gravity": 1}})
    assert path == "env.kwargs"
    assert "env.kwargs is {'gravity': 1}; CartPole-v1 refuses it: " in message
    assert "unexpected keyword argument 'gravity'" in message


def test_a_missing_dependency_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    _, message, hint = refusal("LunarLander-v3")
    assert message == "env.id is 'LunarLander-v3'; it needs box2d, which is not installed"
    assert hint == "Install it with `pip install 'rl-orch[box2d]'`."


def test_an_unknown_backend_is_answered_with_those_there_are() -> None:
    path, message, hint = refusal("CartPole-v1", env={"backend": "sinc"})
    assert (path, hint) == ("env.backend", "Did you mean 'sync'?")
    assert message.startswith("env.backend is 'sinc'; must be one of sync, async")


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Acrobot-v1"])
def test_box_and_discrete_spaces_suit_ppo(env_id: str) -> None:
    spec = a_spec(env_id)
    assert problems(spec, describe(spec)) == []


def test_observations_that_no_policy_takes_are_refused_with_what_is_allowed() -> None:
    spec = a_spec("Blackjack-v1")
    (problem,) = problems(spec, describe(spec))
    assert problem.message == (
        "env.id is 'Blackjack-v1', which has Tuple observations; ppo learns from Box "
        "observations that are not images, and from Discrete ones"
    )


def test_images_are_refused() -> None:
    image = SpaceDescription("Box", (84, 84, 3), "uint8")
    env = EnvDescription("Pixels-v0", image, SpaceDescription("Discrete", (), "int64", 2))
    (problem,) = problems(a_spec("Pixels-v0"), env)
    assert "which has images (Box of shape [84, 84, 3], uint8)" in problem.message


def test_actions_that_no_policy_gives_are_refused() -> None:
    box = SpaceDescription("Box", (4,), "float32")
    for action in (
        SpaceDescription("MultiBinary", (3,), "int8"),
        SpaceDescription("Box", (1,), "int64"),
    ):
        (problem,) = problems(a_spec("Odd-v0"), EnvDescription("Odd-v0", box, action))
        assert "must be Discrete, or Box of floats" in problem.message


@pytest.mark.parametrize(("env_id", "expected"), [("CartPole-v1", False), ("Pendulum-v1", True)])
def test_an_expectation_of_discrete_actions_is_held_against_the_environment(
    env_id: str, expected: bool
) -> None:
    spec = a_spec(env_id, agent={"discrete": expected})
    (problem,) = problems(spec, describe(spec))
    assert problem.path == "agent.discrete"
    agreeing = a_spec(env_id, agent={"discrete": not expected})
    assert problems(agreeing, describe(agreeing)) == []


def test_options_that_one_hot_observations_ignore_are_refused() -> None:
    spec = a_spec("FrozenLake-v1", obs={"normalize": "running", "clip_range": [-1, 1]})
    found = problems(spec, describe(spec))
    assert [problem.path for problem in found] == ["obs.normalize", "obs.clip_range"]
    stacked = a_spec("FrozenLake-v1", obs={"stack_frames": 2})
    assert [problem.path for problem in problems(stacked, describe(stacked))] == [
        "obs.stack_frames"
    ]


def test_what_a_plugin_must_do_itself_is_not_passed_over() -> None:
    box = SpaceDescription("Box", (4,), "float32")
    env = EnvDescription("Fast-v0", box, SpaceDescription("Discrete", (), "int64", 2))
    asked: dict[str, Any] = {"obs": {"stack_frames": 4}}
    limited = {"max_episode_steps": 7}
    found = problems(a_spec("Fast-v0", env=limited | {"backend": "fast"}, **asked), env)
    assert [(problem.path, problem.message) for problem in found] == [
        (
            "obs.stack_frames",
            "obs.stack_frames is 4, but env.backend 'fast' is a plugin, "
            "which must stack frames itself",
        ),
        (
            "env.max_episode_steps",
            "env.max_episode_steps is 7, but env.backend 'fast' is a plugin, "
            "which must limit its episodes itself",
        ),
    ]
    assert problems(a_spec("Fast-v0", env={"backend": "fast"}), env) == []
    assert problems(a_spec("Fast-v0", env=limited | {"backend": "async"}, **asked), env) == []


def test_an_algorithm_that_cannot_take_the_actions_is_refused_with_those_that_can() -> None:
    box = SpaceDescription("Box", (4,), "float32")
    for algorithm, action, others in (
        ("dqn", SpaceDescription("Box", (1,), "float32"), "ppo, a2c, sac, td3"),
        ("sac", SpaceDescription("Discrete", (), "int64"), "ppo, a2c, dqn, qrdqn"),
    ):
        spec = a_spec("Odd-v0", agent={"algorithm": algorithm})
        (problem,) = problems(spec, EnvDescription("Odd-v0", box, action))
        assert f"for {algorithm}" in problem.message
        assert others in (problem.hint or "")


def test_an_environment_of_the_old_kind_is_refused_before_training() -> None:
    class Old(gymnasium.Env[Any, Any]):
        observation_space = spaces.Box(-1.0, 1.0, (1,))
        action_space = spaces.Discrete(2)

        def __init__(self, **_options: Any) -> None:
            pass

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            return np.zeros(1, np.float32), 0.0, False, {}

    gymnasium.register("OldStep-v0", Old)
    (problem,) = try_out(a_spec("OldStep-v0"))
    assert "not enough values to unpack" in problem.message
