"""What happened in a run, one line of its event file at a time."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from rl_orch.records.record import Record

MOST = 1 << 53
"""No counter of ours gets there; a database could not hold much more."""

Count = Annotated[int, Field(ge=0, lt=MOST)]


class EventKind(StrEnum):
    """What an event tells of."""

    METRIC = "metric"
    EPISODE = "episode"
    EVAL = "eval"
    CHECKPOINT = "checkpoint"
    GUARDRAIL = "guardrail"
    STATE = "state"
    LOG = "log"
    ARTIFACT = "artifact"


class Event(Record):
    """One line of a run's event file.

    `seq` counts from 1 within an attempt. `value` is a number, a string or a JSON document;
    numbers that are not finite are the strings NaN, Infinity and -Infinity.
    """

    v: Literal[1] = 1
    seq: Annotated[Count, Field(ge=1)]
    attempt: Count
    ts: FiniteFloat
    run: str
    step: Count
    kind: EventKind
    key: str
    value: Any = None
    tags: dict[str, Any] = Field(default_factory=dict)
