"""States of environments: what is restored into a new copy goes on bit for bit."""

import json
import random
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from rl_orch import plugins
from rl_orch.io.checkpoints import checkpoint_files
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.state import capture as state
from rl_orch.rl.envs.state.capture import Method, capture, restore
from rl_orch.rl.envs.state.graph.errors import Uncapturable
from rl_orch.rl.envs.state.graph.flatten import FlatGraph, flatten
from rl_orch.rl.envs.state.graph.refill import refill
from rl_orch.spec.model import Spec
from rl_orch.testing import a_spec
from tests.learning import known_envs

MODULE = __name__

Step = tuple[Any, float, bool, bool, dict[str, Any]]
Record = list[bytes]

SHORT = "env.max_episode_steps=25"
"""Episodes that end soon, so that every drive sees resets."""

CAPTURED = [
    "CartPole-v1",
    "Acrobot-v1",
    "Pendulum-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "FrozenLake-v1",
    "Taxi-v4",
    "CliffWalking-v1",
    "HalfCheetah-v5",
    "Ant-v5",
    "Hopper-v5",
    "Humanoid-v5",
]
REDRIVEN = ["CartPole-v1", "LunarLander-v3", "BipedalWalker-v3", "HalfCheetah-v5", "Taxi-v4"]


def some_actions(envs: vector.Envs, steps: int) -> list[Any]:
    space = deepcopy(envs.action_space)
    space.seed(7)
    return [space.sample() for _ in range(steps)]


def drive(envs: vector.Envs, actions: list[Any]) -> Record:
    """Everything that the actions show."""
    record = []
    for action in actions:
        *seen, infos = envs.step(action)
        finals = [each for each in infos.get("final_obs", ()) if each is not None]
        record.append(b"".join(np.asarray(each).tobytes() for each in (*seen, *finals)))
    return record


def stored(states: StateTree) -> StateTree:
    """The states as a checkpoint gives them back."""
    tensors = {
        name: np.frombuffer(tensor.tobytes(), tensor.dtype).reshape(tensor.shape)
        for name, tensor in states.tensors.items()
    }
    return StateTree(tensors, json.loads(json.dumps(states.document)))


def goes_on(
    spec: Spec, method: Method = "captured", *, at: int = 35, steps: int = 40, num_envs: int = 2
) -> bool:
    """Whether a new vector environment, put in the place of another, shows what that one shows."""
    backend = "sync" if spec.env.backend == "auto" else None
    with (
        closing(vector.make(spec, num_envs=num_envs, backend=backend, method=method)) as first,
        closing(vector.make(spec, num_envs=num_envs, backend=backend, method=method)) as second,
    ):
        vector.reset(first, 5)
        actions = some_actions(first, at + steps)
        drive(first, actions[:at])
        states = capture(first)
        assert states.document["method"] == method, states.document["why"]
        expected = drive(first, actions[at:])
        assert restore(second, stored(states)) is None
        return drive(second, actions[at:]) == expected


@pytest.mark.parametrize("env_id", CAPTURED)
def test_a_captured_state_goes_on_bit_for_bit(env_id: str) -> None:
    assert goes_on(a_spec(SHORT, env_id=env_id))


@pytest.mark.parametrize("env_id", REDRIVEN)
def test_a_redriven_episode_goes_on_bit_for_bit(env_id: str) -> None:
    assert goes_on(a_spec(SHORT, env_id=env_id), "redriven")


@pytest.mark.parametrize("method", ["captured", "redriven"])
@pytest.mark.parametrize("at", [0, 25, 26])
def test_a_state_at_the_very_beginning_of_an_episode_goes_on(method: Method, at: int) -> None:
    assert goes_on(a_spec(SHORT, env_id="Pendulum-v1"), method, at=at)


@pytest.mark.parametrize(
    ("env_id", "method"),
    [("CartPole-v1", "captured"), ("Hopper-v5", "captured"), ("LunarLander-v3", "redriven")],
)
def test_stacked_frames_are_part_of_the_state(env_id: str, method: Method) -> None:
    assert goes_on(a_spec(SHORT, "obs.stack_frames=3", env_id=env_id), method)


@pytest.mark.parametrize(
    ("env_id", "method"),
    [("CartPole-v1", "captured"), ("HalfCheetah-v5", "captured"), ("LunarLander-v3", "redriven")],
)
def test_copies_in_processes_of_their_own_go_on(env_id: str, method: Method) -> None:
    assert goes_on(a_spec(SHORT, "env.backend=async", env_id=env_id), method)


@pytest.mark.parametrize("method", ["captured", "redriven"])
def test_an_atari_game_goes_on(method: Method) -> None:
    pong = a_spec("env.max_episode_steps=12", env_id="ale_py:ALE/Pong-v5")
    assert goes_on(pong, method, at=17, steps=14, num_envs=1)


@pytest.mark.parametrize("method", ["captured", "redriven"])
def test_process_wide_generators_belong_to_a_copy_in_a_process_of_its_own(method: Method) -> None:
    dice = a_spec("env.backend=async", env_id=f"{known_envs.MODULE}:Dice-v0")
    assert goes_on(dice, method)


def test_copies_in_processes_of_their_own_throw_dice_of_their_own() -> None:
    dice = a_spec("env.backend=async", env_id=f"{known_envs.MODULE}:Dice-v0")
    histories = []
    for _ in range(2):
        with closing(vector.make(dice, num_envs=2)) as envs:
            vector.reset(envs, 5)
            histories.append([envs.step(np.zeros((2, 1)))[1] for _ in range(10)])
    assert np.array_equal(histories[0], histories[1])
    assert not np.isclose(*np.transpose(histories[0])).any()


@pytest.mark.parametrize("method", ["captured", "redriven"])
def test_the_process_wide_generators_of_this_process_are_left_alone(method: Method) -> None:
    dice = a_spec(env_id=f"{known_envs.MODULE}:Dice-v0")
    envs = vector.make(dice, num_envs=2, method=method)
    vector.reset(envs, 5)
    drive(envs, some_actions(envs, 10))
    before = random.getstate(), repr(np.random.get_state(legacy=False))
    states = capture(envs)
    restore(vector.make(dice, num_envs=2, method=method), states)
    assert (random.getstate(), repr(np.random.get_state(legacy=False))) == before


@pytest.mark.parametrize("method", ["captured", "redriven"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Hopper-v5"])
def test_an_environment_that_was_used_can_take_a_state_too(env_id: str, method: Method) -> None:
    spec = a_spec(SHORT, "obs.stack_frames=2", env_id=env_id)
    first, used = (vector.make(spec, num_envs=2, method=method) for _ in range(2))
    vector.reset(used, 9, numbered=True)
    actions = some_actions(first, 70)
    drive(used, actions[:13])
    vector.reset(first, 5)
    drive(first, actions[:30])
    states = capture(first)
    expected = drive(first, actions[30:])
    assert restore(used, stored(states)) is None
    assert drive(used, actions[30:]) == expected


def test_numbered_episodes_stay_numbered() -> None:
    spec = a_spec("env.max_episode_steps=3")
    first, second = (vector.make(spec, num_envs=2) for _ in range(2))
    vector.reset(first, 5, numbered=True)
    actions = some_actions(first, 20)
    drive(first, actions[:4])
    restore(second, stored(capture(first)))
    assert drive(second, actions[4:]) == drive(first, actions[4:])


def test_a_state_can_be_captured_before_the_first_reset() -> None:
    spec = a_spec()
    first, second = (vector.make(spec, num_envs=1) for _ in range(2))
    assert restore(second, stored(capture(first))) is None
    vector.reset(second, 5)
    vector.reset(first, 5)
    actions = some_actions(first, 5)
    assert drive(second, actions) == drive(first, actions)


def test_a_state_is_a_copy() -> None:
    envs = vector.make(a_spec(), num_envs=1)
    vector.reset(envs, 5)
    states = capture(envs)
    before = deepcopy(states)
    drive(envs, some_actions(envs, 5))
    assert states.document == before.document
    assert all(
        np.array_equal(states.tensors[name], before.tensors[name]) for name in before.tensors
    )
    assert {*states.tensors} == {"0/arrays"}


@pytest.mark.parametrize(
    ("env_id", "method"),
    [
        ("CartPole-v1", "captured"),
        ("HalfCheetah-v5", "captured"),
        ("LunarLander-v3", "redriven"),
        (f"{MODULE}:Cupboard-v0", "captured"),
    ],
)
def test_the_states_of_one_seed_are_the_same_interrupted_or_not(
    env_id: str, method: Method
) -> None:
    spec = a_spec(SHORT, env_id=env_id)
    whole, interrupted, resumed = (vector.make(spec, num_envs=2, method=method) for _ in range(3))
    actions = some_actions(whole, 60)
    vector.reset(whole, 5)
    drive(whole, actions)
    vector.reset(interrupted, 5)
    drive(interrupted, actions[:35])
    restore(resumed, stored(capture(interrupted)))
    drive(resumed, actions[35:])
    expected, states = capture(whole), capture(resumed)
    assert json.dumps(states.document) == json.dumps(expected.document)
    assert all(
        np.array_equal(states.tensors[name], tensor) for name, tensor in expected.tensors.items()
    )


def test_a_state_that_was_tampered_with_goes_on_differently() -> None:
    first, second = (vector.make(a_spec(), num_envs=1) for _ in range(2))
    vector.reset(first, 5)
    states = capture(first)
    states.tensors["0/arrays"][6] ^= 1
    restore(second, stored(states))
    actions = some_actions(first, 5)
    assert drive(second, actions) != drive(first, actions)


def test_a_checkpoint_holds_every_kind_of_state(tmp_path: Path) -> None:
    spec = a_spec(SHORT, env_id="LunarLander-v3")
    methods: list[Method] = ["captured", "redriven", "restarted"]
    for number, method in enumerate(methods):
        envs = vector.make(spec, num_envs=2, method=method)
        vector.reset(envs, 5)
        states = capture(envs)
        path = checkpoint_files.save(
            tmp_path,
            step=number,
            tensors=states.tensors,
            document={"trainer_state": states.document},
            meta={"run_id": "r", "attempt": 1},
        )
        loaded = checkpoint_files.load(path)
        again = StateTree(loaded.tensors, loaded.document["trainer_state"])
        assert again.document == states.document
        begun = restore(vector.make(spec, num_envs=2, method=method), again)
        assert (begun is None) is (method == "redriven")


def test_where_nothing_is_remembered_the_next_episodes_begin() -> None:
    spec = a_spec(SHORT)
    first, second = (vector.make(spec, num_envs=2, method="restarted") for _ in range(2))
    vector.reset(first, 5)
    drive(first, some_actions(first, 3))
    states = capture(first)
    begun = restore(second, stored(states))
    following, _ = first.reset()
    assert begun is not None
    assert np.array_equal(begun.observations, following)


def test_what_cannot_be_captured_is_named_and_the_next_episodes_begin(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lander = a_spec(env_id="LunarLander-v3")
    envs = vector.make(lander, num_envs=1)
    vector.reset(envs, 5)
    states = capture(envs)
    assert states.document["method"] == "restarted"
    assert "this is a SwigPyObject" in states.document["why"]
    assert restore(vector.make(lander, num_envs=1), states) is not None
    assert "begin new episodes" in caplog.text


def test_a_state_of_another_method_begins_the_next_episodes() -> None:
    first = vector.make(a_spec(), num_envs=1, method="redriven")
    vector.reset(first, 5)
    second = vector.make(a_spec(), num_envs=1, method="captured")
    begun = restore(second, capture(first))
    assert begun is not None
    assert np.array_equal(begun.observations, first.reset()[0])


@pytest.mark.parametrize("mode", ["vector_entry_point", "sync"])
def test_a_plugins_vector_environment_is_captured_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    def made(spec: Spec, num_envs: int) -> Any:
        return gymnasium.make_vec(spec.env.id, num_envs, vectorization_mode=mode)

    monkeypatch.setattr(plugins, "load", lambda kind, name: made)
    assert goes_on(a_spec("env.backend=fast"), num_envs=3)


def test_a_plugin_that_cannot_be_captured_begins_other_episodes_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made(spec: Spec, num_envs: int) -> Any:
        return gymnasium.make_vec("LunarLander-v3", num_envs, vectorization_mode="sync")

    monkeypatch.setattr(plugins, "load", lambda kind, name: made)
    envs = [vector.make(a_spec("env.backend=fast"), num_envs=2) for _ in range(3)]
    begun = [vector.reset(envs[0], 5)]
    for before, after in pairwise(envs):
        again = restore(after, stored(capture(before)))
        assert again is not None
        begun.append(again)
    assert len({each.observations.tobytes() for each in begun}) == 3


def test_an_episode_of_a_box2d_world_does_not_depend_on_those_before() -> None:
    walker = a_spec(env_id="BipedalWalker-v3")
    used = vector.make(walker, num_envs=1)
    actions = some_actions(used, 60)
    for seed in range(6):
        vector.reset(used, seed)
        seen = drive(used, actions)
        new = vector.make(walker, num_envs=1)
        vector.reset(new, seed)
        assert drive(new, actions) == seen


class Mood(Enum):
    CALM = 1
    WILD = 2


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Wheel:
    turns: int = 0
    marks: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Car:
    wheels: list[Wheel]
    first: Wheel | None = None


class Toy(gymnasium.Env[Any, Any]):
    """What tests of odd attributes start from: shows `number`, and steps draw from `np_random`."""

    observation_space: Any = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space: Any = spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.number = 0.0
        self.begin()
        return np.array([self.number]), {}

    def step(self, action: Any) -> Step:
        self.number += float(self.move(int(action))) + self.np_random.random()
        return np.array([self.number]), self.number, False, False, {}

    def begin(self) -> None:
        """What an episode begins with."""

    def move(self, action: int) -> float:
        """What a step adds."""
        return 0.0


class Cupboard(Toy):
    """One of everything that can be captured."""

    def __init__(self) -> None:
        self.visits: dict[Any, Any] = {0: 1.5, (1, 2): {3}, "text": b"bytes", Mood.CALM: None}
        self.recent: deque[Any] = deque([1.0], maxlen=3)
        self.car = Car([Wheel(), Wheel()])
        self.buffer = np.zeros((3, 4))
        self.row = self.buffer[1]
        self.mood = Mood.CALM
        self.at = Point(0, 0)
        self.python = random.Random(3)
        self.legacy = np.random.RandomState(3)
        self.seen: set[Any] = set()
        self.react = self.calmly

    def begin(self) -> None:
        self.state = np.zeros(2)
        self.shown = self.state
        self.column = self.state[1:]
        self.other = np.random.default_rng(self.np_random.integers(9))
        self.car.first = self.car.wheels[0]
        self.seen = {(0, 1)}
        self.ratio = float("inf")

    def calmly(self, action: int) -> float:
        return action * self.python.random() + self.legacy.standard_normal()

    def move(self, action: int) -> float:
        self.recent.append(np.float32(action))
        self.visits[action] = self.visits.get(action, 0) + 1
        wheel = self.car.wheels[action % 2]
        wheel.turns += 1
        wheel.marks.append(self.np_random.random())
        self.car.first = wheel
        self.row += action
        self.state += 1.0
        self.column *= 0.5
        self.mood = Mood.WILD if action else Mood.CALM
        self.at = Point(self.at.x + action, len(self.seen))
        self.seen.add((action, int(self.other.integers(100))))
        self.last = np.int16(action)
        shared = self.buffer[1].sum() + self.shown[1] + self.car.first.turns
        return float(shared + sum(self.recent) + self.react(action) + self.at.x)


class Swarm(Toy):
    """Its steps make objects, which a new copy does not have."""

    def begin(self) -> None:
        self.bees: list[Wheel] = []

    def move(self, action: int) -> float:
        self.bees.append(Wheel(action))
        return float(sum(bee.turns for bee in self.bees))


class Lines(Toy):
    """Holds a generator object."""

    def begin(self) -> None:
        self.numbers: Iterator[int] = (n * n for n in range(1000))

    def move(self, action: int) -> float:
        return float(next(self.numbers) * action)


class Locked(Toy):
    """Holds a lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def move(self, action: int) -> float:
        with self.lock:
            return float(action)


class Closure(Toy):
    """Counts in a variable that only a function can see."""

    def __init__(self) -> None:
        count = 0

        def tick(action: int) -> int:
            nonlocal count
            count += action
            return count

        self.tick = tick

    def move(self, action: int) -> float:
        return float(self.tick(action))


class Constant(Toy):
    """Begins each episode at a constant of its class, and holds a large table."""

    START = np.zeros(2)

    def __init__(self) -> None:
        self.table = np.arange(10_000.0)
        self.squares = [n * n for n in range(10_000)]

    def begin(self) -> None:
        self.place = self.START

    def move(self, action: int) -> float:
        self.place = self.place + action
        return float(self.place.sum() + self.table[action] + self.squares[action])


for kind in (Cupboard, Swarm, Lines, Locked, Closure, Constant):
    gymnasium.register(f"{kind.__name__}-v0", f"{MODULE}:{kind.__name__}")


def a_toy(kind: type[Toy], *overrides: str) -> Spec:
    return a_spec(SHORT, *overrides, env_id=f"{MODULE}:{kind.__name__}-v0")


@pytest.mark.parametrize("kind", [Cupboard, Closure, Constant])
@pytest.mark.parametrize("at", [0, 35])
def test_attributes_of_every_kind_are_captured(kind: type[Toy], at: int) -> None:
    assert goes_on(a_toy(kind), at=at)


def test_what_was_shared_is_shared_again() -> None:
    first, second = (vector.make(a_toy(Cupboard), num_envs=1) for _ in range(2))
    vector.reset(first, 5)
    drive(first, [np.array([1])] * 4)
    restore(second, stored(capture(first)))
    inner: Any = second.unwrapped
    env = inner.envs[0].unwrapped
    assert env.shown is env.state
    assert np.shares_memory(env.column, env.state)
    assert np.shares_memory(env.row, env.buffer)
    assert env.car.first is env.car.wheels[1]


def test_a_constant_of_a_class_is_not_written_to() -> None:
    assert goes_on(a_toy(Constant))
    assert not Constant.START.any()


def test_large_constants_are_named_and_not_copied() -> None:
    envs = vector.make(a_toy(Constant), num_envs=1)
    vector.reset(envs, 5)
    states = capture(envs)
    assert sum(tensor.nbytes for tensor in states.tensors.values()) < 1000
    assert len(json.dumps(states.document)) < 10_000
    inner: Any = envs.unwrapped
    inner.envs[0].unwrapped.table[0] = 7.0
    assert sum(tensor.nbytes for tensor in capture(envs).tensors.values()) > 80_000


@pytest.mark.parametrize("kind", [Lines, Locked, Swarm])
def test_what_cannot_be_captured_can_be_driven_again(kind: type[Toy]) -> None:
    assert goes_on(a_toy(kind), "redriven")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Lines, "env.env.env.numbers is a builtins.generator"),
        (Locked, "env.env.env.lock is a _thread.lock"),
        (
            Swarm,
            f"env.env.env.bees[0] is a {MODULE}.Wheel, which a new copy of the environment does "
            "not have",
        ),
    ],
)
def test_the_sentence_names_the_attribute(kind: type[Toy], sentence: str) -> None:
    first, second = (vector.make(a_toy(kind), num_envs=1) for _ in range(2))
    vector.reset(first, 5)
    drive(first, [np.array([1])])
    assert state.go_on(second, stored(capture(first))) == sentence


def again(value: Any, counterpart: Any = None) -> Any:
    """A value flattened, stored and refilled."""
    flat = flatten(value, name="it")
    document = json.loads(json.dumps(flat.document))
    return refill(FlatGraph(document, np.array(flat.data)), counterpart, name="it")


@pytest.mark.parametrize(
    "value",
    [
        None,
        2**100,
        -0.0,
        float("-inf"),
        1 + 2j,
        b"\x00\xff",
        range(1, 9, 2),
        (1, ("a", None)),
        frozenset({1, 2}),
        {"b": [1], "a": {2: 3}},
        [{"x": bytearray(b"ab")}, {1, 2}],
        np.float32(1.5),
        np.str_("S"),
        np.str_(""),
        np.datetime64("2026-01-01"),
    ],
)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    back = again(value)
    assert repr(back) == repr(value)
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.int8).reshape(2, 3)),
        np.arange(24.0).reshape(2, 3, 4).transpose(1, 0, 2),
        np.array([np.nan, -np.nan, -0.0]),
        np.array(["text", "t"]),
        np.array(7),
        np.empty((0, 3)),
        np.arange(10.0)[::2],
        np.array([1 + 2j], ">c16"),
        np.zeros(4, bool),
    ],
)
def test_arrays_come_back_bit_for_bit(array: NDArray[Any]) -> None:
    back = again(array)
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert back.flags.f_contiguous == np.array(array, order="K").flags.f_contiguous


def test_a_not_a_number_keeps_its_bits() -> None:
    odd = np.frombuffer(b"\x01\x00\x00\x00\x00\x00\xf8\xff", np.float64)[0]
    assert np.float64(again(float(odd))).tobytes() == odd.tobytes()


def test_cycles_and_aliases_come_back() -> None:
    ring: list[Any] = [np.zeros(2)]
    ring.append({"ring": ring, "array": ring[0], "view": ring[0][1:]})
    back = again(ring)
    assert back[1]["ring"] is back
    assert back[1]["array"] is back[0]
    back[1]["view"][0] = 5.0
    assert back[0].tolist() == [0.0, 5.0]


@pytest.mark.parametrize(
    "bits",
    [
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.MT19937,
        np.random.Philox,
        np.random.SFC64,
    ],
)
def test_generators_draw_and_spawn_as_they_would_have(bits: Any) -> None:
    generator = np.random.Generator(bits(np.random.SeedSequence([1, 2])))
    generator.random(3, np.float32)
    generator.spawn(2)
    back = again(generator)
    assert np.array_equal(back.random(5), generator.random(5))
    assert back.spawn(1)[0].random() == generator.spawn(1)[0].random()


def test_objects_that_changed_places_are_told_apart() -> None:
    def garage() -> list[Any]:
        wheels = [Wheel(0), Wheel(1), Wheel(2)]
        return [wheels[0], wheels]

    saved, new = garage(), garage()
    saved[0] = saved[1][2]
    again(saved, new)
    assert new[0] is new[1][2]
    assert [wheel.turns for wheel in new[1]] == [0, 1, 2]


@pytest.mark.parametrize("value", [np.array([object()]), object, iter([]), threading.Lock()])
def test_what_is_opaque_is_refused_or_only_named(value: Any) -> None:
    if value is object:
        assert again([object], [object]) == [object]
        return
    with pytest.raises(Uncapturable, match=r"^it\[0\] is a"):
        flatten([value], name="it")


def test_a_set_whose_order_tells_of_its_past_is_refused() -> None:
    past = {(x, y) for x in range(40) for y in range(40)}
    for x in range(40):
        for y in range(40):
            if (x + y) % 13:
                past.discard((x, y))
    members = list(past)
    assert members != list(set(members))
    with pytest.raises(Uncapturable, match="it is a set whose order cannot be made again"):
        flatten(past, name="it")


def test_a_set_of_what_is_known_by_its_address_is_refused() -> None:
    with pytest.raises(Uncapturable, match="it is a set whose order cannot be made again"):
        flatten({object(), None}, name="it")
