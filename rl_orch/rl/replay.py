"""The `ReplayBuffer` seam: experience that off-policy learners keep and draw from again."""

from typing import Protocol

from rl_orch.rl.batch import Batch


class ReplayBuffer(Protocol):
    """Storage and sampling of experience."""

    def add(self, batch: Batch) -> None:
        """Store the rows of a batch."""

    def sample(self, batch_size: int) -> Batch:
        """Rows drawn from what is stored."""

    def __len__(self) -> int:
        """How many rows are stored."""
