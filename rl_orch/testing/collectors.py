"""A contract suite of every collector.

    class TestElsewhere(CollectorContract):
        def make(self, spec):
            return Elsewhere(spec)

Not among the names of `rl_orch.testing` itself, since it loads torch.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from rl_orch import plugins
from rl_orch.rl.collect.collector import Collector, Episode
from rl_orch.rl.data.batch import Batch, batch_state, on_host
from rl_orch.rl.learn.learner import Learner, algorithm, build_learner
from rl_orch.rl.learn.policy_copy import behaviour_state
from rl_orch.rl.policies.policy import Setup
from rl_orch.rl.snapshot import TrainingSnapshot
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.testing.algorithms import ENV_ID, EPISODE_STEPS, Signal, round_trip

COPIES, STEPS = 3, 12
COUNTED = f"{__name__}:Counted-v0"


class Counted(Signal):
    """Shows how many steps of the episode are taken, beside the signal."""

    observation_space = spaces.Box(0.0, float(EPISODE_STEPS), (2,))

    def _shown(self) -> tuple[Any, dict[str, Any]]:
        _, info = super()._shown()
        return np.array([self._steps, self._signal], np.float32), info


gymnasium.register(COUNTED.partition(":")[2], entry_point=f"{__name__}:Counted")


class CollectorContract:
    """The contract of every collector. A subclass says how one is made."""

    algorithms: tuple[str, ...] = ("ppo", "a2c", "dqn", "qrdqn", "sac", "td3", "tqc", "crossq")
    """Algorithms whose behaviour it can collect by."""

    lag = 0
    """Rollouts by which it is behind: its actions are those of the policy so many calls ago."""

    def make(self, spec: Spec) -> Collector:
        """A new collector with `env.num_envs` copies of the spec's environment."""
        raise NotImplementedError

    def setup_method(self) -> None:
        """One thread, which is faster for small networks and the same everywhere."""
        torch.set_num_threads(1)

    def test_rows_come_by_copy_then_time(self) -> None:
        """What follows a row is the next one of its copy, unless an episode ended."""
        with self._collecting() as (collector, collect):
            assert collector.observation_space.shape == (2,)
            batch = collect()
        assert len(batch) == COPIES * STEPS
        shown, following = (_by_copy(batch, n) for n in ("observations", "next_observations"))
        ended = _by_copy(batch, "terminated") | _by_copy(batch, "truncated")
        goes_on = ~ended[:, :-1]
        assert np.array_equal(following[:, :-1][goes_on], shown[:, 1:][goes_on])
        assert goes_on.any()

    def test_what_follows_the_last_row_of_an_episode_is_its_final_observation(self) -> None:
        """And not the first one of the next episode."""
        with self._collecting(env_id=COUNTED) as (_, collect):
            batch = collect()
        shown, following = (_by_copy(batch, n) for n in ("observations", "next_observations"))
        valid = _by_copy(batch, "valid")
        assert np.array_equal(following[..., 0][valid], shown[..., 0][valid] + 1)
        ended = valid & (_by_copy(batch, "terminated") | _by_copy(batch, "truncated"))
        assert {*following[..., 0][ended].tolist()} == {EPISODE_STEPS}

    def test_beginnings_and_mere_resets_are_marked(self) -> None:
        """An episode begins at first, and in the valid row that follows an end."""
        with self._collecting() as (_, collect):
            batch = collect()
        first, valid = _by_copy(batch, "first"), _by_copy(batch, "valid")
        ended = _by_copy(batch, "terminated") | _by_copy(batch, "truncated")
        for copy in range(COPIES):
            rows = np.flatnonzero(valid[copy])
            begins = np.append(True, ended[copy][rows][:-1])
            assert np.array_equal(first[copy][rows], begins)
        assert first.sum() > COPIES

    def test_steps_are_those_of_the_rows_that_were_handed_out(self) -> None:
        """Rows in which a copy only reset itself are no steps."""
        with self._collecting() as (collector, collect):
            assert collector.env_steps == 0
            valid = [int(_by_copy(collect(), "valid").sum()) for _ in range(3)]
            assert collector.env_steps == sum(valid)

    def test_an_episode_is_told_once_with_the_rows_it_ended_in(self) -> None:
        """Its return is the sum of its rewards, its step that of its end."""
        with self._collecting() as (collector, collect):
            batch = collect()
            told = collector.drain_episodes()
            assert collector.drain_episodes() == []
        assert told == _episodes(batch)
        assert {episode.length for episode in told} == {EPISODE_STEPS}

    def test_it_goes_on_from_its_state_bit_for_bit(self) -> None:
        """From a state that went through JSON and bytes; states are copies."""
        for name in self.algorithms:
            with self._collecting(name) as (whole, collect), self._collecting(name) as other:
                collect()
                whole.drain_episodes()
                saved = whole.state()
                state = round_trip(TrainingSnapshot(saved.tensors, saved.document, step=0))
                expected = collect()
                resumed, go_on = other
                assert resumed.load_state(state) is False
                _assert_same(go_on(), expected)
                assert resumed.env_steps == whole.env_steps
                assert resumed.drain_episodes() == whole.drain_episodes()

    def test_it_collects_what_the_local_one_would(self) -> None:
        """For the same seed and weights, which move between rollouts, and the same exploration."""
        for name in self.algorithms:
            spec = _spec(name)
            local = plugins.load("collectors", "local")(spec, "captured")
            with closing(self.make(spec)) as ours, closing(local) as theirs:
                batches = [
                    [*_collected(one, spec, range(4), lag)]
                    for one, lag in ((ours, 0), (theirs, self.lag))
                ]
            for found, expected in zip(*batches, strict=True):
                _assert_same(found, expected)

    @contextmanager
    def _collecting(
        self, name: str = "ppo", env_id: str = ENV_ID
    ) -> Iterator[tuple[Collector, Callable[[], Batch]]]:
        """A collector, and a function that has it collect by a new policy."""
        spec = _spec(name, env_id)
        with closing(self.make(spec)) as collector:
            learner = _learner(collector, spec)
            yield collector, lambda: _collect(collector, learner)


def _spec(name: str, env_id: str = ENV_ID) -> Spec:
    kind = "Box" if algorithm(name).traits.bounded_actions else "Discrete"
    document = {
        "env": {"id": env_id, "num_envs": COPIES, "seed": 5, "kwargs": {"actions": kind}},
        "agent": {"algorithm": name, "network": {"hidden_sizes": [8]}},
        "rollout": {"steps": STEPS},
        "train": {"batch_size": STEPS, "total_timesteps": 1000, "learning_starts": 1},
        "buffer": {"size": 1000},
        "obs": {"normalize": "running"},
    }
    return resolve(document)


def _learner(collector: Collector, spec: Spec) -> Learner:
    return build_learner(Setup(spec, collector.observation_space, collector.action_space))


def _collect(collector: Collector, learner: Learner) -> Batch:
    return collector.collect(learner.behaviour, STEPS, lambda: behaviour_state(learner))


def _collected(collector: Collector, spec: Spec, turns: range, lag: int) -> Iterator[Batch]:
    """Rollouts by learners that learn from what is the same everywhere, `lag` turns late."""
    learner, feed = _learner(collector, spec), _learner(collector, spec)
    with closing(plugins.load("collectors", "local")(spec, "captured")) as source:
        for turn in turns:
            if turn > lag:
                batch = source.collect(feed.behaviour, STEPS)
                learner.policy.pipeline.update(on_host(batch.column("observations")))
                learner.update(batch)
            yield _collect(collector, learner)


def _by_copy(batch: Batch, name: str) -> Any:
    column = on_host(batch.column(name))
    return column.reshape(COPIES, STEPS, *column.shape[1:])


def _episodes(batch: Batch) -> list[Episode]:
    """The episodes that ended in the first batch of all, by what its rows say."""
    ended = _by_copy(batch, "terminated") | _by_copy(batch, "truncated")
    valid, rewards = _by_copy(batch, "valid"), _by_copy(batch, "rewards")
    begun, episodes = [0] * COPIES, []
    for t, copy in np.argwhere(ended.T).tolist():
        rows = slice(begun[copy], t + 1)
        ret, length = float(rewards[copy, rows].sum()), int(valid[copy, rows].sum())
        episodes.append(Episode(int(valid[:, : t + 1].sum()), copy, ret, length))
        begun[copy] = t + 1
    return episodes


def _assert_same(found: Batch, expected: Batch) -> None:
    """Every column of the expected batch is in the other, bit for bit."""
    ours, theirs = batch_state(found).tensors, batch_state(expected).tensors
    differing = [n for n, t in theirs.items() if ours[n].tobytes() != t.tobytes()]
    assert not differing, f"{differing} differ"
