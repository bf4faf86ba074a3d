"""Vector environments: every episode is seeded, whatever steps and resets them."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rl_orch import plugins
from rl_orch.errors import BadInput
from rl_orch.rl.envs import vector
from rl_orch.rl.streams import derive
from rl_orch.spec.model import Spec
from tests.learning import known_envs


def a_spec(env_id: str = "CartPole-v1", **groups: Any) -> Spec:
    env = {"id": env_id} | groups.pop("env", {})
    return Spec.model_validate({"env": env, **groups})


def observed(spec: Spec, seed: int, steps: int = 40, num_envs: int = 3) -> NDArray[Any]:
    """What an agent that always pushes left sees."""
    envs = vector.make(spec, num_envs=num_envs)
    seen = [vector.reset(envs, seed).observations.copy()]
    for _ in range(steps):
        observations, *_ = envs.step(np.zeros(num_envs, np.int64))
        seen.append(np.array(observations))
    envs.close()
    return np.stack(seen)


def test_one_seed_gives_one_history_and_another_seed_another() -> None:
    assert np.array_equal(observed(a_spec(), 5), observed(a_spec(), 5))
    assert not np.array_equal(observed(a_spec(), 5), observed(a_spec(), 6))


def test_processes_of_their_own_see_what_one_process_sees() -> None:
    apart = a_spec(env={"backend": "async"})
    assert np.array_equal(observed(apart, 5), observed(a_spec(), 5))


def test_the_history_of_a_copy_does_not_depend_on_how_many_there_are() -> None:
    assert np.array_equal(observed(a_spec(), 5, num_envs=2), observed(a_spec(), 5)[:, :2])


def test_copies_and_episodes_all_begin_differently() -> None:
    seen = observed(a_spec(), 5)
    upright = np.abs(seen).max(-1) < 0.05
    starts = {tuple(row) for row in seen[upright]}
    assert upright.sum() > 9
    assert len(starts) == upright.sum()


def test_an_episode_can_be_driven_again_from_its_base_and_number() -> None:
    env = gymnasium.make("CartPole-v1")
    start, _ = env.reset(seed=derive(derive(5, 1), 1))
    assert any(np.array_equal(start, seen) for seen in observed(a_spec(), 5)[:, 1])


def test_numbered_episodes_are_one_sequence_however_many_copies_play_them() -> None:
    cart_pole = gymnasium.make("CartPole-v1")
    starts = [cart_pole.reset(seed=derive(5, number))[0] for number in range(9)]
    for num_envs in (1, 3):
        envs = vector.make(a_spec(env={"max_episode_steps": 1}), num_envs=num_envs)
        seen = [vector.reset(envs, 5, numbered=True).observations.copy()]
        while len(seen) * num_envs < 9:
            seen.append(envs.step(np.zeros(num_envs, np.int64))[0].copy())
        assert np.array_equal(np.concatenate(seen), starts)


def test_numbering_ends_with_the_next_plain_reset() -> None:
    envs = vector.make(a_spec(env={"max_episode_steps": 1}), num_envs=2)
    histories = []
    for numbered in (False, True, False):
        vector.reset(envs, 5, numbered=numbered)
        histories.append(envs.step(np.zeros(2, np.int64))[0].copy())
    plain, shared, again = histories
    assert np.array_equal(plain, again)
    assert not np.array_equal(plain, shared)


def test_a_final_observation_survives_the_reset_even_where_memory_is_reused() -> None:
    spec = a_spec(f"{known_envs.MODULE}:Ladder-v0", env={"kwargs": {"length": 2}})
    envs = vector.make(spec, num_envs=1)
    vector.reset(envs, 0)
    envs.step(np.zeros(1, np.int64))
    observations, _, terminated, _, infos = envs.step(np.zeros(1, np.int64))
    assert terminated.tolist() == [True]
    assert (observations.item(), infos["final_obs"][0].item()) == (0.0, 2.0)


def test_a_time_limit_of_the_spec_takes_the_place_of_the_environments_own() -> None:
    envs = vector.make(a_spec(env={"max_episode_steps": 3}), num_envs=1)
    vector.reset(envs, 0)
    ends = [envs.step(np.array([t % 2]))[3].item() for t in range(4)]
    assert ends == [False, False, True, False]


def test_stacked_frames_begin_with_the_first_one_repeated() -> None:
    envs = vector.make(a_spec(obs={"stack_frames": 3}), num_envs=2)
    first = vector.reset(envs, 0).observations
    assert first.shape == (2, 3, 4)
    assert np.array_equal(first[:, 0], first[:, 2])


def test_stacked_frames_differ_even_where_memory_is_reused() -> None:
    ladder = a_spec(
        f"{known_envs.MODULE}:Ladder-v0", env={"kwargs": {"length": 4}}, obs={"stack_frames": 3}
    )
    envs = vector.make(ladder, num_envs=1)
    seen = [vector.reset(envs, 0).observations.ravel().tolist()]
    for _ in range(4):
        observations, _, _, _, infos = envs.step(np.zeros(1, np.int64))
        seen.append(observations.ravel().tolist())
    assert seen == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [0, 0, 0]]
    assert infos["final_obs"][0].ravel().tolist() == [2, 3, 4]


def test_a_plugin_steps_the_environments_in_gymnasiums_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made(spec: Spec, num_envs: int) -> Any:
        return gymnasium.make_vec(spec.env.id, num_envs, vectorization_mode="vector_entry_point")

    monkeypatch.setattr(plugins, "load", lambda kind, name: made)
    envs = vector.make(a_spec(env={"backend": "fast"}), num_envs=4)
    assert vector.autoreset(envs) is AutoresetMode.NEXT_STEP
    first = vector.reset(envs, 3).observations.copy()
    assert first.shape == (4, 4)
    assert np.array_equal(vector.reset(envs, 3).observations, first)


def test_a_plugin_that_leaves_resets_to_others_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(spec: Spec, num_envs: int) -> Any:
        disabled = {"autoreset_mode": AutoresetMode.DISABLED}
        return gymnasium.make_vec(
            spec.env.id, num_envs, vector_kwargs=disabled, vectorization_mode="sync"
        )

    monkeypatch.setattr(plugins, "load", lambda kind, name: made)
    with pytest.raises(BadInput, match="'lazy' does not reset finished episodes"):
        vector.make(a_spec(env={"backend": "lazy"}), num_envs=2)
