"""Seeds: one run seed, split by use and by index. Needs NumPy alone."""

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """The independent uses of randomness in a run.

    The numbers are part of what a seed means: renumbering changes every recorded run.
    """

    GLOBALS = 0
    ENVS = 1
    WEIGHTS = 2
    ACTIONS = 3
    MINIBATCHES = 4
    EVALUATION = 5
    FINAL_EVALUATION = 6
    REPLAY = 7
    NOISE = 8


def derive(seed: int, *path: int) -> int:
    """A 32-bit seed for one use of `seed`; different paths give unrelated streams.

    `derive(s)`, `derive(s, 0)` and `derive(s, 0, 0)` all differ: the path is a spawn key, since
    plain entropy words are padded with zeros and would make them the same.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=path)
    return int(sequence.generate_state(1, np.uint32)[0])
