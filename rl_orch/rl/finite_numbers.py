"""`FiniteNumbers`: the observer of every training that ends it on a number that is none."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_orch.errors import Diverged
from rl_orch.rl.data.batch import Batch, mapped, on_host, rows_of
from rl_orch.rl.observe import Observer


class FiniteNumbers(Observer):
    """Raises `Diverged` on the first number that nothing could be learned from."""

    def __init__(self, steps: int) -> None:
        """`steps` are those of each copy in a batch."""
        self._steps = steps

    def collected(self, batch: Batch, step: int) -> None:
        """Observations and rewards; of what follows a row, that which is no row itself."""
        ends = self._ends(batch)
        assert batch.next_observations is not None
        finals = rows_of(batch.next_observations, ends)
        if not all(map(_finite, (batch.observations, batch.rewards, finals))):
            raise self._refusal(batch, ends, step)

    def updated(self, metrics: Mapping[str, float], step: int) -> None:
        """All that an update reports; but what is charted, rates and schedules, teaches nothing."""
        if all(map(math.isfinite, metrics.values())):
            return
        for name, value in metrics.items():
            if not name.startswith("charts/") and not math.isfinite(value):
                raise Diverged(
                    f"{name} became {value} in the update at step {step}",
                    hint="Lower train.lr, set train.max_grad_norm, or normalise observations.",
                )

    def _ends(self, batch: Batch) -> NDArray[np.bool_]:
        """(B,): where an episode or the rollout ends."""
        ends = on_host(batch.dones).copy()
        ends[self._steps - 1 :: self._steps] = True
        return ends

    def _refusal(self, batch: Batch, ends: NDArray[np.bool_], step: int) -> Diverged:
        """The error that names the first of them: observations before rewards before what ends."""

        def by_time(column: Any) -> NDArray[Any]:
            return np.swapaxes(column.reshape(-1, self._steps, *column.shape[1:]), 0, 1)

        valid, dones = by_time(on_host(batch.column("valid"))), by_time(on_host(batch.dones))
        before = max(step - int(valid.sum()), 0)
        assert batch.next_observations is not None
        kept = mapped(batch.next_observations, lambda c: np.where(_wide(ends, c), c, 0))
        columns = (("observation", batch.observations, 0), ("reward", batch.rewards, 1))
        for kind, column, late in (*columns, ("final observation", kept, 1)):
            for what, values in _parts(kind, column):
                timed = by_time(values)
                for t, copy, *_ in np.argwhere(~np.isfinite(timed)).tolist():
                    if kind.startswith("final") and not dones[t, copy]:
                        what = what.removeprefix("final ")
                    at = before + int(valid[: t + late].sum())
                    return Diverged(
                        f"the environment gave a non-finite {what} at step {at}, copy {copy}: "
                        f"{timed[t, copy]}",
                        step=at,
                    )
        raise AssertionError("every number is finite")


def _parts(what: str, column: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """The arrays of numbers that may not be finite, and what to call each."""
    if isinstance(column, Mapping):
        for name, part in column.items():
            yield from _parts(f"{what} {name!r}", part)
    elif (array := on_host(column)).dtype.kind == "f":
        yield what, array


def _finite(column: Any) -> bool:
    return all(np.isfinite(array).all() for _, array in _parts("", column))


def _wide(flags: NDArray[np.bool_], column: Any) -> NDArray[np.bool_]:
    return flags.reshape(-1, *[1] * (column.ndim - 1))
