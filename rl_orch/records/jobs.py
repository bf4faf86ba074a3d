"""Jobs: what can be asked for besides runs, each with the record that it is answered with.

The same request is carried out by an orchestrator here and by a service elsewhere. Paths in it are
the caller's: for a service, what is at them becomes an upload, and what is made an artifact.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import ConfigDict, Field, PlainSerializer, ValidationError

from rl_orch.errors import BadInput
from rl_orch.records.exactness import Certificate
from rl_orch.records.models import AliasChange, ModelVersion, StoredVerdict
from rl_orch.records.profile import Profile
from rl_orch.records.record import Record
from rl_orch.records.reports import Estimate, Evaluation
from rl_orch.records.runs import Run
from rl_orch.records.tasks import ExportAnswer, FilmAnswer, InferAnswer
from rl_orch.spec.database_address import (
    without_address,
    without_address_at,
    without_address_in,
)
from rl_orch.spec.model import Spec

JOB_TAG = "job"
"""The tag of runs that a job has launched: its id."""

JobAnswer = TypeVar("JobAnswer", bound=Record)
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Episodes = Annotated[int, Field(ge=1, le=1_000_000)]
Rows = Annotated[int, Field(ge=1, le=1_000_000)]
Margin = Annotated[float, Field(ge=0, le=1e300)]
Using = Literal["torch", "onnx", "int8"]
SpecDocument = Annotated[dict[str, Any], PlainSerializer(without_address)]
Overrides = Annotated[tuple[str, ...], PlainSerializer(without_address_in)]
StepOverrides = Annotated[tuple[tuple[int, str], ...], PlainSerializer(without_address_at)]
"""A spec and overrides of one; what is sent or kept of them has no address of a database."""
Folder = Annotated[str, Field(max_length=4096, pattern=r"^/[^\x00]*$")]
Folders = Annotated[tuple[Folder, ...], Field(max_length=100)]
"""Folders of the machine of a service that modules are searched for in; only its own user may name
any."""


class JobState(StrEnum):
    """Where a job is: it waits, is carried out, or has come to one of four ends."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


class Job(Record):
    """A request that a service carries out, how far it is, and what came of it.

    It is `lost` where its service ended before it did; it can then be asked for again. `answer` is
    the record that its kind is answered with, `error` what every surface says of an error.
    """

    id: str
    kind: str
    arguments: dict[str, Any]
    state: JobState = JobState.QUEUED
    reason: str = ""
    doing: str = ""
    done: float = 0.0
    answer: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    who: str = ""
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def active(self) -> bool:
        """Whether it has yet to end."""
        return self.state in (JobState.QUEUED, JobState.RUNNING)


class JobTask(Record):
    """A job for the process that carries it out: whose it is, and the folder for what it makes."""

    home: str
    database: str
    folder: str
    who: str
    kind: str
    arguments: dict[str, Any]


class JobDone(Record):
    """The answer of such a process: the record of the job's kind."""

    answer: dict[str, Any]


JOBS: "dict[str, type[JobRequest[Any]]]" = {}
"""The kinds of jobs by name."""


class JobRequest(Record, Generic[JobAnswer]):
    """A request of one kind, and the right that it takes to have a service carry it out.

    `policies` are fields that name a policy, `files` such that name a file or folder, `code` those
    by which code is named: specs, overrides and plugins. `out` is where to write what is made: a
    path, and for a service the name of an artifact. `local` are those that a service neither heeds
    nor keeps.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    kind: ClassVar[str]
    needs: ClassVar[Literal["operate", "admin"]] = "operate"
    answers: ClassVar[type[Record]]
    policies: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ()
    code: ClassVar[tuple[str, ...]] = ()
    local: ClassVar[frozenset[str]] = frozenset()

    out: str | None = None

    @classmethod
    def __pydantic_init_subclass__(cls, **_options: Any) -> None:
        if "kind" in vars(cls):
            JOBS[cls.kind] = cls


def request_of(kind: str, arguments: Mapping[str, Any]) -> JobRequest[Any]:
    """The request of a kind with these arguments, if there is such a one."""
    if kind not in JOBS:
        raise BadInput(f"no job {kind!r}; there are: {', '.join(JOBS)}", path="kind")
    try:
        return JOBS[kind].model_validate_json(json.dumps(arguments), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(map(str, ("arguments", *first["loc"])))
        raise BadInput(f"{path}: {first['msg']}", path=path) from None


class EvaluatedPolicy(Record):
    """Returns of a policy over the episodes of an evaluation; `cut` says how many were cut short by
    the evaluation's own limit."""

    model_id: int | None
    eval: Evaluation
    aggregates: dict[str, Estimate]
    mean_length: float
    metrics: dict[str, float]
    estimates: dict[str, Estimate] = Field(default_factory=dict)
    cut: str | None = None


class PairedComparison(Record):
    """A policy beside another one, over pairs of episodes with the same seed.

    `decision` is that of a test that may end early, and `low` its lower bound, which holds at all
    looks at once; intervals are None then, for they are of a number of pairs that was fixed.
    """

    mean: float
    ci95: tuple[float, float] | None
    pairs: int
    improvement: Estimate
    decision: str | None = None
    low: float | None = None
    asked: int = 0


class PolicyEvaluation(Record):
    """An evaluation that was asked for, and the files that keep it."""

    name: str
    word: str
    path: str
    run_id: str | None
    env: str
    seed: int
    deterministic: bool
    result: EvaluatedPolicy
    against: EvaluatedPolicy | None = None
    comparison: PairedComparison | None = None
    files: dict[str, str]


class EvaluateJob(JobRequest[PolicyEvaluation]):
    """A policy to play, alone or against another one on the same episodes; `sequential`, until it
    is decided. Without a seed, the episodes are fresh ones.

    `using` is what computes the actions of the first: torch, or a graph of a bundle, which is
    greedy.
    """

    kind = "evaluate"
    answers = PolicyEvaluation
    policies = ("policy", "against")
    code = ("metrics",)

    policy: str
    against: str | None = None
    env: str | None = None
    episodes: Episodes = 100
    seed: Seed | None = None
    deterministic: bool | None = None
    metrics: tuple[str, ...] = ()
    sequential: bool = False
    margin: Margin = 0.0
    processes: Annotated[int, Field(ge=1, le=256)] | None = None
    using: Using = "torch"


class ExportJob(JobRequest[ExportAnswer]):
    """A policy to write out, as a graph or a bundle."""

    kind = "export"
    answers = ExportAnswer
    policies = ("policy",)

    policy: str
    format: Literal["onnx", "torchscript", "pt2", "bundle"] = "bundle"
    int8: bool = False
    rows: Rows | None = None
    replace: bool = False


class ValidateJob(JobRequest[StoredVerdict]):
    """A model to hold against the gate of its spec."""

    kind = "validate"
    answers = StoredVerdict
    policies = ("model",)

    model: str
    min_return: Annotated[float, Field(ge=-1e300, le=1e300)] | None = None
    episodes: Episodes | None = None
    fresh: bool = False


class PromoteJob(JobRequest[AliasChange]):
    """A model to give an alias; by force, a reason is needed."""

    kind = "promote"
    answers = AliasChange
    policies = ("model",)

    model: str
    to: str
    env: str | None = None
    force: bool = False
    reason: str | None = None
    allow_equal: bool = False
    margin: Margin = 0.0
    episodes: Episodes | None = None


class Suggestion(Record):
    """A sentence about a profile, and the overrides to try it with, if there are any."""

    text: str
    change: str | None = None


class ProfileResult(Record):
    """A spec as it was asked for and as it was trained, where the time went, what would help."""

    asked: Spec
    spec: Spec
    profile: Profile
    advice: tuple[Suggestion, ...]


class ProfileJob(JobRequest[ProfileResult]):
    """A training to measure until one limit is reached."""

    kind = "profile"
    answers = ProfileResult
    code = ("spec",)

    spec: SpecDocument
    seconds: Annotated[float, Field(ge=0.1, le=86400)] | None = None
    steps: Annotated[int, Field(ge=1)] | None = None
    module_path: Folders = ()


class InferJob(JobRequest[InferAnswer]):
    """Observations for a policy to act on: a file of them, or one by itself."""

    kind = "infer"
    answers = InferAnswer
    policies = ("policy",)
    files = ("input",)

    policy: str
    env: str | None = None
    input: str | None = None
    observation: Any = None
    sample: bool = False
    seed: Annotated[int, Field(ge=0)] = 0
    using: Using = "torch"


class FilmJob(JobRequest[FilmAnswer]):
    """An episode of a policy to look at: a recorded one, or that of a number.

    `out` is the film; without one a window opens, which a service has none of.
    """

    kind = "film"
    answers = FilmAnswer
    policies = ("policy",)
    files = ("records",)

    policy: str
    episode: str = "best"
    of: str | None = None
    records: str | None = None
    seed: Seed = 0
    sample: bool = False


class MachineFinding(Record):
    """One thing that was looked at on a machine, and what to mend about it."""

    name: str
    level: Literal["ok", "warn", "fail"]
    detail: str
    fix: str | None = None
    path: str | None = None


class Diagnosis(Record):
    """All that was looked at on a machine."""

    findings: tuple[MachineFinding, ...]


class DoctorJob(JobRequest[Diagnosis]):
    """A machine to look at, and whether a spec could run there."""

    kind = "doctor"
    answers = Diagnosis
    code = ("spec",)
    local = frozenset({"database"})

    spec: SpecDocument | None = None
    database: str | None = None
    module_path: Folders = ()


class ImportRunJob(JobRequest[Run]):
    """A run directory from elsewhere to take in."""

    kind = "import_run"
    answers = Run
    needs = "admin"
    files = ("directory",)

    directory: str


class ImportPolicyJob(JobRequest[ModelVersion]):
    """A policy of another library or home to take in, and what its file does not tell."""

    kind = "import_policy"
    answers = ModelVersion
    needs = "admin"
    files = ("file", "normalizer")
    code = ("env", "algorithm", "overrides")

    file: str
    env: str | None = None
    algorithm: str | None = None
    name: str | None = None
    normalizer: str | None = None
    overrides: Overrides = ()


class VerifyResumeJob(JobRequest[Certificate]):
    """A spec to certify: whether it resumes bit for bit however often it is killed, and however
    its options are set at the steps of `settings`."""

    kind = "verify_resume"
    answers = Certificate
    code = ("spec", "settings")

    spec: SpecDocument
    kills: Annotated[int, Field(ge=1, le=1000)] = 5
    moments: int | None = None
    settings: StepOverrides = ()
    consent: bool = False
    module_path: Folders = ()
