"""What holds whatever steps the copies: seeds, ends, final observations, states; and refusals."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rl_orch.errors import Problem, RlctlError
from rl_orch.rl.collect.rollout import LocalCollector
from rl_orch.rl.data.batch import Batch, on_host
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.state.probe import probe
from rl_orch.rl.evaluate import Evaluator
from rl_orch.rl.policies.policy import Decision, PolicyInput
from rl_orch.spec.model import Spec
from rl_orch.testing import a_spec
from rl_orch.worker.checks.environment import answer

pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting")

ALIKE = ("sync", "async", "native")
BACKENDS = (*ALIKE, "vector", "envpool")
CAPTURED = (*ALIKE, "vector")

LIMIT = 15
"""Some episodes of CartPole fall before, and others are cut short here."""

BREAKOUT = "ale_py:ALE/Breakout-v5"

every = pytest.mark.parametrize("backend", BACKENDS)


class Idle(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds nothing, but cannot be put around a vector form."""


gymnasium.register(
    "Wrapped-v0",
    "gymnasium.envs.classic_control.cartpole:CartPoleEnv",
    vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv",
    additional_wrappers=(gymnasium.envs.registration.WrapperSpec("Idle", f"{__name__}:Idle", {}),),
)


class Pushing:
    """Pushes left or right at random, from the generator that it is given or one of its own."""

    device = torch.device("cpu")
    memory_size = 0

    def __init__(self) -> None:
        self.own = torch.Generator().manual_seed(1)

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        rows = len(seen.first)
        return Decision(torch.randint(2, (rows,), generator=generator or self.own).numpy())

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return actions


def cart_poles(backend: str, *more: str) -> Spec:
    return a_spec(f"env.backend={backend}", f"env.max_episode_steps={LIMIT}", *more)


@contextmanager
def collectors(
    spec: Spec, count: int, *, num_envs: int = 3, seed: int = 3
) -> Iterator[list[LocalCollector]]:
    with ExitStack() as stack:
        made = [vector.make(spec, num_envs=num_envs) for _ in range(count)]
        for envs in made:
            stack.callback(envs.close)
        yield [LocalCollector(envs, seed=seed, device="cpu") for envs in made]


def columns(batch: Batch) -> dict[str, NDArray[Any]]:
    names = ("observations", "actions", "rewards", "terminated", "truncated", "next_observations")
    return {name: on_host(batch.column(name)) for name in (*names, "valid", "first")}


def rows(spec: Spec, n: int, **given: Any) -> dict[str, NDArray[Any]]:
    """Random steps, those of one copy after those of another, as learners get them."""
    with collectors(spec, 1, **given) as (collector,):
        return columns(collector.collect(Pushing(), n))


def moved(seen: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
    """Where the poles are after a push, by the equations of CartPole."""
    _, x_dot, angle, angle_dot = seen.astype(np.float64).T
    force = np.where(actions == 1, 10.0, -10.0)
    cosine, sine = np.cos(angle), np.sin(angle)
    pull = (force + 0.05 * angle_dot**2 * sine) / 1.1
    turn = (9.8 * sine - cosine * pull) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
    push = pull - 0.05 * turn * cosine / 1.1
    change = np.stack([x_dot, push, angle_dot, turn], axis=1)
    return np.asarray(seen + 0.02 * change)


def fallen(seen: NDArray[Any]) -> NDArray[np.bool_]:
    outside = (np.abs(seen[:, 0]) > 2.4) | (np.abs(seen[:, 2]) > 12 * 2 * np.pi / 360)
    return np.asarray(outside)


@every
def test_copies_have_the_spaces_of_the_environment(backend: str) -> None:
    with closing(vector.make(cart_poles(backend), num_envs=3)) as envs:
        assert envs.num_envs == 3
        assert envs.single_action_space == gymnasium.spaces.Discrete(2)
        assert envs.action_space.shape == (3,)
        assert envs.single_observation_space.shape == (4,)
        assert vector.reset(envs, 1).observations in envs.observation_space
        assert envs.spec is not None
        assert envs.spec.id == "CartPole-v1"
        assert vector.autoreset(envs) is not AutoresetMode.DISABLED


@every
def test_every_row_is_one_step_also_the_last_of_an_episode(backend: str) -> None:
    found = rows(cart_poles(backend), 80)
    valid, ended = found["valid"], found["terminated"] | found["truncated"]
    expected = moved(found["observations"], found["actions"])
    np.testing.assert_allclose(
        found["next_observations"][valid], expected[valid], rtol=1e-5, atol=1e-5
    )
    assert found["terminated"].sum() > 2
    assert (found["truncated"] & ~found["terminated"]).sum() > 2
    assert not ended[~valid].any()
    assert (found["rewards"] == valid).all()


@every
def test_episodes_end_where_the_pole_falls_or_where_they_are_cut_short(backend: str) -> None:
    found = rows(cart_poles(backend), 80)
    lengths = np.zeros(len(found["valid"]), np.int64)
    for row in range(len(lengths)):
        lengths[row] = 1 if found["first"][row] else lengths[row - 1] + 1
    valid = found["valid"]
    falls = fallen(found["next_observations"]) & valid
    assert (found["truncated"] == ((lengths == LIMIT) & valid)).all()
    # Both in one step may be told as either.
    apart = ~found["truncated"]
    assert (found["terminated"][apart] == falls[apart]).all()
    assert falls[found["terminated"]].all()


@every
def test_episodes_begin_after_those_that_ended_and_all_differently(backend: str) -> None:
    spec = cart_poles(backend)
    found = {name: column.reshape(3, 80, -1) for name, column in rows(spec, 80).items()}
    ended = (found["terminated"] | found["truncated"])[..., 0]
    first, valid = found["first"][..., 0], found["valid"][..., 0]
    next_step = backend in ("vector", "envpool")
    assert valid.all() != next_step
    assert (valid[:, 1:] == ~ended[:, :-1]).all() or not next_step
    wait = 2 if next_step else 1
    assert first[:, 0].all()
    assert not first[:, 1:wait].any()
    assert (first[:, wait:] == ended[:, :-wait]).all()
    begun = found["observations"][first]
    assert (np.abs(begun) <= 0.05).all()
    assert len(np.unique(begun, axis=0)) == len(begun) > 9


@every
def test_one_seed_gives_one_history_and_another_seed_another(backend: str) -> None:
    spec = cart_poles(backend)
    one, again, other = (rows(spec, 40, seed=seed) for seed in (3, 3, 4))
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert not np.array_equal(one["observations"], other["observations"])


@every
def test_a_seeded_reset_makes_used_copies_as_new_ones(backend: str) -> None:
    histories = []
    with closing(vector.make(cart_poles(backend), num_envs=2)) as envs:
        for _ in range(2):
            seen = [vector.reset(envs, 2**32 - 1).observations.copy()]
            for step in range(2 * LIMIT):
                seen.append(envs.step(np.full(2, step % 2))[0].copy())
            histories.append(np.stack(seen))
        later = vector.shown(envs, *envs.reset()).observations
        assert not np.array_equal(later, histories[0][0])
    assert np.array_equal(histories[0], histories[1])


@every
def test_steps_and_episodes_are_counted_without_those_spent_on_resets(backend: str) -> None:
    with collectors(cart_poles(backend), 1) as (collector,):
        found = columns(collector.collect(Pushing(), 80))
        episodes = collector.drain_episodes()
    assert collector.env_steps == found["valid"].sum()
    assert len(episodes) == (found["terminated"] | found["truncated"]).sum()
    assert all(episode.ret == episode.length <= LIMIT for episode in episodes)


@every
def test_an_evaluation_is_the_same_each_time(backend: str) -> None:
    evaluator = Evaluator(cart_poles(backend, "env.num_envs=2"))
    reports = [
        evaluator.evaluate(Pushing(), episodes=9, seed=seed, deterministic=False, step=0)
        for seed in (5, 6, 5)
    ]
    evaluator.close()
    assert reports[0].returns == reports[2].returns != reports[1].returns
    assert len(reports[0].lengths) == 9
    assert all(8 <= length <= LIMIT for length in reports[0].lengths)
    assert reports[0].returns == reports[0].lengths


@pytest.mark.parametrize("backend", CAPTURED)
def test_a_collector_goes_on_exactly_where_states_can_be_captured(backend: str) -> None:
    spec = cart_poles(backend)
    assert probe(spec).level == "bitwise"
    with collectors(spec, 2) as (whole, resumed):
        whole.collect(Pushing(), 33)
        assert resumed.load_state(whole.state()) is False
        mine, theirs = (columns(each.collect(Pushing(), 40)) for each in (whole, resumed))
    assert all(np.array_equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize(
    ("backend", "env_id", "what"),
    [
        ("envpool", "CartPole-v1", "envs.pool is a abc.CartPoleGymnasiumEnvPool"),
        ("vector", BREAKOUT, "envs.ale is a ale_py._ale_py.ALEVectorInterface"),
    ],
)
def test_a_probe_finds_where_they_cannot(backend: str, env_id: str, what: str) -> None:
    proof = probe(a_spec(f"env.backend={backend}", env_id=env_id))
    assert (proof.method, proof.level, proof.pure_reset) == ("restarted", "approximate", True)
    assert f"its state cannot be restored ({what})" in str(proof.reason)


def test_where_they_cannot_other_episodes_begin_each_time() -> None:
    with collectors(cart_poles("envpool"), 3) as (first, second, third):
        begun = columns(first.collect(Pushing(), 3))
        assert second.load_state(first.state()) is True
        again = columns(second.collect(Pushing(), 3))
        assert third.load_state(second.state()) is True
        anew = columns(third.collect(Pushing(), 3))
    assert again["first"].reshape(3, 3).tolist() == [[True, False, False]] * 3
    assert third.env_steps == 27
    assert len({each["observations"].tobytes() for each in (begun, again, anew)}) == 3


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_vector_forms_may_reset_at_once_or_in_the_next_step(mode: str) -> None:
    kwargs = f"{{autoreset_mode: {mode}, max_num_frames_per_episode: 40}}"
    found = rows(a_spec("env.backend=vector", f"+env.kwargs={kwargs}", env_id=BREAKOUT), 60)
    valid, ended = found["valid"], found["truncated"]
    assert ended.sum() > 3
    assert valid.all() == (mode == "SameStep")
    # Four frames are stacked: three of them are seen again after a step, and one is new.
    before, after = found["observations"], found["next_observations"]
    assert np.array_equal(before[valid][:, 1:], after[valid][:, :-1])
    assert (after[ended][:, -2] != after[ended][:, -1]).any(axis=(1, 2)).all()


def test_a_pools_copies_play_the_same_episodes_however_many_there_are() -> None:
    with (
        closing(vector.make(cart_poles("envpool"), num_envs=2)) as two,
        closing(vector.make(cart_poles("envpool"), num_envs=3)) as three,
    ):
        vector.reset(two, 5)
        vector.reset(three, 5)
        for _ in range(2 * LIMIT):
            seen, others = two.step(np.zeros(2, np.int64))[0], three.step(np.zeros(3, np.int64))[0]
            assert np.array_equal(seen, others[:2])


def test_a_pool_of_continuous_actions_and_one_of_choices_can_be_stepped() -> None:
    for env_id in ("Pendulum-v1", "FrozenLake-v1", "MiniGrid-Empty-5x5-v0"):
        spec = a_spec("env.backend=envpool", env_id=env_id)
        assert answer(spec).problems == ()
        with closing(vector.make(spec, num_envs=2)) as envs:
            assert vector.reset(envs, 1).observations is not None
            observations, rewards, *_ = envs.step(envs.action_space.sample())
            assert observations in envs.observation_space
            assert rewards.shape == (2,)


def test_arguments_reach_the_vector_form() -> None:
    blamed = cart_poles("vector", "+env.kwargs={sutton_barto_reward: true}")
    found = rows(blamed, 40)
    assert np.array_equal(found["rewards"], -1.0 * found["terminated"])


@pytest.mark.parametrize("backend", ["vector", "envpool"])
def test_a_limit_may_come_with_the_arguments(backend: str) -> None:
    spec = a_spec(f"env.backend={backend}", "+env.kwargs={max_episode_steps: 5}")
    assert answer(spec).problems == ()
    (cut,) = np.nonzero(rows(spec, 12, num_envs=1)["truncated"])
    assert cut.tolist() == [4, 10]


@pytest.mark.parametrize("backend", ["vector", "envpool"])
def test_a_check_says_what_steps_the_environment(backend: str) -> None:
    found = answer(a_spec(f"env.backend={backend}"))
    settled = {"env.id": "CartPole-v1", "env.backend": backend, "train.engine": "kernels"}
    assert found.settled == settled
    assert found.problems == ()


def refusal(*overrides: str, env_id: str = "CartPole-v1") -> tuple[str, str, str]:
    """The path, the message and the hint with which a check refuses a spec."""
    told: Problem | RlctlError
    try:
        told = answer(a_spec(*overrides, env_id=env_id)).problems[0]
    except RlctlError as error:
        told = error
    return told.path or "", told.message, told.hint or ""


@pytest.mark.parametrize(
    ("env_id", "why"),
    [
        ("Pendulum-v1", "has no vector form: it is registered without a vector_entry_point"),
        (f"{__name__}:Wrapped-v0", "is registered with wrappers, which its vector form does not"),
    ],
)
def test_an_environment_without_a_vector_form_is_refused(env_id: str, why: str) -> None:
    path, message, hint = refusal("env.backend=vector", env_id=env_id)
    assert path == "env.backend"
    assert message.startswith(f"env.backend is 'vector', but {env_id} {why}")
    assert hint == "Use env.backend=auto, which steps every environment."


@pytest.mark.parametrize(
    ("env_id", "near"), [("ale_py:ALE/Pong-v5", "Pong-v5"), ("cartpole-v1", "CartPole-v1")]
)
def test_an_id_that_envpool_does_not_know_is_refused(env_id: str, near: str) -> None:
    path, message, hint = refusal("env.backend=envpool", env_id=env_id)
    assert path == "env.id"
    assert message == f"env.backend is 'envpool', but EnvPool has no environment {env_id!r}"
    assert hint.startswith(f"Did you mean {near!r}? `envpool.list_all_envs()` has them all;")


def test_without_envpool_the_refusal_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    assert refusal("env.backend=envpool") == (
        "env.backend",
        "env.backend is 'envpool', but EnvPool is not installed",
        "Install it with `pip install 'rl-orch[envpool]'`, or use env.backend=auto.",
    )


def test_a_game_of_several_players_is_refused() -> None:
    path, message, _ = refusal("env.backend=envpool", env_id="Go9x9-v1")
    assert path == "env.id"
    assert "a game of 2 players" in message


@pytest.mark.parametrize(
    ("backend", "override", "path", "words"),
    [
        ("vector", "+env.kwargs={lenght: 1}", "env.kwargs", "refuses it"),
        ("envpool", "+env.kwargs={lenght: 1}", "env.kwargs", "refuses it"),
        ("envpool", "+env.kwargs={batch_size: 1}", "env.kwargs", "'batch_size'"),
        ("vector", "obs.stack_frames=3", "obs.stack_frames", "must stack frames itself"),
        ("envpool", "obs.stack_frames=3", "obs.stack_frames", "must stack frames itself"),
        ("vector", "agent.action_masks=true", "agent.action_masks", "gives no mask"),
        ("envpool", "agent.action_masks=true", "agent.action_masks", "gives no mask"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    backend: str, override: str, path: str, words: str
) -> None:
    found = refusal(f"env.backend={backend}", override)
    assert found[0] == path
    assert words in found[1]


def test_a_limit_that_a_vector_form_does_not_take_is_refused() -> None:
    path, message, hint = refusal("env.backend=vector", "env.max_episode_steps=9", env_id=BREAKOUT)
    assert path == "env.max_episode_steps"
    assert message.startswith("env.max_episode_steps is 9, but the vector form of ale_py:ALE/")
    assert hint == "Leave it out, or use env.backend=sync."
