"""The probe: what it calls bitwise is, and what is not it calls approximate, with a reason."""

import os
import random
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rl_orch import plugins
from rl_orch.errors import BadInput
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.state import probe as probes
from rl_orch.rl.envs.state.probe import Proof, probe
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.testing import FakeClock, a_spec
from tests.learning import known_envs
from tests.unit import test_rl_env_state as toys
from tests.unit.test_rl_env_state import Toy

MODULE = __name__

CAPTURED = Proof("captured", "bitwise", None, pure_reset=True)
REDRIVEN = Proof("redriven", "bitwise", None, pure_reset=True)


@pytest.fixture(autouse=True)
def all_the_time_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much is looked at does not depend on how fast this machine is."""
    monkeypatch.setattr(probes, "BUDGET_S", 1e9)


class Clock(Toy):
    """Reads the clock."""

    def move(self, action: int) -> float:
        return time.time_ns() % 1000


class Entropy(Toy):
    """Draws from the operating system."""

    def move(self, action: int) -> float:
        return os.urandom(1)[0]


class Unseeded(Toy):
    """Draws from a generator of its own that it never seeds."""

    def __init__(self) -> None:
        self.own = np.random.default_rng()

    def move(self, action: int) -> float:
        return self.own.random()


class Sampler(Toy):
    """Draws from its own space of actions."""

    def __init__(self) -> None:
        self.action_space = spaces.Discrete(3)

    def move(self, action: int) -> float:
        return float(self.action_space.sample())


class OnTheClass(Toy):
    """Counts on its class."""

    steps = 0

    def move(self, action: int) -> float:
        type(self).steps += 1
        return float(action)


class Counter:
    """Not an environment."""

    count = 0


class OnAnotherClass(Toy):
    """Counts on the class of something else."""

    def move(self, action: int) -> float:
        Counter.count += 1
        return float(action)


_steps = [0]


class InTheModule(Toy):
    """Counts in its module."""

    def move(self, action: int) -> float:
        _steps[0] += 1
        return float(action)


class Learned(Toy):
    """Remembers how many episodes it has played, which a reset does not undo."""

    def __init__(self) -> None:
        self.episodes = 0

    def begin(self) -> None:
        self.episodes += 1

    def move(self, action: int) -> float:
        return float(self.episodes)


class LearnedAndLocked(Learned):
    """The same, and cannot be captured."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class SharedDice(Toy):
    """Draws from the generators of the process, and cannot be captured."""

    def begin(self) -> None:
        self.numbers: Iterator[float] = (n + random.random() for n in range(1000))

    def move(self, action: int) -> float:
        return next(self.numbers)


class Fragile(Toy):
    """Breaks."""

    def move(self, action: int) -> float:
        raise OSError("the gripper is stuck")


class LateLock(Toy):
    """Can be captured until it is stepped."""

    def begin(self) -> None:
        self.thing: Any = None

    def move(self, action: int) -> float:
        self.thing = threading.Lock()
        return float(action)


for kind in (
    Clock,
    Entropy,
    Unseeded,
    Sampler,
    OnTheClass,
    OnAnotherClass,
    InTheModule,
    Learned,
    LearnedAndLocked,
    SharedDice,
    Fragile,
    LateLock,
):
    gymnasium.register(f"{kind.__name__}-v0", f"{MODULE}:{kind.__name__}")


def proven(kind: type[Toy], *overrides: str, module: str = MODULE) -> Proof:
    return probe(a_spec(*overrides, env_id=f"{module}:{kind.__name__}-v0"))


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Hopper-v5", "Taxi-v4"])
def test_most_environments_are_captured_bit_for_bit(env_id: str, backend: str) -> None:
    proof = probe(a_spec(f"env.backend={backend}", env_id=env_id))
    assert proof == CAPTURED


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize("env_id", ["LunarLander-v3", "BipedalWalker-v3"])
def test_box2d_environments_are_redriven_bit_for_bit(env_id: str, backend: str) -> None:
    proof = probe(a_spec(f"env.backend={backend}", env_id=env_id))
    assert proof == REDRIVEN


def test_stacked_frames_are_proven_too() -> None:
    assert probe(a_spec("obs.stack_frames=3")) == CAPTURED


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_an_environment_may_draw_from_the_generators_of_its_process(backend: str) -> None:
    dice = a_spec(f"env.backend={backend}", env_id=f"{known_envs.MODULE}:Dice-v0")
    assert probe(dice) == CAPTURED


def test_in_a_process_of_its_own_such_an_environment_can_be_redriven() -> None:
    assert proven(SharedDice, "env.backend=async") == REDRIVEN


@pytest.mark.parametrize("kind", [toys.Cupboard, toys.Constant])
def test_odd_attributes_are_captured(kind: type[Toy]) -> None:
    assert proven(kind, module=toys.MODULE).method == "captured"
    assert proven(kind, module=toys.MODULE).level == "bitwise"


def test_an_environment_may_draw_from_its_own_spaces() -> None:
    assert proven(Sampler) == CAPTURED


@pytest.mark.parametrize("kind", [toys.Lines, toys.Locked, toys.Swarm])
def test_what_cannot_be_captured_is_redriven(kind: type[Toy]) -> None:
    assert proven(kind, module=toys.MODULE) == REDRIVEN


def test_an_object_that_only_a_step_makes_is_redriven() -> None:
    assert proven(LateLock) == REDRIVEN


@pytest.mark.parametrize("kind", [Clock, Entropy, Unseeded])
def test_what_no_seed_reaches_is_approximate(kind: type[Toy]) -> None:
    proof = proven(kind)
    assert (proof.method, proof.level, proof.pure_reset) == ("captured", "approximate", False)
    assert proof.reason is not None
    assert "no seed reaches all that it draws from" in proof.reason


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (OnTheClass, "OnTheClass.steps"),
        (OnAnotherClass, "Counter.count"),
        (InTheModule, "_steps"),
    ],
)
@pytest.mark.parametrize("backend", ["sync", "async"])
def test_state_on_a_class_or_in_a_module_is_approximate(
    kind: type[Toy], name: str, backend: str
) -> None:
    proof = proven(kind, f"env.backend={backend}")
    assert proof.level == "approximate"
    assert (proof.reason or "").startswith(f"{MODULE}.{name} changes while")


def test_what_a_reset_does_not_undo_is_captured() -> None:
    proof = proven(Learned)
    assert proof == Proof(method="captured", level="bitwise", reason=None, pure_reset=False)


def test_what_a_reset_does_not_undo_cannot_be_redriven_exactly() -> None:
    proof = proven(LearnedAndLocked)
    assert (proof.level, proof.pure_reset) == ("approximate", False)
    assert "lock is a _thread.lock" in (proof.reason or "")


def test_where_neither_works_new_episodes_begin() -> None:
    proof = proven(SharedDice)
    assert (proof.method, proof.level) == ("restarted", "approximate")
    assert "numbers is a builtins.generator" in (proof.reason or "")
    assert "driven again, the episode shows another observation" in (proof.reason or "")


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_an_environment_that_breaks_is_approximate_and_says_how(backend: str) -> None:
    proof = proven(Fragile, f"env.backend={backend}")
    assert (proof.method, proof.level) == ("restarted", "approximate")
    assert "tried out: OSError: the gripper is stuck" in (proof.reason or "")


def test_a_slow_environment_is_proven_in_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "BUDGET_S", 0.0)
    assert probe(a_spec()) == Proof("captured", "bitwise", None, pure_reset=False)
    lander = probe(a_spec(env_id="LunarLander-v3"))
    assert lander == Proof("redriven", "bitwise", None, pure_reset=False)
    assert proven(Entropy).level == "approximate"


def test_what_it_takes_to_make_an_environment_is_no_reason_to_look_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, clock = vector.make, FakeClock()

    def slowly(*given: Any, **more: Any) -> Any:
        clock.advance(0.5)
        return made(*given, **more)

    monkeypatch.setattr(vector, "make", slowly)
    monkeypatch.setattr(probes, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(probes, "BUDGET_S", 0.4)
    assert probe(a_spec()).pure_reset


def test_the_generators_of_the_process_are_left_as_they_were() -> None:
    before = random.getstate(), repr(np.random.get_state(legacy=False))
    probe(a_spec(env_id=f"{known_envs.MODULE}:Dice-v0"))
    assert (random.getstate(), repr(np.random.get_state(legacy=False))) == before


def test_a_plugin_is_proven_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(spec: Spec, num_envs: int) -> Any:
        return gymnasium.make_vec(spec.env.id, num_envs, vectorization_mode="vector_entry_point")

    monkeypatch.setattr(plugins, "load", lambda kind, name: made)
    proof = probe(a_spec("env.backend=fast"))
    assert (proof.method, proof.level) == ("captured", "bitwise")


def test_a_spec_that_asks_for_the_impossible_is_refused() -> None:
    with pytest.raises(BadInput):
        probe(a_spec("env.backend=nonesuch"))


def test_an_environment_that_raises_on_forbidden_actions_is_tried_out_with_allowed_ones() -> None:
    masked = resolve(
        {
            "env": {"id": "rl_orch.testing.algorithms:Signal-v0", "kwargs": {"masked": True}},
            "agent": {"action_masks": True},
        }
    )
    assert probe(masked).level == "bitwise"
