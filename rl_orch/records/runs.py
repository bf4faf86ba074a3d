"""Runs, their groups and attempts, and how they are submitted."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from rl_orch.records.clock import Clock, ClockUnit
from rl_orch.records.record import Record
from rl_orch.records.reports import Evaluation, GroupEvaluation, Verdicts


class State(StrEnum):
    """Where a run is in its life; `core/runs/state.py` says which state may follow which."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    EVALUATING = "evaluating"
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"


class Run(Record):
    """A spec being carried out. Its JSON form is a contract: fields are added, never renamed.

    From `queue` on: what the scheduler goes by. `arrival` is the place in the order of arrival,
    `retries` how often the run was started again after a crash since a person last asked for it,
    `group_size` how many runs its group was to have, where that was noted. `parent` is the run, the
    group or whatever else it belongs to, `role` what it is to that; `tags` and `note` are whatever
    people say. `env_steps` and `total_timesteps` count what `clock` says.
    """

    id: str
    name: str
    group: str | None = None
    state: State = State.QUEUED
    reason: str = ""
    attempt: int = 0
    env: str
    algo: str
    env_steps: int = 0
    sps: float | None = None
    config_hash: str
    eval: Evaluation | None = None
    verdict: Literal["passed", "failed"] | None = None
    model_id: int | None = None
    path: str
    resume: Literal["bitwise", "approximate", "none"] = "none"
    seed: int
    total_timesteps: int
    created_at: float
    updated_at: float
    runner: str = "local"
    queue: str = "default"
    priority: int = 0
    arrival: int = 0
    max_running: int | None = None
    after: tuple[str, ...] = ()
    cpus: int = 1
    gpus: int = 0
    memory_mb: int = 512
    retries: int = 0
    group_size: int | None = None
    parent: str | None = None
    role: str | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    clock: ClockUnit = "env_steps"
    note: str = ""

    @property
    def trained(self) -> Clock:
        """How far it is."""
        return Clock(self.clock, self.env_steps)

    @property
    def active(self) -> bool:
        """Whether the run has yet to end."""
        return self.state in (State.QUEUED, State.STARTING, State.RUNNING, State.EVALUATING)


class Group(Record):
    """Runs of one spec that differ in their seed alone, folded into one.

    `core/runs/groups.py` says how: `state` is what the runs' states come to, `env_steps` and
    `total_timesteps` are sums, `eval` is over the runs that have had their final evaluation,
    `asked` is how many runs it was to have.
    """

    id: str
    name: str
    env: str
    algo: str
    config_hash: str
    state: State
    counts: dict[State, int]
    seeds: tuple[int, ...]
    env_steps: int
    total_timesteps: int
    eval: GroupEvaluation | None = None
    verdicts: Verdicts
    created_at: float
    updated_at: float
    runs: tuple[str, ...]
    asked: int | None = None
    clock: ClockUnit = "env_steps"

    @property
    def trained(self) -> Clock:
        """How far its runs are together."""
        return Clock(self.clock, self.env_steps)

    @property
    def is_smaller(self) -> bool:
        """Whether it has fewer runs than it was to have."""
        return self.asked is not None and len(self.runs) < self.asked

    @property
    def active(self) -> bool:
        """Whether any run has yet to end."""
        return self.state in (State.QUEUED, State.RUNNING)


class Attempt(Record):
    """One try at carrying a run out. `handle` names its run process to the runner."""

    run_id: str
    number: int
    handle: str | None = None
    started_at: float
    ended_at: float | None = None
    exit_code: int | None = None
    reason: str = ""


class Checkpoint(Record):
    """A checkpoint in a listing; `problem` is a sentence if it is not intact.

    Where its `replay_let_go` is true it is whole but for the replay buffer, which its run has let
    go of.
    """

    name: str
    step: int
    path: str
    intact: bool
    problem: str | None = None
    replay_let_go: bool = False


class LetGo(Record):
    """Training state that a run has let go of once it succeeded, and the bytes that this freed.

    `segments` is the number of files that its replay buffer was in, `through` the step of the last
    checkpoint that lacks it; None, as earlier releases wrote it, for all.
    """

    at: float
    checkpoints: tuple[str, ...] = ()
    segments: int = 0
    bytes: int = 0
    through: int | None = None


class Submission(Record):
    """What came of asking for an experiment: its runs, queued.

    `repeated` if the same was asked before with the same idempotency key: these are the runs of
    then, as they are now. `warnings` are sentences about what is worth knowing and stops nothing.
    """

    runs: tuple[Run, ...]
    group: Group | None = None
    repeated: bool = False
    warnings: tuple[str, ...] = ()
