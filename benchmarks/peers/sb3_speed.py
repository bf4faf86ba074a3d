"""One training by Stable-Baselines3, sb3-contrib or SBX on a task given as JSON; prints what was
measured as JSON.

Runs in an environment of its own, so it imports nothing of ours but the translation of specs.
"""

import json
import math
import sys
import time
from importlib import import_module
from importlib.metadata import version
from typing import Any

from benchmarks.peers.sb3_learning import ALGORITHMS, translated

PACKAGES = {
    "sb3": ("stable-baselines3", "sb3-contrib", "torch", "gymnasium", "numpy"),
    "sbx": ("sbx-rl", "jax", "flax", "stable-baselines3", "torch", "gymnasium", "numpy"),
}
NOT_IN_SBX = {"dqn": ("max_grad_norm",)}
"""Arguments of SB3's algorithms that SBX's do not take."""


def main(task: dict[str, Any]) -> None:
    """Train once; the clock starts when the first update after the warm-up is complete."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    spec, peer = task["spec"], task["peer"]
    torch.set_num_threads(spec["resources"]["threads"])
    model = _model(spec, peer)
    clock = _clock(task["warm_up"])
    model.learn(total_timesteps=spec["train"]["total_timesteps"], callback=clock)
    returns = [float(episode["r"]) for episode in model.ep_info_buffer]
    measured = {
        "steps": model.num_timesteps - clock.before,
        "seconds": clock.ended - clock.began,
        "returns": returns,
        "versions": {name: version(name) for name in PACKAGES[peer]},
    }
    print(json.dumps(measured))


def _model(spec: dict[str, Any], peer: str) -> Any:
    """The untrained model, with copies of its environment."""
    from stable_baselines3.common.env_util import make_vec_env  # type: ignore[import-not-found]
    from stable_baselines3.common.vec_env import VecNormalize  # type: ignore[import-not-found]

    env, obs, train = spec["env"], spec["obs"], spec["train"]
    envs = make_vec_env(env["id"], n_envs=env["num_envs"], seed=env["seed"])
    running = obs["normalize"] == "running"
    if running or train["normalize_reward"]:
        envs = VecNormalize(
            envs,
            norm_obs=running,
            norm_reward=train["normalize_reward"],
            clip_obs=math.inf if obs["clip_range"] is None else obs["clip_range"][1],
            gamma=train["gamma"],
        )
    algorithm = spec["agent"]["algorithm"]
    module, name = ALGORITHMS[algorithm]
    arguments = translated(spec)
    named = _torch_names() if peer == "sb3" else _jax_names()
    if peer == "sbx":
        module = "sbx"
        for argument in NOT_IN_SBX.get(algorithm, ()):
            del arguments[argument]
    for argument in ("activation_fn", "optimizer_class"):
        kwargs = arguments["policy_kwargs"]
        kwargs[argument] = named[kwargs[argument]]
    if "action_noise" in arguments:
        arguments["action_noise"] = _noise(arguments["action_noise"], envs.action_space.shape)
    policy = spec["agent"]["policy_type"] or "MlpPolicy"
    return getattr(import_module(module), name)(policy, envs, device="cpu", **arguments)


def _torch_names() -> dict[str, Any]:
    from torch import nn, optim  # type: ignore[import-not-found,unused-ignore]

    return {"tanh": nn.Tanh, "relu": nn.ReLU, "adam": optim.Adam, "rmsprop": optim.RMSprop}


def _jax_names() -> dict[str, Any]:
    import jax  # type: ignore[import-not-found]
    import optax  # type: ignore[import-not-found]

    return {"tanh": jax.numpy.tanh, "relu": jax.nn.relu, "adam": optax.adam}


def _noise(deviation: float, shape: tuple[int, ...]) -> Any:
    import numpy as np
    from stable_baselines3.common.noise import (  # type: ignore[import-not-found]
        NormalActionNoise,
    )

    return NormalActionNoise(np.zeros(shape), np.full(shape, deviation))


def _clock(warm_up: int) -> Any:
    """A callback that reads the clock when an update is complete, and at the end."""
    from stable_baselines3.common.callbacks import BaseCallback  # type: ignore[import-not-found]

    class Clock(BaseCallback):  # type: ignore[misc]
        before, began, ended = 0, 0.0, 0.0

        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if not self.before and self.model.num_timesteps >= warm_up:
                self.before, self.began = self.model.num_timesteps, time.perf_counter()

        def _on_training_end(self) -> None:
            self.ended = time.perf_counter()

    return Clock()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
