"""The process-wide random generators of Python, NumPy and torch: seed, capture, restore.

Our own code draws from explicit generators. These are for code that is not ours: an environment
that calls `random.random()` is repeatable too.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_orch.rl.streams import Stream, derive


@dataclass(frozen=True, slots=True)
class RngState:
    """The states of the process-wide generators, as JSON (Python, NumPy) and bytes (torch)."""

    python: list[Any]
    numpy: dict[str, Any]
    torch: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class SeedReport:
    """The result of `seed_all`: each generator's seed, and the states that followed."""

    seed: int
    seeds: dict[str, int]
    state: RngState

    def document(self) -> dict[str, Any]:
        """The report as JSON; torch's state is hexadecimal."""
        state = {
            "python": self.state.python,
            "numpy": self.state.numpy,
            "torch": self.state.torch.tobytes().hex(),
        }
        return {"seed": self.seed, "seeds": self.seeds, "rng_state": state}


def seed_all(seed: int) -> SeedReport:
    """Seed the generators of Python, NumPy and torch (all devices), each from its own stream.

    Environments are seeded at every reset (`envs.vector.reset`), not here.
    """
    names = ("python", "numpy", "torch")
    seeds = {name: derive(seed, Stream.GLOBALS, index) for index, name in enumerate(names)}
    random.seed(seeds["python"])
    np.random.seed(seeds["numpy"])
    torch.manual_seed(seeds["torch"])
    return SeedReport(seed, seeds, rng_state())


def rng_state() -> RngState:
    """The present states of the generators of Python, NumPy and torch (CPU)."""
    version, words, gauss = random.getstate()
    numpy_state: Any = np.random.get_state(legacy=False)
    key = numpy_state["state"]["key"].tolist()
    return RngState(
        python=[version, list(words), gauss],
        numpy={**numpy_state, "state": {**numpy_state["state"], "key": key}},
        torch=torch.get_rng_state().numpy().copy(),
    )


def set_rng_state(state: RngState) -> None:
    """Put the generators back where `rng_state` found them."""
    version, words, gauss = state.python
    random.setstate((version, tuple(words), gauss))
    key = np.asarray(state.numpy["state"]["key"], dtype=np.uint32)
    np.random.set_state({**state.numpy, "state": {**state.numpy["state"], "key": key}})
    torch.set_rng_state(torch.from_numpy(state.torch.copy()))


@contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Seed the process-wide generators for a while, then put them back as they were."""
    before = rng_state()
    seed_all(seed)
    try:
        yield
    finally:
        set_rng_state(before)
