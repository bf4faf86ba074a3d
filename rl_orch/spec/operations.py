"""The groups of a spec that say how a run is carried out and followed, not what it learns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, StringConstraints

from rl_orch.addresses import is_url, masked
from rl_orch.spec import runner_traits
from rl_orch.spec.groups import (
    ARGUMENTS,
    OTEL,
    Arguments,
    Location,
    Number,
    OptionGroup,
    PlainMap,
    Seconds,
    Switch,
    Text,
    Whole,
    Word,
    option,
)
from rl_orch.spec.runner_traits import RunnerTraits
from rl_orch.spec.spelling import entries, plain_map, words


def _written(database: str) -> str | None:
    return None if is_url(database) else database


DatabaseLocation = Annotated[Location, PlainSerializer(_written)]
"""A database. An address of one may hold a password, and is never written down: whoever is to use
it is told by a variable or a flag, or finds it noted in the home."""
ServerAddress = Annotated[Location, PlainSerializer(masked)]
"""The address of a server, which is written down without its password."""


class ResourcesGroup(OptionGroup):
    """What a run may use of the machine. The scheduler sets it aside and never gives it twice."""

    device: Annotated[str, StringConstraints(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = option(
        "cpu",
        "Where tensors live; `auto` is a GPU where there is one.",
        flag="--device",
        allowed="auto, cpu, mps, cuda or cuda:N",
    )
    threads: Whole = option(
        1, "Threads for tensor operations; part of what exact repetition depends on.", ge=1, le=1024
    )
    cpus: Whole | None = option(None, "Cores set aside; null is `threads`.", ge=1, le=1024)
    gpus: Whole = option(
        0,
        "GPUs set aside, the only ones that the run sees; device cuda takes 1, cuda:N takes N + 1.",
        ge=0,
        le=64,
    )
    memory_mb: Whole = option(512, "Memory set aside, in MiB.", ge=1, le=10**8)


class ScheduleGroup(OptionGroup):
    """When a service starts the run, and how often it tries again."""

    priority: Whole = option(
        0,
        "Each point is worth 100 places in the queue, so that nothing waits for ever.",
        flag="--priority",
        ge=-100,
        le=100,
    )
    queue: Word | None = option(
        None,
        "Queues get equal shares; null is the run's group, or `default`.",
        max_length=100,
    )
    max_running: Whole | None = option(
        None, "Start only while fewer runs than this of its queue are at work.", ge=1, le=10**6
    )
    after: Annotated[tuple[Word, ...], BeforeValidator(words)] = option(
        (),
        "Ids of runs or groups that must succeed first.",
        flag="--after",
        allowed="a list of up to 100 ids of runs or groups",
        max_length=100,
    )
    retries: Whole = option(
        3,
        "How often a service starts the run again after a crash, from its newest checkpoint.",
        ge=0,
        le=1000,
    )
    backoff_s: Seconds = option(
        1.0, "Seconds before the first retry; each further one waits twice as long.", ge=0, le=3600
    )
    time_limit_s: Seconds | None = option(
        None,
        "Seconds after which an attempt is stopped, with a last checkpoint; it can be resumed.",
        flag="--time-limit",
        allowed="a number of seconds > 0, or one of s, m, h or d, such as 90m",
        gt=0,
    )


class RunnerGroup(OptionGroup):
    """How the run is executed: by this package's trainer, or by any program."""

    name: Word = option(
        "local",
        "`local` trains with this package; `external` runs `command`; or a runner plugin.",
        flag="--runner",
        env="RL_RUNNER",
    )
    command: Arguments = option(
        (),
        "The program and its arguments, as a list; no shell reads it.",
        allowed=ARGUMENTS,
        max_length=1000,
    )
    cwd: Location | None = option(None, "Folder that the program starts in; null is the run's own.")
    env: Annotated[
        dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], Text],
        BeforeValidator(plain_map),
    ] = option(
        {},
        "Variables for the program; `env:NAME` is a secret, read where the program is started.",
        type="map of text",
        allowed="a map from names of variables to text",
    )
    policy: Arguments = option(
        (),
        "A program that serves `act` for the final evaluation; `{checkpoint}` stands for its path.",
        allowed=ARGUMENTS,
        max_length=1000,
    )
    tensorboard: Location | None = option(
        None, "Folder, inside `cwd`, whose TensorBoard files are read as metrics."
    )
    resume: Literal["none", "approximate", "bitwise"] = option(
        "none", "What the program promises when it goes on from a checkpoint of its own."
    )
    silence_s: Seconds = option(
        120.0,
        "Seconds without a sign of life from its run process after which a run is taken for hung. "
        "An environment that hangs in a step is no such case: its process lives.",
        gt=0,
        le=10**6,
    )
    stop_grace_s: Seconds = option(
        120.0, "Seconds that a run may take to end when asked, before it is killed.", gt=0, le=86400
    )

    @property
    def traits(self) -> RunnerTraits:
        """What the runner of that name can do."""
        return runner_traits.of(self.name)

    @property
    def goes_on(self) -> bool:
        """Whether a further attempt goes on from a checkpoint of the last one."""
        declared = self.traits.resumes == "declared" and self.resume != "none"
        return declared or self.traits.resumes == "always"


class InferGroup(OptionGroup):
    """Serving a trained policy."""

    model_path: Location | None = option(None, "Path of a trained model.", pending="policy serving")
    device: Literal["cpu", "cuda", "mps"] = option(
        "cpu", "Where inference runs.", pending="policy serving"
    )


TRACKERS = ("tensorboard",)
"""Trackers that come with this package."""


@dataclass(frozen=True, slots=True)
class TrackerChoice:
    """A tracker that a spec names, and the options that it is given."""

    name: str
    options: Mapping[str, Any]


def _distinct(trackers: tuple[Any, ...]) -> tuple[Any, ...]:
    names = [each if isinstance(each, str) else each["name"] for each in trackers]
    if len({*names}) < len(names):
        raise ValueError("a tracker is named twice")
    return trackers


def _tracker(entry: Any) -> Any:
    """A name, or a map of a name and options; a map of a name alone is that name."""
    if isinstance(entry, dict) and not isinstance(entry.get("name"), str):
        raise ValueError("a tracker without a name")
    return entry["name"] if isinstance(entry, dict) and len(entry) == 1 else entry


class StoreGroup(OptionGroup):
    """Experiment tracking, besides the files of the run directory."""

    trackers: Annotated[
        tuple[Annotated[Word | PlainMap, AfterValidator(_tracker)], ...],
        BeforeValidator(entries),
        AfterValidator(_distinct),
    ] = option(
        TRACKERS,
        "Where events go: names of trackers, or maps of `name` and a tracker's own options.",
        allowed="a list of up to 20 distinct names of installed trackers, or of maps with `name` "
        "and the tracker's options",
        max_length=20,
    )
    backend: Literal["local", "s3", "mlflow", "wandb"] = option(
        "local",
        "Where experiments are tracked besides the run directory.",
        flag="--backend",
        pending={name: f"the {name} tracker" for name in ("s3", "mlflow", "wandb")},
    )
    tracking_uri: ServerAddress | None = option(
        None, "Address of the tracking server.", flag="--tracking-uri", pending="remote tracking"
    )
    experiment_name: Word | None = option(
        None, "Experiment name at the tracker.", flag="--experiment-name", pending="remote tracking"
    )
    model_dir: Location | None = option(
        None, "Directory that models are copied to.", pending="model export"
    )

    @property
    def chosen_trackers(self) -> tuple[TrackerChoice, ...]:
        """The trackers, each with its options."""
        maps = ({"name": each} if isinstance(each, str) else each for each in self.trackers)
        return tuple(
            TrackerChoice(each["name"], {key: each[key] for key in each if key != "name"})
            for each in maps
        )


class RegistryGroup(OptionGroup):
    """The model registry: a table in the one database."""

    enable: Switch = option(True, "Register kept, evaluated checkpoints.", flag="--registry")
    db_path: DatabaseLocation | None = option(
        None,
        "The database; null is `rlctl.db` in RLCTL_HOME. An address is not written into runs.",
        env="RL_REGISTRY_DB",
        flag="--registry-db",
        repr=False,
    )
    keep_top_n: Whole | None = option(
        None, "Keep only the best n models of the environment when a run ends.", ge=1, le=10**6
    )
    max_age: Number | None = option(
        None, "Drop models of the environment older than so many days when a run ends.", gt=0
    )


class MetricsGroup(OptionGroup):
    """Runtime metrics over OpenTelemetry."""

    enable: Switch = option(False, "Export metrics.", flag="--metrics", pending=OTEL)
    endpoint: ServerAddress | None = option(
        None,
        "Collector endpoint.",
        env="OTEL_EXPORTER_OTLP_ENDPOINT",
        pending=OTEL,
    )
    protocol: Literal["grpc", "http"] = option("grpc", "Wire protocol.", pending=OTEL)
    export_interval: Seconds = option(10.0, "Seconds between exports.", pending=OTEL, gt=0)
    track_reward: Switch = option(True, "Export the reward.", pending=OTEL)
    track_loss: Switch = option(True, "Export the losses.", pending=OTEL)
    track_entropy: Switch = option(True, "Export the entropy.", pending=OTEL)
    track_fps: Switch = option(True, "Export steps per second.", pending=OTEL)


class TracesGroup(OptionGroup):
    """Spans over OpenTelemetry."""

    enable: Switch = option(False, "Export traces.", flag="--traces", pending=OTEL)
    endpoint: ServerAddress | None = option(None, "Collector endpoint.", pending=OTEL)
    sample_rate: Number = option(
        1.0,
        "Share of episodes that are traced.",
        flag="--trace-sample-rate",
        pending=OTEL,
        ge=0,
        le=1,
    )
    trace_episodes: Switch = option(True, "A span for each episode.", pending=OTEL)
    trace_steps: Switch = option(False, "A span for each step: high volume.", pending=OTEL)
    trace_evals: Switch = option(True, "A span for each evaluation.", pending=OTEL)


class LogsGroup(OptionGroup):
    """Log records over OpenTelemetry."""

    enable: Switch = option(False, "Export logs.", flag="--logs", pending=OTEL)
    endpoint: ServerAddress | None = option(None, "Collector endpoint.", pending=OTEL)
    level: Literal["debug", "info", "warn", "error"] = option(
        "info", "Least severe level to export.", flag="--log-level", pending=OTEL
    )
