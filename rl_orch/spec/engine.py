"""What a spec leaves open and rules settle: which engine trains, kernels where they can, and
what steps the environment. What a spec alone says of it."""

from collections.abc import Mapping

from rl_orch.spec.algorithms import BUILT_IN
from rl_orch.spec.model import Spec

ACTIVATIONS = ("tanh", "relu")
WIDEST = 512
"""The widest layer for which kernels are chosen where there are several threads."""


def why_not(spec: Spec) -> str | None:
    """Why kernels cannot train what a spec asks for, as the end of a sentence; None if they can,
    as far as the spec tells."""
    reasons = {
        f"agent.algorithm is {spec.agent.algorithm!r}": spec.agent.algorithm not in BUILT_IN,
        "crossq's layers normalise their batches": spec.agent.algorithm == "crossq",
        f"resources.device is {spec.resources.device!r}": spec.resources.device
        not in ("cpu", "auto"),
        f"agent.network.activation is {spec.agent.network.activation!r}, not tanh or relu": (
            spec.agent.network.activation not in ACTIVATIONS
        ),
        f"feature.encoder is {spec.feature.encoder!r}": spec.feature.encoder not in ("auto", "mlp"),
        "feature.embed_dim is set": spec.feature.embed_dim is not None,
        f"train.precision is {spec.train.precision!r}": spec.train.precision != "float32",
        "train.compile is true": spec.train.compile,
        "agent.action_masks is true": spec.agent.action_masks,
        "agent.network.dueling is true": (
            spec.agent.algorithm in ("dqn", "qrdqn") and spec.agent.network.dueling
        ),
        "train.use_sde is true": spec.agent.algorithm in ("sac", "tqc") and spec.train.use_sde,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def too_wide(spec: Spec) -> bool:
    """Whether layers are so wide, and threads so many, that torch is the better choice, which can
    share out each product."""
    threads, sizes = spec.resources.threads, spec.agent.network.hidden_sizes
    if "agent.network.critic_hidden_sizes" in BUILT_IN[spec.agent.algorithm].reads:
        sizes = spec.agent.network.critic_hidden_sizes or sizes
    return threads > 1 and max(sizes, default=0) > WIDEST


def left_open(spec: Spec) -> dict[str, str]:
    """The options that a check settles, by path, with what they are in a spec."""
    settled = {"env.backend": spec.env.backend, "train.engine": spec.train.engine}
    return {"env.id": spec.env.id, **settled}


def assign(spec: Spec, values: Mapping[str, str]) -> Spec:
    """The spec with these values in place of what it leaves open."""
    return spec.changed({path: values[path] for path in left_open(spec) if path in values})
