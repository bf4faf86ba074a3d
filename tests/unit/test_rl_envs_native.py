"""Native environments: whoever uses them sees what Gymnasium's, stepped one by one, would show."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rl_orch.errors import BadInput
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.native.envs import NativeEnvs
from rl_orch.rl.envs.state.capture import capture, restore
from rl_orch.rl.envs.state.probe import Proof, probe
from rl_orch.rl.streams import derive
from rl_orch.spec.model import Spec
from rl_orch.spec.native import NATIVE, why_not_native
from rl_orch.testing import a_spec

pytestmark = pytest.mark.filterwarnings("ignore:.*out of date")

LIMITS = {
    "CartPole-v0": 22,
    "CartPole-v1": 22,
    "MountainCar-v0": 160,
    "MountainCarContinuous-v0": 120,
    "Acrobot-v1": 90,
    "Pendulum-v1": 40,
}
"""So that some episodes come to their end, and others are cut short before."""


def actions_for(
    env_id: str, seen: NDArray[np.float32], generator: np.random.Generator
) -> NDArray[Any]:
    """What gets an environment somewhere, with some noise."""
    copies = len(seen)
    random = generator.random(copies)
    if env_id.startswith("CartPole"):
        return (random < 0.5).astype(np.int64)
    if env_id == "MountainCar-v0":
        return np.where(random < 0.9, np.where(seen[:, 1] > 0, 2, 0), 1).astype(np.int64)
    if env_id == "Acrobot-v1":
        return np.where(random < 0.9, np.where(seen[:, 4] > 0, 0, 2), 1).astype(np.int64)
    way = seen[:, 1] if env_id == "MountainCarContinuous-v0" else seen[:, 2]
    return (np.sign(way) * (3 * random - 0.5))[:, None].astype(np.float32)


@contextmanager
def made(spec: Spec, num_envs: int, backend: str = "native", **options: Any) -> Iterator[Any]:
    with closing(vector.make(spec, num_envs=num_envs, backend=backend, **options)) as envs:
        yield envs


def limited(env_id: str, limit: int | None = None) -> Spec:
    return a_spec(f"env.max_episode_steps={limit or LIMITS[env_id]}", env_id=env_id)


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("env_id", NATIVE)
def test_whole_episodes_are_those_of_gymnasium(env_id: str, numbered: bool) -> None:
    spec, generator = limited(env_id), np.random.default_rng(2)
    ends = np.zeros(2, np.int64)
    with made(spec, 3) as ours, made(spec, 3, "sync") as theirs:
        first = vector.reset(ours, 5, numbered=numbered).observations.copy()
        seen = vector.reset(theirs, 5, numbered=numbered).observations.copy()
        assert np.array_equal(first, seen)
        for _ in range(4 * LIMITS[env_id] + 10):
            actions = actions_for(env_id, seen, generator)
            got, expected = ours.step(actions), theirs.step(actions)
            seen = expected[0].copy()
            np.testing.assert_allclose(got[0], seen, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(got[1], expected[1], rtol=1e-6, atol=1e-6)
            assert np.array_equal(got[2], expected[2])
            assert np.array_equal(got[3], expected[3])
            assert_same_infos(got[4], expected[4])
            ended = expected[2] | expected[3]
            assert np.array_equal(got[0][ended], seen[ended])
            ends += expected[2].sum(), (expected[3] & ~expected[2]).sum()
    assert ends[0] > 2 or env_id == "Pendulum-v1"
    assert ends[1] > 2


def assert_same_infos(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours.keys() == theirs.keys()
    if not theirs:
        return
    assert ours["final_info"] == theirs["final_info"]
    for key in ("_final_obs", "_final_info"):
        assert np.array_equal(ours[key], theirs[key])
    for mine, other in zip(ours["final_obs"], theirs["final_obs"], strict=True):
        assert (mine is None) == (other is None)
        if other is not None:
            assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("env_id", NATIVE)
def test_spaces_and_description_are_those_of_gymnasium(env_id: str) -> None:
    spec = a_spec(env_id=env_id)
    with made(spec, 3) as ours, made(spec, 3, "sync") as theirs:
        for name in (
            "observation_space",
            "action_space",
            "single_observation_space",
            "single_action_space",
        ):
            assert getattr(ours, name) == getattr(theirs, name)
        assert ours.num_envs == 3
        assert ours.spec.id == theirs.spec.id == env_id
        assert ours.spec.max_episode_steps == theirs.spec.max_episode_steps
        assert vector.autoreset(ours) is vector.autoreset(theirs) is AutoresetMode.SAME_STEP


@pytest.mark.parametrize("env_id", NATIVE)
def test_the_table_has_the_limits_that_are_registered(env_id: str) -> None:
    limit = gymnasium.spec(env_id).max_episode_steps
    assert NATIVE[env_id].max_episode_steps == limit
    assert NativeEnvs(env_id, 1).limit == limit


@pytest.mark.parametrize(("asked", "limit"), [(None, 200), (7, 7), (300, 300)])
def test_episodes_are_cut_short_exactly_at_their_limit(asked: int | None, limit: int) -> None:
    envs = NativeEnvs("Pendulum-v1", 2, asked)
    envs.reset(seed=0)
    cut = [envs.step(np.zeros((2, 1), np.float32))[3].all() for _ in range(2 * limit)]
    assert np.flatnonzero(cut).tolist() == [limit - 1, 2 * limit - 1]
    assert envs.spec is not None
    assert envs.spec.max_episode_steps == limit


def test_an_episode_may_end_and_be_cut_short_in_one_step() -> None:
    with made(limited("CartPole-v1", 500), 1) as envs:
        vector.reset(envs, 5)
        lasts = 1
        while not envs.step(np.zeros(1, np.int64))[2][0]:
            lasts += 1
    with made(limited("CartPole-v1", lasts), 1) as envs:
        vector.reset(envs, 5)
        for _ in range(lasts):
            _, _, terminated, truncated, _ = envs.step(np.zeros(1, np.int64))
    assert (terminated[0], truncated[0]) == (True, True)


def test_sixty_four_copies_each_play_episodes_of_their_own() -> None:
    with made(limited("CartPole-v1"), 64) as many, made(limited("CartPole-v1"), 2) as few:
        together = vector.reset(many, 5).observations
        assert len({row.tobytes() for row in together}) == 64
        vector.reset(few, 5)
        for step in range(100):
            actions = np.full(64, step % 2)
            shown = many.step(actions)[0][:2]
            assert np.array_equal(shown, few.step(actions[:2])[0])


def test_final_observations_outlive_the_next_step() -> None:
    with made(limited("Pendulum-v1", 1), 2) as envs:
        vector.reset(envs, 5)
        final = envs.step(np.ones((2, 1)))[4]["final_obs"]
        kept = [each.copy() for each in final]
        envs.step(-np.ones((2, 1)))
    assert all(np.array_equal(a, b) for a, b in zip(final, kept, strict=True))


def test_a_reset_without_a_seed_goes_on_to_the_next_episodes() -> None:
    cart_pole = gymnasium.make("CartPole-v1")
    envs = NativeEnvs("CartPole-v1", 2)
    envs.reset(seed=[11, 12])
    shown = envs.reset()[0]
    for copy, base in enumerate((11, 12)):
        assert np.array_equal(shown[copy], cart_pole.reset(seed=derive(base, 1))[0])
    mixed = envs.reset(seed=[None, 12])[0]
    assert np.array_equal(mixed[0], cart_pole.reset(seed=derive(11, 2))[0])
    assert np.array_equal(mixed[1], cart_pole.reset(seed=12)[0])
    counted = envs.reset(seed=20)[0]
    assert np.array_equal(counted[1], cart_pole.reset(seed=21)[0])


def test_without_any_seed_no_two_episodes_are_alike() -> None:
    shown = [NativeEnvs("CartPole-v1", 2).reset()[0] for _ in range(2)]
    assert len({row.tobytes() for each in shown for row in each}) == 4


def test_what_cannot_be_stepped_is_refused_before_anything_moves() -> None:
    envs = NativeEnvs("CartPole-v1", 2)
    with pytest.raises(ResetNeeded, match="before their first reset"):
        envs.step(np.zeros(2, np.int64))
    envs.reset(seed=0)
    before = envs.state.copy()
    with pytest.raises(ValueError, match=r"actions are \[0 2\]; must be of Discrete\(2\)"):
        envs.step(np.array([0, 2]))
    with pytest.raises(ValueError, match=r"the shape \(3,\); must be \(2,\)"):
        envs.step(np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="there are 3 seeds; must be 2"):
        envs.reset(seed=[1, 2, 3])
    with pytest.raises(BadInput, match="native environments take none"):
        envs.reset(options={"low": -0.1})
    assert np.array_equal(envs.state, before)
    assert envs.elapsed.tolist() == [0, 0]


def stored(states: StateTree) -> StateTree:
    """The states as a checkpoint gives them back."""
    tensors = {
        name: np.frombuffer(tensor.tobytes(), tensor.dtype).reshape(tensor.shape)
        for name, tensor in states.tensors.items()
    }
    return StateTree(tensors, json.loads(json.dumps(states.document)))


def record(envs: Any, env_id: str, seen: NDArray[Any], steps: int) -> list[bytes]:
    """All that so many steps show, and the last observations besides."""
    generator, shown = np.random.default_rng(9), []
    for _ in range(steps):
        *arrays, infos = envs.step(actions_for(env_id, seen, generator))
        seen = arrays[0].copy()
        finals = [each for each in infos.get("final_obs", ()) if each is not None]
        shown.append(b"".join(np.asarray(each).tobytes() for each in (*arrays, *finals)))
    return shown


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("at", [0, 1, 24, 25, 40])
@pytest.mark.parametrize("env_id", NATIVE)
def test_a_captured_state_goes_on_bit_for_bit(env_id: str, at: int, numbered: bool) -> None:
    spec = limited(env_id, 25)
    with made(spec, 3) as first, made(spec, 3) as second:
        seen = vector.reset(first, 5, numbered=numbered).observations
        record(first, env_id, seen, at)
        states = capture(first)
        assert (states.document["method"], states.document["why"]) == ("captured", None)
        seen = first.unwrapped._observations.copy()
        expected = record(first, env_id, seen, 60)
        assert restore(second, stored(states)) is None
        assert record(second, env_id, seen, 60) == expected


def test_a_captured_state_is_a_copy() -> None:
    with made(limited("CartPole-v1"), 2) as envs:
        vector.reset(envs, 5)
        states = capture(envs)
        before = states.tensors["0/arrays"].tobytes()
        envs.step(np.zeros(2, np.int64))
    assert states.tensors["0/arrays"].tobytes() == before


def test_unseeded_episodes_go_on_bit_for_bit() -> None:
    first, second = NativeEnvs("CartPole-v1", 2, 5), NativeEnvs("CartPole-v1", 2, 5)
    seen = first.reset()[0].copy()
    states = stored(capture(first))
    expected = record(first, "CartPole-v1", seen, 20)
    assert restore(second, states) is None
    assert record(second, "CartPole-v1", seen, 20) == expected


@pytest.mark.parametrize(
    ("spec", "num_envs", "backend", "why"),
    [
        (limited("CartPole-v1"), 3, "native", "not one of 2 native environments"),
        (limited("CartPole-v1"), 2, "sync", "not one of 2 native environments"),
        (limited("CartPole-v1", 23), 2, "native", "'max_episode_steps': 23"),
        (limited("MountainCar-v0", 22), 2, "native", "'dynamics': 'mountain_car'"),
    ],
)
def test_the_state_of_other_environments_is_refused(
    spec: Spec, num_envs: int, backend: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with made(spec, num_envs, backend) as others, made(limited("CartPole-v1"), 2) as envs:
        vector.reset(others, 5)
        states = stored(capture(others))
        vector.reset(envs, 5)
        begun = restore(envs, states)
    assert begun is not None
    cart_pole = gymnasium.make("CartPole-v1")
    starts = [cart_pole.reset(seed=derive(derive(5, i), 1))[0] for i in range(2)]
    assert np.array_equal(begun.observations, starts)
    assert why in caplog.text


def test_states_with_missing_bytes_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    with made(limited("CartPole-v1"), 2) as envs:
        vector.reset(envs, 5)
        states = capture(envs)
        tensors = {name: tensor[:-8] for name, tensor in states.tensors.items()}
        assert restore(envs, StateTree(tensors, states.document)) is not None
    assert "the state has 72 bytes; must have 80" in caplog.text


def test_where_no_state_is_kept_the_same_episodes_follow_as_with_gymnasium() -> None:
    shown = []
    for backend in ("native", "sync"):
        spec = limited("CartPole-v1")
        with (
            made(spec, 2, backend, method="restarted") as first,
            made(spec, 2, backend, method="restarted") as second,
        ):
            vector.reset(first, 5, numbered=True)
            for _ in range(50):
                first.step(np.zeros(2, np.int64))
            states = stored(capture(first))
            assert states.document["method"] == "restarted"
            begun = restore(second, states)
            assert begun is not None
            shown.append(begun.observations.copy())
    assert np.array_equal(*shown)


@pytest.mark.parametrize("env_id", NATIVE)
def test_a_probe_proves_them_bit_for_bit(env_id: str) -> None:
    proof = probe(a_spec("env.backend=native", env_id=env_id))
    assert proof == Proof("captured", "bitwise", None, pure_reset=True)


@pytest.mark.parametrize(
    ("env_id", "overrides", "why"),
    [
        ("Taxi-v4", (), "env.id is 'Taxi-v4', and it steps only CartPole-v0, CartPole-v1, "),
        ("mine:CartPole-v1", (), "env.id is 'mine:CartPole-v1', and it steps only "),
        ("CartPole-v1", ("env.kwargs={sutton_barto_reward: true}",), "env.kwargs is {'sutton_"),
        ("CartPole-v1", ("obs.stack_frames=3",), "obs.stack_frames is 3, and it stacks no frames"),
        ("CartPole-v1", ("agent.action_masks=true",), "agent.action_masks is true, and it gives"),
    ],
)
def test_what_cannot_be_stepped_natively_is_refused_with_a_reason(
    env_id: str, overrides: tuple[str, ...], why: str
) -> None:
    spec = a_spec("env.backend=native", *overrides, env_id=env_id)
    assert (why_not_native(spec) or "").startswith(why)
    with pytest.raises(BadInput) as refusal:
        vector.make(spec, num_envs=1)
    assert refusal.value.message.startswith(f"env.backend is 'native', but {why}")
    assert refusal.value.path == "env.backend"
    assert refusal.value.hint == "Use one of sync, async, which step every environment."


@pytest.mark.parametrize("env_id", NATIVE)
def test_all_in_the_table_can_be_stepped(env_id: str) -> None:
    assert why_not_native(a_spec("env.max_episode_steps=9", env_id=env_id)) is None


class HeavyCartPole(CartPoleEnv):
    """Another environment, under the name of Gymnasium's."""


def test_somebody_elses_environment_of_that_name_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered = gymnasium.spec("CartPole-v1")
    monkeypatch.setattr(registered, "entry_point", HeavyCartPole)
    with pytest.raises(BadInput, match=r"CartPole-v1 is registered as .*HeavyCartPole"):
        NativeEnvs("CartPole-v1", 1)
