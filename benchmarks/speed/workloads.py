"""What is trained to measure speed, who can train it, and what counts as having learned.

Every side is given the same resolved spec, and does the same algorithmic work: as many copies of
the environment, steps, updates, and units in the networks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from rl_orch.errors import RlctlError
from rl_orch.rl.envs import vector
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve

Peer: TypeAlias = Literal["sb3", "cleanrl", "sbx"]
Engine: TypeAlias = Literal["auto", "kernels", "torch"]

KEPT_RETURNS = 100
"""Episodes at the end of a run whose returns it reports."""

QUICK = 6
"""A probe and a quick form take one in so many of the steps."""

ENGINES: Mapping[Engine, tuple[str, str]] = {
    "auto": ("train.engine=auto", "env.backend=auto"),
    "kernels": ("train.engine=kernels", "env.backend=native"),
    "torch": ("train.engine=torch", "env.backend=sync"),
}
"""What this package is asked for to train in one of its ways."""


@dataclass(frozen=True, slots=True)
class Floor:
    """What the mean return of the last episodes of training must reach to count as learned."""

    episodes: int
    at_least: float


@dataclass(frozen=True, slots=True)
class Workload:
    """One training: a spec, its budget, and the steps before the clock starts.

    Learning starts, and what is compiled is compiled, within `warm_up`. `differs` says what a peer
    does not do quite the same.
    """

    name: str
    about: str
    document: Mapping[str, Mapping[str, Any]]
    env_steps: int
    warm_up: int
    floor: Floor
    peers: tuple[Peer, ...]
    differs: Mapping[Peer, str] = field(default_factory=dict)


def steps_of(workload: Workload, *, quick: bool) -> int:
    """Environment steps of a run, in whole rollouts: the sides round a part of one differently.

    Of a quick one there are at least as many after the warm-up as in it.
    """
    if not quick:
        return workload.env_steps
    rollout = workload.document["env"]["num_envs"] * workload.document["rollout"]["steps"]
    wanted = max(workload.env_steps // QUICK, 2 * workload.warm_up)
    return int(wanted // rollout * rollout)


def spec_of(
    workload: Workload, *, seed: int, threads: int, steps: int, overrides: Sequence[str] = ()
) -> Spec:
    """What all sides train; `overrides` are those of one of our ways."""
    return resolve(
        workload.document,
        overrides=[
            f"env.seed={seed}",
            f"resources.threads={threads}",
            f"train.total_timesteps={steps}",
            *overrides,
        ],
    )


def overrides_of(workload: Workload, engine: Engine) -> list[str] | None:
    """What to override in order to train in one of our ways; None where there is no such way.

    An option or a value that the spec or the environment does not have is left out.
    """
    how, backend = ENGINES[engine]
    known = [each for each in (how, backend) if _accepted(workload, each)]
    return None if engine == "kernels" and how not in known else known


def _accepted(workload: Workload, override: str) -> bool:
    try:
        spec = resolve(workload.document, overrides=[override])
        # A backend may be a plugin's, so that it is only refused when it is made.
        vector.make(spec, num_envs=1).close()
    except RlctlError:
        return False
    return True


def _on_policy(
    algorithm: str, env: str, copies: int, steps: int, train: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    return {
        "env": {"id": env, "num_envs": copies},
        "agent": {
            "algorithm": algorithm,
            "network": {"hidden_sizes": [64, 64], "activation": "tanh"},
        },
        "rollout": {"steps": steps},
        "train": dict(train),
    }


def _q_values(algorithm: str, train: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        "env": {"id": "CartPole-v1", "num_envs": 1},
        "agent": {
            "algorithm": algorithm,
            "network": {"hidden_sizes": [120, 84], "activation": "relu"},
        },
        "rollout": {"steps": 10},
        "buffer": {"size": 10_000},
        "train": {
            "lr": 1e-3,
            "batch_size": 128,
            "gradient_steps": 1,
            "learning_starts": 1_000,
            "target_update_interval": 500,
            "exploration_fraction": 0.3,
            **train,
        },
    }


def _continuous(algorithm: str) -> dict[str, dict[str, Any]]:
    return {
        "env": {"id": "Pendulum-v1", "num_envs": 1},
        "agent": {
            "algorithm": algorithm,
            "network": {"hidden_sizes": [256, 256], "activation": "relu"},
        },
        "rollout": {"steps": 1},
        "buffer": {"size": 20_000},
        "train": {
            "lr": 1e-3,
            "gamma": 0.98,
            "batch_size": 256,
            "gradient_steps": 1,
            "learning_starts": 200,
        },
    }


_SEPARATE_CLIPPING = "gradients of actor and critic are clipped apart, not by their common norm"
_OLDER = "the environment of gym 0.23 or gymnasium 0.29, which its scripts need"

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "W1",
            "PPO · CartPole-v1 · 8 envs × 256 steps · 10 epochs · minibatch 64 · 64×64 tanh, apart",
            _on_policy("ppo", "CartPole-v1", 8, 256, {"batch_size": 64, "update_epochs": 10}),
            env_steps=65_536,
            warm_up=2_048,
            floor=Floor(20, 100.0),
            peers=("sb3", "cleanrl", "sbx"),
            differs={"sbx": _SEPARATE_CLIPPING, "cleanrl": _OLDER},
        ),
        Workload(
            "W1b",
            "PPO · CartPole-v1 · 64 envs × 128 steps · 4 epochs of 4 minibatches of 2048",
            _on_policy(
                "ppo",
                "CartPole-v1",
                64,
                128,
                {"batch_size": 2_048, "update_epochs": 4, "lr": 2.5e-3},
            ),
            env_steps=262_144,
            warm_up=8_192,
            floor=Floor(20, 100.0),
            peers=("sb3", "cleanrl", "sbx"),
            differs={"sbx": _SEPARATE_CLIPPING, "cleanrl": _OLDER},
        ),
        Workload(
            "W2",
            "DQN · CartPole-v1 · 1 env · an update every 10 steps · batch 128 · 120-84",
            _q_values("dqn", {}),
            env_steps=40_000,
            warm_up=2_000,
            floor=Floor(20, 60.0),
            peers=("sb3", "cleanrl", "sbx"),
            differs={
                "sbx": "hidden layers of 120 and 120 units, since it takes one size; "
                "gradients are not clipped",
                "cleanrl": f"squared error, gradients are not clipped; {_OLDER}",
            },
        ),
        Workload(
            "W3",
            "SAC · Pendulum-v1 · 1 env · an update every step · batch 256 · 256×256",
            _continuous("sac"),
            env_steps=3_000,
            warm_up=400,
            floor=Floor(3, -900.0),
            peers=("sb3", "cleanrl", "sbx"),
            differs={
                "cleanrl": "the actor learns twice at every second step; one more pass through "
                f"it for the temperature; {_OLDER}"
            },
        ),
        Workload(
            "W4",
            "TD3 · Pendulum-v1 · 1 env · an update every step · batch 256 · 256×256",
            _continuous("td3"),
            env_steps=5_000,
            warm_up=400,
            floor=Floor(3, -1_000.0),
            peers=("sb3", "cleanrl", "sbx"),
            differs={"cleanrl": _OLDER},
        ),
        Workload(
            "W5",
            "PPO · HalfCheetah-v5 · 4 envs × 512 steps · 10 epochs · minibatch 64 · 64×64 tanh, "
            "observations and rewards normalised",
            {
                **_on_policy(
                    "ppo",
                    "HalfCheetah-v5",
                    4,
                    512,
                    {"batch_size": 64, "update_epochs": 10, "normalize_reward": True},
                ),
                "obs": {"normalize": "running", "clip_range": 10},
            },
            env_steps=61_440,
            warm_up=2_048,
            floor=Floor(4, -200.0),
            peers=("sb3", "cleanrl", "sbx"),
            differs={
                "sbx": _SEPARATE_CLIPPING,
                "cleanrl": "HalfCheetah-v4 with MuJoCo 2.3, the newest that gymnasium 0.29 has",
            },
        ),
        Workload(
            "CNN",
            "PPO · Catch, images of 36×36 · 8 envs × 128 steps · 4 epochs · minibatch 256 · "
            "Nature's CNN, 512 features for actor and critic",
            {
                "env": {"id": "benchmarks.peers.catch:Catch-v0", "num_envs": 8},
                "agent": {
                    "algorithm": "ppo",
                    "policy_type": "CnnPolicy",
                    "network": {"hidden_sizes": [], "activation": "relu"},
                },
                "rollout": {"steps": 128},
                "train": {"batch_size": 256, "update_epochs": 4, "lr": 5e-4, "ent_coef": 0.01},
            },
            env_steps=32_768,
            warm_up=1_024,
            floor=Floor(100, 0.3),
            peers=("sb3",),
        ),
        Workload(
            "A2C",
            "A2C · CartPole-v1 · 8 envs × 5 steps · 64×64 tanh, apart",
            _on_policy("a2c", "CartPole-v1", 8, 5, {}),
            env_steps=60_000,
            warm_up=2_000,
            floor=Floor(20, 60.0),
            peers=("sb3",),
        ),
        Workload(
            "QRDQN",
            "QR-DQN · CartPole-v1 · 50 quantiles, else as W2",
            _q_values("qrdqn", {"n_quantiles": 50}),
            env_steps=40_000,
            warm_up=2_000,
            floor=Floor(20, 60.0),
            peers=("sb3",),
        ),
        Workload(
            "TQC",
            "TQC · Pendulum-v1 · 2 critics of 25 quantiles, else as W3",
            _continuous("tqc"),
            env_steps=3_000,
            warm_up=400,
            floor=Floor(3, -900.0),
            peers=("sb3", "sbx"),
        ),
    )
}
