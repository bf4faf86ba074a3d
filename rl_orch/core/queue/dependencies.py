"""Runs that wait for others: what their states mean for those that come after. Pure."""

from collections.abc import Callable, Sequence

from rl_orch.records import Run, State

Find = Callable[[str], Sequence[Run]]
"""The runs that an id stands for: one, those of a group, or none."""


def obstacle(run: Run, find: Find) -> str | None:
    """Reason the run can never start, as what it waits for did not succeed; None while it may."""
    for name in run.after:
        awaited = find(name)
        if not awaited:
            return f"not started: {name}, which it waits for, is gone"
        for other in awaited:
            if not other.active and other.state is not State.SUCCEEDED:
                return f"not started: run {other.id}, which it waits for, is {other.state}"
    return None


def is_free(run: Run, find: Find) -> bool:
    """Whether everything that the run waits for has succeeded."""
    awaited = [other for name in run.after for other in find(name)]
    return all(other.state is State.SUCCEEDED for other in awaited)
