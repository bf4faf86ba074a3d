"""What a run's events say about its training, as curves: a view, rebuilt when it is asked for."""

from collections.abc import Iterable
from pathlib import Path

from rl_orch.io.run.events import folded, is_start, newest_attempt
from rl_orch.records import EpisodeSummary, Evaluation, Event, EventKind, Exactness, History


def exactness(events_file: Path) -> Exactness | None:
    """What a run last said of how exactly it can be resumed; None before it has."""
    said = None
    for event in folded(events_file, (EventKind.STATE,)):
        if event.key == "resume":
            method, reason = event.tags.get("method"), event.tags.get("reason")
            said = Exactness(str(event.value), str(method), None if reason is None else str(reason))
    return said


def passed_over(events_file: Path) -> tuple[str, ...]:
    """The damaged checkpoints that the newest attempt had to pass over, a sentence for each."""
    found: tuple[str, ...] = ()
    for event in folded(events_file, (EventKind.STATE,)):
        if is_start(event):
            said = event.tags.get("passed_over")
            found = tuple(map(str, said)) if isinstance(said, list) else ()
    return found


def guardrail_events(events_file: Path) -> int | None:
    """How often a guardrail of the run spoke up; None where no attempt has told of its start, and
    silence says nothing."""
    if newest_attempt(events_file) == 0:
        return None
    return sum(1 for _ in folded(events_file, (EventKind.GUARDRAIL,)))


def evaluations(events_file: Path) -> tuple[tuple[int, Evaluation], ...]:
    """The evaluations during training with their steps, oldest first."""
    return of_events(folded(events_file, (EventKind.EVAL,))).evaluations


def of_run(events_file: Path) -> History:
    """The history in an event file."""
    return of_events(folded(events_file, (EventKind.EPISODE, EventKind.EVAL)))


def of_events(events: Iterable[Event]) -> History:
    """The history that some events make; what cannot be read as one is left out."""
    episodes: list[EpisodeSummary] = []
    evaluations: list[tuple[int, Evaluation]] = []
    for event in events:
        ret, evaluation = number_of(event), evaluation_of(event)
        if evaluation is not None:
            evaluations.append((event.step, evaluation))
        elif event.kind is EventKind.EPISODE and ret is not None:
            length, env = (_count(event.tags.get(name)) for name in ("length", "env"))
            episodes.append(EpisodeSummary(event.step, ret, length, env))
    return History(tuple(episodes), tuple(evaluations))


def number_of(event: Event) -> float | None:
    """The event's value as a number, also one that is not finite; None if it is none.

    Anything may append to an event file, so whoever reads one asks here first.
    """
    if isinstance(event.value, bool) or event.value is None:
        return None
    try:
        return float(event.value)
    except (TypeError, ValueError):
        return None


def evaluation_of(event: Event) -> Evaluation | None:
    """The evaluation that an `eval` event tells of, if it does."""
    if event.kind is not EventKind.EVAL:
        return None
    try:
        return Evaluation.model_validate(event.tags.get("summary"))
    except ValueError:
        return None


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
