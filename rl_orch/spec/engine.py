"""Which engine trains: kernels where they can, else torch. What a spec alone says of it."""

from rl_orch.spec.model import Spec

ACTIVATIONS = ("tanh", "relu")
KNOWN = ("ppo", "a2c", "dqn", "qrdqn", "sac", "td3")


def why_not(spec: Spec) -> str | None:
    """Why kernels cannot train what a spec asks for, as the end of a sentence; None if they can,
    as far as the spec tells."""
    reasons = {
        f"agent.algorithm is {spec.agent.algorithm!r}": spec.agent.algorithm not in KNOWN,
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
        "agent.network.dueling is true": spec.agent.network.dueling,
        "train.use_sde is true": spec.train.use_sde,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
