"""Other names for options, all of them data. Every alias has one canonical path.

A path is written in snake_case here; `canonical` also takes camelCase, as nix users write it.
"""

import re
from collections.abc import Mapping
from typing import Any

from rl_orch.spec.algorithms import BUILT_IN

GROUPS = {"policy": "agent", "ckpt": "checkpoint"}
"""Other names for whole groups."""

ALIASES = {
    "seed": "env.seed",
    "env.env_id": "env.id",
    "env.n_envs": "env.num_envs",
    "env.info_keywords": "env.info_metrics",
    "env.env_wrapper": "env.wrappers",
    "obs.frame_stack": "obs.stack_frames",
    "agent.algo": "agent.algorithm",
    "agent.net_arch": "agent.network.hidden_sizes",
    "policy_kwargs.net_arch": "agent.network.hidden_sizes",
    "policy_kwargs.activation_fn": "agent.network.activation",
    "policy_kwargs.ortho_init": "agent.network.ortho_init",
    "policy_kwargs.log_std_init": "agent.network.log_std_init",
    "policy_kwargs.lstm_hidden_size": "feature.embed_dim",
    "policy_kwargs.n_critics": "agent.network.n_critics",
    "train.learning_rate": "train.lr",
    "train.n_epochs": "train.update_epochs",
    "train.callbacks": "train.observers",
    "rollout.n_steps": "rollout.steps",
    "train.train_freq": "rollout.steps",
    "train.buffer_size": "buffer.size",
    "buffer.goal_selection_strategy": "buffer.her_strategy",
    "buffer.n_sampled_goal": "buffer.her_k",
    "registry.min_reward": "gates.min_return",
    "registry.min_episodes": "gates.min_episodes",
    "store.checkpoint_freq": "checkpoint.every",
}
"""Other names for single options."""

SHORT = ("train", *ALIASES)
"""Groups whose options, and other names of options, are flags without their group, too: most of
them are the words that Stable-Baselines3 has."""

FLAGS = {
    "train.total_timesteps": ("-n", "--n-timesteps"),
    "eval.every": ("--eval-freq",),
    "eval.episodes": ("--n-eval-episodes",),
    "checkpoint.every": ("--save-freq",),
    "env.backend": ("--vec-env",),
    "start.from": ("--trained-agent", "-i"),
    "resources.threads": ("--num-threads",),
    "gates.min_return": ("--min-reward",),
    "gates.min_success_rate": ("--min-success-rate",),
    "agent.policy_type": ("--policy",),
    "train.clip_range": ("--clip-coef",),
    "train.normalize_advantage": ("--norm-adv",),
    "train.exploration_initial_eps": ("--start-e",),
    "train.exploration_final_eps": ("--end-e",),
    "train.target_update_interval": ("--target-network-frequency",),
    "rollout.steps": ("--num-steps",),
}
"""Flags besides those of a path, by the words of Stable-Baselines3, of its zoo and of CleanRL."""

ALGORITHMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "maskableppo": ("ppo", {"agent.action_masks": True}),
    "recurrentppo": ("ppo", {"feature.encoder": "lstm"}),
    "ppolstm": ("ppo", {"feature.encoder": "lstm"}),
}
"""Algorithms that are options of another one, by their names in sb3-contrib and the Zoo."""

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


def spelled_out(algorithm: Any) -> tuple[str, Mapping[str, Any]] | None:
    """The algorithm and the options that one of `ALGORITHMS` stands for, however it is written."""
    if not isinstance(algorithm, str):
        return None
    return ALGORITHMS.get(bare(algorithm))


def algorithm_named(name: str) -> str:
    """The algorithm that one of `ALGORITHMS` is, or one of ours in any case; another as it is."""
    meant = spelled_out(name)
    plain = bare(name)
    return meant[0] if meant else plain if plain in BUILT_IN else name


def bare(name: str) -> str:
    """A name in small letters alone, however its words are joined."""
    return re.sub(r"[\s_-]", "", name).lower()


def snake(word: str) -> str:
    """snake_case from camelCase; a word in snake_case stays as it is."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()
