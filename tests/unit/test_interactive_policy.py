"""`rl_orch.load_policy`: for every kind of space that can be trained, a policy that takes what the
environment gives, one observation or a batch, and says what Stable-Baselines3's would."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import rl_orch
from rl_orch.errors import BadInput, NotFound
from rl_orch.export.acting import greedy
from rl_orch.interactive.policy import ActingPolicy
from tests.exported import CASES, STAND_IN, Case, bundled, case, in_run, made
from tests.unit.test_export_cards import KINDS, flat, rows_of_one, steps

FROZEN_LAKE = case("FrozenLake-v1", "ppo")
Load = Callable[[dict[str, Any]], tuple[Case, ActingPolicy]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Makes a policy, and loads it from its checkpoint."""

    def loaded(document: dict[str, Any]) -> tuple[Case, ActingPolicy]:
        policy = made(document)
        path = in_run(policy, tmp_path / "a run")
        return policy, rl_orch.load_policy(path, home=tmp_path / "home")

    return loaded


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_takes_what_the_environment_gives(kind: str, load: Load) -> None:
    policy, ours = load(KINDS[kind])
    session, state = greedy(policy.policy, policy.spec), None
    for observation, first, mask in steps(policy):
        rows = rows_of_one(policy, observation)
        expected = session.act(rows, np.array([first]), flat(mask))[0]
        if first:
            ours.reset()
        assert np.array_equal(ours.act(observation, action_masks=mask), expected)
        action, state = ours.predict(observation, state, [first], True, mask)
        assert np.array_equal(action, expected)
        assert ours.action_space.contains(action)


@pytest.mark.parametrize("kind", ["nested Dict", "Tuple", "recurrent, stacked Dict"])
def test_a_batch_of_a_vector_environment_gets_as_many_actions(kind: str, load: Load) -> None:
    policy, ours = load(KINDS[kind])
    envs = gymnasium.make_vec(policy.spec.env.id, num_envs=3)
    observations, _ = envs.reset(seed=1)
    state, first = None, np.ones(3, np.bool_)
    for _ in range(12):
        actions, state = ours.predict(observations, state, first, deterministic=True)
        assert envs.action_space.contains(actions)
        observations, _, terminated, truncated, _ = envs.step(actions)
        first = terminated | truncated
    envs.close()


def test_predict_samples_unless_it_is_to_be_deterministic_and_act_does_not(load: Load) -> None:
    one = load(CASES["recurrent ppo"])[1]
    rows = np.zeros((64, 4), np.float32)
    sampled, _ = one.predict(rows)
    assert len({*sampled.tolist()}) == 2
    greedy_ones = one.predict(rows, deterministic=True)[0]
    assert len({*greedy_ones.tolist()}) == 1
    assert np.array_equal(one.act(rows), greedy_ones)
    one.reset()
    assert len({*one.act(rows, deterministic=False).tolist()}) == 2
    named = inspect.signature(one.predict).parameters
    assert [*named][:4] == ["observation", "state", "episode_start", "deterministic"]
    assert [each.default for each in named.values()][1:4] == [None, None, False]


def test_sampled_actions_follow_from_the_seed(tmp_path: Path) -> None:
    path = in_run(made(CASES["recurrent ppo"]), tmp_path / "a run")

    def drawn(seed: int) -> list[int]:
        ours = rl_orch.load_policy(path, home=tmp_path, seed=seed)
        return [int(ours.act(np.zeros(4), deterministic=False)) for _ in range(30)]

    assert drawn(1) == drawn(1) != drawn(2)


def test_a_bundle_acts_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = made(CASES["ppo"])
    path = bundled(policy, tmp_path / "carried", onnx=STAND_IN)
    monkeypatch.setenv("RLCTL_HOME", str(tmp_path / "nowhere"))
    ours = rl_orch.load_policy(path)
    assert ours.act(np.zeros(4)) in (0, 1)
    assert "ppo policy for CartPole-v1" in repr(ours)
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(NotFound):
        rl_orch.load_policy("production")


def test_observations_that_do_not_fit_are_refused_with_both_shapes(load: Load) -> None:
    _, ours = load(CASES["ppo"])
    with pytest.raises(BadInput, match=r"shape \(3,\); must be \(4,\)"):
        ours.act(np.zeros(3))
    with pytest.raises(BadInput, match="no array"):
        ours.act("up")


CHOICES: dict[Any, str] = {
    900: r"^observation = 900; must be in \[0, 15\]$",
    -1: r"observation = -1; must be in \[0, 15\]",
    5.5: r"observation = 5.5; must be whole numbers",
    float("nan"): "observation = nan; must be whole numbers",
    "5": "no array",
    (1, 16): r"observation\[1\] = 16; must be in \[0, 15\]",
    (1, 0.5): r"observation\[1\] = 0.5; must be whole",
    10**30: "no array",
    None: "no array",
}


@pytest.mark.parametrize("observation", CHOICES)
def test_a_choice_that_there_is_not_is_refused(load: Load, observation: Any) -> None:
    _, ours = load(FROZEN_LAKE)
    with pytest.raises(BadInput, match=CHOICES[observation]):
        ours.act(observation)
    assert ours.act(15) in range(4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_numbers_that_are_not_finite_are_refused(load: Load, value: float) -> None:
    _, ours = load(CASES["ppo"])
    with pytest.raises(BadInput, match=r"observation\[2\] = .*; must be a finite number"):
        ours.act([0.0, 0.0, value, 0.0])
    with pytest.raises(BadInput, match=r"observation\[1\]\[2\] = "):
        ours.predict([[0.0] * 4, [0.0, 0.0, value, 0.0]])
    assert ours.act([1e9] * 4) in (0, 1)


def test_parts_are_named_as_python_finds_them(load: Load) -> None:
    _, ours = load(case("Blackjack-v1", "ppo"))
    with pytest.raises(BadInput, match=r"observation\[0\] = 140; must be in \[0, 31\]"):
        ours.act((140, 10, 0))
    with pytest.raises(BadInput, match=r"observation\[1\]\[1\] = 11; must be in \[0, 10\]"):
        ours.predict(([14, 14], [10, 11], [0, 0]))
    with pytest.raises(BadInput, match=r"observation\[3\] is no part"):
        ours.act((14, 10, 0, 1))
    assert ours.act((14, 10, True)) in (0, 1)


def test_unknown_parts_and_values_that_a_type_cannot_hold_are_refused(load: Load) -> None:
    _, ours = load(KINDS["Dict"])
    good = ours.observation_space.sample()
    ours.act(good)
    with pytest.raises(BadInput, match=r"observation\['side2'\] is no part"):
        ours.act(good | {"side2": 1})
    with pytest.raises(BadInput, match=r"observation\['picture'\]\[0\]\[0\] = 300; .* to 255"):
        ours.act(good | {"picture": np.full((36, 36), 300)})


def test_an_observation_without_all_of_its_parts_is_refused(load: Load) -> None:
    _, ours = load(KINDS["Dict"])
    with pytest.raises(BadInput, match="noise, picture, side"):
        ours.act({"picture": 0})


def test_a_policy_with_masks_asks_for_them(load: Load) -> None:
    _, masked = load(KINDS["masks"])
    with pytest.raises(BadInput, match="trained with masks"):
        masked.act([0.5])
    for way in (masked.act, masked.predict):
        with pytest.raises(BadInput, match="forbids every action"):
            way([0.5], action_masks=[0] * masked._choices)


def test_a_state_of_another_number_of_episodes_is_refused(load: Load) -> None:
    _, ours = load(case("Recall", "ppo", feature={"encoder": "gru"}))
    _, state = ours.predict(np.zeros((2, 2)))
    with pytest.raises(BadInput, match="of 2 episodes, and there are 3"):
        ours.predict(np.zeros((3, 2)), state)


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = (
        "import sys, rl_orch; print(rl_orch.__version__); "
        "assert not {'torch', 'numpy', 'pydantic', 'gymnasium'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
