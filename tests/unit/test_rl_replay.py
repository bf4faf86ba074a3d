"""The replay buffer against cases worked out by hand, and against a naive one: a list of all rows
that ever were, searched in the plainest way."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rl_orch.errors import Damaged, Diverged
from rl_orch.rl.data.batch import Batch, Column
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.policies.policy import Setup
from rl_orch.rl.replay.buffer import LogSegment, ReplayBuffer, Sample, segments_in
from rl_orch.spec.model import Spec

many = settings(max_examples=150, deadline=None)
a_few = settings(max_examples=30, deadline=None)

CHOICES = 3
PIXELS = (2, 2)


def a_setup(
    *,
    copies: int = 1,
    stack: int | None = None,
    gamma: float = 0.5,
    masks: bool = False,
    space: spaces.Space[Any] | None = None,
    action_space: spaces.Space[Any] | None = None,
    **buffer: Any,
) -> Setup:
    spec = Spec.model_validate(
        {
            "env": {"id": "CartPole-v1", "num_envs": copies, "seed": 7},
            "obs": {"stack_frames": stack},
            "agent": {"action_masks": masks},
            "train": {"gamma": gamma},
            "buffer": {"size": 100, **buffer},
        }
    )
    shape = (1,) if stack is None else (stack, 1)
    return Setup(
        spec,
        space or spaces.Box(-np.inf, np.inf, shape, np.float64),
        action_space or spaces.Discrete(CHOICES),
    )


def a_batch(
    rewards: list[float],
    *,
    start: float = 0.0,
    terminated: tuple[int, ...] = (),
    truncated: tuple[int, ...] = (),
    first: tuple[int, ...] = (0,),
) -> Batch:
    """Rows of one copy whose observations count up from `start`; the next one is the one after."""
    count = len(rewards)
    observations = start + np.arange(count, dtype=np.float64)[:, None]
    rows = np.arange(count)
    return Batch(
        observations=observations,
        actions=rows % CHOICES,
        rewards=np.array(rewards),
        terminated=np.isin(rows, terminated),
        truncated=np.isin(rows, truncated),
        next_observations=observations + 1.0,
        extras={"valid": np.ones(count, np.bool_), "first": np.isin(rows, first)},
    )


def drawn(buffer: ReplayBuffer, batches: int = 8) -> dict[int, dict[str, Any]]:
    """What is known of every row that comes up in many draws, by number."""
    found: dict[int, dict[str, Any]] = {}
    for _ in range(batches):
        for row in rows_of(buffer.sample(64)):
            found[row["row"]] = row
    return dict(sorted(found.items()))


def rows_of(sample: Sample) -> Iterator[dict[str, Any]]:
    for i, row in enumerate(sample.rows.tolist()):
        yield {
            "row": row,
            "observation": plain(sample.observations, i),
            "action": int(sample.actions[i]),
            "reward": float(sample.rewards[i]),
            "next": plain(sample.next_observations, i),
            "discount": float(sample.discounts[i]),
            "next_mask": None if sample.next_masks is None else sample.next_masks[i].tolist(),
        }


def plain(column: Column, row: int) -> Any:
    if isinstance(column, Mapping):
        return {name: plain(leaf, row) for name, leaf in column.items()}
    return column[row].tolist()


def test_one_step_transitions_of_an_episode_that_terminates() -> None:
    buffer = ReplayBuffer(a_setup())
    buffer.add(a_batch([1.0, 2.0, 4.0], terminated=(2,)))
    found = drawn(buffer)
    assert len(buffer) == 3
    assert [row["reward"] for row in found.values()] == [1.0, 2.0, 4.0]
    assert [row["observation"] for row in found.values()] == [[0.0], [1.0], [2.0]]
    assert [row["next"] for row in found.values()] == [[1.0], [2.0], [3.0]]
    assert [row["discount"] for row in found.values()] == [0.5, 0.5, 0.0]
    assert [row["action"] for row in found.values()] == [0, 1, 2]


def test_an_episode_that_is_cut_short_goes_on_from_its_final_observation() -> None:
    buffer = ReplayBuffer(a_setup())
    buffer.add(a_batch([1.0, 2.0], truncated=(1,)))
    assert [row["discount"] for row in drawn(buffer).values()] == [0.5, 0.5]
    assert [row["next"] for row in drawn(buffer).values()] == [[1.0], [2.0]]


def test_the_newest_row_waits_for_the_one_after_it() -> None:
    buffer = ReplayBuffer(a_setup())
    buffer.add(a_batch([1.0, 2.0]))
    assert list(drawn(buffer)) == [0]
    buffer.add(a_batch([4.0], start=2.0, first=()))
    assert list(drawn(buffer)) == [0, 1]
    assert drawn(buffer)[1]["next"] == [2.0]


def test_rewards_of_three_steps_by_hand() -> None:
    """gamma = 1/2; the windows of the last two rows end with the episode."""
    buffer = ReplayBuffer(a_setup(n_step=3))
    buffer.add(a_batch([1.0, 2.0, 4.0, 8.0], terminated=(3,)))
    found = drawn(buffer)
    assert [row["reward"] for row in found.values()] == [
        1.0 + 2.0 / 2 + 4.0 / 4,
        2.0 + 4.0 / 2 + 8.0 / 4,
        4.0 + 8.0 / 2,
        8.0,
    ]
    assert [row["discount"] for row in found.values()] == [1 / 8, 0.0, 0.0, 0.0]
    assert [row["next"] for row in found.values()] == [[3.0], [4.0], [4.0], [4.0]]


def test_a_window_that_is_cut_short_is_discounted_by_its_own_length() -> None:
    buffer = ReplayBuffer(a_setup(n_step=3))
    buffer.add(a_batch([1.0, 2.0, 4.0, 8.0], truncated=(3,)))
    assert [row["discount"] for row in drawn(buffer).values()] == [1 / 8, 1 / 8, 1 / 4, 1 / 2]


def test_no_window_reaches_into_the_next_episode() -> None:
    buffer = ReplayBuffer(a_setup(n_step=2))
    buffer.add(a_batch([1.0, 2.0, 4.0, 8.0], truncated=(1,), first=(0, 2)))
    found = drawn(buffer)
    assert list(found) == [0, 1]
    assert [row["reward"] for row in found.values()] == [2.0, 2.0]
    assert [row["next"] for row in found.values()] == [[2.0], [2.0]]


def test_an_episode_that_was_given_up_has_no_last_transition() -> None:
    """A copy that had to begin anew: `first` without an end before it."""
    buffer = ReplayBuffer(a_setup())
    buffer.add(a_batch([1.0, 2.0]))
    buffer.add(a_batch([4.0, 8.0], start=10.0, first=(0,)))
    found = drawn(buffer)
    assert {row: found[row]["next"] for row in found} == {0: [1.0], 2: [11.0]}


def test_episodes_begin_after_ends_where_nobody_says_so() -> None:
    batch = a_batch([1.0, 2.0, 4.0], terminated=(1,))
    plain_batch = Batch(
        observations=batch.observations,
        actions=batch.actions,
        rewards=batch.rewards,
        terminated=batch.terminated,
        truncated=batch.truncated,
        next_observations=batch.next_observations,
    )
    buffer = ReplayBuffer(a_setup(stack=None))
    buffer.add(plain_batch)
    buffer.add(plain_batch)
    assert [row["reward"] for row in drawn(buffer).values()] == [1.0, 2.0, 4.0, 1.0, 2.0]


def test_rewards_are_transformed_as_they_are_drawn() -> None:
    buffer = ReplayBuffer(a_setup(n_step=2), transform=np.sign)
    buffer.add(a_batch([10.0, -3.0, 7.0], terminated=(2,)))
    assert [row["reward"] for row in drawn(buffer).values()] == [0.5, -0.5, 1.0]


def test_an_empty_buffer_cannot_be_drawn_from() -> None:
    with pytest.raises(ValueError, match="add experience first"):
        ReplayBuffer(a_setup()).sample(1)


def test_a_batch_that_does_not_fit_the_copies_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 2 copies"):
        ReplayBuffer(a_setup(copies=2)).add(a_batch([1.0, 2.0, 3.0]))


def test_actions_without_choices_have_no_masks() -> None:
    box = spaces.Box(-1.0, 1.0, (2,), np.float32)
    with pytest.raises(TypeError, match="Box actions have no masks"):
        ReplayBuffer(a_setup(masks=True, action_space=box))


def test_masks_of_several_choices_stand_side_by_side() -> None:
    buffer = ReplayBuffer(
        a_setup(masks=True, action_space=spaces.MultiDiscrete([2, 3])), transform=None
    )
    batch = a_batch([1.0], terminated=(0,))
    masks = np.array([[True, False, True, True, False]])
    buffer.add(
        Batch(
            observations=batch.observations,
            actions=np.array([[0, 1]]),
            rewards=batch.rewards,
            terminated=batch.terminated,
            truncated=batch.truncated,
            next_observations=batch.next_observations,
            extras={**batch.extras, "masks": masks, "next_masks": ~masks},
        )
    )
    sample = buffer.sample(1)
    assert sample.next_masks is not None
    assert sample.next_masks.tolist() == (~masks).tolist()
    assert sample.actions.tolist() == [[0, 1]]


def test_stacks_are_those_that_gymnasium_shows() -> None:
    env = FrameStackObservation(gym.make("CartPole-v1"), 4)
    buffer = ReplayBuffer(a_setup(stack=4, space=env.observation_space, size=500))
    seen: list[tuple[NDArray[Any], NDArray[Any]]] = []
    for episode in range(5):
        observation, _ = env.reset(seed=episode)
        ended, first = False, True
        while not ended:
            after, reward, terminated, truncated, _ = env.step(episode % 2)
            seen.append((observation, after))
            buffer.add(
                Batch(
                    observations=observation[None],
                    actions=np.array([episode % 2]),
                    rewards=np.array([float(reward)]),
                    terminated=np.array([terminated]),
                    truncated=np.array([truncated]),
                    next_observations=after[None],
                    extras={"first": np.array([first])},
                )
            )
            observation, ended, first = after, terminated or truncated, False
    found = drawn(buffer, 40)
    assert len(found) == len(seen) == len(buffer)
    for row, (observation, after) in zip(found.values(), seen, strict=True):
        assert row["observation"] == observation.tolist()
        assert row["next"] == after.tolist()


@dataclass
class Row:
    """A row of the naive buffer; `time` counts within its episode."""

    episode: tuple[int, int]
    time: int
    frame: Any
    action: int = 0
    reward: float = 0.0
    terminated: bool = False
    ended: bool = False
    final: bool = False
    mask: list[bool] | None = None


@dataclass
class Naive:
    """All rows that ever were, and what could be drawn of them."""

    capacity: int
    n: int
    stack: int
    gamma: float
    log: list[Row] = field(default_factory=list)

    def drawable(self) -> dict[int, dict[str, Any]]:
        oldest = max(0, len(self.log) - self.capacity)
        places = {(row.episode, row.time): number for number, row in enumerate(self.log)}
        found = {}
        for number in range(oldest, len(self.log)):
            expected = self._expected(number, places, oldest)
            if expected is not None:
                found[number] = expected
        return found

    def _expected(
        self, number: int, places: dict[tuple[tuple[int, int], int], int], oldest: int
    ) -> dict[str, Any] | None:
        row = self.log[number]
        if row.final:
            return None
        window: list[Row] = []
        after: Row | None = row
        while after is not None and not after.final and len(window) < self.n:
            window.append(after)
            at = places.get((after.episode, after.time + 1))
            after = None if at is None else self.log[at]
        frames = self._frames(row, places)
        if after is None or min(frames) < oldest:
            return None
        return {
            "row": number,
            "observation": self._stacked(frames),
            "action": row.action,
            "reward": float(
                np.float32(sum(self.gamma**i * past.reward for i, past in enumerate(window)))
            ),
            "next": self._stacked(self._frames(after, places)),
            "discount": float(
                np.float32(0.0 if window[-1].terminated else self.gamma ** len(window))
            ),
            "next_mask": after.mask,
        }

    def _frames(self, row: Row, places: dict[tuple[tuple[int, int], int], int]) -> list[int]:
        """Numbers of the rows of a stack, oldest first; the first frame is repeated."""
        times = [max(0, row.time - back) for back in range(self.stack - 1, -1, -1)]
        return [places[row.episode, time] for time in times]

    def _stacked(self, numbers: list[int]) -> Any:
        frames = [self.log[number].frame for number in numbers]
        if self.stack == 1:
            return plain_frame(frames[0])
        if isinstance(frames[0], dict):
            return {name: [plain_frame(frame[name]) for frame in frames] for name in frames[0]}
        return [plain_frame(frame) for frame in frames]


def plain_frame(frame: Any) -> Any:
    if isinstance(frame, dict):
        return {name: leaf.tolist() for name, leaf in frame.items()}
    return frame.tolist()


@dataclass(frozen=True)
class Case:
    """A buffer and the experience that comes its way, all from one seed."""

    seed: int
    copies: int
    stack: int | None
    capacity: int
    n_step: int
    ends: float
    resets_take_a_step: bool
    mapping: bool
    masks: bool
    prioritized: bool
    rollouts: tuple[int, ...]

    @property
    def setup(self) -> Setup:
        lead = () if self.stack is None else (self.stack,)
        box = spaces.Box(-np.inf, np.inf, (*lead, 1), np.float64)
        picture = spaces.Box(0, 255, (*lead, *PIXELS), np.uint8)
        return a_setup(
            copies=self.copies,
            stack=self.stack,
            masks=self.masks,
            space=spaces.Dict({"a/b": box, "seen": picture}) if self.mapping else box,
            size=self.capacity,
            n_step=self.n_step,
            prioritized=self.prioritized,
        )

    def naive(self) -> Naive:
        return Naive(self.capacity, self.n_step, self.stack or 1, 0.5)


cases = st.builds(
    Case,
    seed=st.integers(0, 2**32 - 1),
    copies=st.integers(1, 3),
    stack=st.sampled_from([None, 2, 3, 4]),
    capacity=st.integers(2, 40),
    n_step=st.integers(1, 4),
    ends=st.sampled_from([0.0, 0.1, 0.3, 1.0]),
    resets_take_a_step=st.booleans(),
    mapping=st.booleans(),
    masks=st.booleans(),
    prioritized=st.booleans(),
    rollouts=st.lists(st.integers(1, 12), min_size=1, max_size=8).map(tuple),
)


class Experience:
    """Copies of an environment at random; tells a naive buffer of every row, in time order."""

    def __init__(self, case: Case, naive: Naive) -> None:
        self._case = case
        self._naive = naive
        self._random = np.random.default_rng(case.seed)
        self._episodes = [0] * case.copies
        self._times = [0] * case.copies
        self._stacks = [[self._frame()] for _ in range(case.copies)]
        self._masks = [self._mask() for _ in range(case.copies)]
        self._resetting = [False] * case.copies

    def batch(self, steps: int) -> Batch:
        rows = [[self._step(copy) for copy in range(self._case.copies)] for _ in range(steps)]
        by_copy = [moment[copy] for copy in range(self._case.copies) for moment in rows]
        columns = {key: stacked([row[key] for row in by_copy]) for key in by_copy[0]}
        return Batch(
            observations=columns["observation"],
            actions=columns["action"],
            rewards=columns["reward"],
            terminated=columns["terminated"],
            truncated=columns["truncated"],
            next_observations=columns["next"],
            extras={key: columns[key] for key in ("valid", "first", "masks", "next_masks")},
        )

    def _step(self, copy: int) -> dict[str, Any]:
        before, mask = self._seen(copy), self._masks[copy]
        if self._resetting[copy]:
            self._begin(copy)
            return self._row(before, self._seen(copy), mask, mask, valid=False)
        first = self._times[copy] == 0
        ended = bool(self._random.random() < self._case.ends)
        terminated = ended and bool(self._random.random() < 0.5)
        action, reward = int(self._random.integers(CHOICES)), float(self._random.integers(-9, 9))
        episode, time = (copy, self._episodes[copy]), self._times[copy]
        shown = mask.tolist() if self._case.masks else None
        self._naive.log.append(
            Row(
                episode, time, self._stacks[copy][-1], action, reward, terminated, ended, mask=shown
            )
        )
        self._stacks[copy].append(self._frame())
        self._masks[copy] = self._mask()
        self._times[copy] += 1
        row = self._row(before, self._seen(copy), mask, self._masks[copy], first=first)
        row |= {"action": action, "reward": reward}
        row |= {"terminated": terminated, "truncated": ended and not terminated}
        if ended:
            shown = self._masks[copy].tolist() if self._case.masks else None
            final = Row(episode, time + 1, self._stacks[copy][-1], final=True, mask=shown)
            self._naive.log.append(final)
            if self._case.resets_take_a_step:
                self._resetting[copy] = True
            else:
                self._begin(copy)
        return row

    def _begin(self, copy: int) -> None:
        self._episodes[copy] += 1
        self._times[copy] = 0
        self._stacks[copy] = [self._frame()]
        self._masks[copy] = self._mask()
        self._resetting[copy] = False

    def _row(
        self,
        before: Any,
        after: Any,
        mask: NDArray[np.bool_],
        next_mask: NDArray[np.bool_],
        *,
        valid: bool = True,
        first: bool = False,
    ) -> dict[str, Any]:
        return {
            **{"observation": before, "next": after, "masks": mask, "next_masks": next_mask},
            **{"valid": valid, "first": first, "action": 0, "reward": 0.0},
            **{"terminated": False, "truncated": False},
        }

    def _frame(self) -> Any:
        number = np.array([self._random.normal()])
        picture = self._random.integers(0, 256, PIXELS, dtype=np.uint8)
        return {"a/b": number, "seen": picture} if self._case.mapping else number

    def _mask(self) -> NDArray[np.bool_]:
        return self._random.random(CHOICES) < 0.7

    def _seen(self, copy: int) -> Any:
        stack = self._case.stack
        if stack is None:
            return self._stacks[copy][-1]
        frames = self._stacks[copy]
        return stacked(([frames[0]] * stack + frames)[-stack:])


def stacked(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: stacked([value[name] for value in values]) for name in values[0]}
    return np.stack([np.asarray(value) for value in values])


@many
@given(case=cases)
def test_what_can_be_drawn_is_what_a_naive_buffer_says(case: Case) -> None:
    buffer, naive = ReplayBuffer(case.setup), case.naive()
    experience = Experience(case, naive)
    for steps in case.rollouts:
        buffer.add(experience.batch(steps))
        expected = naive.drawable()
        assert len(buffer) == len(expected)
        if expected:
            for row in rows_of(buffer.sample(32)):
                assert row == expected[row["row"]]


@a_few
@given(case=cases)
def test_every_transition_is_drawn_as_often_as_any_other(case: Case) -> None:
    buffer = ReplayBuffer(Case(**{**vars(case), "prioritized": False}).setup)
    experience = Experience(case, case.naive())
    for steps in case.rollouts:
        buffer.add(experience.batch(steps))
    if len(buffer) == 0:
        return
    draws = 500 * len(buffer)
    rows, counts = np.unique(buffer.sample(draws).rows, return_counts=True)
    assert len(rows) == len(buffer)
    # Six deviations of a binomial count.
    assert np.abs(counts - 500).max() < 6 * np.sqrt(500)


def test_transitions_that_are_far_between_are_drawn_alike_too() -> None:
    """A window of thirty steps: only the first three of all rows can be drawn."""
    buffer = ReplayBuffer(a_setup(n_step=30))
    buffer.add(a_batch([1.0] * 33))
    assert len(buffer) == 3
    counts = np.bincount(buffer.sample(3000).rows)
    assert len(counts) == 3
    assert np.abs(counts - 1000).max() < 6 * np.sqrt(1000)


def test_priorities_and_weights_follow_the_formula() -> None:
    """P(i) = p_i^alpha / sum p^alpha; w_i = (N P(i))^-beta / max w (Schaul et al. 2016)."""
    alpha, beta, progress = 0.7, 0.4, 0.25
    buffer = ReplayBuffer(a_setup(prioritized=True, alpha=alpha, beta=beta))
    buffer.add(a_batch([1.0] * 5, terminated=(4,)))
    errors = np.array([0.5, -2.0, 0.0, 1.0, 4.0])
    buffer.update_priorities(np.arange(5), errors)
    priorities = (np.abs(errors) + 1e-6) ** alpha
    chances = priorities / priorities.sum()
    draws = 40_000
    sample = buffer.sample(draws, progress)
    counts = np.bincount(sample.rows, minlength=5)
    # Drawn one from each equal part: a count is off by no more than one at either border.
    assert np.abs(counts - draws * chances).max() <= 2.0
    annealed = beta + (1.0 - beta) * progress
    weights = (5 * chances[sample.rows]) ** -annealed
    assert sample.weights == pytest.approx(weights / weights.max(), rel=1e-5)
    assert sample.weights.dtype == np.float32
    assert sample.weights.max() == 1.0


def test_weights_correct_fully_at_the_end_and_progress_beyond_it_counts_as_the_end() -> None:
    buffer = ReplayBuffer(a_setup(prioritized=True, alpha=1.0, beta=0.0))
    buffer.add(a_batch([1.0, 1.0], terminated=(1,)))
    buffer.update_priorities(np.array([0, 1]), np.array([1.0, 3.0]))
    assert set(buffer.sample(100, 0.0).weights.tolist()) == {1.0}
    for progress in (1.0, 1.5):
        assert sorted(set(buffer.sample(100, progress).weights.tolist())) == pytest.approx(
            [1 / 3, 1.0], rel=1e-5
        )


def test_new_transitions_get_the_greatest_priority_that_ever_was() -> None:
    buffer = ReplayBuffer(a_setup(prioritized=True, alpha=1.0))
    buffer.add(a_batch([1.0], terminated=(0,)))
    buffer.update_priorities(np.array([0]), np.array([8.0]))
    buffer.update_priorities(np.array([0]), np.array([2.0]))
    buffer.add(a_batch([1.0], terminated=(0,)))
    counts = np.bincount(buffer.sample(1000).rows)
    assert counts[0] == pytest.approx(200, abs=2)
    assert counts[2] == pytest.approx(800, abs=2)


def test_priorities_of_rows_that_have_gone_are_passed_over() -> None:
    buffer = ReplayBuffer(a_setup(prioritized=True, size=4))
    buffer.add(a_batch([1.0, 1.0], terminated=(1,)))
    old = buffer.sample(2)
    buffer.add(a_batch([2.0, 4.0, 8.0], terminated=(2,)))
    before = buffer.sample(64).rows
    buffer.update_priorities(old.rows, np.zeros(2))
    assert set(buffer.sample(64).rows.tolist()) == set(before.tolist()) == {3, 4, 5}


def test_an_error_that_is_not_finite_is_refused() -> None:
    buffer = ReplayBuffer(a_setup(prioritized=True))
    buffer.add(a_batch([1.0], terminated=(0,)))
    with pytest.raises(Diverged, match="not finite"):
        buffer.update_priorities(np.array([0]), np.array([np.nan]))


def test_without_priorities_errors_change_nothing() -> None:
    buffer, other = ReplayBuffer(a_setup()), ReplayBuffer(a_setup())
    for each in (buffer, other):
        each.add(a_batch([1.0, 2.0, 4.0], terminated=(2,)))
    buffer.update_priorities(np.array([0]), np.array([100.0]))
    assert buffer.sample(50).rows.tolist() == other.sample(50).rows.tolist()
    assert set(buffer.sample(50).weights.tolist()) == {1.0}


@dataclass
class Shelf:
    """Segments by name, as a disk would keep them."""

    segments: dict[str, LogSegment] = field(default_factory=dict)

    def put(self, buffer: ReplayBuffer) -> None:
        segment = buffer.seal()
        if segment is not None:
            assert segment.name not in self.segments
            self.segments[segment.name] = segment

    def read(self, name: str) -> Mapping[str, NDArray[Any]]:
        return self.segments[name].arrays


def saved(buffer: ReplayBuffer, shelf: Shelf) -> StateTree:
    """The state of a buffer, once all its rows are on the shelf, as JSON would give it back."""
    shelf.put(buffer)
    state = buffer.state()
    return StateTree(state.tensors, json.loads(json.dumps(state.document)))


def same(one: Sample, other: Sample) -> bool:
    return all(
        identical(getattr(one, name), getattr(other, name)) for name in Sample.__dataclass_fields__
    )


def identical(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(identical(one[k], other[k]) for k in one)
    if one is None or other is None:
        return one is other
    return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())


@many
@given(
    case=cases,
    moments=st.lists(st.sampled_from(["seal", "restore", "learn", ""]), min_size=8, max_size=8),
)
def test_a_buffer_that_is_restored_at_any_moment_goes_on_bit_for_bit(
    case: Case, moments: list[str]
) -> None:
    """One buffer lives on; the other is sealed, thrown away and restored again and again."""
    whole, buffer, shelf = ReplayBuffer(case.setup), ReplayBuffer(case.setup), Shelf()
    experience = Experience(case, case.naive())
    for steps, moment in zip(case.rollouts, moments, strict=False):
        batch = experience.batch(steps)
        for each in (whole, buffer):
            each.add(batch)
        if moment == "seal":
            shelf.put(buffer)
        if moment == "restore":
            state, buffer = saved(buffer, shelf), ReplayBuffer(case.setup)
            buffer.load(state, shelf.read)
            assert buffer.unsealed_bytes == 0
        if moment == "learn" and len(whole):
            rows = [each.sample(5).rows for each in (whole, buffer)]
            errors = np.random.default_rng(steps).normal(size=5)
            whole.update_priorities(rows[0], errors)
            buffer.update_priorities(rows[1], errors)
        assert len(whole) == len(buffer)
        if len(whole):
            assert same(whole.sample(8, 0.3), buffer.sample(8, 0.3))
    whole.seal()
    ours, theirs = saved(buffer, shelf), whole.state()
    assert {**ours.document, "segments": 0} == {**theirs.document, "segments": 0}
    assert identical(dict(ours.tensors), dict(theirs.tensors))


def test_an_empty_buffer_is_restored_empty() -> None:
    buffer, shelf = ReplayBuffer(a_setup(prioritized=True)), Shelf()
    state = saved(buffer, shelf)
    assert segments_in(state) == ()
    anew = ReplayBuffer(a_setup(prioritized=True))
    anew.load(state, shelf.read)
    assert len(anew) == 0


def test_a_segment_holds_only_what_is_new() -> None:
    buffer, shelf = ReplayBuffer(a_setup()), Shelf()
    buffer.add(a_batch([1.0, 2.0]))
    assert buffer.unsealed_bytes == 2 * buffer.row_bytes
    shelf.put(buffer)
    assert buffer.seal() is None
    buffer.add(a_batch([4.0, 8.0, 16.0], start=2.0, terminated=(2,), first=()))
    shelf.put(buffer)
    assert list(shelf.segments) == [
        "000000000000000-000000000000001",
        "000000000000002-000000000000005",
    ]
    sizes = [len(segment.arrays["rewards"]) for segment in shelf.segments.values()]
    assert sizes == [2, 4]
    assert segments_in(buffer.state()) == tuple(shelf.segments)


def test_segments_are_needed_as_long_as_one_of_their_rows_is() -> None:
    buffer, shelf = ReplayBuffer(a_setup(size=4)), Shelf()
    for _ in range(2):
        buffer.add(a_batch([1.0, 2.0], terminated=(1,)))
        shelf.put(buffer)
    first, second = shelf.segments
    assert segments_in(buffer.state()) == (first, second)
    buffer.add(a_batch([1.0]))
    shelf.put(buffer)
    assert segments_in(buffer.state()) == (second, "000000000000006-000000000000006")


def test_rows_that_are_overwritten_before_they_are_sealed_are_in_no_segment() -> None:
    buffer, shelf = ReplayBuffer(a_setup(size=3)), Shelf()
    buffer.add(a_batch([float(i) for i in range(10)]))
    assert buffer.unsealed_bytes == 3 * buffer.row_bytes
    shelf.put(buffer)
    assert list(shelf.segments) == ["000000000000007-000000000000009"]


def test_a_segment_is_a_copy() -> None:
    buffer, shelf = ReplayBuffer(a_setup(size=3)), Shelf()
    buffer.add(a_batch([1.0, 2.0, 4.0]))
    shelf.put(buffer)
    buffer.add(a_batch([8.0, 16.0, 32.0], first=()))
    (segment,) = shelf.segments.values()
    assert segment.arrays["rewards"].tolist() == [1.0, 2.0, 4.0]


def test_no_state_is_given_while_rows_are_in_no_segment() -> None:
    buffer = ReplayBuffer(a_setup())
    buffer.add(a_batch([1.0, 2.0]))
    with pytest.raises(ValueError, match="2 rows are in no segment yet"):
        buffer.state()


def test_segments_may_be_listed_by_name_or_with_what_the_disk_says_of_them() -> None:
    buffer, shelf = ReplayBuffer(a_setup()), Shelf()
    buffer.add(a_batch([1.0, 2.0], terminated=(1,)))
    state = saved(buffer, shelf)
    entries = [{"name": name, "sha256": "ab", "bytes": 3} for name in segments_in(state)]
    anew = ReplayBuffer(a_setup())
    anew.load(StateTree(state.tensors, {**state.document, "segments": entries}), shelf.read)
    assert same(anew.sample(9), buffer.sample(9))


def test_a_smaller_buffer_takes_the_newest_rows_and_a_larger_one_all() -> None:
    buffer, shelf = ReplayBuffer(a_setup(size=8, prioritized=True)), Shelf()
    buffer.add(a_batch([float(i) for i in range(8)]))
    buffer.update_priorities(np.array([3, 6]), np.array([5.0, 9.0]))
    state = saved(buffer, shelf)
    for size, rows in ((3, {5, 6}), (20, set(range(7)))):
        anew = ReplayBuffer(a_setup(size=size, prioritized=True))
        anew.load(state, shelf.read)
        assert set(anew.sample(400).rows.tolist()) == rows
        anew.add(a_batch([9.0, 9.0], start=8.0, first=()))
        assert drawn(anew)[8]["observation"] == [8.0]


def test_a_missing_segment_is_damage() -> None:
    buffer, shelf = ReplayBuffer(a_setup()), Shelf()
    for start in (0.0, 2.0):
        buffer.add(a_batch([1.0, 2.0], start=start, first=(0,) if start == 0 else ()))
        shelf.put(buffer)
    state = buffer.state()
    listed = [name for name in segments_in(state) if name.startswith("000000000000002")]
    with pytest.raises(Damaged, match="holds row 0"):
        ReplayBuffer(a_setup()).load(
            StateTree(state.tensors, {**state.document, "segments": listed}), shelf.read
        )


def test_a_segment_of_another_kind_of_row_is_damage() -> None:
    buffer, shelf = ReplayBuffer(a_setup()), Shelf()
    buffer.add(a_batch([1.0, 2.0]))
    state = saved(buffer, shelf)
    picture = ReplayBuffer(a_setup(space=spaces.Box(0, 255, PIXELS, np.uint8)))
    wrong = r"float64\(2, 1\) for observations; must be uint8\(2, 2, 2\)"
    with pytest.raises(Damaged, match=wrong):
        picture.load(state, shelf.read)


def test_memory_comes_from_whoever_hands_it_out() -> None:
    asked: dict[str, tuple[tuple[int, ...], Any]] = {}

    def allocate(name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        asked[name] = (shape, np.dtype(dtype))
        return np.zeros(shape, dtype)

    picture = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    given = a_setup(stack=4, space=picture, masks=True, size=10)
    ReplayBuffer(Setup(given.spec, picture, given.action_space, allocate))
    assert asked["observations"] == ((10, 84, 84), np.dtype(np.uint8))
    assert asked["masks"] == ((10, CHOICES), np.dtype(np.bool_))
    rest = sum(
        int(np.prod(shape)) * dtype.itemsize
        for name, (shape, dtype) in asked.items()
        if name != "observations"
    )
    assert rest <= 10 * 40
