"""Transitions between states of a run. Pure: a run goes in, a run in its next state comes out."""

from collections.abc import Sequence

from rl_orch.errors import IllegalTransition
from rl_orch.records import Run, State
from rl_orch.spec.aliases import FACTORS, PRODUCT, canonical

S = State

NEXT: dict[State, frozenset[State]] = {
    S.QUEUED: frozenset({S.STARTING, S.FAILED, S.STOPPED, S.LOST}),
    S.STARTING: frozenset({S.QUEUED, S.RUNNING, S.FAILED, S.STOPPED, S.LOST}),
    S.RUNNING: frozenset({S.QUEUED, S.EVALUATING, S.FAILED, S.STOPPED, S.LOST}),
    S.EVALUATING: frozenset({S.QUEUED, S.SUCCEEDED, S.REJECTED, S.FAILED, S.STOPPED, S.LOST}),
    S.SUCCEEDED: frozenset({S.QUEUED}),
    S.REJECTED: frozenset({S.QUEUED}),
    S.FAILED: frozenset({S.QUEUED}),
    S.STOPPED: frozenset({S.QUEUED}),
    S.LOST: frozenset({S.QUEUED}),
}

RESUMABLE = (S.FAILED, S.STOPPED, S.LOST)
FINAL = (S.SUCCEEDED, S.REJECTED)
"""Ends after which a run goes on only with a larger budget."""

EXIT_CODES = {S.SUCCEEDED: 0, S.FAILED: 1, S.LOST: 1, S.REJECTED: 3, S.STOPPED: 4}
"""What a command that waits for a run exits with."""


def advance(run: Run, to: State, why: str) -> Run:
    """The run in its next state. The only place a state changes."""
    if to not in NEXT[run.state]:
        allowed = ", ".join(sorted(NEXT[run.state])) or "nothing, it has ended"
        raise IllegalTransition(
            f"run {run.id} is {run.state} and cannot become {to}; allowed: {allowed}"
        )
    return run.model_copy(update={"state": to, "reason": why})


def asks_for_more(overrides: Sequence[str]) -> bool:
    """Whether overrides name the budget."""
    paths = (canonical(text.lstrip("+~").partition("=")[0]) for text in overrides)
    return any(path in (PRODUCT, *FACTORS) for path in paths)


def resumable_states(overrides: Sequence[str]) -> tuple[State, ...]:
    """The states from which a run goes on under these overrides."""
    return (*RESUMABLE, *FINAL) if asks_for_more(overrides) else RESUMABLE
