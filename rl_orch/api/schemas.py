"""The shapes of requests and of answers that are no records. Data only."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rl_orch.http.problems import ABSOLUTE, LINE
from rl_orch.io.metrics.recent import TrainingStep
from rl_orch.io.metrics.series import Series
from rl_orch.records import (
    Alias,
    AliasChange,
    Checkpoint,
    EpisodeSummary,
    Evaluation,
    Event,
    Group,
    ModelVersion,
    Record,
    Run,
    RunnerCapabilities,
    RunView,
    Service,
    Token,
)
from rl_orch.records.jobs import Job
from rl_orch.spec.tags import LONGEST_NOTE

MOST_OVERRIDES = 200
MOST_FOLDERS = 100
Override = Annotated[str, Field(max_length=4000)]


class Body(BaseModel):
    """What a request says; nothing that is not known, and nothing of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Experiment(Body):
    """A spec as a file would have it, with overrides as the command line takes them.

    `consent` says that the caller has seen the program that a spec with `runner.name: external`
    runs, and wants it run.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "spec": {"env": {"id": "CartPole-v1"}, "train": {"total_timesteps": 50000}},
                    "overrides": ["env.seed=7"],
                }
            ]
        }
    )

    spec: dict[str, Any]
    overrides: list[Override] = Field(default=[], max_length=MOST_OVERRIDES)
    consent: bool = False
    module_path: list[Annotated[str, Field(max_length=4096, pattern=ABSOLUTE)]] = Field(
        default=[],
        max_length=MOST_FOLDERS,
        description="Folders of the service's machine that modules are searched for in; "
        "only the service's own user may name any.",
        examples=[["/home/ann/envs"]],
    )


class Stop(Body):
    """How a run is to be stopped: kindly, or at once."""

    force: bool = False


class Resume(Body):
    """What a resumed run is to change, such as `train.total_timesteps=2e6`."""

    overrides: list[Override] = Field(default=[], max_length=MOST_OVERRIDES)
    approximate: bool = Field(
        default=False, description="Extend a run that ended even where that is not exact."
    )


class Command(Body):
    """A command for the process of a run that is at work."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "checkpoint"}]})

    name: str = Field(max_length=100)
    arguments: dict[str, Any] = {}


class Tagging(Body):
    """Tags to set on a run, and names of those to remove."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"set": {"team": "vision"}}]})

    set: dict[str, str] = {}
    remove: list[Annotated[str, Field(max_length=100)]] = Field(default=[], max_length=100)


class RunNote(Body):
    """What is to be noted on a run; an empty text removes the note."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "with frame stacking"}]})

    text: str = Field(max_length=LONGEST_NOTE)


class NewToken(Body):
    """A token to be made."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ci", "scope": "operate"}]})

    name: str = Field(max_length=64)
    scope: Literal["read", "operate", "admin"]
    lifetime_s: float | None = Field(default=None, gt=0, le=1e9)


class NewCode(Body):
    """A one-time code to be made: what the token that it is exchanged for may do."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"scope": "operate"}]})

    scope: Literal["read", "operate", "admin"]


class NewSession(Body):
    """A one-time code, as it was typed."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"code": "K7QM-93TX-B4DZ"}]})

    code: str = Field(min_length=1, max_length=64)


class Holder(Body):
    """An alias that somebody has; without `env`, the one environment that it is of."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"alias": "production"}]})

    alias: str = Field(max_length=300, pattern=LINE)
    env: str | None = Field(default=None, max_length=200, pattern=LINE)
    reason: str | None = Field(default=None, max_length=2000, pattern=LINE)


class Prune(Body):
    """How many models of each environment stay, and for how many days."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"keep_top_n": 10}]})

    keep_top_n: int | None = Field(default=None, ge=1, le=10**6)
    max_age: float | None = Field(default=None, gt=0, le=1e6)
    env: str | None = Field(default=None, max_length=200, pattern=LINE)
    dry_run: bool = False


class NewJob(Body):
    """A job to be carried out: its kind, and what is asked of it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"kind": "evaluate", "arguments": {"policy": "last", "episodes": 100}}]
        }
    )

    kind: str = Field(max_length=40)
    arguments: dict[str, Any] = {}


class JobList(Record):
    """Jobs, the newest first."""

    jobs: tuple[Job, ...]


class Upload(Record):
    """The word that names an upload in the arguments of a job."""

    upload: str


class CheckError(Record):
    """One problem of a spec; `code` is the kind of error that it is of."""

    code: str
    path: str | None
    value: Any = None
    message: str
    hint: str | None = None


class CheckWarning(Record):
    """What is worth knowing of a spec and stops nothing."""

    path: str | None
    value: Any = None
    message: str
    hint: str | None = None


class Checked(Record):
    """What can be known of a spec before it is carried out; `settled` has the options that are left
    open in it, by path, as they would be."""

    ok: bool
    config_hash: str | None
    settled: dict[str, str]
    pending: list[str]
    seeds: list[int]
    warnings: list[CheckWarning]
    errors: list[CheckError]


class RunPage(Record):
    """Some runs, and the cursor that continues after them."""

    runs: tuple[Run, ...]
    next: str | None


class Row(Record):
    """A row of a listing: a group with all of its runs, or a run by itself."""

    group: Group | None
    runs: tuple[Run, ...]


class RowPage(Record):
    """Some rows, newest first, and the cursor that continues after them."""

    rows: tuple[Row, ...]
    next: str | None


class GroupView(Record):
    """A group and its runs, by seed."""

    group: Group
    runs: tuple[Run, ...]


class RunDetails(RunView):
    """A run with everything that belongs to it; `spec` is described by the schema of specs."""

    spec: dict[str, Any]  # type: ignore[assignment]


class HistoryView(Record):
    """The episodes and evaluations of a run, oldest first; an evaluation follows its step.

    `thinned` where there are more of them than one answer holds: these are evenly spread.
    """

    episodes: tuple[EpisodeSummary, ...]
    evaluations: tuple[tuple[int, Evaluation], ...]
    thinned: bool = False


class EventPage(Record):
    """Some events, the byte offset after them, and how many lines between were no events."""

    events: tuple[Event, ...]
    offset: int
    skipped: int = 0


class LogText(Record):
    """Whole lines of a log, without terminal escapes, and the byte offset after them."""

    text: str
    offset: int


class CheckpointList(Record):
    """The checkpoints of a run, oldest first."""

    checkpoints: tuple[Checkpoint, ...]


class ModelList(Record):
    """Models of the registry."""

    models: tuple[ModelVersion, ...]


class EnvironmentList(Record):
    """Environments that have a validated model, by name."""

    environments: tuple[str, ...]


class AliasList(Record):
    """Aliases, by environment and name."""

    aliases: tuple[Alias, ...]


class AliasHistory(Record):
    """Changes of aliases, the newest first."""

    history: tuple[AliasChange, ...]


class Artifact(Record):
    """A file in a run's directory."""

    path: str
    bytes: int
    modified_at: float


class ArtifactList(Record):
    """The files in a run's directory; `truncated` where there are more than are listed."""

    artifacts: list[Artifact]
    truncated: bool = False


class OptionList(Record):
    """Every option of a spec, as `rlctl options --json` has them."""

    options: list[dict[str, Any]]


class RunnerList(Record):
    """The runners that a spec may name, with what each can do."""

    runners: tuple[RunnerCapabilities, ...]


class ServiceList(Record):
    """The services that share the database; `here` is what the one that answers is doing."""

    services: list[Service]
    here: dict[str, Any] | None = None


class TokenList(Record):
    """Every token there has been, oldest first."""

    tokens: list[Token]


class MadeToken(Record):
    """A new token and its text, which cannot be had again."""

    token: Token
    secret: str


class OneTimeCode(Record):
    """A code that `POST /sessions` takes once, within its lifetime."""

    code: str
    scope: Literal["read", "operate", "admin"]
    lifetime_s: float


class Health(Record):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Readiness(Record):
    """Whether the service can do its work, and which part of it cannot."""

    ready: bool
    database: bool
    scheduler: bool


class SeriesList(Record):
    """The curves of a run."""

    series: tuple[Series, ...]


class RecentSteps(Record):
    """The newest numbers of a run, oldest first."""

    metrics: list[TrainingStep]
