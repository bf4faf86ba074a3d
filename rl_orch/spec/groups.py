"""The groups of a spec that say what is learned: every option with its type, default, bounds and
help, once. YAML paths, variables, flags, JSON Schema and docs are made from them in `options.py`.
Other groups are in `operations.py`; what options mean together is in `checks.py`.
"""

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)

from rl_orch import plugins
from rl_orch.spec.algorithms import BUILT_IN
from rl_orch.spec.part_traits import COLLECTORS, ENGINES, USUAL_COLLECTOR
from rl_orch.spec.spelling import (
    auto,
    entries,
    frequency,
    limits,
    lower,
    nonlinearity,
    number,
    pair,
    plain_map,
    seconds,
    seeds,
    sizes,
    stepping,
    strategy,
    switch,
    whole,
    words,
)
from rl_orch.spec.wrappers import FORM, WrapperChoice, choice, wrapper

Whole = Annotated[int, BeforeValidator(whole)]
Number = Annotated[float, BeforeValidator(number), Field(allow_inf_nan=False)]
Seconds = Annotated[float, BeforeValidator(seconds), Field(allow_inf_nan=False)]
Switch = Annotated[bool, BeforeValidator(switch)]
ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]*$"
"""No control characters, and none that end a line or turn the direction of reading."""
Word = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=ONE_LINE)]
Location = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=ONE_LINE)]
Text = Annotated[str, StringConstraints(max_length=10_000, pattern=r"^[^\x00]*$")]
Alias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,99}$")]
"""A name that the registry gives to one model of an environment, such as `production`."""
ALIAS_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
BEST, LAST = "best", "last"
RESERVED = (BEST, LAST)
"""Words that mean something else where runs and models are named."""
ALIAS_FORM = (
    "must be a lower-case letter, then at most 63 of a-z 0-9 . _ -, and not "
    f"{' or '.join(RESERVED)}"
)
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
ENCODERS = ("auto", "mlp", "cnn", "impala", "transformer", "gru", "lstm")
"""Encoders that come with this package; `auto` follows the observations."""

NumberOrAuto = Annotated[
    Annotated[float, Field(allow_inf_nan=False)] | Literal["auto"], BeforeValidator(auto)
]
Schedule = Annotated[Literal["constant", "linear", "cosine"], BeforeValidator(lower)]
OTEL = "OpenTelemetry export"


def _algorithm(name: str) -> str:
    return _installed("algorithms", name, BUILT_IN)


def _encoder(name: str) -> str:
    return _installed("encoders", name, ENCODERS)


def _collector(name: str) -> str:
    return _installed("collectors", name, tuple(COLLECTORS))


def _engine(name: str) -> str:
    return _installed("engines", name, tuple(ENGINES))


def _installed(kind: str, name: str, built_in: Iterable[str]) -> str:
    """The name of one of ours, in any case, or of a plugin, or `module:Class`; nothing else."""
    if lower(name) in built_in:
        return str(lower(name))
    if name not in plugins.names(kind) and not plugins.is_importable(name):
        raise ValueError(f"no {kind} of that name")
    return name


def option(
    default: Any,
    help: str,
    *,
    flag: str | None = None,
    env: str | None = None,
    type: str | None = None,
    allowed: str | None = None,
    choices: Iterable[str] | None = None,
    pending: str | dict[str, str] | None = None,
    live: bool = False,
    **bounds: Any,
) -> Any:
    """A field of a group.

    `flag` and `env` replace the names that the path would give, `type` and `allowed` what its
    annotation would say of itself; `choices` are names that are always there, where plugins add
    others. `pending` names the part that will read the option, or maps each value that waits for a
    part to that part's name. A `live` one may be set while a run goes on.
    """
    listed = None if choices is None else list(choices)
    names: dict[str, Any] = {"flag": flag, "env": env, "words": type, "allowed": allowed}
    names |= {"choices": listed, "pending": pending, "live": live or None}
    extra: Any = {key: value for key, value in names.items() if value is not None}
    return Field(default, description=help, json_schema_extra=extra or None, **bounds)


live = partial(option, live=True)
"""A field that may be set while a run goes on."""


class OptionGroup(BaseModel):
    """A frozen set of options; unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class EnvGroup(OptionGroup):
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
    backend: Annotated[Word, BeforeValidator(stepping)] = option(
        "auto",
        "How copies are stepped: `native` (kernels, for classic control), `sync`, `async` (a "
        "process each), `vector` (the environment's own vector form), `envpool` (EnvPool's "
        "threads), or a vector-env plugin; `auto` is native where it can, else sync.",
    )
    max_episode_steps: Whole | None = option(
        None,
        "Cut episodes after so many steps; null keeps the environment's own limit.",
        ge=1,
        le=STEPS,
    )
    kwargs: PlainMap = option({}, "Keyword arguments for the environment's constructor.")
    wrappers: Annotated[
        tuple[Annotated[Word | PlainMap, BeforeValidator(wrapper)], ...], BeforeValidator(entries)
    ] = option(
        (),
        "Wrappers around each copy, the innermost first: Gymnasium's by class name, others as "
        "`module:Class`, or maps of `name` and arguments.",
        allowed=FORM,
        max_length=100,
    )

    info_metrics: Annotated[tuple[Word, ...], BeforeValidator(words)] = option(
        (),
        "Keys of `info` whose last value in each episode is a metric, besides success "
        "(`is_success`) and reward terms (`reward_…`), which always are.",
        allowed="a list of up to 100 keys of info",
        max_length=100,
    )

    @property
    def chosen_wrappers(self) -> tuple[WrapperChoice, ...]:
        """The wrappers, each with its arguments."""
        return tuple(map(choice, self.wrappers))


class ObsGroup(OptionGroup):
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


class FeatureGroup(OptionGroup):
    """From processed observations to features."""

    encoder: Annotated[Word, AfterValidator(_encoder)] = option(
        "auto",
        "What turns observations into features; `auto` takes an MLP for vectors, a CNN for images.",
        type="name",
        allowed=f"one of {', '.join(ENCODERS)}, or the name of an installed encoder plugin",
        choices=ENCODERS,
    )
    embed_dim: Whole | None = option(
        None, "Width of the feature vector; null is the encoder's own.", ge=1, le=16384
    )
    options: PlainMap = option({}, "Options of an encoder that is a plugin.")


Sizes = Annotated[
    tuple[Annotated[Whole, Field(ge=1, le=16384)], ...],
    Field(max_length=32),
    BeforeValidator(sizes),
]


class NetworkGroup(OptionGroup):
    """The layers behind the policy and the value function."""

    hidden_sizes: Sizes = option(
        (64, 64),
        "Width of each hidden layer.",
        allowed="a list of up to 32 whole numbers in [1, 16384], e.g. [64, 64]",
    )
    activation: Annotated[
        Literal["tanh", "relu", "elu", "gelu", "silu"], BeforeValidator(nonlinearity)
    ] = option("tanh", "Non-linearity between layers.")
    shared: Switch = option(False, "One trunk for policy and value instead of two networks.")
    ortho_init: Switch = option(True, "Orthogonal initialisation with the usual gains.")
    log_std_init: Number = option(
        0.0, "Initial log standard deviation of Gaussian actions.", ge=-20, le=4
    )
    critic_hidden_sizes: Sizes | None = option(
        None,
        "Width of each hidden layer of critics that judge continuous actions; null is "
        "hidden_sizes.",
        allowed="a list of up to 32 whole numbers in [1, 16384], e.g. [256, 256]",
    )
    n_critics: Whole = option(2, "TQC's critics.", ge=1, le=100)
    dueling: Switch = option(False, "Q-values as state value plus advantages (dueling network).")


class AgentGroup(OptionGroup):
    """The algorithm and its policy."""

    algorithm: Annotated[Word, AfterValidator(_algorithm)] = option(
        "ppo",
        "The learning algorithm; unset options take the defaults of the algorithm.",
        flag="--algo",
        type="name",
        allowed=f"one of {', '.join(BUILT_IN)}, or the name of an installed algorithm plugin",
        choices=BUILT_IN,
    )
    policy_type: Literal["MlpPolicy", "CnnPolicy", "MultiInputPolicy"] | None = option(
        None,
        "Your expectation of the policy, in Stable-Baselines3's words; checked against the "
        "environment.",
    )
    network: NetworkGroup = NetworkGroup()
    discrete: Switch | None = option(
        None, "Your expectation that actions are discrete; checked against the environment."
    )
    action_masks: Switch = option(
        False,
        "Take only actions that the environment allows, by `info['action_mask']` or "
        "`action_masks()`.",
    )
    options: PlainMap = option({}, "Options of an algorithm that is a plugin.")


class ObserverChoice(NamedTuple):
    """An observer that a spec names, and its keyword arguments."""

    name: str
    kwargs: Mapping[str, Any]


def _observer(entry: Any) -> Any:
    """A name, or a map of a name and arguments; a map of a name alone is that name."""
    if isinstance(entry, dict) and not isinstance(entry.get("name"), str):
        raise ValueError("an observer without a name")
    return entry["name"] if isinstance(entry, dict) and len(entry) == 1 else entry


class TrainGroup(OptionGroup):
    """The training budget and the algorithm's hyperparameters."""

    total_timesteps: Whole = live(
        100_000,
        "Environment steps to train for, all copies counted.",
        flag="--total-timesteps",
        ge=1,
        le=STEPS,
    )
    lr: Number = live(3e-4, "Learning rate.", flag="--lr", gt=0, le=10)
    lr_schedule: Schedule = option("constant", "How the learning rate falls to zero over the run.")
    optimizer: Annotated[Literal["adam", "rmsprop"], BeforeValidator(lower)] = option(
        "adam", "How gradients become steps."
    )
    adam_eps: Number = option(1e-5, "The optimiser's epsilon.", gt=0)
    adam_beta1: Number = option(0.9, "Decay of Adam's first moment.", ge=0, lt=1)
    max_grad_norm: Number | None = option(
        0.5, "Gradients are scaled down to this norm; null leaves them.", gt=0
    )
    batch_size: Whole = option(
        64, "Transitions in one minibatch.", flag="--batch-size", ge=1, le=10**9
    )
    gamma: Number = option(0.99, "Discount factor.", flag="--gamma", gt=0, le=1)
    normalize_reward: Switch = option(
        False, "Divide rewards by the running deviation of the discounted return."
    )
    clip_reward: Annotated[tuple[Number, Number] | None, BeforeValidator(pair)] = option(
        None, "Clip rewards, after normalisation, to `[low, high]`; `c` means `[-c, c]`."
    )
    gae_lambda: Number = option(0.95, "Lambda of generalised advantage estimation.", ge=0, le=1)
    update_epochs: Whole = option(10, "PPO's passes over each rollout.", ge=1, le=1000)
    clip_range: Number = live(0.2, "PPO's clip of the probability ratio.", gt=0, le=10)
    clip_schedule: Schedule = option("constant", "How PPO's clip falls to zero over the run.")
    clip_range_vf: Number | None = live(
        None, "Clip of the value update; null leaves it free.", gt=0
    )
    normalize_advantage: Switch = option(True, "Standardise advantages in each minibatch.")
    ent_coef: NumberOrAuto = live(
        0.0,
        "Weight of the entropy bonus; the temperature of SAC, TQC and CrossQ, which `auto` learns.",
        type="number ≥ 0 or auto",
        allowed="a finite number ≥ 0, or auto",
    )
    vf_coef: Number = live(0.5, "Weight of the value loss.", ge=0)
    target_kl: Number | None = live(
        None, "Stop the passes over a rollout once the policy has moved this far.", gt=0
    )
    sequence_length: Whole | None = option(
        None,
        "Steps that a recurrent policy is trained through at a time; null is as many as fit.",
        ge=1,
        le=10**6,
    )
    learning_starts: Whole = option(
        100, "Environment steps to take at random before learning begins.", ge=0, le=STEPS
    )
    gradient_steps: Whole = option(
        1, "Updates after each collection; -1 is one for each transition.", ge=-1, le=10**6
    )
    tau: Number = option(
        0.005, "Share of the weights that target networks take over at a time.", gt=0, le=1
    )
    target_update_interval: Whole = option(
        10_000, "Environment steps between updates of DQN's target network.", ge=1, le=STEPS
    )
    double_q: Switch = option(False, "Choose the next action by the online network (double DQN).")
    n_quantiles: Whole = option(
        200, "Quantiles of the return that QR-DQN, or each critic of TQC, learns.", ge=1, le=10_000
    )
    top_quantiles_to_drop_per_net: Whole = option(
        2, "Highest quantiles that TQC's target leaves out, for each critic.", ge=0, le=10_000
    )
    exploration_initial_eps: Number = option(
        1.0, "Share of random actions at the beginning.", ge=0, le=1
    )
    exploration_final_eps: Number = option(0.05, "Share of random actions at the end.", ge=0, le=1)
    exploration_fraction: Number = option(
        0.1, "Part of the run over which the share of random actions falls.", ge=0, le=1
    )
    exploration_schedule: Schedule = option("linear", "How the share of random actions falls.")
    policy_delay: Whole = option(
        2, "Critic updates for each policy update of TD3 and CrossQ.", ge=1, le=1000
    )
    target_policy_noise: Number = option(
        0.2, "Deviation of the noise on TD3's target actions, which are in [-1, 1].", ge=0, le=10
    )
    target_noise_clip: Number = option(0.5, "Bound of that noise.", ge=0, le=10)
    action_noise: Number = option(
        0.1, "Deviation of TD3's exploration noise, on actions in [-1, 1].", ge=0, le=10
    )
    target_entropy: NumberOrAuto = option(
        "auto",
        "Entropy that the temperature aims at; `auto` is minus the number of action components.",
        type="number or auto",
        allowed="a finite number, or auto",
    )
    use_sde: Switch = option(
        False, "Explore by noise that depends on the state (gSDE) instead of fresh noise each step."
    )
    sde_sample_freq: Whole = option(
        -1,
        "Steps between new draws of gSDE's noise; -1 draws once an episode and each rollout.",
        ge=-1,
        le=10**7,
    )
    engine: Annotated[Word, AfterValidator(_engine)] = option(
        "auto",
        "What trains: `kernels`, fused CPU code for small networks, or `torch`; `auto` is kernels "
        "where they can. Or a plugin.",
        type="name",
        allowed=f"one of {', '.join(ENGINES)}, or the name of an installed engine plugin",
        choices=tuple(ENGINES),
    )
    precision: Annotated[Literal["float32", "bfloat16"], BeforeValidator(lower)] = option(
        "float32", "Number format of the networks' passes; bfloat16 pays on hardware that has it."
    )
    compile: Switch = option(
        False, "Compile the networks with torch.compile; pays for large ones, after a minute."
    )
    report_every: Whole = option(
        1, "Environment steps between reports of losses, which are then means.", ge=1, le=STEPS
    )
    observers: Annotated[
        tuple[Annotated[Word | PlainMap, AfterValidator(_observer)], ...], BeforeValidator(entries)
    ] = option(
        (),
        "Callbacks: plugins (`rl_orch.observers`) that hear what the training does, in this order; "
        "names, or maps of `name` and arguments.",
        allowed="a list of up to 100 names, of an installed observer plugin or as `module:Class`, "
        "or of maps with `name` and its arguments",
        max_length=100,
    )
    off_policy: Switch | None = option(
        None, "Your expectation that the algorithm is off-policy; checked against it."
    )

    @property
    def chosen_observers(self) -> tuple[ObserverChoice, ...]:
        """The observers, each with its arguments."""
        return tuple(ObserverChoice(each.name, each.kwargs) for each in map(choice, self.observers))


class RolloutGroup(OptionGroup):
    """How much experience is collected between updates."""

    steps: Annotated[int, BeforeValidator(frequency)] = option(
        256, "Steps of every environment copy in one rollout.", ge=1, le=10**7
    )
    overlap: Switch = option(
        False,
        "Collect the next rollout while PPO learns from the last one, by the policy before that "
        "update.",
    )
    collector: Annotated[Word, AfterValidator(_collector)] = option(
        USUAL_COLLECTOR,
        "What steps the environment copies: `local`, in this process; `overlapped`, as "
        "`rollout.overlap`; or a plugin.",
        type="name",
        allowed=f"one of {', '.join(COLLECTORS)}, or the name of an installed collector plugin",
        choices=tuple(COLLECTORS),
    )


class BufferGroup(OptionGroup):
    """Experience that off-policy algorithms keep and draw from."""

    size: Whole = option(
        1_000_000, "Transitions that are kept.", flag="--buffer-size", ge=2, le=10**10
    )
    n_step: Whole = option(
        1, "Rewards that are added up before the value of the next state.", ge=1, le=1000
    )
    prioritized: Switch = option(False, "Draw what was predicted badly more often.")
    alpha: Number = option(0.6, "How strongly priorities count; 0 is not at all.", ge=0, le=1)
    beta: Number = option(
        0.4, "Correction for the priorities at the beginning; it rises to 1.", ge=0, le=1
    )
    her_strategy: Annotated[
        Literal["future", "final", "episode"] | None, BeforeValidator(lower)
    ] = option(
        None,
        "Hindsight experience replay: draw transitions as if what a later step of the episode "
        "reached (`future`), any (`episode`) or the last (`final`) had been the goal; null does "
        "not.",
        flag="--her",
    )
    her_k: Number = option(
        4.0, "Transitions with another goal for each one with its own.", gt=0, le=1000
    )
    memory_share: Number = option(
        0.5, "Share of the memory above which the buffer is mapped to a file.", gt=0, le=1
    )


class EvalGroup(OptionGroup):
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
    every: Whole = live(10_000, "Environment steps between evaluations.", ge=1, le=STEPS)
    deterministic: Switch = option(
        True, "Take the policy's most likely action instead of a sampled one."
    )
    seed: Whole | None = option(
        None,
        "Seed that those of all evaluation episodes derive from; null takes the run's seed.",
        ge=0,
        le=LAST_SEED,
    )
    max_episode_steps: Whole | None = option(
        None,
        "Cut evaluation episodes after so many steps; null cuts them after 10,000 where the "
        "environment has no limit of its own.",
        ge=1,
        le=STEPS,
    )
    metrics: Annotated[tuple[Word, ...], BeforeValidator(words)] = option(
        (),
        "Plugins of kind `metrics` that the final evaluation asks about each episode.",
        allowed="a list of up to 100 names of installed metrics plugins",
        max_length=100,
    )
    video: Switch = option(
        False,
        "Film the best episode of the final evaluation, after training: `videos/final-best.mp4`.",
    )


class GatesGroup(OptionGroup):
    """What a policy must show before it counts as validated. No rule set: no verdict."""

    min_return: Number | None = live(
        None,
        "Least return that the lower bound of the 95 % interval must reach.",
        flag="--min-return",
        env="RL_REGISTRY_MIN_REWARD",
    )
    min_episodes: Whole | None = live(
        None,
        "Least number of episodes' worth of training steps.",
        flag="--min-episodes",
        env="RL_REGISTRY_MIN_EPISODES",
        ge=0,
        le=STEPS,
    )
    stability: Switch = live(
        True,
        "With one of the three around it set, also ask for a deviation below half the mean "
        "(means above zero).",
    )
    max_std: Number | None = live(
        None,
        "Largest deviation of returns for means not above zero; for all, if `stability` is off.",
        ge=0,
    )
    min_success_rate: Number | None = live(
        None,
        "Least success rate (`info['is_success']`) that the lower bound of the 95 % interval must "
        "reach.",
        ge=0,
        le=1,
    )
    metrics: Annotated[dict[str, Text], BeforeValidator(limits)] = live(
        {},
        "What the bound of each metric of the evaluation must reach, by name: `>= 3` is read on "
        "the lower bound, `<= 0.5` on the upper one.",
        type="map of limits",
        allowed="a map of names of metrics to limits such as '>= 3' or '<= 0.5'; a number is a "
        "least one",
    )
    converged: Switch = live(
        False, "Ask that returns no longer clearly rise or fall in the last third of training."
    )
    no_regression: Alias | None = live(
        None, "Alias of the model that the policy may be no worse than, by more than the `margin`."
    )
    margin: Number | None = live(
        None, "Loss of return against the model at `no_regression` that is acceptable.", ge=0
    )
    improvement: Alias | None = live(
        None, "Alias of the model that the policy must be better than."
    )
    max_latency_ms: Number | None = live(
        None, "Longest that 99 of 100 decisions on one observation may take.", gt=0
    )
    max_bundle_mb: Number | None = live(
        None, "Largest size of the exported bundle, in megabytes.", gt=0
    )
    guardrail_clean: Switch = live(False, "Ask that no guardrail spoke up during the run.")
    export_parity: Switch = live(
        False, "Ask that every exported form acts as the policy does, on real observations."
    )
    patience: Whole | None = live(
        None, "Stop after so many evaluations in a row that fail the gate.", ge=1, le=10**6
    )
    stop_when_solved: Switch = live(
        False, "Stop as soon as an evaluation during training passes the gate."
    )


class CheckpointGroup(OptionGroup):
    """When training state is saved. Every evaluation saves one in any case."""

    every: Whole | None = live(
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
    keep_training_state: Annotated[Literal["until_final", "always"], BeforeValidator(lower)] = (
        option(
            "until_final",
            "Once the run has succeeded: let go of the replay buffer and of all but the newest and "
            "the best checkpoint, or keep all.",
        )
    )
