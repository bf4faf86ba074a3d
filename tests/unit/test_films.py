"""Episodes driven again, and films of them that a decoder plays."""

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import av
import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from rl_orch.errors import BadInput, RlctlError
from rl_orch.records.tasks import Recorded
from rl_orch.rl.collect.replay_episode import rendered
from rl_orch.rl.envs import vector
from rl_orch.rl.evaluate import Evaluator, extras_of
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import Setup
from rl_orch.spec.model import Spec
from rl_orch.worker.policies import rendering
from rl_orch.worker.policies.recording import notable
from rl_orch.worker.policies.video import LONGEST, filming, show
from rl_orch.worker.tasks.play import alike


def an_episode(spec: Spec) -> Recorded:
    with closing(vector.make(spec, num_envs=1)) as envs:
        setup = Setup(spec, envs.single_observation_space, envs.single_action_space)
    with closing(Evaluator(spec, lanes=3)) as evaluator:
        played = evaluator.play(
            ActorCritic.build(setup),
            episodes=5,
            seed=3,
            deterministic=True,
            extras=extras_of((), actions=True),
        )
    best, worst = notable(played).values()
    assert best.ret == max(each.ret for each in played)
    assert worst.ret == min(each.ret for each in played)
    return best


def frames_of(path: Path) -> list[Any]:
    with av.open(str(path)) as film:
        return [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_a_film_shows_every_step_of_the_very_episode(env_id: str, tmp_path: Path) -> None:
    spec = Spec.model_validate({"env": {"id": env_id, "max_episode_steps": 40}})
    episode = an_episode(spec)
    film = tmp_path / "videos" / "best.mp4"
    driven = show(spec, episode, film)
    assert alike(driven, episode)
    frames = frames_of(film)
    assert len(frames) == episode.length + 1
    env = rendered(spec, "rgb_array")
    env.reset(seed=episode.seed)
    first = env.render()
    env.close()
    assert isinstance(first, np.ndarray)
    assert (
        np.abs(frames[0].astype(int) - first[: frames[0].shape[0], : frames[0].shape[1]]).mean() < 8
    )
    assert [*tmp_path.glob("videos/*")] == [film]


def test_an_episode_that_comes_out_otherwise_is_noticed(tmp_path: Path) -> None:
    spec = Spec.model_validate({"env": {"id": "CartPole-v1", "max_episode_steps": 30}})
    episode = an_episode(spec)
    other = episode.model_copy(update={"seed": episode.seed + 1})
    short = episode.model_copy(update={"actions": episode.actions[:-1]})
    assert not alike(show(spec, short, tmp_path / "short.mp4"), short)
    driven = show(spec, other, tmp_path / "other.mp4")
    assert alike(driven, other) == (driven.length == other.length)


def test_films_are_short_and_their_sides_even(tmp_path: Path) -> None:
    film = tmp_path / "long.mp4"
    with filming(film, 30) as add:
        for number in range(LONGEST + 10):
            add(np.full((33, 47, 3), number % 256, np.uint8))
    frames = frames_of(film)
    assert len(frames) == LONGEST
    assert frames[0].shape == (32, 46, 3)


def test_a_film_that_is_broken_off_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with filming(tmp_path / "half.mp4", 30) as add:
            add(np.zeros((32, 32, 3), np.uint8))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [*tmp_path.iterdir()] == []


def test_what_films_need_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match=r"must end in \.mp4"), filming(tmp_path / "film.gif", 30):
        pass
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(BadInput, match="package av") as caught, filming(tmp_path / "film.mp4", 30):
        pass
    assert "rl-orch[video]" in str(caught.value.hint)


def test_an_environment_that_has_no_pictures_is_refused() -> None:
    spec = Spec.model_validate({"env": {"id": "tests.learning.known_envs:Dice-v0"}})
    with pytest.raises(BadInput, match="cannot be shown"):
        rendered(spec, "rgb_array").reset()


def test_who_shows_an_environment_that_takes_no_render_mode_is_told_what_it_needs() -> None:
    gymnasium.register("Unshown-v0", entry_point=cast(Any, lambda: CartPoleEnv()))
    with pytest.raises(BadInput, match="cannot be shown") as refused:
        rendered(Spec.model_validate({"env": {"id": "Unshown-v0"}}), "rgb_array")
    assert "metadata" in str(refused.value.hint)


@pytest.fixture
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "SDL_VIDEODRIVER"):
        monkeypatch.setenv(name, "")  # So that what is set meanwhile goes again.
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("no_display")
def test_without_a_display_a_way_to_draw_is_picked_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mujoco = Spec.model_validate({"env": {"id": "HalfCheetah-v5"}})
    monkeypatch.setattr(rendering, "_works", lambda way: way == "osmesa")
    rendering.prepare(Spec.model_validate({"env": {"id": "CartPole-v1"}}))
    assert "MUJOCO_GL" not in os.environ
    rendering.prepare(mujoco)
    assert os.environ["MUJOCO_GL"] == "osmesa"
    monkeypatch.setenv("MUJOCO_GL", "mine")
    rendering.prepare(mujoco)
    assert os.environ["MUJOCO_GL"] == "mine"


def test_a_rendering_that_fails_says_why_and_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", ":77")
    monkeypatch.setenv("MUJOCO_GL", "no-such-way")
    spec = Spec.model_validate({"env": {"id": "InvertedPendulum-v5"}})
    episode = Recorded(number=0, seed=1, ret=1.0, length=1, actions=[[0.0]])
    with pytest.raises(RlctlError) as caught:
        show(spec, episode, tmp_path / "a.mp4")
    assert "no-such-way" in caught.value.message
    assert "libegl1" in (caught.value.hint or "")
    assert "--video" not in str(caught.value)
