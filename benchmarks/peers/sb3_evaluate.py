"""`evaluate_policy` of Stable-Baselines3, with weights that are given: prints a line of JSON.

Arguments: a NumPy archive with the layers of the actor in order (`weight0`, `bias0`, …), how many
episodes, and how many environments. Runs in an environment of its own, so it imports nothing of
ours.
"""

import json
import sys
import time
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np
import torch


def main() -> None:
    """Evaluate, and say how long it took."""
    torch.set_num_threads(1)
    layers = np.load(sys.argv[1], allow_pickle=False)
    episodes, copies = int(sys.argv[2]), int(sys.argv[3])
    sb3: Any = import_module("stable_baselines3")
    common: Any = import_module("stable_baselines3.common.env_util")
    evaluation: Any = import_module("stable_baselines3.common.evaluation")
    env = common.make_vec_env("CartPole-v1", n_envs=copies, seed=7)
    model = sb3.PPO("MlpPolicy", env, device="cpu")
    policy = model.policy
    linear = [policy.mlp_extractor.policy_net[0], policy.mlp_extractor.policy_net[2]]
    for number, layer in enumerate([*linear, policy.action_net]):
        layer.weight.data.copy_(torch.from_numpy(layers[f"weight{number}"]))
        layer.bias.data.copy_(torch.from_numpy(layers[f"bias{number}"]))
    began = time.perf_counter()
    mean, _ = evaluation.evaluate_policy(model, env, n_eval_episodes=episodes, deterministic=True)
    took = time.perf_counter() - began
    print(json.dumps({"seconds": took, "mean": mean, "sb3": version("stable-baselines3")}))


if __name__ == "__main__":
    main()
