"""Other names for options, all of them data. Every alias has one canonical path.

A path is written in snake_case here; `canonical` also takes camelCase, as nix users write it.
"""

import re

GROUPS = {"policy": "agent", "ckpt": "checkpoint"}
"""Other names for whole groups."""

WORDS = {"runner": "runner.name"}
"""Groups that may be given as one word, and the option that is meant."""

ALIASES = {
    "seed": "env.seed",
    "env.env_id": "env.id",
    "env.n_envs": "env.num_envs",
    "agent.algo": "agent.algorithm",
    "agent.net_arch": "agent.network.hidden_sizes",
    "train.learning_rate": "train.lr",
    "train.n_epochs": "train.update_epochs",
    "rollout.n_steps": "rollout.steps",
    "train.train_freq": "rollout.steps",
    "train.buffer_size": "buffer.size",
    "registry.min_reward": "gates.min_return",
    "registry.min_episodes": "gates.min_episodes",
    "store.checkpoint_freq": "checkpoint.every",
}
"""Other names for single options."""

FACTORS = ("train.epochs", "train.steps_per_epoch")
PRODUCT = "train.total_timesteps"
"""The two factors may stand in place of their product, and only together."""

WRAPPER = "rl"
ENABLE = "enable"
"""A nix module wraps its options in the one and switches them on with the other."""

VARIABLE_PREFIXES = {
    "feature": "RL_FEAT_",
    "metrics": "OTEL_METRICS_",
    "traces": "OTEL_TRACES_",
    "logs": "OTEL_LOGS_",
}
"""Variable prefixes that are read besides `RL_<GROUP>_`."""


def canonical(path: str) -> str:
    """The one path that a path in any spelling stands for, whether or not it is known."""
    head, *rest = (snake(part) for part in path.split("."))
    if head == WRAPPER and rest:
        head, *rest = rest
    joined = ".".join([GROUPS.get(head, head), *rest])
    return ALIASES.get(joined, joined)


def snake(word: str) -> str:
    """snake_case from camelCase; a word in snake_case stays as it is."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()
