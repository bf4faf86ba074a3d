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

from rl_orch.rl.data.state import StateTree
from rl_orch.rl.streams import Stream, derive


@dataclass(frozen=True, slots=True)
class SeedReport:
    """The result of `seed_all`: each generator's seed, and the states that followed."""

    seed: int
    seeds: dict[str, int]
    state: StateTree

    def document(self) -> dict[str, Any]:
        """The report as JSON; torch's state is hexadecimal."""
        state = self.state.document | {"torch": self.state.tensors["torch"].tobytes().hex()}
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


def rng_state() -> StateTree:
    """The generators of Python and NumPy as JSON, that of torch (CPU) as bytes."""
    version, words, gauss = random.getstate()
    numpy_state: Any = np.random.get_state(legacy=False)
    key = numpy_state["state"]["key"].tolist()
    document = {
        "python": [version, list(words), gauss],
        "numpy": {**numpy_state, "state": {**numpy_state["state"], "key": key}},
    }
    return StateTree({"torch": torch.get_rng_state().numpy().copy()}, document)


def set_rng_state(state: StateTree) -> None:
    """Put the generators back where `rng_state` found them."""
    version, words, gauss = state.document["python"]
    random.setstate((version, tuple(words), gauss))
    numpy_state = state.document["numpy"]
    key = np.asarray(numpy_state["state"]["key"], dtype=np.uint32)
    np.random.set_state({**numpy_state, "state": {**numpy_state["state"], "key": key}})
    torch.set_rng_state(torch.from_numpy(state.tensors["torch"].copy()))


@contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Seed the process-wide generators for a while, then put them back as they were."""
    before = rng_state()
    seed_all(seed)
    try:
        yield
    finally:
        set_rng_state(before)
