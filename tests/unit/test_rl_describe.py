"""What is said of an environment, and of one that cannot be made or does not suit."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rl_orch import plugins
from rl_orch.errors import BadInput, SpecInvalid
from rl_orch.records.tasks import CheckTask
from rl_orch.rl.envs import refusals
from rl_orch.rl.envs.describe import (
    EnvDescription,
    SpaceDescription,
    describe,
    problems,
)
from rl_orch.rl.envs.leaves import Leaf
from rl_orch.spec.algorithms import Traits
from rl_orch.spec.engine import assign
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.worker.checks import environment, served_policy
from tests.learning import known_envs


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
        observation=SpaceDescription("Box", (4,), "float32", bounded=False),
        action=SpaceDescription("Discrete", (), "int64", 2),
        leaves={"": Leaf("vector", (4,), measured=True)},
        max_episode_steps=500,
        reward_threshold=475.0,
    )


@pytest.mark.parametrize("backend", ["auto", "sync"])
def test_an_id_of_a_module_without_its_version_is_that_of_the_newest(backend: str) -> None:
    module = known_envs.__name__
    written = a_spec(f"{module}:Identity", env={"backend": backend})
    checks = [environment.check(CheckTask(spec=written), lambda *_: None)]
    checks += [served_policy.check(CheckTask(spec=written), lambda *_: None)]
    for told in checks:
        assert assign(written, told.settled).env.id == f"{module}:Identity-v0"
        assert [(each.path, each.value) for each in told.warnings] == [("env.id", written.env.id)]


def test_the_description_is_of_what_the_policy_sees() -> None:
    spec = a_spec("Pendulum-v1", env={"max_episode_steps": 7}, obs={"stack_frames": 4})
    seen = describe(spec)
    assert (seen.observation.shape, seen.max_episode_steps) == ((4, 3), 7)


@pytest.mark.parametrize("written", ["CartPol-v1", "cartpole-v1"])
def test_a_misspelt_id_is_answered_with_the_nearest(written: str) -> None:
    assert refusal(written) == (
        "env.id",
        f"env.id is {written!r}; no such environment is registered",
        "Did you mean 'CartPole-v1'?",
    )


def test_an_id_like_no_other_is_told_how_own_modules_are_named() -> None:
    _, message, hint = refusal("Warehouse-v0")
    assert message.endswith("no such environment is registered")
    assert hint is not None
    assert "'my_module:Warehouse-v0'" in hint
    assert "Did you mean" not in hint
    assert "'barns:barns/Warehouse-v0'" in str(refusal("barns/Warehouse-v0")[2])


def test_a_class_in_the_place_of_an_id_is_told_how_it_gets_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_classes.py").write_text(
        "import gymnasium\n"
        "class Plain(gymnasium.Env): pass\n"
        "class Registered(gymnasium.Env): pass\n"
        "class Thing: pass\n"
        "gymnasium.register('Elsewhere-v0', entry_point='their_classes:Registered')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    line = 'gymnasium.register(id="Plain-v0", entry_point="their_classes:Plain")'
    for written in ("their_classes:Plain", "their_classes:Plain-v0"):
        _, message, hint = refusal(written)
        assert message.endswith("Plain is a class of their_classes, and no id that is registered")
        assert hint == f"Add to their_classes: `{line}`, and write 'their_classes:Plain-v0'."
    assert refusal("their_classes:Registered")[2] == "Did you mean 'their_classes:Elsewhere-v0'?"
    assert "registers none like it" in str(refusal("their_classes:Thing")[2])


def test_a_file_in_the_place_of_a_module_is_pointed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_grid.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert refusal("their_grid.py:Warehouse-v0")[2] == "Write 'their_grid:Warehouse-v0'."
    with pytest.raises(BadInput) as refused:
        plugins.load("encoders", "their_grid.py:Encoder")
    assert refused.value.hint is not None
    assert "'their_grid:Encoder'" in refused.value.hint


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
    assert hint is not None
    assert "--module-path" in hint


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


@pytest.mark.parametrize(
    ("env_id", "pip", "module"),
    [
        ("MiniGrid-Empty-5x5-v0", "minigrid", "minigrid"),
        ("dm_control/cartpole-balance-v0", "'shimmy[dm-control]'", "shimmy"),
        ("FetchReach-v4", "gymnasium-robotics", "gymnasium_robotics"),
        ("highway-fast-v0", "highway-env", "highway_env"),
    ],
)
def test_an_id_of_a_known_package_says_what_to_install_and_what_to_write(
    env_id: str, pip: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "find_spec", lambda name: None)
    _, message, hint = refusal(env_id)
    assert message == f"env.id is {env_id!r}; it is of {module}, which is not installed"
    assert hint == f"Install it with `pip install {pip}`, and write '{module}:{env_id}'."
    monkeypatch.setattr(refusals, "find_spec", lambda name: name)
    assert refusal(env_id)[2] == f"Write '{module}:{env_id}'."
    assert refusal(f"{module}:{env_id}")[2] == f"Install it with `pip install {pip}`."


def test_an_unknown_backend_is_answered_with_those_there_are() -> None:
    path, message, hint = refusal("CartPole-v1", env={"backend": "sinc"})
    assert (path, hint) == ("env.backend", "Did you mean 'sync'?")
    assert message.startswith("env.backend is 'sinc'; must be one of auto, native, sync, async")


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Acrobot-v1"])
def test_box_and_discrete_spaces_suit_ppo(env_id: str) -> None:
    spec = a_spec(env_id)
    assert problems(spec, describe(spec)) == []


def test_observations_that_no_policy_takes_are_refused_with_what_is_allowed() -> None:
    class Wordy(gymnasium.Env[Any, Any]):
        observation_space = spaces.Text(5)
        action_space = spaces.Discrete(2)

        def __init__(self, **_options: Any) -> None:
            pass

    gymnasium.register("Wordy-v0", Wordy)
    spec = a_spec("Wordy-v0")
    (problem,) = problems(spec, describe(spec))
    assert problem.path == "env.id"
    assert problem.message == (
        "env.id is 'Wordy-v0'; the observation is a Text of shape None; must be a Box, Discrete, "
        "MultiDiscrete or MultiBinary with something in it, or a Dict or Tuple of them"
    )
    assert "env.wrappers=[module:Class]" in str(problem.hint)


def test_parts_that_can_be_seen_are_taken_as_the_hint_says() -> None:
    class Told(gymnasium.Env[Any, Any]):
        observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (7, 7, 3), np.uint8),
                "mission": spaces.Text(5),
                "to-go": spaces.Tuple((spaces.Discrete(3), spaces.Discrete(4))),
                "map": spaces.Tuple((spaces.Discrete(3), spaces.Graph(spaces.Discrete(2), None))),
            }
        )
        action_space = spaces.Discrete(2)

        def __init__(self, **_options: Any) -> None:
            pass

    gymnasium.register("TextAndGraph-v0", Told)
    gymnasium.register("MiniGrid-TextAndGraph-v0", Told)
    (problem,) = problems(a_spec("TextAndGraph-v0"), describe(a_spec("TextAndGraph-v0")))
    typed = str(problem.hint).partition("'")[2].removesuffix("'.")
    assert typed.endswith("filter_keys: [image, 'to-go']}]")
    mended = resolve({"env": "TextAndGraph-v0"}, overrides=[typed])
    assert problems(mended, describe(mended)) == []
    (problem,) = problems(
        a_spec("MiniGrid-TextAndGraph-v0"), describe(a_spec("MiniGrid-TextAndGraph-v0"))
    )
    assert "env.wrappers=[minigrid.wrappers:ImgObsWrapper]" in str(problem.hint)


@pytest.mark.parametrize("length", [2_000, 100_000])
def test_a_message_of_somebody_elses_is_shown_as_far_as_there_is_room(length: int) -> None:
    class Loud(gymnasium.Env[Any, Any]):
        def __init__(self, **_options: Any) -> None:
            raise RuntimeError("x" * length)

    gymnasium.register("Loud-v0", Loud)
    with pytest.raises(SpecInvalid) as caught:
        describe(a_spec("Loud-v0"))
    assert caught.value.message.endswith("characters more")
    assert all(len(text) <= 2_000 for text in (caught.value.message, str(caught.value)))
    assert len(caught.value.findings()[0]["message"]) <= 2_000
    assert str(caught.value.__cause__) == "x" * length


@pytest.mark.parametrize(
    ("env_id", "leaves"),
    [
        ("Blackjack-v1", {"0": "vector", "1": "vector", "2": "vector"}),
        (f"{known_envs.MODULE}:IdentityImage-v0", {"": "image"}),
        (
            f"{known_envs.MODULE}:IdentityDict-v0",
            {"noise": "vector", "picture": "image", "side": "vector"},
        ),
    ],
)
def test_images_and_observations_of_several_parts_suit_every_algorithm_for_choices(
    env_id: str, leaves: dict[str, str]
) -> None:
    env = describe(a_spec(env_id))
    assert {name: leaf.kind for name, leaf in env.leaves.items()} == leaves
    for algorithm in ("ppo", "a2c", "dqn", "qrdqn"):
        assert problems(a_spec(env_id, agent={"algorithm": algorithm}), env) == []


def test_actions_that_no_policy_gives_are_refused() -> None:
    box = SpaceDescription("Box", (4,), "float32")
    for action in (SpaceDescription("Text", None), SpaceDescription("Box", (1,), "int64")):
        (problem,) = problems(a_spec("Odd-v0"), EnvDescription("Odd-v0", box, action))
        assert problem.message.startswith("env.id is 'Odd-v0', which takes actions of ")
        assert problem.message.endswith(
            "; must be Discrete, or Box of floats, or MultiDiscrete, or MultiBinary, for ppo"
        )
        assert problem.hint is None


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
        ("dqn", SpaceDescription("Box", (1,), "float32"), "ppo, a2c, sac, td3, tqc, crossq"),
        ("qrdqn", SpaceDescription("Box", (1,), "float32"), "ppo, a2c, sac, td3, tqc, crossq"),
        ("sac", SpaceDescription("Discrete", (), "int64"), "ppo, a2c, dqn, qrdqn"),
        ("td3", SpaceDescription("MultiDiscrete", (2,), "int64"), "ppo, a2c"),
        ("dqn", SpaceDescription("MultiBinary", (2,), "int8"), "ppo, a2c"),
    ):
        spec = a_spec("Odd-v0", agent={"algorithm": algorithm})
        (problem,) = problems(spec, EnvDescription("Odd-v0", box, action))
        needed = "Discrete" if algorithm in ("dqn", "qrdqn") else "Box of floats"
        assert problem.path == "env.id"
        assert problem.message == (
            f"env.id is 'Odd-v0', which takes actions of {action}; must be {needed}, "
            f"for {algorithm}"
        )
        assert problem.hint == f"For {action.kind} actions there are: {others}."


@pytest.mark.parametrize("algorithm", ["sac", "td3", "tqc", "crossq"])
def test_actions_without_bounds_are_refused_where_they_are_stretched_to_them(
    algorithm: str,
) -> None:
    box = SpaceDescription("Box", (4,), "float32")
    free = SpaceDescription("Box", (2,), "float32", bounded=False)
    spec = a_spec("Free-v0", agent={"algorithm": algorithm})
    (problem,) = problems(spec, EnvDescription("Free-v0", box, free))
    assert problem.message == (
        f"env.id is 'Free-v0', whose actions have no bounds; {algorithm} needs them"
    )
    assert "env.wrappers=[module:Class]" in (problem.hint or "")
    assert problems(a_spec("Free-v0"), EnvDescription("Free-v0", box, free)) == []


VECTOR = EnvDescription(
    "Odd-v0",
    SpaceDescription("Box", (4,), "float32"),
    SpaceDescription("Discrete", (), "int64", 2),
    {"": Leaf("vector", (4,), measured=True)},
)
IMAGE = replace(
    VECTOR,
    observation=SpaceDescription("Box", (12, 12, 1), "uint8"),
    leaves={"": Leaf("image", (1, 12, 12), high=255.0, channels_last=True)},
)
PARTS = replace(
    VECTOR,
    observation=SpaceDescription("Dict"),
    leaves={"picture": IMAGE.leaves[""], "side": VECTOR.leaves[""]},
)


@pytest.mark.parametrize(
    ("env", "expected", "actual"),
    [
        (VECTOR, "CnnPolicy", "MlpPolicy"),
        (VECTOR, "MultiInputPolicy", "MlpPolicy"),
        (IMAGE, "MultiInputPolicy", "CnnPolicy"),
        (IMAGE, "MlpPolicy", "CnnPolicy"),
        (PARTS, "MlpPolicy", "MultiInputPolicy"),
        (PARTS, "CnnPolicy", "MultiInputPolicy"),
    ],
)
def test_an_expectation_of_the_policy_is_held_against_the_environment(
    env: EnvDescription, expected: str, actual: str
) -> None:
    (problem,) = problems(a_spec("Odd-v0", agent={"policy_type": expected}), env)
    assert problem.path == "agent.policy_type"
    assert problem.message == (
        f"agent.policy_type is {expected!r}, but Odd-v0 has {env.observation} observations"
    )
    flatten = " With feature.encoder mlp, images are flattened." if actual == "CnnPolicy" else ""
    assert problem.hint == f"Set it to {actual!r}, or leave it out.{flatten}"
    assert problems(a_spec("Odd-v0", agent={"policy_type": actual}), env) == []


def test_an_mlp_may_be_asked_for_images() -> None:
    asked = a_spec("Odd-v0", agent={"policy_type": "MlpPolicy"}, feature={"encoder": "mlp"})
    assert problems(asked, IMAGE) == []


@pytest.mark.parametrize(
    ("env", "encoder", "says"),
    [
        (VECTOR, "cnn", "takes images"),
        (VECTOR, "impala", "takes images"),
        (IMAGE, "cnn", "takes images of at least 36 by 36 pixels"),
        (IMAGE, "transformer", "takes vectors, but there are only images"),
        (PARTS, "cnn", "the observation 'picture' has 12 by 12"),
    ],
)
def test_an_encoder_for_other_observations_is_refused(
    env: EnvDescription, encoder: str, says: str
) -> None:
    (problem,) = problems(a_spec("Odd-v0", feature={"encoder": encoder}), env)
    assert problem.path == "feature.encoder"
    assert problem.message.startswith(f"feature.encoder is {encoder!r}, which takes ")
    assert says in problem.message


@pytest.mark.parametrize("kind", ["Box", "MultiBinary"])
def test_only_choices_can_be_masked(kind: str) -> None:
    spec = a_spec("Odd-v0", agent={"action_masks": True})
    action = SpaceDescription(kind, (2,), "float32" if kind == "Box" else "int8")
    (problem,) = problems(spec, replace(VECTOR, action=action))
    assert problem.path == "agent.action_masks"
    assert problem.message == (
        f"agent.action_masks is true, but Odd-v0 takes {kind} actions; "
        "only Discrete and MultiDiscrete ones can be masked"
    )
    assert problems(spec, VECTOR) == []


def test_images_are_neither_normalised_nor_clipped() -> None:
    asked: dict[str, Any] = {"normalize": "running", "clip_range": [-1, 1]}
    found = problems(a_spec("Odd-v0", obs=asked), IMAGE)
    assert [problem.path for problem in found] == ["obs.normalize", "obs.clip_range"]
    assert "whose pixels are scaled already" in found[0].message
    assert problems(a_spec("Odd-v0", obs=asked), PARTS) == []


def test_the_traits_of_a_plugin_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Evolution:
        traits = Traits(off_policy=True, actions=("Box",))
        build_policy = staticmethod(len)

    monkeypatch.setattr(plugins, "load", lambda kind, name: Evolution)
    monkeypatch.setattr(plugins, "names", lambda kind: ["evolution"])
    spec = a_spec(
        "Odd-v0",
        agent={"algorithm": "evolution", "action_masks": True},
        train={"off_policy": False},
        feature={"encoder": "gru"},
    )
    found = problems(spec, VECTOR)
    assert [problem.path for problem in found] == [
        "env.id",
        "train.off_policy",
        "feature.encoder",
        "agent.action_masks",
    ]
