"""Dict and Tuple observations become flat; and which arrays are vectors, which are images."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_orch.errors import BadInput
from rl_orch.rl.envs.leaves import Leaf, leaves_of, problems
from rl_orch.rl.envs.observations import flat_space, flatten_observation

ARM = spaces.Box(-1.0, 1.0, (2,))


def pixels(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


NESTED = spaces.Dict(
    {
        "robot": spaces.Dict({"arm": ARM, "mode": spaces.Discrete(3, start=-1)}),
        "goals": spaces.Tuple((spaces.MultiBinary(4), spaces.Tuple((ARM,)))),
        "camera": pixels(5, 6, 3),
    }
)
NAMES = ["camera", "goals/0", "goals/1/0", "robot/arm", "robot/mode"]


def leaf(space: Space[Any], *, stacked: bool = False) -> Leaf:
    return leaves_of(space, stacked=stacked)[""]


def test_a_space_without_parts_is_its_own() -> None:
    assert flat_space(ARM) is ARM
    observations = np.zeros((3, 2), np.float32)
    assert flatten_observation(ARM, observations) is observations


def test_parts_are_named_by_their_keys_joined() -> None:
    flat = flat_space(NESTED)
    assert isinstance(flat, spaces.Dict)
    assert list(flat.spaces) == NAMES
    assert flat["goals/1/0"] == ARM


def test_an_observation_fits_the_flat_space_in_the_same_order() -> None:
    NESTED.seed(0)
    flat = flat_space(NESTED)
    shown = flatten_observation(NESTED, NESTED.sample())
    assert list(shown) == NAMES
    assert {name: array.dtype for name, array in shown.items()} == {
        name: flat[name].dtype  # type: ignore[index]
        for name in NAMES
    }
    assert flat.contains({**shown, "robot/mode": shown["robot/mode"][()]})


def test_a_batch_of_observations_is_a_mapping_of_batches() -> None:
    batch = batch_space(NESTED, 7)
    batch.seed(0)
    raw = batch.sample()
    shown = flatten_observation(NESTED, raw)
    assert {name: array.shape for name, array in shown.items()} == {
        "camera": (7, 5, 6, 3),
        "goals/0": (7, 4),
        "goals/1/0": (7, 2),
        "robot/arm": (7, 2),
        "robot/mode": (7,),
    }
    assert shown["robot/arm"] is raw["robot"]["arm"]


def test_what_is_flat_stays_as_it_is() -> None:
    NESTED.seed(1)
    flat, once = flat_space(NESTED), flatten_observation(NESTED, NESTED.sample())
    assert flat_space(flat) == flat
    assert {name: array.tolist() for name, array in flatten_observation(flat, once).items()} == {
        name: array.tolist() for name, array in once.items()
    }


def test_observations_of_another_type_get_that_of_their_space() -> None:
    assert flatten_observation(ARM, [0.1, 0.2]).dtype == np.float32
    assert flatten_observation(spaces.Discrete(3), 2).dtype == np.int64


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> Space[Any]:
    kind = draw(st.sampled_from(["leaf", "dict", "tuple"] if depth else ["leaf"]))
    if kind == "leaf":
        return spaces.Box(0.0, 1.0, (draw(st.integers(1, 3)),))
    parts = draw(st.lists(trees(depth - 1), min_size=1, max_size=3))
    if kind == "tuple":
        return spaces.Tuple(parts)
    return spaces.Dict({f"k{index}": part for index, part in enumerate(parts)})


@settings(deadline=None, max_examples=30)
@given(trees())
def test_no_number_is_lost_on_the_way(space: Space[Any]) -> None:
    space.seed(0)
    raw = space.sample()
    shown = flatten_observation(space, raw)
    arrays = shown.values() if isinstance(shown, dict) else [shown]
    assert np.array_equal(np.concatenate([*arrays]), np.asarray(spaces.flatten(space, raw)))


@pytest.mark.parametrize("space", [spaces.Dict({}), spaces.Dict({"a": spaces.Tuple(())})])
def test_observations_without_parts_are_refused(space: Space[Any]) -> None:
    with pytest.raises(BadInput, match="has no parts"):
        flat_space(space)


def test_parts_that_would_share_a_name_are_refused() -> None:
    with pytest.raises(BadInput, match=r"different parts of the same name.*a/b"):
        flat_space(spaces.Dict({"a/b": ARM, "a": spaces.Dict({"b": ARM})}))


@pytest.mark.parametrize(
    ("space", "shape", "rows"),
    [
        (spaces.Box(-1.0, 1.0, ()), (), (1, 1)),
        (spaces.Box(-1.0, 1.0, (3,)), (3,), (3, 1)),
        (spaces.Box(-1.0, 1.0, (5, 3)), (5, 3), (5, 3)),
        (spaces.Box(-1.0, 1.0, (2, 5, 3)), (2, 5, 3), (10, 3)),
        (spaces.Box(-9, 9, (3,), np.int32), (3,), (3, 1)),
        (spaces.Box(0, 255, (128,), np.uint8), (128,), (128, 1)),
        (spaces.Discrete(4, start=2), (1, 4), (1, 4)),
        (spaces.MultiDiscrete([3, 3]), (2, 3), (2, 3)),
        (spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])), (14,), (14, 1)),
        (spaces.MultiBinary((2, 3)), (2, 3), (2, 3)),
    ],
)
def test_everything_but_images_is_a_vector(
    space: Space[Any], shape: tuple[int, ...], rows: tuple[int, int]
) -> None:
    found = leaf(space)
    assert (found.kind, found.shape, found.rows) == ("vector", shape, rows)
    assert found.size == np.prod(shape, dtype=int) == np.prod(rows)
    assert found.measured == isinstance(space, spaces.Box)


@pytest.mark.parametrize(
    ("shape", "stacked", "expected"),
    [
        ((84, 84), False, (1, 84, 84)),
        ((4, 84, 84), True, (4, 84, 84)),
        ((4, 84, 84), False, (4, 84, 84)),
        ((84, 80, 3), False, (3, 84, 80)),
        ((3, 84, 80), False, (3, 84, 80)),
        ((84, 84, 1), False, (1, 84, 84)),
        ((4, 84, 80, 3), True, (12, 84, 80)),
        ((4, 3, 84, 80), True, (12, 84, 80)),
        ((4, 84, 80, 3), False, (12, 84, 80)),
        ((2, 7, 7), True, (2, 7, 7)),
        ((3, 3, 3), False, (3, 3, 3)),
    ],
)
def test_uint8_boxes_with_two_sides_are_images_channels_first(
    shape: tuple[int, ...], stacked: bool, expected: tuple[int, ...]
) -> None:
    found = leaf(pixels(*shape), stacked=stacked)
    assert (found.kind, found.shape) == ("image", expected)
    assert found.channels_last == (len(shape) > 2 and shape[-1] == min(shape))
    assert not found.measured


def test_a_stack_of_uint8_vectors_is_no_image() -> None:
    assert leaf(pixels(4, 128), stacked=True) == Leaf("vector", (4, 128), measured=True)
    assert leaf(pixels(4, 128)).kind == "image"


def test_too_many_axes_are_no_image() -> None:
    assert leaf(pixels(2, 2, 5, 5, 3)).kind == "vector"


def test_an_image_knows_its_greatest_value() -> None:
    board = spaces.Box(0, 2, (3, 3), np.uint8)
    assert (leaf(pixels(9, 9)).high, leaf(board).high) == (255.0, 2.0)


def test_every_part_has_a_leaf() -> None:
    leaves = leaves_of(NESTED, stacked=False)
    assert list(leaves) == NAMES
    assert [name for name, found in leaves.items() if found.kind == "image"] == ["camera"]
    assert [name for name, found in leaves.items() if found.measured] == ["goals/1/0", "robot/arm"]


@pytest.mark.parametrize(
    "space", [spaces.Text(5), spaces.Sequence(ARM), spaces.Graph(ARM, None), pixels(0, 3)]
)
def test_what_no_network_can_see_is_refused_by_name(space: Space[Any]) -> None:
    with pytest.raises(BadInput, match=f"^the observation is a {type(space).__name__} of shape"):
        leaves_of(space, stacked=False)
    with pytest.raises(BadInput, match=f"^the observation 'a/b' is a {type(space).__name__}"):
        leaves_of(spaces.Dict({"a": spaces.Dict({"b": space})}), stacked=False)


def test_every_encoder_but_those_for_images_takes_vectors() -> None:
    vectors = leaves_of(ARM, stacked=False)
    for encoder in ("auto", "mlp", "transformer", "gru", "lstm", "somebodys"):
        assert problems(encoder, vectors) == []
    for encoder in ("cnn", "impala"):
        assert problems(encoder, vectors) == [
            f"feature.encoder is '{encoder}', which takes images (a Box of uint8 with 2 to 4 "
            "axes), but there are none; use 'auto' or 'mlp'"
        ]


def test_every_encoder_but_the_transformer_takes_images() -> None:
    images = leaves_of(spaces.Dict({"a": pixels(36, 36), "b": pixels(40, 50, 3)}), stacked=False)
    for encoder in ("auto", "mlp", "cnn", "impala", "gru", "lstm", "somebodys"):
        assert problems(encoder, images) == []
    assert problems("transformer", images) == [
        "feature.encoder is 'transformer', which takes vectors, but there are only images; "
        "use 'auto', 'cnn' or 'impala'"
    ]


def test_the_nature_cnn_refuses_small_images_by_name() -> None:
    sentence = (
        "feature.encoder is 'cnn', which takes images of at least 36 by 36 pixels, but {} has "
        "40 by 35; use 'impala' or 'auto'"
    )
    assert problems("cnn", leaves_of(pixels(40, 35, 3), stacked=False)) == [
        sentence.format("the observation")
    ]
    several = spaces.Dict({"low": pixels(40, 35), "high": pixels(84, 84), "arm": ARM})
    assert problems("cnn", leaves_of(several, stacked=False)) == [
        sentence.format("the observation 'low'")
    ]


def test_a_dict_needs_something_of_the_encoders_kind_only() -> None:
    mixed = leaves_of(spaces.Dict({"camera": pixels(84, 84), "arm": ARM}), stacked=False)
    for encoder in ("cnn", "impala", "transformer"):
        assert problems(encoder, mixed) == []


class Mixed(gymnasium.Env[Any, Any]):
    """One step long; observations hold a Python number and an array that is not of its type."""

    observation_space = spaces.Dict({"at": spaces.Tuple((ARM, spaces.Discrete(4)))})
    action_space = spaces.Discrete(2)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return {"at": (np.full(2, 0.5), 2)}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return {"at": (np.full(2, 0.25), 3)}, 1.0, True, False, {}


def test_what_a_vector_environment_returns_is_seen_and_so_is_a_final_observation() -> None:
    envs = SyncVectorEnv([Mixed] * 3, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
    envs.reset(seed=0)
    raw, *_, infos = envs.step(np.zeros(3, np.int64))
    shown = flatten_observation(Mixed.observation_space, raw)
    assert {name: array.shape for name, array in shown.items()} == {"at/0": (3, 2), "at/1": (3,)}
    assert shown["at/1"].tolist() == [2, 2, 2]
    final = flatten_observation(Mixed.observation_space, infos["final_obs"][1])
    assert (final["at/0"].tolist(), final["at/0"].dtype) == ([0.25, 0.25], np.float32)
    assert (int(final["at/1"]), final["at/1"].shape) == (3, ())
    envs.close()
