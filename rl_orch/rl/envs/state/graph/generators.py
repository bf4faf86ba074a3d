"""Random generators of NumPy and Python: their states as plain values, and back.

Also the process-wide ones, which code that is not ours may draw from.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from rl_orch.rl.streams import Stream, derive

Generator: TypeAlias = np.random.Generator | np.random.RandomState | random.Random
GeneratorState: TypeAlias = dict[str, Any]

KINDS = (np.random.Generator, np.random.RandomState, random.Random)

_BIT_GENERATORS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        np.random.MT19937,
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.Philox,
        np.random.SFC64,
    )
}


def is_known(generator: Generator) -> bool:
    """Whether `state_of` can say everything about it."""
    if type(generator) is np.random.Generator:
        return type(generator.bit_generator).__name__ in _BIT_GENERATORS
    return type(generator) in KINDS


def state_of(generator: Generator) -> GeneratorState:
    """Everything that decides what a generator draws, and spawns, from now on."""
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        return {"bits": dict(bits.state), "seeds": _seeds(getattr(bits, "seed_seq", None))}
    if isinstance(generator, np.random.RandomState):
        return {"bits": generator.get_state(legacy=False)}
    return _python_state(generator)


def set_state(generator: Generator, state: GeneratorState) -> None:
    """Put a generator into a state."""
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state["bits"]
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state["bits"])
    else:
        _set_python_state(generator, state)


def can_take(generator: Generator, state: GeneratorState) -> bool:
    """Whether `set_state` makes this generator what the state says; what it spawns is fixed."""
    if not isinstance(generator, np.random.Generator):
        return True
    present = state_of(generator)
    same_kind = present["bits"]["bit_generator"] == state["bits"]["bit_generator"]
    return bool(same_kind and repr(present["seeds"]) == repr(state["seeds"]))


def create(kind: str, state: GeneratorState) -> Generator:
    """A new generator in a state; `kind` is the name of its class."""
    generator: Generator
    if kind == "Generator":
        bits = _BIT_GENERATORS[state["bits"]["bit_generator"]]
        seeds = state["seeds"]
        sequence = np.random.SeedSequence() if seeds is None else np.random.SeedSequence(**seeds)
        generator = np.random.Generator(bits(sequence))
    else:
        generator = np.random.RandomState() if kind == "RandomState" else random.Random()
    set_state(generator, state)
    return generator


def process_wide() -> list[GeneratorState]:
    """The states of the generators of Python and NumPy that a process shares."""
    return [_python_state(random), {"bits": np.random.get_state(legacy=False)}]


def set_process_wide(states: list[GeneratorState]) -> None:
    """Put the process-wide generators back where `process_wide` found them."""
    _set_python_state(random, states[0])
    np.random.set_state(states[1]["bits"])


def seed_process_wide(seed: int) -> None:
    """Seed the process-wide generators of Python and NumPy, each from its own stream."""
    random.seed(derive(seed, Stream.GLOBALS, 0))
    np.random.seed(derive(seed, Stream.GLOBALS, 1))


@contextmanager
def process_wide_kept() -> Iterator[None]:
    """A block that leaves the process-wide generators as they were."""
    before = process_wide()
    try:
        yield
    finally:
        set_process_wide(before)


def _seeds(sequence: Any) -> GeneratorState | None:
    """The seed sequence from which a generator spawns others."""
    if not isinstance(sequence, np.random.SeedSequence):
        return None
    state = dict(sequence.state)
    entropy = state["entropy"]
    return state | {"entropy": tuple(entropy) if isinstance(entropy, list) else entropy}


def _python_state(source: Any) -> GeneratorState:
    """The state of a generator of Python's, or of the module `random`, which has one of its own."""
    version, words, gauss = source.getstate()
    return {"bits": {"version": version, "words": np.array(words, np.uint32), "gauss": gauss}}


def _set_python_state(target: Any, state: GeneratorState) -> None:
    bits = state["bits"]
    target.setstate((bits["version"], tuple(bits["words"].tolist()), bits["gauss"]))
