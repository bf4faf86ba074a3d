"""Hindsight: which goals a transition is told with, what they pay, and exact resuming."""

import gc
import json
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rl_orch.errors import SpecInvalid
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.envs.describe import describe, problems
from rl_orch.rl.envs.trial import try_out
from rl_orch.rl.policies.policy import Setup
from rl_orch.rl.replay.buffer import LogSegment, ReplayBuffer, Sample
from rl_orch.rl.snapshot import Resumption
from rl_orch.rl.train import Training
from rl_orch.spec.resolve import resolve
from rl_orch.testing.algorithms import Recorder, round_trip
from tests.learning import known_envs

REACH = f"{known_envs.MODULE}:Reach-v0"
ASKED = 0.9
"""The goal that every episode was asked for; what is reached counts up from 0 in steps of 0.06."""


def a_spec(*overrides: str, env: str = REACH, algorithm: str = "sac") -> Any:
    document = {"env": {"id": env, "seed": 3}, "agent": {"algorithm": algorithm}}
    asked = ("buffer.her_strategy=future", "buffer.size=200", "train.batch_size=32", *overrides)
    return resolve(document, overrides=asked)


def a_buffer(*overrides: str) -> ReplayBuffer:
    spec, box = a_spec(*overrides), spaces.Box(-1.0, 1.0, (2,))
    return ReplayBuffer(Setup(spec, known_envs.Reach.observation_space, box))


def a_batch(steps: int, *, start: int = 0, end: str | None = None, copies: int = 1) -> Batch:
    """Steps of an episode of each copy, the first of them its `start`-th."""
    rows = np.tile(np.arange(start, start + steps), copies)
    last = rows == start + steps - 1

    def shown(number: Any) -> dict[str, Any]:
        reached = np.stack([0.06 * number, np.zeros(len(number))], 1).astype(np.float32)
        wanted = np.full_like(reached, ASKED)
        return {"observation": reached, "achieved_goal": reached, "desired_goal": wanted}

    return Batch(
        observations=shown(rows),
        actions=np.zeros((len(rows), 2), np.float32),
        rewards=np.full(len(rows), -1.0),
        terminated=last & (end == "terminated"),
        truncated=last & (end == "truncated"),
        next_observations=shown(rows + 1),
        extras={"valid": np.ones(len(rows), np.bool_), "first": rows == 0},
    )


def drawn(buffer: ReplayBuffer, count: int = 2000) -> tuple[Any, Any, Sample]:
    """The step of each transition, the step whose reach it is told with, -1 for its own goal."""
    sample = buffer.sample(count)
    seen: Any = sample.observations
    goals = seen["desired_goal"]
    told = np.where(goals[:, 1] == np.float32(ASKED), -1.0, goals[:, 0] / 0.06)
    return np.rint(seen["achieved_goal"][:, 0] / 0.06), np.rint(told), sample


@pytest.mark.parametrize("end", ["terminated", "truncated", None])
def test_future_goals_are_what_this_or_a_later_step_reached(end: str | None) -> None:
    buffer = a_buffer()
    buffer.add(a_batch(10, end=end))
    steps, told, sample = drawn(buffer)
    retold = told >= 0
    assert retold.mean() == pytest.approx(0.8, abs=0.05)
    assert (told[retold] > steps[retold]).all()
    last = 10 if end else 9
    assert {*told[retold & (steps == 0)]} == {*range(1, last + 1)}
    assert {*steps} == {*range(last)}
    after: Any = sample.next_observations
    before: Any = sample.observations
    assert np.array_equal(after["desired_goal"], before["desired_goal"])
    ended = (steps == 9) & (end == "terminated")
    assert sample.discounts == pytest.approx(np.where(ended, 0.0, 0.99))


@pytest.mark.parametrize(("strategy", "goals"), [("final", {10}), ("episode", {*range(1, 11)})])
def test_other_strategies_take_the_last_or_any_step(strategy: str, goals: set[int]) -> None:
    buffer = a_buffer(f"buffer.her_strategy={strategy}", "buffer.her_k=1")
    buffer.add(a_batch(10, end="truncated"))
    steps, told, _ = drawn(buffer)
    assert (told >= 0).mean() == pytest.approx(0.5, abs=0.05)
    assert {*told[told >= 0]} == goals
    assert {*told[(told >= 0) & (steps == 9)]} == goals


def test_a_reward_is_that_of_what_was_reached_and_the_new_goal() -> None:
    buffer = a_buffer()
    buffer.add(a_batch(10, end="truncated"))
    steps, told, sample = drawn(buffer)
    near = (told >= 0) & (np.abs(told - (steps + 1)) <= 1)
    assert np.array_equal(sample.rewards, np.where(near, 0.0, -1.0))


def test_rewards_of_new_goals_are_scaled_as_all_are() -> None:
    spec, box = a_spec(), spaces.Box(-1.0, 1.0, (2,))
    setup = Setup(spec, known_envs.Reach.observation_space, box)
    buffer = ReplayBuffer(setup, transform=lambda rewards: 10.0 * rewards + 1.0)
    buffer.add(a_batch(10, end="truncated"))
    assert {*buffer.sample(500).rewards} == {1.0, -9.0}


def test_goals_come_from_the_same_episode_of_the_same_copy() -> None:
    buffer = a_buffer("env.num_envs=2")
    buffer.add(a_batch(4, end="truncated", copies=2))
    buffer.add(a_batch(7, end="terminated", copies=2))
    steps, told, _ = drawn(buffer)
    short = {*told[(told >= 0) & (steps == 3)]}
    assert short == {4, 5, 6, 7}
    assert told.max() == 7


def going_on(buffer: ReplayBuffer, seed: int) -> None:
    """Further episodes, until the first ones are overwritten."""
    rng = np.random.default_rng(seed)
    for _ in range(12):
        length = int(rng.integers(2, 12))
        buffer.add(a_batch(length, end="truncated", copies=2))


@pytest.mark.parametrize("strategy", ["future", "episode", "final"])
def test_a_restored_buffer_tells_the_same_goals_though_beginnings_are_gone(strategy: str) -> None:
    options = (f"buffer.her_strategy={strategy}", "env.num_envs=2", "buffer.size=60")
    one, other = a_buffer(*options), a_buffer(*options)
    going_on(one, 0)
    one.add(a_batch(3, copies=2))
    segment = one.seal()
    assert segment is not None
    state = one.state()
    document = json.loads(json.dumps(state.document))
    segments: dict[str, LogSegment] = {segment.name: segment}
    other.load(StateTree(state.tensors, document), lambda name: segments[name].arrays)
    for _ in range(3):
        for each in (one, other):
            each.add(a_batch(4, start=3, end="truncated", copies=2))
            going_on(each, 1)
            each.add(a_batch(3, copies=2))
        first, second = (drawn(each, 100) for each in (one, other))
        assert np.array_equal(first[0], second[0])
        assert np.array_equal(first[1], second[1])
        assert np.array_equal(first[2].rewards, second[2].rewards)


@pytest.mark.parametrize(("algorithm", "env"), [("sac", "Reach"), ("dqn", "BitFlip")])
def test_a_training_with_other_goals_goes_on_bit_for_bit(algorithm: str, env: str) -> None:
    spec = a_spec(
        *("train.total_timesteps=192", "eval.every=64", "eval.episodes=1", "rollout.steps=8"),
        *("env.num_envs=2", "buffer.size=100", "agent.network.hidden_sizes=[8]"),
        *("train.learning_starts=32", "buffer.prioritized=true"),
        env=f"{known_envs.MODULE}:{env}-v0",
        algorithm=algorithm,
    )
    whole, resumed = Recorder(), Recorder()
    with closing(Training(spec, whole)) as training:
        training.run()
    first, report = whole.saved[0]
    with closing(Training(spec, resumed)) as training:
        training.resume(Resumption(round_trip(first), report, whole.read))
        training.run()
    last, again = whole.saved[-1][0], resumed.saved[-1][0]
    assert last.step == again.step == 192
    assert all(np.array_equal(last.tensors[name], again.tensors[name]) for name in last.tensors)
    assert json.dumps(last.document) == json.dumps(again.document)


def test_episodes_that_are_overwritten_are_forgotten() -> None:
    buffer = a_buffer("buffer.size=60", "env.num_envs=2")
    for seed in range(5):
        going_on(buffer, seed)
    hindsight = buffer._hindsight
    assert hindsight is not None
    kept = sum(len(rows.numbers) for rows in hindsight._rows.values())
    assert kept <= 60 + 2 * 13


@pytest.mark.parametrize("strategy", ["future", "episode", "final"])
def test_an_episode_without_end_takes_the_memory_of_the_rows_that_are_there(strategy: str) -> None:
    buffer = a_buffer(f"buffer.her_strategy={strategy}")
    hindsight = buffer._hindsight
    assert hindsight is not None
    for start in range(0, 4_000, 40):
        buffer.add(a_batch(40, start=start))
    (rows,) = hindsight._rows.values()
    assert len(rows.numbers) <= 2 * 200
    steps, told, _ = drawn(buffer)
    assert told.max() > 3_900
    if strategy == "future":
        assert (told[told >= 0] >= steps[told >= 0] + 1).all()


def test_the_environment_that_is_asked_for_rewards_is_closed_with_its_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gc.collect()
    closed: list[Any] = []
    monkeypatch.setattr(known_envs.Reach, "close", lambda env: closed.append(env))
    buffer = a_buffer()
    buffer.add(a_batch(10))
    buffer.sample(8)
    assert closed == []
    del buffer
    gc.collect()
    assert len(closed) == 1


@pytest.mark.parametrize(("path", "value"), [("buffer.n_step", "3"), ("obs.stack_frames", "2")])
def test_what_does_not_go_together_with_other_goals_is_refused(path: str, value: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        a_spec(f"{path}={value}")
    assert [problem.path for problem in refused.value.problems] == [path]


def test_an_environment_without_goals_is_refused_by_a_check() -> None:
    spec = a_spec(env="Pendulum-v1")
    (problem,) = problems(spec, describe(spec))
    assert problem.path == "buffer.her_strategy"
    assert "no achieved_goal and no desired_goal" in problem.message
    assert problems(a_spec(), describe(a_spec())) == []


@pytest.mark.parametrize(
    ("reward", "why"),
    [(lambda *_: 0.0, "gave shape ()"), (lambda *_: 1 / 0, "raised for two rows: Zero")],
)
def test_a_reward_that_is_not_given_for_rows_is_refused(
    reward: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_envs.Reach, "compute_reward", lambda self, *goals: reward(*goals))
    (problem,) = problems(a_spec(), describe(a_spec()))
    assert why in problem.message


@pytest.mark.parametrize("algorithm", ["sac", "ppo"])
def test_a_wrapper_that_changes_rewards_is_refused_where_hindsight_asks_the_environment(
    algorithm: str,
) -> None:
    clipped = "[{name: ClipReward, min_reward: -0.5, max_reward: 0.5}]"
    options = (f"env.wrappers={clipped}", "train.batch_size=64")
    problems = try_out(a_spec(*options, algorithm=algorithm)).problems
    if algorithm == "ppo":
        assert problems == []
        return
    (problem,) = problems
    assert problem.path == "buffer.her_strategy"
    assert "a reward of -0.5, and compute_reward gives -1" in problem.message
    assert "env.wrappers" in str(problem.hint)


@pytest.mark.parametrize(("algorithm", "env"), [("sac", "Reach"), ("dqn", "BitFlip")])
def test_rewards_that_follow_from_goals_pass_the_trial(algorithm: str, env: str) -> None:
    spec = a_spec(env=f"{known_envs.MODULE}:{env}-v0", algorithm=algorithm)
    assert try_out(spec).problems == []
    assert try_out(spec.changed({"train.clip_reward": (-0.5, 0.5)})).problems == []


def test_an_algorithm_without_replay_reads_no_goals() -> None:
    spec = a_spec("train.batch_size=64", algorithm="ppo", env="Pendulum-v1")
    assert problems(spec, describe(spec)) == []


def test_sb3_s_words_are_understood() -> None:
    words = {"goal_selection_strategy": "Final", "n_sampled_goal": 2}
    spec = resolve({"env": {"id": REACH}, "agent": {"algorithm": "sac"}, "buffer": words})
    assert (spec.buffer.her_strategy, spec.buffer.her_k) == ("final", 2.0)
