"""The observation pipeline: what networks see of every kind of observation."""

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from gymnasium.wrappers import FrameStackObservation
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rl_orch.errors import BadInput
from rl_orch.rl.envs.observations import flat_space, flatten_observation
from rl_orch.rl.policies.observations import ObservationPipeline
from rl_orch.spec.groups import ObsGroup
from tests.unit.test_rl_seen import Mixed

ARM = spaces.Box(-9.0, 9.0, (2,))
RUNNING = {"normalize": "running"}


def pixels(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


def a_pipeline(space: Space[Any], **options: Any) -> ObservationPipeline:
    return ObservationPipeline(flat_space(space), ObsGroup.model_validate(options))


def samples(space: Space[Any], rows: int) -> NDArray[Any]:
    space.seed(0)
    return np.stack([space.sample() for _ in range(rows)])


def array(pipeline: ObservationPipeline, observations: Any) -> NDArray[Any]:
    processed = pipeline.process(observations)
    assert isinstance(processed, np.ndarray)
    return processed


def arrays(pipeline: ObservationPipeline, observations: Any) -> dict[str, NDArray[Any]]:
    processed = pipeline.process(observations)
    assert isinstance(processed, dict)
    return processed


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1.0, 1.0, ()),
        spaces.Box(-1.0, 1.0, (3,)),
        spaces.Box(-1.0, 1.0, (3,), np.float64),
        spaces.Box(-1.0, 1.0, (2, 3, 4)),
        spaces.Box(-9, 9, (3,), np.int16),
        spaces.Box(0, 255, (6,), np.uint8),
        spaces.MultiBinary(5),
        spaces.MultiBinary((2, 3)),
    ],
)
def test_numbers_become_rows_of_float32(space: Space[Any]) -> None:
    observations = samples(space, 7)
    seen_rows = array(a_pipeline(space), observations)
    assert seen_rows.dtype == np.float32
    assert np.array_equal(seen_rows, observations.reshape(7, -1).astype(np.float32))


def test_a_choice_becomes_one_hot_from_the_start_of_its_space() -> None:
    pipeline = a_pipeline(spaces.Discrete(3, start=-1))
    assert array(pipeline, np.array([1, -1])).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_several_choices_become_one_hot_side_by_side() -> None:
    pipeline = a_pipeline(spaces.MultiDiscrete([2, 3], start=[5, 0]))
    rows = array(pipeline, np.array([[5, 2], [6, 0]]))
    assert rows.tolist() == [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0]]
    assert rows.dtype == np.float32


def test_a_grid_of_choices_is_read_row_by_row() -> None:
    space = spaces.MultiDiscrete(np.array([[2, 2], [1, 3]]))
    rows = array(a_pipeline(space), np.array([[[1, 0], [0, 2]]]))
    assert rows.tolist() == [[0, 1, 1, 0, 1, 0, 0, 1]]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 99))
def test_one_hot_rows_tell_which_choices_were_made(options: list[int], seed: int) -> None:
    space = spaces.MultiDiscrete(options)
    space.seed(seed)
    observations = np.stack([space.sample() for _ in range(5)])
    rows = array(a_pipeline(space), observations)
    parts = np.split(rows, np.cumsum(options)[:-1], axis=1)
    assert all((part.sum(1) == 1.0).all() for part in parts)
    assert np.array_equal(np.stack([part.argmax(1) for part in parts], 1), observations)


@pytest.mark.parametrize(
    "space", [ARM, spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), pixels(5, 6, 3)]
)
def test_no_rows_are_no_rows(space: Space[Any]) -> None:
    one = array(a_pipeline(space), samples(space, 1))
    none = array(a_pipeline(space), samples(space, 1)[:0])
    assert none.shape == (0, *one.shape[1:])


def test_grey_images_have_one_channel() -> None:
    images = samples(pixels(5, 6), 3)
    rows = array(a_pipeline(pixels(5, 6)), images)
    assert (rows.shape, rows.dtype.name) == ((3, 1, 5, 6), "uint8")
    assert np.array_equal(rows[:, 0], images)


def test_the_frames_of_a_grey_stack_are_channels() -> None:
    images = samples(pixels(4, 8, 9), 3)
    rows = array(a_pipeline(pixels(4, 8, 9), stack_frames=4), images)
    assert np.array_equal(rows, images)


def test_channels_come_first_wherever_they_were() -> None:
    images = samples(pixels(7, 8, 3), 2)
    last = array(a_pipeline(pixels(7, 8, 3)), images)
    first = array(a_pipeline(pixels(3, 7, 8)), images.transpose(0, 3, 1, 2))
    assert last.shape == (2, 3, 7, 8)
    assert np.array_equal(last, first)
    assert all(np.array_equal(last[:, c], images[..., c]) for c in range(3))


@pytest.mark.parametrize("options", [{"stack_frames": 4}, {}])
def test_the_frames_of_a_colour_stack_are_channels_too(options: dict[str, int]) -> None:
    images = samples(pixels(4, 7, 8, 3), 2)
    rows = array(a_pipeline(pixels(4, 7, 8, 3), **options), images)
    assert rows.shape == (2, 12, 7, 8)
    for frame in range(4):
        for colour in range(3):
            assert np.array_equal(rows[:, 3 * frame + colour], images[:, frame, ..., colour])


def test_colour_stacks_with_channels_first_are_only_joined() -> None:
    images = samples(pixels(4, 3, 7, 8), 2)
    rows = array(a_pipeline(pixels(4, 3, 7, 8), stack_frames=4), images)
    assert np.array_equal(rows, images.reshape(2, 12, 7, 8))


def test_images_are_neither_normalised_nor_clipped() -> None:
    pipeline = a_pipeline(pixels(5, 6), normalize="running", clip_range=[0, 1])
    images = samples(pixels(5, 6), 3)
    pipeline.update(images)
    assert np.array_equal(array(pipeline, images)[:, 0], images)
    assert pipeline.state_dict() == {}


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiBinary(3)])
def test_choices_are_neither_normalised_nor_clipped(space: Space[Any]) -> None:
    pipeline = a_pipeline(space, normalize="running", clip_range=[0, 0.5])
    pipeline.update(samples(space, 5))
    assert array(pipeline, samples(space, 20)).max() == 1.0
    assert pipeline.state_dict() == {}


def test_clipping_leaves_what_is_within() -> None:
    pipeline = a_pipeline(ARM, clip_range=[-1, 2])
    observations = np.array([[-5.0, 0.3], [1.5, 7.0]], np.float32)
    rows = array(pipeline, observations)
    assert np.array_equal(rows, np.clip(observations, -1.0, 2.0))
    assert rows.dtype == np.float32


def test_what_cannot_be_seen_is_refused() -> None:
    with pytest.raises(BadInput, match="is a Text of shape"):
        a_pipeline(spaces.Text(5))


MIXED = spaces.Dict(
    {
        "arm": ARM,
        "inner": spaces.Dict({"camera": pixels(5, 6, 3), "mode": spaces.Discrete(3)}),
        "pair": spaces.Tuple((spaces.Box(-99.0, 99.0, (2, 2), np.float64), spaces.MultiBinary(2))),
    }
)


def a_mixed_batch(rows: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    MIXED.seed(seed)
    shown = [flatten_observation(MIXED, MIXED.sample()) for _ in range(rows)]
    return {name: np.stack([row[name] for row in shown]) for name in shown[0]}


def test_every_part_of_a_dict_is_seen_by_its_own_rule() -> None:
    pipeline = a_pipeline(MIXED)
    rows = arrays(pipeline, a_mixed_batch(4))
    assert {name: (part.shape, part.dtype.name) for name, part in rows.items()} == {
        "arm": ((4, 2), "float32"),
        "inner/camera": ((4, 3, 5, 6), "uint8"),
        "inner/mode": ((4, 3), "float32"),
        "pair/0": ((4, 4), "float32"),
        "pair/1": ((4, 2), "float32"),
    }
    assert list(rows) == list(pipeline.leaves)
    assert pipeline.size == 2 + 90 + 3 + 4 + 2


def test_a_dict_of_one_stays_a_dict() -> None:
    pipeline = a_pipeline(spaces.Dict({"arm": ARM}))
    assert not pipeline.plain
    assert list(arrays(pipeline, {"arm": samples(ARM, 2)})) == ["arm"]


def test_the_measured_parts_of_a_dict_are_normalised_each_by_its_own_statistics() -> None:
    together = a_pipeline(MIXED, normalize="running", clip_range=3)
    batch = a_mixed_batch(50)
    together.update(batch)
    rows = arrays(together, batch)
    for name, space in (("arm", ARM), ("pair/0", spaces.Box(-99.0, 99.0, (2, 2), np.float64))):
        alone = a_pipeline(space, normalize="running", clip_range=3)
        alone.update(batch[name])
        assert np.array_equal(rows[name], array(alone, batch[name]))
        assert np.abs(rows[name].mean(0)) == pytest.approx(0.0, abs=1e-3)
    plain = arrays(a_pipeline(MIXED), batch)
    for name in ("inner/camera", "inner/mode", "pair/1"):
        assert np.array_equal(rows[name], plain[name])


def test_the_statistics_of_a_dict_are_saved_and_come_back() -> None:
    pipeline, other = (a_pipeline(MIXED, **RUNNING) for _ in range(2))
    batch = a_mixed_batch(20)
    pipeline.update(batch)
    assert list(pipeline.state_dict()) == [
        f"normalizer.{index}.{name}" for index in (0, 1) for name in ("mean", "m2", "count")
    ]
    other.load_state_dict(pipeline.state_dict())
    for name, rows in arrays(other, batch).items():
        assert np.array_equal(rows, arrays(pipeline, batch)[name])


def test_the_statistics_of_one_box_have_the_names_they_always_had() -> None:
    pipeline = a_pipeline(ARM, **RUNNING)
    assert list(pipeline.state_dict()) == [f"normalizer.{name}" for name in ("mean", "m2", "count")]
    assert a_pipeline(ARM).state_dict() == {}


def test_a_copy_of_a_pipeline_keeps_statistics_of_its_own() -> None:
    pipeline, batch = a_pipeline(spaces.Dict({"arm": ARM}), **RUNNING), {"arm": samples(ARM, 9)}
    alone = a_pipeline(ARM, **RUNNING)
    copied, copied_alone = deepcopy(pipeline), deepcopy(alone)
    pipeline.update(batch)
    alone.update(batch["arm"])
    for before in (arrays(copied, batch)["arm"], array(copied_alone, batch["arm"])):
        assert np.array_equal(before, batch["arm"])
    for after in (arrays(pipeline, batch)["arm"], array(alone, batch["arm"])):
        assert not np.array_equal(after, batch["arm"])


def test_tensors_are_seen_like_arrays() -> None:
    observations = samples(ARM, 5)
    pipeline = a_pipeline(ARM, **RUNNING)
    pipeline.update(torch.from_numpy(observations))
    assert np.array_equal(
        array(pipeline, torch.from_numpy(observations)), array(pipeline, observations)
    )


def test_a_stack_of_dict_observations_is_seen_part_by_part() -> None:
    env = FrameStackObservation(Mixed(), stack_size=3)
    pipeline = a_pipeline(env.observation_space, stack_frames=3)
    raw, _ = env.reset()
    shown = flatten_observation(env.observation_space, raw)
    rows = arrays(pipeline, {name: part[None] for name, part in shown.items()})
    assert rows["at/0"].tolist() == [[0.5] * 6]
    assert rows["at/1"].tolist() == [[0, 0, 1, 0] * 3]
