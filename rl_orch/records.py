"""The records that cross processes, files and sockets: Run, Group, Attempt, Event, EvalReport,
Verdict, ModelVersion, Alias. Data only; what may happen to a run is in `core/state.py`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from rl_orch.spec.model import Spec


class Record(BaseModel):
    """A frozen record; unknown fields are ignored, so that older programs read newer files."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings", defer_build=True)


class State(StrEnum):
    """Where a run is in its life; `core/state.py` says which state may follow which."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    EVALUATING = "evaluating"
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"


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
    tags: dict[str, Any] = {}


class Evaluation(Record):
    """The numbers of an evaluation: `ci95` bounds the mean; `unit` is what was replicated."""

    mean: float
    std: float
    iqm: float
    ci95: tuple[float, float]
    n: int
    unit: Literal["episodes", "training runs"] = "episodes"


class GroupEvaluation(Evaluation):
    """The numbers of a group: each replicate is the mean return of one training run.

    `ci95` bounds the mean, `iqm_ci95` the interquartile mean.
    """

    unit: Literal["training runs"] = "training runs"
    iqm_ci95: tuple[float, float]


class Estimate(Record):
    """A number made from a sample, and its 95 % interval."""

    value: float
    ci95: tuple[float, float]


class Stopping(Record):
    """How a comparison may end before its last pair of episodes: looks at equal distances, up to
    `n_max` pairs, and the chance `alpha` of a false promotion over all of them."""

    n_max: int
    looks: int
    alpha: float
    margin: float = 0.0


class Parity(Record):
    """How an exported policy compares with the one that it was made from, on `n` observations."""

    format: str
    n: int
    largest_difference: float
    passed: bool


class EvalReport(Record):
    """What an evaluation of one policy found, episode by episode.

    `seeds` are those of the episodes' resets, in the order of the returns; `metrics` are further
    numbers of each episode, by name. `model` names the policy among all: a model version, a run, a
    path. `stopping` says that the episodes went on only until a comparison was decided.
    """

    env_id: str
    policy: str = "default"
    step: int
    checkpoint: str | None = None
    seed: int
    deterministic: bool
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    summary: Evaluation
    seeds: tuple[int, ...] = ()
    metrics: dict[str, tuple[float, ...]] = {}
    model: str | None = None
    stopping: Stopping | None = None

    @property
    def mean_length(self) -> float:
        """The mean episode length in environment steps."""
        return sum(self.lengths) / len(self.lengths)


class Check(Record):
    """One rule of a gate and how the report stood against it."""

    rule: str
    passed: bool
    observed: float | None
    limit: float | None
    sentence: str


class Verdict(Record):
    """What a gate says of a report; it passed only if every check did."""

    passed: bool
    checks: tuple[Check, ...]

    @property
    def word(self) -> Literal["passed", "failed"]:
        """The verdict as the one word that every surface shows."""
        return "passed" if self.passed else "failed"


class Run(Record):
    """A spec being carried out. Its JSON form is a contract: fields are added, never renamed.

    From `queue` on: what the scheduler goes by. `arrival` is the place in the order of arrival,
    `retries` how often the run was started again after a crash since a person last asked for it.
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

    @property
    def active(self) -> bool:
        """Whether the run has yet to end."""
        return self.state in (State.QUEUED, State.STARTING, State.RUNNING, State.EVALUATING)


class Verdicts(Record):
    """How many of the runs that were judged have passed their gate."""

    passed: int
    n: int


class Group(Record):
    """Runs of one spec that differ in their seed alone, folded into one.

    `core/groups.py` says how: `state` is what the runs' states come to, `env_steps` and
    `total_timesteps` are sums, `eval` is over the runs that have had their final evaluation.
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

    @property
    def active(self) -> bool:
        """Whether any run has yet to end."""
        return self.state in (State.QUEUED, State.RUNNING)


class Attempt(Record):
    """One try at carrying a run out. `handle` names its root process to the runner."""

    run_id: str
    number: int
    handle: str | None = None
    started_at: float
    ended_at: float | None = None
    exit_code: int | None = None
    reason: str = ""


class ModelVersion(Record):
    """A policy the registry holds; the fields down to `validated` are the columns of `models`.

    `digest` is that of its checkpoint's manifest, `lineage` what it was made from. While it is
    `retiring`, its files are being deleted. `aliases` are its names in its environment.
    """

    id: int
    model_path: str
    algorithm: str
    env_id: str
    timestamp: int
    total_timesteps: int | None = None
    mean_reward: float | None = None
    std_reward: float | None = None
    mean_episode_length: float | None = None
    hyperparams: str | None = None
    git_commit: str | None = None
    validated: bool = False
    run_id: str | None = None
    policy: str = "default"
    verdict: Verdict | None = None
    config_hash: str | None = None
    group: str | None = None
    lineage: dict[str, Any] = {}
    digest: str | None = None
    source: Literal["run", "import"] = "run"
    retiring: bool = False
    aliases: tuple[str, ...] = ()


class StoredVerdict(Record):
    """A verdict in the registry, with the rules that were asked and the report that was read.

    `baseline_id` is the model that the report was compared with, if it was.
    """

    id: int
    model_id: int
    baseline_id: int | None = None
    at: float
    passed: bool
    verdict: Verdict
    rules: tuple[dict[str, Any], ...] = ()
    report_path: str | None = None
    report_sha256: str | None = None


class Alias(Record):
    """A name for one model of an environment, since when, and by which verdict."""

    env_id: str
    alias: str
    model_id: int
    since: float
    verdict_id: int | None = None


class AliasChange(Record):
    """One line of the audit trail: which model an alias was given, instead of which, by whom."""

    id: int
    env_id: str
    alias: str
    model_id: int | None
    previous_id: int | None
    action: Literal["promote", "rollback", "remove"]
    at: float
    who: str
    reason: str | None = None
    forced: bool = False
    verdict_id: int | None = None


class ModelView(Record):
    """A model with everything that gates have said of it and every change of alias it was in."""

    model: ModelVersion
    verdicts: tuple[StoredVerdict, ...] = ()
    history: tuple[AliasChange, ...] = ()


class RegistryFault(Record):
    """One thing in which the registry and the files do not agree."""

    model_id: int | None
    kind: Literal["missing", "damaged", "changed", "report", "alias", "retiring"]
    sentence: str


class Verification(Record):
    """What a look at every model and its files came to."""

    models: int
    faults: tuple[RegistryFault, ...]

    @property
    def ok(self) -> bool:
        """Whether all of it agrees."""
        return not self.faults


class Retirement(Record):
    """A model that retention lets go of, or leaves, and why."""

    model_id: int
    why: str


class Pruning(Record):
    """What retention has removed, or would if it were no `dry_run`; and what it would have removed
    but for an alias or a run that needs it."""

    removed: tuple[Retirement, ...]
    spared: tuple[Retirement, ...] = ()
    dry_run: bool = False


class Checkpoint(Record):
    """A checkpoint in a listing; `problem` is a sentence if it is not intact."""

    name: str
    step: int
    path: str
    intact: bool
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Exactness:
    """How exactly a run can be resumed, by which method, and why no better."""

    level: str
    method: str
    reason: str | None = None


class Kill(Record):
    """A kill of a run's root: the attempt it ended, the step that was last told of, and the step
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


class RunView(Record):
    """A run with everything that belongs to it."""

    run: Run
    spec: Spec
    attempts: tuple[Attempt, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    models: tuple[ModelVersion, ...] = ()
    report: EvalReport | None = None
    exactness: Exactness | None = None
    passed_over: tuple[str, ...] = ()
    watched: bool = False
    certificate: Certificate | None = None
    changes: tuple[dict[str, Any], ...] = ()
    forecast: str | None = None

    @property
    def verdict(self) -> Verdict | None:
        """What the gate said of the model that the run ended with."""
        return next((m.verdict for m in self.models if m.id == self.run.model_id), None)


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """One finished training episode."""

    step: int
    ret: float
    length: int
    env: int


@dataclass(frozen=True, slots=True)
class History:
    """The episodes and evaluations of a run, oldest first, nothing counted twice."""

    episodes: tuple[EpisodeSummary, ...] = ()
    evaluations: tuple[tuple[int, Evaluation], ...] = ()

    def returns(
        self, points: int = 80, *, until: int | None = None
    ) -> tuple[list[int], list[float]]:
        """Training returns averaged over `points` equal stretches of steps: steps and means.

        The stretches are those of a run that lasts `until` a step, or else as long as this one.
        """
        if not self.episodes:
            return [], []
        width = max(1, -(-(until or self.episodes[-1].step) // points))
        stretches: dict[int, list[float]] = {}
        for episode in self.episodes:
            stretches.setdefault(episode.step // width, []).append(episode.ret)
        steps = [(stretch + 1) * width for stretch in stretches]
        return steps, [sum(values) / len(values) for values in stretches.values()]


class Submission(Record):
    """What came of asking for an experiment: its runs, queued.

    `repeated` if the same was asked before with the same idempotency key: these are the runs of
    then, as they are now. `warnings` are sentences about what is worth knowing and stops nothing.
    """

    runs: tuple[Run, ...]
    group: Group | None = None
    repeated: bool = False
    warnings: tuple[str, ...] = ()


class Token(Record):
    """A key to the HTTP API. Only a digest of the secret is kept, and it is never shown."""

    id: str
    name: str
    scope: Literal["read", "operate", "admin"]
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None


class Service(Record):
    """A service that carries out the runs of a database. `id` is the lease that it holds them by;
    `beat` counts up while it lives."""

    id: str
    host: str
    url: str
    beat: int
    started_at: float
