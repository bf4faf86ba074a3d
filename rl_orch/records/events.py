"""What happened in a run, one line of its event file at a time."""

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from rl_orch.records.record import Record


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
    seq: int
    attempt: int
    ts: float
    run: str
    step: int
    kind: EventKind
    key: str
    value: Any = None
    tags: dict[str, Any] = Field(default_factory=dict)
