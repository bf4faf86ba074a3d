"""Runs that wait for others: what their states mean for those that come after. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

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


def unmet(run: Run, find: Find) -> Iterator[str]:
    """What the run waits for of others, each with the state that it is in."""
    hopeless = obstacle(run, find)
    if hopeless is not None:
        yield hopeless
        return
    for name in run.after:
        awaited = find(name)
        states = Counter(other.state for other in awaited)
        if set(states) == {State.SUCCEEDED}:
            continue
        if len(awaited) == 1 and awaited[0].id == name:
            (other,) = awaited
            share = f" ({other.env_steps / other.total_timesteps:.0%})" if other.env_steps else ""
            yield f"waits for run {name}, which is {other.state}{share}"
        else:
            counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
            yield f"waits for the {len(awaited)} runs of group {name}: {counts}"


def is_free(run: Run, find: Find) -> bool:
    """Whether everything that the run waits for has succeeded."""
    awaited = [other for name in run.after for other in find(name)]
    return all(other.state is State.SUCCEEDED for other in awaited)
