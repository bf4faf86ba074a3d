"""Views of events: the history of a training, how exactly it goes on, what guardrails said."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rl_orch.io.run.events import folded, is_start
from rl_orch.records import (
    Episodes,
    EpisodeSummary,
    Evaluation,
    Event,
    EventKind,
    Exactness,
    History,
)
from rl_orch.records.events import MOST


def exactness(events: Iterable[Event]) -> Exactness | None:
    """The exactness of a run that is resumed, by what it last said; None before it has."""
    said = [event for event in events if event.kind is EventKind.STATE and event.key == "resume"]
    if not said:
        return None
    method, reason = said[-1].tags.get("method"), said[-1].tags.get("reason")
    return Exactness(str(said[-1].value), str(method), None if reason is None else str(reason))


def passed_over(events: Iterable[Event]) -> tuple[str, ...]:
    """The damaged checkpoints that the newest attempt had to pass over, a sentence for each."""
    starts = [event.tags.get("passed_over") for event in events if is_start(event)]
    return tuple(map(str, starts[-1])) if starts and isinstance(starts[-1], list) else ()


def fails_again(events: Iterable[Event], *, saved: bool = True) -> bool:
    """Whether the newest attempt failed for a reason that a further one would meet again; where no
    checkpoint was `saved`, that is any which repeats from the same beginning."""
    final = False
    for event in events:
        if event.kind is EventKind.STATE and event.key in ("started", "ended"):
            repeats = event.tags.get("repeats") is True and not saved
            final = event.value == "failed" and (event.tags.get("final") is True or repeats)
    return final


def taken(events: Iterable[Event]) -> dict[str, Any] | None:
    """Tensors that a run took over at its start, and those that it kept; None if it took none."""
    told = [event for event in events if event.kind is EventKind.STATE and event.key == "start"]
    return dict(told[-1].tags) if told else None


def guardrail_events(events: Iterable[Event]) -> int | None:
    """The number of times a guardrail of the run spoke up; None where no attempt has told of its
    start, and silence says nothing."""
    spoken, started = 0, False
    for event in events:
        spoken += event.kind is EventKind.GUARDRAIL
        started = started or is_start(event)
    return spoken if started else None


def of_run(events_file: Path) -> History:
    """The history in an event file."""
    return of_events(folded(events_file, (EventKind.EPISODE, EventKind.EVAL)))


def of_events(events: Iterable[Event]) -> History:
    """The history that some events make; what cannot be read as one is left out."""
    episodes: list[EpisodeSummary] = []
    evaluations: list[tuple[int, Evaluation]] = []
    for event in events:
        ret, evaluation = number_of(event.value), evaluation_of(event)
        if evaluation is not None:
            evaluations.append((event.step, evaluation))
        elif event.kind is EventKind.EPISODE and ret is not None:
            length, env = (count_of(event.tags.get(name)) for name in ("length", "env"))
            episodes.append(EpisodeSummary(event.step, ret, length, env))
    return History(Episodes.of(episodes), tuple(evaluations))


def number_of(value: Any) -> float | None:
    """A value as a number, also one that is not finite; None if it is none.

    Anything may append to an event file, so whoever reads one asks here first.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity"):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return None


def evaluation_of(event: Event) -> Evaluation | None:
    """The evaluation that an `eval` event tells of, if it does."""
    if event.kind is not EventKind.EVAL:
        return None
    try:
        return Evaluation.model_validate(event.tags.get("summary"))
    except ValueError:
        return None


def count_of(value: object) -> int:
    """A value as a whole number; 0 if it is none."""
    return int(value) if isinstance(value, int) and abs(value) < MOST else 0
