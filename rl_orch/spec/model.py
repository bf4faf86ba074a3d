"""The Spec as a whole, and the hash that says when two specs learn the same thing."""

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from rl_orch.spec.groups import (
    AgentGroup,
    CheckpointGroup,
    EnvGroup,
    EvalGroup,
    FeatureGroup,
    GatesGroup,
    Group,
    InferGroup,
    LogsGroup,
    MetricsGroup,
    ObsGroup,
    RegistryGroup,
    ResourcesGroup,
    RolloutGroup,
    StoreGroup,
    TracesGroup,
    TrainGroup,
    Word,
    option,
)
from rl_orch.spec.spelling import whole

NOT_LEARNED = ("name", "resources", "infer", "store", "registry", "metrics", "traces", "logs")
"""Groups that do not change the learned policy."""

EXPECTATIONS = {"env": {"seed"}, "agent": {"discrete"}, "train": {"off_policy"}}
"""Options outside the hash: the seed, and those that only state what the user expects."""


class Spec(Group):
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
    env: EnvGroup
    obs: ObsGroup = ObsGroup()
    feature: FeatureGroup = FeatureGroup()
    agent: AgentGroup = AgentGroup()
    train: TrainGroup = TrainGroup()
    rollout: RolloutGroup = RolloutGroup()
    eval: EvalGroup = EvalGroup()
    gates: GatesGroup = GatesGroup()
    checkpoint: CheckpointGroup = CheckpointGroup()
    resources: ResourcesGroup = ResourcesGroup()
    infer: InferGroup = InferGroup()
    store: StoreGroup = StoreGroup()
    registry: RegistryGroup = RegistryGroup()
    metrics: MetricsGroup = MetricsGroup()
    traces: TracesGroup = TracesGroup()
    logs: LogsGroup = LogsGroup()

    @property
    def label(self) -> str:
        """The name, or what stands for it."""
        return self.name or f"{self.agent.algorithm}-{self.env.id}"

    @property
    def rollout_size(self) -> int:
        """Transitions in one rollout over all environment copies."""
        return self.env.num_envs * self.rollout.steps

    @property
    def config_hash(self) -> str:
        """SHA-256 over what changes the learned policy; runs that differ in seed alone share it.

        Values at their defaults are left out, so that a new option changes no hash; a release that
        changes a default raises `spec_version`, which is in it.
        """
        left_out: dict[str, Any] = dict.fromkeys(NOT_LEARNED, True) | EXPECTATIONS
        chosen = self.model_dump(mode="json", exclude=left_out, exclude_defaults=True)
        document = {"spec_version": self.spec_version} | {k: v for k, v in chosen.items() if v}
        canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()
