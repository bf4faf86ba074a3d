"""One training by a script of CleanRL on a task given as JSON; prints what was measured as JSON.

The script runs as it is, but for its TensorBoard writer, which is replaced by one that notes times
and returns and writes no files. Runs in an environment of its own, so it imports nothing of ours.
"""

import json
import os
import runpy
import sys
import time
from contextlib import redirect_stdout
from importlib.metadata import version
from types import ModuleType
from typing import Any

PACKAGES = ("cleanrl", "torch", "numpy", "gym", "gymnasium", "stable-baselines3", "mujoco")
ENVIRONMENTS = {"HalfCheetah-v5": "HalfCheetah-v4"}
"""Environments that are newer than the gymnasium that the scripts need, and what they are there."""

KEPT_RETURNS = 100


class Writer:
    """Notes when the first losses after the warm-up are reported, and the returns of episodes."""

    def __init__(self, warm_up: int) -> None:
        self._warm_up = warm_up
        self.before, self.began = 0, 0.0
        self.returns: list[float] = []

    def add_scalar(self, key: str, value: Any, step: int) -> None:
        """Note what is reported at a step."""
        if key == "charts/episodic_return":
            # An array of one number in gymnasium.
            self.returns.append(float(getattr(value, "item", lambda: value)()))
        elif not self.before and key.startswith("losses/") and step >= self._warm_up:
            self.before, self.began = step, time.perf_counter()

    def add_text(self, key: str, value: str) -> None:
        """Forget a text."""

    def close(self) -> None:
        """Nothing to close."""


def main(task: dict[str, Any]) -> None:
    """Train once; the clock starts when the first losses after the warm-up are reported."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    spec = task["spec"]
    torch.set_num_threads(spec["resources"]["threads"])
    script, arguments = translated(spec)
    writer = Writer(task["warm_up"])
    _replace_writer(writer)
    _take_spaces_of_gym()
    sys.argv = [script, *(f"--{name}={value}" for name, value in arguments.items())]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        runpy.run_module(f"cleanrl.{script}", run_name="__main__")
    ended = time.perf_counter()
    measured = {
        "steps": spec["train"]["total_timesteps"] - writer.before,
        "seconds": ended - writer.began,
        "returns": writer.returns[-KEPT_RETURNS:],
        "versions": {name: version(name) for name in PACKAGES},
    }
    print(json.dumps(measured))


def translated(spec: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The script, and its arguments that mean what a spec says."""
    env, train = spec["env"], spec["train"]
    common = {
        "env-id": ENVIRONMENTS.get(env["id"], env["id"]),
        "seed": env["seed"],
        "cuda": False,
        "total-timesteps": train["total_timesteps"],
        "gamma": train["gamma"],
    }
    script, arguments = {"ppo": _ppo, "dqn": _dqn, "sac": _sac, "td3": _td3}[
        spec["agent"]["algorithm"]
    ](spec)
    return script, common | arguments


def _ppo(spec: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    train, copies, steps = spec["train"], spec["env"]["num_envs"], spec["rollout"]["steps"]
    # Only the script for continuous actions normalises observations and rewards.
    script = "ppo_continuous_action" if train["normalize_reward"] else "ppo"
    return script, {
        "learning-rate": train["lr"],
        "num-envs": copies,
        "num-steps": steps,
        "anneal-lr": False,
        "gae-lambda": train["gae_lambda"],
        "num-minibatches": copies * steps // train["batch_size"],
        "update-epochs": train["update_epochs"],
        "norm-adv": train["normalize_advantage"],
        "clip-coef": train["clip_range"],
        "clip-vloss": False,
        "ent-coef": train["ent_coef"],
        "vf-coef": train["vf_coef"],
        "max-grad-norm": train["max_grad_norm"],
    }


def _dqn(spec: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    train = spec["train"]
    return "dqn", {
        "learning-rate": train["lr"],
        "buffer-size": spec["buffer"]["size"],
        "tau": train["tau"],
        "target-network-frequency": train["target_update_interval"],
        "batch-size": train["batch_size"],
        "start-e": train["exploration_initial_eps"],
        "end-e": train["exploration_final_eps"],
        "exploration-fraction": train["exploration_fraction"],
        "learning-starts": train["learning_starts"],
        "train-frequency": spec["rollout"]["steps"],
    }


def _replayed(spec: dict[str, Any]) -> dict[str, Any]:
    train = spec["train"]
    return {
        "buffer-size": spec["buffer"]["size"],
        "tau": train["tau"],
        "batch-size": train["batch_size"],
        "learning-starts": train["learning_starts"],
    }


def _sac(spec: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    rates = {"policy-lr": spec["train"]["lr"], "q-lr": spec["train"]["lr"]}
    return "sac_continuous_action", _replayed(spec) | rates


def _td3(spec: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    train = spec["train"]
    return "td3_continuous_action", _replayed(spec) | {
        "learning-rate": train["lr"],
        "policy-noise": train["target_policy_noise"],
        "exploration-noise": train["action_noise"],
        "policy-frequency": train["policy_delay"],
        "noise-clip": train["target_noise_clip"],
    }


def _replace_writer(writer: Writer) -> None:
    module = ModuleType("torch.utils.tensorboard")
    vars(module)["SummaryWriter"] = lambda _folder: writer
    sys.modules[module.__name__] = module


def _take_spaces_of_gym() -> None:
    """Let the replay buffer of SB3 2 take the spaces of gym, which most of the scripts use."""
    from gymnasium import spaces
    from stable_baselines3.common import buffers  # type: ignore[import-not-found]

    made = buffers.ReplayBuffer.__init__

    def of_gymnasium(space: Any) -> Any:
        if isinstance(space, spaces.Space) or not hasattr(space, "low"):
            return space
        return spaces.Box(space.low, space.high, space.shape, space.dtype)

    def init(self: Any, size: int, seen: Any, done: Any, *others: Any, **named: Any) -> None:
        made(self, size, of_gymnasium(seen), of_gymnasium(done), *others, **named)

    buffers.ReplayBuffer.__init__ = init


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
