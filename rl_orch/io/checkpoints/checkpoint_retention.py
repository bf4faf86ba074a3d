"""Retention of checkpoints: which of them a run keeps, decided alike by every attempt. Pure but for
a look at which are there."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl_orch.io.checkpoints import catalog


@dataclass(frozen=True, slots=True)
class CheckpointRetention:
    """The checkpoints that a run keeps, by name, oldest first, and the best of them: by the mean of
    its evaluation, or because a program has said so.

    It is in every checkpoint, so that whoever goes on from one decides as this attempt would have.
    """

    names: tuple[str, ...] = ()
    best: str | None = None
    best_mean: float | None = None
    best_said: bool = False

    def document(self) -> dict[str, Any]:
        """The document that a checkpoint of ours holds of it."""
        return {"names": list(self.names), "best": self.best, "best_mean": self.best_mean}

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> "CheckpointRetention":
        """The retention that the `meta` of a checkpoint of ours holds."""
        kept = meta["kept"]
        return cls(tuple(kept["names"]), kept["best"], kept["best_mean"])

    def after_evaluation(
        self, name: str, mean: float | None, *, last: int
    ) -> "CheckpointRetention":
        """The retention after one more checkpoint; `mean` is that of its evaluation if it had one.
        Of two that are as good, the newer is the best."""
        is_best = mean is not None and (self.best_mean is None or mean >= self.best_mean)
        kept = self._with(name, is_best=is_best, last=last)
        return replace(kept, best_mean=mean) if is_best else kept

    def after_word(self, name: str, *, best: bool, last: int) -> "CheckpointRetention":
        """The retention after one more checkpoint; `best` is what the program says of it. Of one
        that never says so, the newest is taken for the best."""
        said = self.best_said or best
        return replace(self._with(name, is_best=best or not said, last=last), best_said=said)

    def in_folder(self, root: Path) -> "CheckpointRetention":
        """The same; but a best one that is no longer there is none."""
        if self.best is None or (root / self.best).is_dir():
            return self
        return CheckpointRetention(self.names)

    def _with(self, name: str, *, is_best: bool, last: int) -> "CheckpointRetention":
        best = name if is_best else self.best
        names = catalog.chosen([*self.names, name], last=last, best=best)
        return replace(self, names=tuple(names), best=best)
