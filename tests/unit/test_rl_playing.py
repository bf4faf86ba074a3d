"""Numbered episodes: parts of a sequence, what is looked at besides returns, and re-driving."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest

from rl_orch import plugins
from rl_orch.errors import BadInput
from rl_orch.rl.collect.episodes import Extras, PlayedEpisode
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.observations import flat_space
from rl_orch.rl.evaluate import Evaluator, extras_of, report
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import Setup
from rl_orch.spec.model import Spec
from tests.learning import known_envs


def a_spec(env_id: str = "CartPole-v1", backend: str = "auto", **env: Any) -> Spec:
    return Spec.model_validate({"env": {"id": env_id, "backend": backend, **env}})


def a_policy(spec: Spec) -> ActorCritic:
    with closing(vector.make(spec, num_envs=1)) as envs:
        return ActorCritic.build(
            Setup(spec, flat_space(envs.single_observation_space), envs.single_action_space)
        )


def played(
    spec: Spec, first: int, episodes: int, *, lanes: int, **options: Any
) -> list[PlayedEpisode]:
    with closing(Evaluator(spec, lanes=lanes)) as evaluator:
        return evaluator.play(
            a_policy(spec),
            episodes=episodes,
            seed=5,
            first=first,
            deterministic=options.pop("deterministic", True),
            **options,
        )


@pytest.mark.parametrize("backend", ["native", "sync"])
def test_episodes_played_in_parts_are_those_of_the_whole(backend: str) -> None:
    spec = a_spec(backend=backend)
    whole = played(spec, 0, 23, lanes=7)
    parts = [
        *played(spec, 0, 9, lanes=4),
        *played(spec, 9, 1, lanes=4),
        *played(spec, 10, 13, lanes=5),
    ]
    assert [each.number for each in whole] == list(range(23))
    assert parts == whole
    assert len({each.seed for each in whole}) == 23


def test_sampled_parts_do_not_repeat_each_others_noise() -> None:
    one, other = (
        played(a_spec(f"{known_envs.MODULE}:Dice-v0"), first, 8, lanes=8, deterministic=False)
        for first in (0, 8)
    )
    assert [each.ret for each in one] != [each.ret for each in other]


def with_actions(found: list[PlayedEpisode]) -> list[PlayedEpisode]:
    kept = [each for each in found if each.actions is not None]
    assert kept
    return kept


@pytest.mark.parametrize("lanes", [1, 5])
def test_actions_are_kept_of_the_best_and_the_worst_episode_alone(lanes: int) -> None:
    found = played(a_spec(), 4, 40, lanes=lanes, extras=Extras(actions=True))
    returns = [each.ret for each in found]
    assert returns.count(max(returns)) > 1 or returns.count(min(returns)) > 1  # The first counts.
    firsts = {4 + returns.index(limit(returns)) for limit in (max, min)}
    assert {each.number for each in with_actions(found)} == firsts
    for each in with_actions(found):
        assert each.actions is not None
        assert len(each.actions) == each.length


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1"])
@pytest.mark.parametrize("backend", ["native", "sync"])
def test_an_episode_is_driven_again_by_its_seed_and_actions(env_id: str, backend: str) -> None:
    spec = a_spec(env_id, backend)
    for each in with_actions(played(spec, 3, 4, lanes=3, extras=Extras(actions=True))):
        assert each.actions is not None
        env = gymnasium.make(env_id)
        env.reset(seed=each.seed)
        total = 0.0
        for number, action in enumerate(each.actions):
            given = action if each.actions.ndim > 1 else int(action)
            _, reward, terminated, truncated, _ = env.step(given)
            total += float(reward)
            assert (terminated or truncated) == (number + 1 == each.length)
        assert total == pytest.approx(each.ret, rel=1e-9)
        env.close()


class Pushes:
    """How many pushes to the right, and what the last info said."""

    def __init__(self) -> None:
        self.count = 0
        self.infos: list[Mapping[str, Any]] = []

    def step(
        self, action: Any, reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]
    ) -> None:
        self.count += int(action)
        self.infos.append(info)

    def value(self) -> float:
        return float(self.count)


def test_metrics_are_of_each_episode_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "load", lambda kind, name: Pushes)
    spec = a_spec()
    found = played(spec, 0, 9, lanes=4, extras=extras_of(["pushes"], actions=True))
    for each in with_actions(found):
        assert each.actions is not None
        assert each.metrics == {"pushes": float(each.actions.sum())}
    reported = report(found, spec, seed=5, deterministic=True)
    assert reported.metrics["pushes"] == tuple(each.metrics["pushes"] for each in found)
    assert reported.seeds == tuple(each.seed for each in found)


class Distance:
    """The last x position that the environment told of."""

    def __init__(self) -> None:
        self.x = np.nan
        self.told = 0

    def step(
        self, action: Any, reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]
    ) -> None:
        self.x = float(info["x_position"])
        self.told += 1

    def value(self) -> float:
        return self.x


def test_metrics_see_what_the_environment_tells_of_the_very_last_step() -> None:
    spec = a_spec("HalfCheetah-v5", max_episode_steps=20)
    extras = Extras({"x": Distance}, actions=True)
    for each in with_actions(played(spec, 0, 3, lanes=2, extras=extras)):
        env = gymnasium.make("HalfCheetah-v5", max_episode_steps=20)
        env.reset(seed=each.seed)
        assert each.actions is not None
        infos = [env.step(action)[4] for action in each.actions]
        assert each.metrics["x"] == pytest.approx(infos[-1]["x_position"], rel=1e-9)


def test_a_metric_that_is_not_installed_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="no plugin 'speed' of kind metrics"):
        extras_of(["speed"])
