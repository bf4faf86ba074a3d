"""PPO by Stable-Baselines3 on a workload given as JSON; prints steps and seconds as JSON.

Runs in an environment of its own, so it imports nothing of ours.
"""

import json
import sys
import time
from typing import Any


def main(workload: dict[str, Any]) -> None:
    """Train once and say how long it took, set-up aside."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    from stable_baselines3 import PPO  # type: ignore[import-not-found]
    from stable_baselines3.common.env_util import make_vec_env  # type: ignore[import-not-found]

    torch.set_num_threads(workload["threads"])
    envs = make_vec_env(workload["env"], n_envs=workload["num_envs"], seed=workload["seed"])
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=workload["steps"],
        batch_size=workload["batch_size"],
        n_epochs=workload["update_epochs"],
        learning_rate=workload["lr"],
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}},
        seed=workload["seed"],
        device="cpu",
    )
    size = workload["num_envs"] * workload["steps"]
    model.learn(total_timesteps=size)
    before, began = model.num_timesteps, time.perf_counter()
    model.learn(total_timesteps=workload["total_timesteps"], reset_num_timesteps=False)
    seconds = time.perf_counter() - began
    print(json.dumps({"steps": model.num_timesteps - before, "seconds": seconds}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
