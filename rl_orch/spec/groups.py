"""The groups of a spec: every option with its type, default, bounds and help, once. YAML paths,
variables, flags, JSON Schema and docs are made from them in `options.py`. What options mean
together is in `checks.py`.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from rl_orch.spec.spelling import (
    lower,
    number,
    pair,
    plain_map,
    seeds,
    strategy,
    switch,
    whole,
    words,
)

Whole = Annotated[int, BeforeValidator(whole)]
Number = Annotated[float, BeforeValidator(number), Field(allow_inf_nan=False)]
Switch = Annotated[bool, BeforeValidator(switch)]
ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]*$"
"""No control characters, and none that end a line or turn the direction of reading."""
Word = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=ONE_LINE)]
Location = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=ONE_LINE)]
Text = Annotated[str, StringConstraints(max_length=10_000, pattern=r"^[^\x00]*$")]
Arguments = Annotated[tuple[Text, ...], BeforeValidator(words)]
ARGUMENTS = 'a list of words, e.g. ["python", "train.py"]'
PlainMap = Annotated[dict[str, Any], BeforeValidator(plain_map)]

LAST_SEED = 2**32 - 1
MOST_SEEDS = 1000
"""Runs that one group may have."""
Seeds = Annotated[
    Annotated[int, Field(ge=1, le=MOST_SEEDS)]
    | Annotated[
        tuple[Annotated[int, Field(ge=0, le=LAST_SEED)], ...],
        Field(min_length=1, max_length=MOST_SEEDS),
    ],
    BeforeValidator(seeds),
]

STEPS = 10**13
"""More environment steps than any run will take; they still fit every database."""
ENCODERS = "the encoder library"
OTEL = "OpenTelemetry export"


def option(
    default: Any,
    help: str,
    *,
    flag: str | None = None,
    env: str | None = None,
    type: str | None = None,
    allowed: str | None = None,
    pending: str | dict[str, str] | None = None,
    **bounds: Any,
) -> Any:
    """A field of a group.

    `flag` and `env` replace the names that the path would give, `type` and `allowed` what its
    annotation would say of itself. `pending` names the part that will read the option, or maps
    each value that waits for a part to that part's name.
    """
    names = {"flag": flag, "env": env, "words": type, "allowed": allowed, "pending": pending}
    extra: Any = {key: value for key, value in names.items() if value is not None}
    return Field(default, description=help, json_schema_extra=extra or None, **bounds)


class Group(BaseModel):
    """A frozen set of options; unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class EnvGroup(Group):
    """The environment and how many copies of it are stepped together."""

    id: Word = option(
        ..., "Gymnasium id, or `module:Id-v0` to import a module of yours first.", flag="--env"
    )
    num_envs: Whole = option(
        8, "Copies of the environment stepped together.", flag="--num-envs", ge=1, le=65536
    )
    seed: Whole = option(
        42,
        "The run's seed; every random number follows from it.",
        flag="--seed",
        ge=0,
        le=LAST_SEED,
    )
    backend: Word = option(
        "sync", "How copies are stepped: `sync`, `async` (a process each), or a vector-env plugin."
    )
    max_episode_steps: Whole | None = option(
        None,
        "Cut episodes after so many steps; null keeps the environment's own limit.",
        ge=1,
        le=STEPS,
    )
    kwargs: PlainMap = option({}, "Keyword arguments for the environment's constructor.")


class ObsGroup(Group):
    """What happens to observations before the policy sees them."""

    normalize: Annotated[Literal["none", "running"], BeforeValidator(strategy)] = option(
        "none", "`running` subtracts the running mean and divides by the running deviation."
    )
    clip_range: Annotated[tuple[Number, Number] | None, BeforeValidator(pair)] = option(
        None,
        "Clip observations, after normalisation, to `[low, high]`; `c` means `[-c, c]`.",
    )
    stack_frames: Whole | None = option(
        None, "Show the policy the last k observations instead of one.", ge=2, le=64
    )


class FeatureGroup(Group):
    """From processed observations to features."""

    encoder: Annotated[
        Literal["mlp", "cnn", "transformer", "gru", "lstm", "custom"], BeforeValidator(lower)
    ] = option(
        "mlp",
        "The network that turns observations into features.",
        pending=dict.fromkeys(("cnn", "transformer", "gru", "lstm", "custom"), ENCODERS),
    )
    embed_dim: Whole | None = option(
        None, "Width of the feature vector.", pending=ENCODERS, ge=1, le=16384
    )


class NetworkGroup(Group):
    """The layers behind the policy and the value function."""

    hidden_sizes: tuple[Annotated[Whole, Field(ge=1, le=16384)], ...] = option(
        (64, 64),
        "Width of each hidden layer.",
        allowed="a list of up to 32 whole numbers in [1, 16384], e.g. [64, 64]",
        max_length=32,
    )
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = option(
        "tanh", "Non-linearity between layers."
    )
    shared: Switch = option(False, "One trunk for policy and value instead of two networks.")
    ortho_init: Switch = option(True, "Orthogonal initialisation with the usual gains.")
    log_std_init: Number = option(
        0.0, "Initial log standard deviation of Gaussian actions.", ge=-20, le=4
    )


class AgentGroup(Group):
    """The algorithm and its policy."""

    algorithm: Annotated[
        Literal["ppo", "a2c", "dqn", "qrdqn", "sac", "td3"], BeforeValidator(lower)
    ] = option(
        "ppo",
        "The learning algorithm.",
        flag="--algo",
        pending={name: f"the algorithm {name}" for name in ("a2c", "dqn", "qrdqn", "sac", "td3")},
    )
    policy_type: Literal["MlpPolicy", "CnnPolicy", "MultiInputPolicy"] = option(
        "MlpPolicy",
        "The kind of policy, by the names that Stable-Baselines3 users know.",
        pending=dict.fromkeys(("CnnPolicy", "MultiInputPolicy"), ENCODERS),
    )
    network: NetworkGroup = NetworkGroup()
    discrete: Switch | None = option(
        None, "Your expectation that actions are discrete; checked against the environment."
    )


class TrainGroup(Group):
    """The training budget and the algorithm's hyperparameters."""

    total_timesteps: Whole = option(
        100_000,
        "Environment steps to train for, all copies counted.",
        flag="--total-timesteps",
        ge=1,
        le=STEPS,
    )
    lr: Number = option(3e-4, "Learning rate.", flag="--lr", gt=0, le=10)
    lr_schedule: Literal["constant", "linear", "cosine"] = option(
        "constant", "How the learning rate falls to zero over the run."
    )
    batch_size: Whole = option(
        64, "Transitions in one minibatch.", flag="--batch-size", ge=1, le=10**9
    )
    gamma: Number = option(0.99, "Discount factor.", flag="--gamma", gt=0, le=1)
    gae_lambda: Number = option(0.95, "Lambda of generalised advantage estimation.", ge=0, le=1)
    update_epochs: Whole = option(10, "Passes over each rollout.", ge=1, le=1000)
    clip_range: Number = option(0.2, "PPO's clip of the probability ratio.", gt=0, le=10)
    clip_range_vf: Number | None = option(
        None, "Clip of the value update; null leaves it free.", gt=0
    )
    normalize_advantage: Switch = option(True, "Standardise advantages in each minibatch.")
    ent_coef: Number = option(0.0, "Weight of the entropy bonus.", ge=0)
    vf_coef: Number = option(0.5, "Weight of the value loss.", ge=0)
    max_grad_norm: Number | None = option(
        0.5, "Gradients are scaled down to this norm; null leaves them.", gt=0
    )
    target_kl: Number | None = option(
        None, "Stop the passes over a rollout once the policy has moved this far.", gt=0
    )
    adam_eps: Number = option(1e-5, "Adam's epsilon.", gt=0)
    off_policy: Switch | None = option(
        None, "Your expectation that the algorithm is off-policy; checked against it."
    )


class RolloutGroup(Group):
    """How much experience is collected between updates."""

    steps: Whole = option(256, "Steps of every environment copy in one rollout.", ge=1, le=10**7)


class EvalGroup(Group):
    """Evaluation: during training to watch it, and once at the end to judge it."""

    episodes: Whole = option(
        10, "Episodes of each evaluation during training.", flag="--eval-episodes", ge=1, le=100_000
    )
    final_episodes: Whole = option(
        100,
        "Episodes of the final evaluation, on seeds never used before; at least 10 with a gate.",
        ge=1,
        le=100_000,
    )
    every: Whole = option(10_000, "Environment steps between evaluations.", ge=1, le=STEPS)
    deterministic: Switch = option(
        True, "Take the policy's most likely action instead of a sampled one."
    )
    seed: Whole | None = option(
        None,
        "Seed that those of all evaluation episodes derive from; null takes the run's seed.",
        ge=0,
        le=LAST_SEED,
    )


class GatesGroup(Group):
    """What a policy must show before it counts as validated. No rule set: no verdict."""

    min_return: Number | None = option(
        None,
        "Least return that the lower bound of the 95 % interval must reach.",
        flag="--min-reward",
        env="RL_REGISTRY_MIN_REWARD",
    )
    min_episodes: Whole | None = option(
        None,
        "Least number of episodes' worth of training steps.",
        flag="--min-episodes",
        env="RL_REGISTRY_MIN_EPISODES",
        ge=0,
        le=STEPS,
    )
    stability: Switch = option(
        True,
        "With another rule set, also ask for a deviation below half the mean (means above zero).",
    )
    max_std: Number | None = option(
        None,
        "Largest deviation of returns for means not above zero; for all, if `stability` is off.",
        ge=0,
    )
    patience: Whole | None = option(
        None, "Stop after so many evaluations in a row that fail the gate.", ge=1, le=10**6
    )
    stop_when_solved: Switch = option(
        False, "Stop as soon as an evaluation during training passes the gate."
    )


class CheckpointGroup(Group):
    """When training state is saved. Every evaluation saves one in any case."""

    every: Whole | None = option(
        None,
        "Also save every so many environment steps.",
        env="RL_STORE_CHECKPOINT_FREQ",
        flag="--checkpoint-freq",
        ge=1,
        le=STEPS,
    )
    keep_last: Whole = option(
        3, "How many of the newest to keep; the best one is always kept.", ge=1, le=100_000
    )


class ResourcesGroup(Group):
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


class ScheduleGroup(Group):
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
    backoff_s: Number = option(
        1.0, "Seconds before the first retry; each further one waits twice as long.", ge=0, le=3600
    )


class RunnerGroup(Group):
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
    silence_s: Number = option(
        120.0,
        "Seconds without a sign of life from its root after which a run is taken for hung.",
        gt=0,
        le=10**6,
    )
    stop_grace_s: Number = option(
        120.0, "Seconds that a run may take to end when asked, before it is killed.", gt=0, le=86400
    )


class InferGroup(Group):
    """Serving a trained policy."""

    model_path: Location | None = option(None, "Path of a trained model.", pending="policy serving")
    device: Literal["cpu", "cuda", "mps"] = option(
        "cpu", "Where inference runs.", pending="policy serving"
    )


class StoreGroup(Group):
    """Experiment tracking. Local files and TensorBoard are always written."""

    backend: Literal["local", "s3", "mlflow", "wandb"] = option(
        "local",
        "Where experiments are tracked besides the run directory.",
        flag="--backend",
        pending={name: f"the {name} tracker" for name in ("s3", "mlflow", "wandb")},
    )
    tracking_uri: Location | None = option(
        None, "Address of the tracking server.", flag="--tracking-uri", pending="remote tracking"
    )
    experiment_name: Word | None = option(
        None, "Experiment name at the tracker.", flag="--experiment-name", pending="remote tracking"
    )
    model_dir: Location | None = option(
        None, "Directory that models are copied to.", pending="model export"
    )


class RegistryGroup(Group):
    """The model registry: a table in the one database."""

    enable: Switch = option(True, "Register kept, evaluated checkpoints.", flag="--registry")
    db_path: Location | None = option(
        None,
        "The database; null is `rlctl.db` in RLCTL_HOME.",
        env="RL_REGISTRY_DB",
        flag="--registry-db",
    )
    keep_top_n: Whole | None = option(
        None, "Keep only the best n models.", pending="registry retention", ge=1, le=10**6
    )
    max_age: Number | None = option(
        None, "Drop models older than so many days.", pending="registry retention", gt=0
    )


class MetricsGroup(Group):
    """Runtime metrics over OpenTelemetry."""

    enable: Switch = option(False, "Export metrics.", flag="--metrics", pending=OTEL)
    endpoint: Location | None = option(
        None,
        "Collector endpoint.",
        env="OTEL_EXPORTER_OTLP_ENDPOINT",
        pending=OTEL,
    )
    protocol: Literal["grpc", "http"] = option("grpc", "Wire protocol.", pending=OTEL)
    export_interval: Number = option(10.0, "Seconds between exports.", pending=OTEL, gt=0)
    track_reward: Switch = option(True, "Export the reward.", pending=OTEL)
    track_loss: Switch = option(True, "Export the losses.", pending=OTEL)
    track_entropy: Switch = option(True, "Export the entropy.", pending=OTEL)
    track_fps: Switch = option(True, "Export steps per second.", pending=OTEL)


class TracesGroup(Group):
    """Spans over OpenTelemetry."""

    enable: Switch = option(False, "Export traces.", flag="--traces", pending=OTEL)
    endpoint: Location | None = option(None, "Collector endpoint.", pending=OTEL)
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


class LogsGroup(Group):
    """Log records over OpenTelemetry."""

    enable: Switch = option(False, "Export logs.", flag="--logs", pending=OTEL)
    endpoint: Location | None = option(None, "Collector endpoint.", pending=OTEL)
    level: Literal["debug", "info", "warn", "error"] = option(
        "info", "Least severe level to export.", flag="--log-level", pending=OTEL
    )
