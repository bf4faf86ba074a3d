"""What is known of the algorithms without loading them: what they can learn in, which options they
read, and the defaults that differ from those of `groups.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Traits:
    """What an algorithm can do. `actions` are kinds of spaces; `masks` and `recurrent` say whether
    it heeds action masks and can train a policy with a memory; `bounded_actions`, whether a Box
    must have bounds; `learns_entropy`, whether `train.ent_coef` may be `auto`; `overlaps`, whether
    it heeds the `log_probs` of a batch, and so can learn from what an older policy has collected;
    `clock`, what its budget counts: `env_steps`, or `updates`, which its learners then have.

    `reads` names the options of `train`, `buffer` and `agent.network` that it reads besides those
    that every algorithm does; live ones may be set under learners that can `reconfigure`.
    """

    off_policy: bool
    actions: tuple[str, ...]
    masks: bool = False
    recurrent: bool = False
    bounded_actions: bool = False
    learns_entropy: bool = False
    overlaps: bool = False
    clock: Literal["env_steps", "updates"] = "env_steps"
    reads: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BuiltIn(Traits):
    """An algorithm of this package."""

    defaults: Mapping[str, Any] = field(default_factory=dict)


ANY_ACTIONS = ("Discrete", "Box", "MultiDiscrete", "MultiBinary")

_GRADIENTS = frozenset(
    f"train.{name}"
    for name in (
        *("lr", "lr_schedule", "optimizer", "adam_eps", "adam_beta1", "max_grad_norm", "gamma"),
        *("normalize_reward", "clip_reward", "engine", "precision", "compile"),
    )
)
_ADVANTAGES = _GRADIENTS | {
    *("train.gae_lambda", "train.normalize_advantage", "train.ent_coef", "train.vf_coef"),
    "train.sequence_length",
    *("agent.network.shared", "agent.network.ortho_init", "agent.network.log_std_init"),
}
_REPLAYED = _GRADIENTS | {
    *("train.batch_size", "train.learning_starts", "train.gradient_steps", "train.tau"),
    *("buffer.size", "buffer.n_step", "buffer.prioritized", "buffer.alpha", "buffer.beta"),
    *("buffer.her_strategy", "buffer.her_k", "buffer.memory_share", "agent.network.ortho_init"),
}
_EPSILON = {
    *("train.exploration_initial_eps", "train.exploration_final_eps"),
    *("train.exploration_fraction", "train.exploration_schedule"),
}
_TARGETS = {"train.target_update_interval", "train.double_q", "agent.network.dueling"}
_Q_VALUES = _REPLAYED | _EPSILON | _TARGETS
_CRITICS = _REPLAYED | {"agent.network.critic_hidden_sizes"}
_SOFT = _CRITICS | {
    *("train.ent_coef", "train.target_entropy", "train.use_sde", "train.sde_sample_freq"),
    "agent.network.log_std_init",
}

_SINGLE = {
    "env.num_envs": 1,
    "train.report_every": 1000,
    "train.adam_eps": 1e-8,
    "agent.network.ortho_init": False,
}
_Q_DEFAULTS = _SINGLE | {
    "rollout.steps": 4,
    "train.batch_size": 32,
    "train.tau": 1.0,
    "agent.network.activation": "relu",
}
_CONTINUOUS = _SINGLE | {
    "rollout.steps": 1,
    "train.batch_size": 256,
    "train.max_grad_norm": None,
    "agent.network.activation": "relu",
    "agent.network.hidden_sizes": [256, 256],
}
_SOFT_DEFAULTS = _CONTINUOUS | {"train.ent_coef": "auto", "agent.network.log_std_init": -3.0}

PPO = BuiltIn(
    off_policy=False,
    actions=ANY_ACTIONS,
    masks=True,
    recurrent=True,
    overlaps=True,
    reads=_ADVANTAGES
    | {
        *("train.batch_size", "train.update_epochs", "train.clip_range", "train.clip_schedule"),
        *("train.clip_range_vf", "train.target_kl"),
    },
)
A2C = BuiltIn(
    off_policy=False,
    actions=ANY_ACTIONS,
    masks=True,
    recurrent=True,
    reads=_ADVANTAGES,
    defaults={
        "rollout.steps": 5,
        "train.lr": 7e-4,
        "train.gae_lambda": 1.0,
        "train.normalize_advantage": False,
        "train.optimizer": "rmsprop",
        "train.report_every": 1000,
    },
)
DQN = BuiltIn(
    off_policy=True,
    actions=("Discrete",),
    masks=True,
    reads=_Q_VALUES,
    defaults=_Q_DEFAULTS | {"train.lr": 1e-4, "train.max_grad_norm": 10.0},
)
QRDQN = BuiltIn(
    off_policy=True,
    actions=("Discrete",),
    masks=True,
    reads=_Q_VALUES | {"train.n_quantiles"},
    defaults=_Q_DEFAULTS
    | {
        "train.lr": 5e-5,
        "train.adam_eps": 0.01 / 32,
        "train.max_grad_norm": None,
        "train.exploration_fraction": 0.005,
        "train.exploration_final_eps": 0.01,
    },
)
SAC = BuiltIn(
    off_policy=True,
    actions=("Box",),
    bounded_actions=True,
    learns_entropy=True,
    reads=_SOFT,
    defaults=_SOFT_DEFAULTS,
)
TQC = BuiltIn(
    off_policy=True,
    actions=("Box",),
    bounded_actions=True,
    learns_entropy=True,
    reads=_SOFT
    | {
        *("train.n_quantiles", "train.top_quantiles_to_drop_per_net"),
        "agent.network.n_critics",
    },
    defaults=_SOFT_DEFAULTS | {"train.n_quantiles": 25},
)
CROSSQ = BuiltIn(
    off_policy=True,
    actions=("Box",),
    bounded_actions=True,
    learns_entropy=True,
    reads=(_SOFT | {"train.policy_delay"}) - {"train.tau"},
    defaults=_SOFT_DEFAULTS
    | {
        "train.lr": 1e-3,
        "train.adam_beta1": 0.5,
        "train.policy_delay": 3,
        "agent.network.critic_hidden_sizes": [1024, 1024],
    },
)
TD3 = BuiltIn(
    off_policy=True,
    actions=("Box",),
    bounded_actions=True,
    reads=_CRITICS
    | {
        *("train.policy_delay", "train.target_policy_noise", "train.target_noise_clip"),
        "train.action_noise",
    },
    defaults=_CONTINUOUS | {"train.lr": 1e-3},
)

BUILT_IN: Mapping[str, BuiltIn] = {
    "ppo": PPO,
    "a2c": A2C,
    "dqn": DQN,
    "qrdqn": QRDQN,
    "sac": SAC,
    "td3": TD3,
    "tqc": TQC,
    "crossq": CROSSQ,
}
"""The algorithms of this package, by name."""

HER = (
    "HER is a way to draw from a replay buffer: use sac for Box actions or dqn for Discrete ones, "
    "and buffer.her_strategy=future."
)
NEAREST: Mapping[str, str] = {
    **dict.fromkeys(("her", "hindsight"), HER),
    "ddpg": "DDPG is TD3 without its three changes; the nearest here is td3.",
    "trpo": "TRPO bounds each step of the policy as ppo does; the nearest here is ppo, with "
    "train.target_kl for a bound on the divergence.",
    "ars": "ARS searches among policies without gradients, which nothing here does; the nearest "
    "are ppo, and sac for Box actions.",
    "rainbow": "Rainbow is DQN with additions; the nearest here is dqn or qrdqn with "
    "train.double_q, agent.network.dueling, buffer.prioritized and buffer.n_step=3.",
    **dict.fromkeys(("doubledqn", "ddqn"), "Use dqn with train.double_q=true."),
    "duelingdqn": "Use dqn with agent.network.dueling=true.",
    **dict.fromkeys(
        ("reinforce", "vpg"),
        "It is a2c with train.gae_lambda=1, which has a value function besides.",
    ),
    "a3c": "A3C is a2c whose workers do not wait for each other; use a2c.",
    "c51": "C51 learns the distribution of returns, as qrdqn does; use qrdqn.",
    "droq": "DroQ is SAC with dropout in its critics; the nearest here are sac and crossq.",
    "impala": "The nearest here is ppo with rollout.overlap; its network: feature.encoder=impala.",
}
"""Algorithms that people know and that are not here: what they are here, or what is nearest."""
