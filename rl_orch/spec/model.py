"""The Spec as a whole, and the hash that says when two specs learn the same thing."""

import hashlib
import json
from collections.abc import Mapping
from math import gcd
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from rl_orch.errors import BadInput
from rl_orch.spec.groups import (
    MOST_SEEDS,
    AgentGroup,
    BufferGroup,
    CheckpointGroup,
    EnvGroup,
    EvalGroup,
    FeatureGroup,
    GatesGroup,
    ObsGroup,
    OptionGroup,
    RolloutGroup,
    Seeds,
    TrainGroup,
    Word,
    option,
)
from rl_orch.spec.operations import (
    InferGroup,
    LogsGroup,
    MetricsGroup,
    RegistryGroup,
    ResourcesGroup,
    RunnerGroup,
    ScheduleGroup,
    StoreGroup,
    TracesGroup,
)
from rl_orch.spec.spelling import untuned, whole
from rl_orch.spec.start import StartGroup
from rl_orch.spec.tags import ROLES, TAG_FORM, Role, TagMap

NOT_LEARNED = (
    *("name", "seeds", "tags", "parent", "role", "tuned", "resources", "schedule", "infer"),
    *("store", "registry", "metrics", "traces", "logs"),
)
"""Groups and options that do not change the learned policy."""

UNTUNED = "none"
"""The value of `tuned` where no tuned hyperparameters were taken."""

ALIKE = ("native", "sync")
"""Values of `env.backend` that play the same episodes; `auto` becomes one of them."""

ELSEWHERE = {
    "env": {"seed", "info_metrics"},
    "agent": {"discrete", "policy_type"},
    "train": {"off_policy", "report_every", "engine"},
    "buffer": {"memory_share"},
    "checkpoint": {"keep_training_state"},
    "runner": {"silence_s", "stop_grace_s"},
    "start": {"from"},
}
"""Options outside the hash: the seed, those that only state what the user expects, patience, and
where a file is whose digest is in it."""


class Spec(OptionGroup):
    """What is wanted: one resolved specification of a run."""

    spec_version: Annotated[Literal[1], BeforeValidator(whole)] = option(
        1, "Version of this format."
    )
    name: Word | None = option(
        None,
        "A name for people; by default algorithm and environment.",
        max_length=100,
        flag="--name",
        env="RL_NAME",
    )
    seeds: Seeds | None = option(
        None,
        "Launch a group, a run for each seed: n means `env.seed`, `env.seed` + 1, and so on.",
        type=f"whole number in [1, {MOST_SEEDS}] or list of whole numbers",
        allowed=f"a whole number in [1, {MOST_SEEDS}], or a list of up to {MOST_SEEDS} distinct "
        "seeds in [0, 2^32 - 1], e.g. [1, 2, 3]",
    )
    tags: TagMap = option(
        {}, "Names and values to find runs by.", type="map of text", allowed=TAG_FORM
    )
    parent: Word | None = option(
        None, "The run or group that this one belongs to: an id, or what stands for one."
    )
    role: Role | None = option(
        None,
        f"What it is to its parent, such as {', '.join(ROLES)}.",
        allowed="a lower-case letter, then at most 39 of a-z 0-9 -",
    )
    tuned: Annotated[Word, BeforeValidator(untuned)] = option(
        "auto",
        "Tuned hyperparameters below what is asked for: those of the algorithm in the environment, "
        "those that are named, or none at `false`; a resolved spec names those that were taken.",
        type="name",
        allowed="auto, false, or the name of a tuned spec such as ppo-CartPole-v1",
    )
    env: EnvGroup
    start: StartGroup = StartGroup()
    obs: ObsGroup = ObsGroup()
    feature: FeatureGroup = FeatureGroup()
    agent: AgentGroup = AgentGroup()
    train: TrainGroup = TrainGroup()
    rollout: RolloutGroup = RolloutGroup()
    buffer: BufferGroup = BufferGroup()
    eval: EvalGroup = EvalGroup()
    gates: GatesGroup = GatesGroup()
    checkpoint: CheckpointGroup = CheckpointGroup()
    resources: ResourcesGroup = ResourcesGroup()
    schedule: ScheduleGroup = ScheduleGroup()
    runner: RunnerGroup = RunnerGroup()
    infer: InferGroup = InferGroup()
    store: StoreGroup = StoreGroup()
    registry: RegistryGroup = RegistryGroup()
    metrics: MetricsGroup = MetricsGroup()
    traces: TracesGroup = TracesGroup()
    logs: LogsGroup = LogsGroup()

    @property
    def label(self) -> str:
        """The name, or what stands for it."""
        return self.name or f"{self.algo}-{self.env.id}"

    @property
    def algo(self) -> str:
        """What learns: the algorithm, or the runner where a program of its own does."""
        return self.agent.algorithm if self.runner.traits.trains_here else self.runner.name

    @property
    def algorithm_title(self) -> str:
        """The algorithm as a headline says it: `PPO`, or `module:Class` as it is written."""
        name = self.agent.algorithm
        return name if ":" in name else name.upper()

    @property
    def cpus(self) -> int:
        """Cores that the run is to have."""
        return self.resources.cpus or self.resources.threads

    @property
    def gpus(self) -> int:
        """GPUs that the run is to have: enough to see the one that is its device."""
        kind, _, number = self.resources.device.partition(":")
        return max(self.resources.gpus, int(number or 0) + 1 if kind == "cuda" else 0)

    @property
    def members(self) -> "list[Spec]":
        """A spec for each run of the group that is asked for, none where no group is."""
        if self.seeds is None:
            return []
        first, seeds = self.env.seed, self.seeds
        chosen = range(first, first + seeds) if isinstance(seeds, int) else seeds
        return [self.changed({"env.seed": seed, "seeds": None}) for seed in chosen]

    def changed(self, values: Mapping[str, Any]) -> "Spec":
        """The spec with other values, by path. They are not checked."""
        spec = self
        for path, value in values.items():
            spec = _with(spec, path.split("."), value)
        return spec

    @property
    def rollout_size(self) -> int:
        """Transitions in one rollout over all environment copies."""
        return self.env.num_envs * self.rollout.steps

    @property
    def sequence_length(self) -> int:
        """Steps that a policy with a memory is trained through at a time: as many as fit both a
        rollout and a minibatch, if nothing else is asked for."""
        steps = self.rollout.steps
        longest = gcd(steps, self.train.batch_size) if self.agent.algorithm == "ppo" else steps
        return self.train.sequence_length or longest

    @property
    def config_hash(self) -> str:
        """SHA-256 over what changes the learned policy; runs that differ in seed alone share it.

        Values at their defaults are left out, so that a new option changes no hash; a release that
        changes a default raises `spec_version`, which is in it.
        """
        left_out: dict[str, Any] = dict.fromkeys(NOT_LEARNED, True) | ELSEWHERE
        chosen = self.model_dump(mode="json", exclude=left_out, exclude_defaults=True)
        if chosen["env"].get("backend") in ALIKE:
            del chosen["env"]["backend"]
        document = {"spec_version": self.spec_version} | {k: v for k, v in chosen.items() if v}
        canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()


def _with(group: Any, names: list[str], value: Any) -> Any:
    first, *rest = names
    inner = _with(getattr(group, first), rest, value) if rest else value
    return group.model_copy(update={first: inner})


def refuse_no_spec(given: object) -> None:
    """Raise if something else than a Spec was given, such as what one can be made of."""
    if not isinstance(given, Spec):
        raise BadInput(
            f"a Spec is needed here, and this is of type {type(given).__name__}: {given!r:.80}",
            hint="rl_orch.orchestrator.to_spec(cfg) makes one of a mapping or a file.",
        )
