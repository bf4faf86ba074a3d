"""Small policies trained by Stable-Baselines3, saved by it, and the returns that it reports.

Arguments: a folder, and a seed. Each policy is a file in the folder; `sb3.json` says of each which
returns `evaluate_policy` found, and on which seeds: episode k begins with the one that
`rl_orch.rl.streams.derive(seed, k)` gives. Runs in an environment of its own, so it imports nothing
of ours.
"""

import json
import sys
from collections.abc import Iterator
from copy import deepcopy
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

EPISODES = 10
DISCRETE, CONTINUOUS = "CartPole-v1", "Pendulum-v1"
SMALL = {"net_arch": [32, 32]}
RELU: dict[str, Any] = SMALL | {"activation_fn": torch.nn.ReLU}
REPLAYED = {"learning_starts": 500, "buffer_size": 5000, "seed": 1, "policy_kwargs": SMALL}
VALUED = REPLAYED | {
    "learning_rate": 1e-3,
    "batch_size": 64,
    "buffer_size": 20_000,
    "target_update_interval": 250,
    "exploration_fraction": 0.3,
}
QUANTILES: dict[str, Any] = {**SMALL, "n_quantiles": 10}

CONTRIB = ("QRDQN", "TQC", "CrossQ")

CASES: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "sb3-ppo": ("PPO", DISCRETE, 6_144, {"seed": 1}),
    "sb3-a2c": ("A2C", CONTINUOUS, 2_000, {"seed": 1, "policy_kwargs": RELU}),
    "sb3-dqn": ("DQN", DISCRETE, 20_000, VALUED),
    "sb3-sac": ("SAC", CONTINUOUS, 3_000, REPLAYED | {"learning_rate": 3e-3}),
    "sb3-sac-gsde": ("SAC", CONTINUOUS, 1_500, REPLAYED | {"use_sde": True}),
    "sb3-td3": ("TD3", CONTINUOUS, 3_000, REPLAYED | {"learning_rate": 3e-3}),
    "sb3-qrdqn": ("QRDQN", DISCRETE, 20_000, VALUED | {"policy_kwargs": QUANTILES}),
    "sb3-tqc": ("TQC", CONTINUOUS, 3_000, REPLAYED | {"learning_rate": 3e-3}),
    "sb3-crossq": ("CrossQ", CONTINUOUS, 3_000, REPLAYED | {"learning_rate": 3e-3}),
    "sb3-normalized": ("PPO", CONTINUOUS, 4_096, {"seed": 1, "policy_kwargs": SMALL}),
}
"""File → class, environment, steps, options. What is `normalized` is trained behind VecNormalize,
whose statistics are exported beside it."""


def main(folder: Path, seed: int, names: list[str]) -> None:
    """Train, save and evaluate all of them."""
    torch.set_num_threads(1)
    made = [case(folder, name, seed) for name in names or CASES]
    versions = {each: version(each) for each in ("stable-baselines3", "sb3-contrib", "torch")}
    document = {"versions": versions, "seed": seed, "policies": made}
    (folder / "sb3.json").write_text(json.dumps(document, indent=2) + "\n")


def case(folder: Path, name: str, seed: int) -> dict[str, Any]:
    """One policy, in a file, and what SB3 says of it."""
    kind, env_id, steps, options = CASES[name]
    module: Any = import_module("sb3_contrib" if kind in CONTRIB else "stable_baselines3")
    vec: Any = import_module("stable_baselines3.common.vec_env")
    env: Any = vec.DummyVecEnv([lambda: gymnasium.make(env_id)])
    played: Any = vec.DummyVecEnv([lambda: Numbered(gymnasium.make(env_id), derived(seed))])
    if name == "sb3-normalized":
        env = vec.VecNormalize(env)
    model = getattr(module, kind)("MlpPolicy", env, device="cpu", **deepcopy(options))
    model.learn(steps)
    if name == "sb3-normalized":
        np.savez(folder / f"{name}.npz", mean=env.obs_rms.mean, var=env.obs_rms.var)
        played = vec.VecNormalize(played, training=False, norm_reward=False)
        played.obs_rms = env.obs_rms
    model.save(folder / f"{name}.zip")
    evaluation: Any = import_module("stable_baselines3.common.evaluation")
    returns, lengths = evaluation.evaluate_policy(
        model, played, EPISODES, deterministic=True, return_episode_rewards=True, warn=False
    )
    seeds = derived(seed)
    return {
        "file": f"{name}.zip",
        "algorithm": kind.lower(),
        "env": env_id,
        "steps": int(model.num_timesteps),
        "reported_by": "stable_baselines3.common.evaluation.evaluate_policy",
        "seeds": [next(seeds) for _ in range(EPISODES)],
        "returns": [float(each) for each in returns],
        "lengths": [int(each) for each in lengths],
    }


class Numbered(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Begins episode k with seed k, however it is reset."""

    def __init__(self, env: gymnasium.Env[Any, Any], seeds: Iterator[int]) -> None:
        super().__init__(env)
        self._seeds = seeds

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """The next episode."""
        return self.env.reset(**(options | {"seed": next(self._seeds)}))


def derived(seed: int) -> Iterator[int]:
    """The seeds of the episodes, one after another."""
    for number in range(sys.maxsize):
        sequence = np.random.SeedSequence(seed, spawn_key=(number,))
        yield int(sequence.generate_state(1, np.uint32)[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
