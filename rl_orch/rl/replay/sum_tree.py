"""`SumTree`: weights in a row, drawn in proportion, in time logarithmic in their number.

Every inner node is the sum of its two children and of nothing else, so that the tree follows from
its leaves alone: one made anew from the same leaves is the same bit for bit.
"""

import numpy as np
from numpy.typing import NDArray


class SumTree:
    """`size` weights, all zero at first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._leaves = 1 << max(size - 1, 0).bit_length()
        # Node 1 is the root, node i has the children 2i and 2i + 1, the last half are the leaves.
        self._nodes = np.zeros(2 * self._leaves, np.float64)

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._nodes[1])

    def get(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """The weights at these positions."""
        weights: NDArray[np.float64] = self._nodes[positions + self._leaves]
        return weights

    def set(self, positions: NDArray[np.int64], weights: NDArray[np.float64] | float) -> None:
        """Change weights; of two for one position, the later counts."""
        if len(positions) == 0:
            return
        nodes, at = self._nodes, positions + self._leaves
        nodes[at] = weights
        if len(positions) * 8 > self._leaves:
            self._rebuild()
            return
        for _ in range(self._leaves.bit_length() - 1):
            at = at >> 1
            nodes[at] = nodes[2 * at] + nodes[2 * at + 1]

    def find(self, masses: NDArray[np.float64]) -> NDArray[np.int64]:
        """The position in which each mass in [0, total) falls; never one whose weight is zero."""
        nodes = self._nodes
        at = np.ones(len(masses), np.int64)
        left_over = masses.astype(np.float64)
        for _ in range(self._leaves.bit_length() - 1):
            left = nodes[2 * at]
            # Rounding may leave a little mass over where nothing is left on the right.
            rightwards = (left_over >= left) & (nodes[2 * at + 1] > 0.0)
            left_over = np.where(rightwards, left_over - left, left_over)
            at = 2 * at + rightwards
        return at - self._leaves

    def _rebuild(self) -> None:
        first = self._leaves // 2
        while first:
            children = self._nodes[2 * first : 4 * first]
            self._nodes[first : 2 * first] = children[0::2] + children[1::2]
            first //= 2
