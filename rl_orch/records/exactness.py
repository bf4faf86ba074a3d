"""How exactly a run resumes, and the certificate of it."""

from dataclasses import dataclass
from typing import Any, Literal

from rl_orch.records.record import Record


@dataclass(frozen=True, slots=True)
class Exactness:
    """How exactly a run can be resumed, by which method, and why no better."""

    level: str
    method: str
    reason: str | None = None


class Kill(Record):
    """A kill of a run process: the attempt it ended, the step that was last told of, and the step
    at which the next attempt went on."""

    attempt: int
    step: int
    resumed_at: int = 0


class FirstDifference(Record):
    """The first thing in which two runs differ: where, which part of it, and a sentence."""

    at: str
    part: str
    detail: str


class Certificate(Record):
    """What two trainings of one spec have alike, one of them killed and resumed again and again.

    `level` is `bitwise` only where nothing differs; `reason` says why the environment cannot do
    better. `chain` is the end of the hash chain over all checkpoints.
    """

    level: Literal["bitwise", "approximate"]
    kills: int
    first_difference: FirstDifference | None
    reason: str | None
    undisturbed: str
    killed: str
    moments: tuple[Kill, ...]
    checkpoints: int
    events: int
    chain: str
    config_hash: str
    fingerprint: dict[str, Any]
    created_at: float
