"""One training by Stable-Baselines3, sb3-contrib or SBX: prints a line of JSON for each evaluation,
and one at the end.

The workload is JSON with a resolved spec of ours, which `translated` turns into SB3's arguments.
Runs in an environment of its own, so it imports nothing of ours.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

ALGORITHMS = {
    "ppo": ("stable_baselines3", "PPO"),
    "a2c": ("stable_baselines3", "A2C"),
    "dqn": ("stable_baselines3", "DQN"),
    "qrdqn": ("sb3_contrib", "QRDQN"),
    "sac": ("stable_baselines3", "SAC"),
    "td3": ("stable_baselines3", "TD3"),
    "tqc": ("sb3_contrib", "TQC"),
    "crossq": ("sb3_contrib", "CrossQ"),
}
UNCLIPPED = ("sac", "td3", "tqc", "crossq")
"""Those of SB3's algorithms that never scale gradients down."""

PACKAGES = {
    "sb3": ("stable-baselines3", "sb3-contrib", "torch", "gymnasium", "numpy"),
    "sbx": ("sbx-rl", "jax", "flax", "stable-baselines3", "torch", "gymnasium", "numpy"),
}
NOT_IN_SBX = {"dqn": ("max_grad_norm",)}
"""Arguments of SB3's algorithms that SBX's do not take."""

COMMON = {"gamma": "train.gamma", "seed": "env.seed"}
ON_POLICY = COMMON | {
    "n_steps": "rollout.steps",
    "gae_lambda": "train.gae_lambda",
    "ent_coef": "train.ent_coef",
    "vf_coef": "train.vf_coef",
    "normalize_advantage": "train.normalize_advantage",
}
OFF_POLICY = COMMON | {
    "buffer_size": "buffer.size",
    "n_steps": "buffer.n_step",
    "train_freq": "rollout.steps",
    "batch_size": "train.batch_size",
    "learning_starts": "train.learning_starts",
    "gradient_steps": "train.gradient_steps",
    "tau": "train.tau",
}
Q_VALUES = OFF_POLICY | {
    "target_update_interval": "train.target_update_interval",
    "exploration_initial_eps": "train.exploration_initial_eps",
    "exploration_final_eps": "train.exploration_final_eps",
    "exploration_fraction": "train.exploration_fraction",
}
SOFT = OFF_POLICY | {
    "ent_coef": "train.ent_coef",
    "target_entropy": "train.target_entropy",
    "use_sde": "train.use_sde",
    "sde_sample_freq": "train.sde_sample_freq",
}
ARGUMENTS = {
    "ppo": ON_POLICY | {"batch_size": "train.batch_size", "n_epochs": "train.update_epochs"},
    "a2c": ON_POLICY,
    "dqn": Q_VALUES,
    "qrdqn": Q_VALUES,
    "sac": SOFT,
    "tqc": SOFT | {"top_quantiles_to_drop_per_net": "train.top_quantiles_to_drop_per_net"},
    "crossq": {name: path for name, path in SOFT.items() if name != "tau"}
    | {"policy_delay": "train.policy_delay"},
    "td3": OFF_POLICY
    | {
        "policy_delay": "train.policy_delay",
        "target_policy_noise": "train.target_policy_noise",
        "target_noise_clip": "train.target_noise_clip",
        "action_noise": "train.action_noise",
    },
}
"""SB3's arguments that take an option as it is."""

POLICY_ARGUMENTS = {
    "ppo": {"ortho_init": "agent.network.ortho_init", "log_std_init": "agent.network.log_std_init"},
    "a2c": {"ortho_init": "agent.network.ortho_init", "log_std_init": "agent.network.log_std_init"},
    "qrdqn": {"n_quantiles": "train.n_quantiles"},
    "sac": {"log_std_init": "agent.network.log_std_init"},
    "crossq": {"log_std_init": "agent.network.log_std_init"},
    "tqc": {
        "log_std_init": "agent.network.log_std_init",
        "n_critics": "agent.network.n_critics",
        "n_quantiles": "train.n_quantiles",
    },
}

LACKED: dict[str, Any] = {
    "obs.stack_frames": None,
    "feature.embed_dim": None,
    "agent.action_masks": False,
    "agent.network.shared": False,
    "agent.network.dueling": False,
    "train.clip_reward": None,
    "train.clip_range_vf": None,
    "train.target_kl": None,
    "train.double_q": False,
    "train.exploration_schedule": "linear",
    "train.precision": "float32",
    "train.compile": False,
    "buffer.prioritized": False,
}
"""Options that SB3 has not, or means otherwise, with the only values for which it does the same."""

SCHEDULES: dict[str, Callable[[float], float]] = {
    "linear": lambda left: left,
    "cosine": lambda left: 0.5 * (1.0 - math.cos(math.pi * left)),
}
"""The share of a value that is in force while a part of the budget is left."""


def untranslatable(spec: dict[str, Any]) -> list[str]:
    """The options of a spec that SB3 cannot follow, each with its value."""
    found = [path for path, value in _only(spec).items() if _at(spec, path) != value]
    if spec["feature"]["encoder"] not in ("auto", "mlp"):
        found.append("feature.encoder")
    clip = spec["obs"]["clip_range"]
    if clip is not None and (spec["obs"]["normalize"] == "none" or clip[0] != -clip[1]):
        found.append("obs.clip_range")
    return [f"{path} = {json.dumps(_at(spec, path))}" for path in found]


def plain(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec without what SB3 lacks."""
    changed: dict[str, Any] = json.loads(json.dumps(spec))
    for path, value in _only(spec).items():
        group, _, name = path.rpartition(".")
        _at(changed, group)[name] = value
    return changed


def translated(spec: dict[str, Any]) -> dict[str, Any]:
    """SB3's arguments that mean what a spec says; activations, optimisers and noise by name."""
    algorithm, train, network = spec["agent"]["algorithm"], spec["train"], spec["agent"]["network"]
    arguments = {name: _at(spec, path) for name, path in ARGUMENTS[algorithm].items()}
    arguments["learning_rate"] = _schedule(train["lr_schedule"], train["lr"])
    if algorithm == "ppo":
        arguments["clip_range"] = _schedule(train["clip_schedule"], train["clip_range"])
    if algorithm not in UNCLIPPED:
        norm = train["max_grad_norm"]
        arguments["max_grad_norm"] = math.inf if norm is None else norm
    named = POLICY_ARGUMENTS.get(algorithm, {})
    arguments["policy_kwargs"] = {
        **{name: _at(spec, path) for name, path in named.items()},
        "net_arch": _layers(algorithm, network),
        "activation_fn": network["activation"],
        "optimizer_class": train["optimizer"],
        "optimizer_kwargs": _moments(train),
    }
    return arguments


def _moments(train: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the optimiser besides the rate."""
    decays = {"betas": (train["adam_beta1"], 0.999)} if train["optimizer"] == "adam" else {}
    return {"eps": train["adam_eps"], **decays}


def _layers(algorithm: str, network: dict[str, Any]) -> Any:
    """The sizes of hidden layers: of one network, or of those of policy and critics."""
    sizes, critics = network["hidden_sizes"], network["critic_hidden_sizes"]
    if algorithm in ("ppo", "a2c"):
        return {"pi": sizes, "vf": sizes}
    return sizes if critics is None else {"pi": sizes, "qf": critics}


def main(workload: dict[str, Any]) -> None:
    """Train the spec of a workload, and evaluate at its points."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    spec, peer = workload["spec"], workload["peer"]
    if found := untranslatable(spec):
        sys.exit(f"Stable-Baselines3 cannot follow {', '.join(found)}")
    torch.set_num_threads(spec["resources"]["threads"])
    began = time.perf_counter()
    model = build(spec, peer)
    steps = spec["train"]["total_timesteps"]
    model.learn(total_timesteps=steps, callback=_evaluations(spec, workload))
    packages = {name: version(name) for name in PACKAGES[peer]}
    print(json.dumps({"seconds": time.perf_counter() - began, "versions": packages}))


def _only(spec: dict[str, Any]) -> dict[str, Any]:
    """The only values of options under which SB3 does the same."""
    unclipped = spec["agent"]["algorithm"] in UNCLIPPED
    return LACKED | ({"train.max_grad_norm": None} if unclipped else {})


def _schedule(name: str, value: float) -> Any:
    """A number, or a function of the part of the budget that is left."""
    if name == "constant":
        return value
    return lambda left: value * SCHEDULES[name](left)


def _at(spec: dict[str, Any], path: str) -> Any:
    value: Any = spec
    for part in path.split("."):
        value = value[part]
    return value


def _env(spec: dict[str, Any]) -> Any:
    import gymnasium

    env = spec["env"]
    limit = {"max_episode_steps": env["max_episode_steps"]} if env["max_episode_steps"] else {}
    return gymnasium.make(env["id"], **limit, **env["kwargs"])


def build(spec: dict[str, Any], peer: str = "sb3") -> Any:
    """The untrained model, with copies of its environment."""
    from importlib import import_module

    from stable_baselines3.common.env_util import make_vec_env  # type: ignore[import-not-found]
    from stable_baselines3.common.vec_env import VecNormalize  # type: ignore[import-not-found]

    count, seed, obs = spec["env"]["num_envs"], spec["env"]["seed"], spec["obs"]
    envs = make_vec_env(lambda: _env(spec), n_envs=count, seed=seed)
    running, rewards = obs["normalize"] == "running", spec["train"]["normalize_reward"]
    if running or rewards:
        clip = math.inf if obs["clip_range"] is None else obs["clip_range"][1]
        envs = VecNormalize(
            envs,
            norm_obs=running,
            norm_reward=rewards,
            clip_obs=clip,
            gamma=spec["train"]["gamma"],
        )
    algorithm, policy = spec["agent"]["algorithm"], spec["agent"]["policy_type"] or "MlpPolicy"
    arguments = _objects(translated(spec), envs.action_space, NAMES[peer]())
    module, name = ALGORITHMS[algorithm]
    if peer == "sbx":
        module = "sbx"
        for argument in NOT_IN_SBX.get(algorithm, ()):
            del arguments[argument]
    return getattr(import_module(module), name)(policy, envs, device="cpu", **arguments)


def _objects(arguments: dict[str, Any], action_space: Any, named: dict[str, Any]) -> dict[str, Any]:
    """The arguments, with what is named in them."""
    policy = dict(arguments["policy_kwargs"])
    for argument in ("activation_fn", "optimizer_class"):
        policy[argument] = named[policy[argument]]
    policy["optimizer_kwargs"] = named["moments"](policy["optimizer_kwargs"])
    made = arguments | {"policy_kwargs": policy}
    if "action_noise" in made:
        made["action_noise"] = _noise(made["action_noise"], action_space.shape)
    return made


def _noise(deviation: float, shape: tuple[int, ...]) -> Any:
    """Gaussian noise on each component of an action."""
    import numpy as np
    from stable_baselines3.common.noise import (  # type: ignore[import-not-found]
        NormalActionNoise,
    )

    return NormalActionNoise(np.zeros(shape), np.full(shape, deviation))


def _torch_names() -> dict[str, Any]:
    """What SB3 takes for the names of activations and optimisers."""
    from torch import nn, optim  # type: ignore[import-not-found,unused-ignore]

    activations = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "gelu": nn.GELU}
    optimisers = {"adam": optim.Adam, "rmsprop": optim.RMSprop}
    return {**activations, "silu": nn.SiLU, **optimisers, "moments": dict}


def _jax_names() -> dict[str, Any]:
    """What SBX takes for them."""
    import jax  # type: ignore[import-not-found]
    import optax  # type: ignore[import-not-found]

    activations = {"tanh": jax.numpy.tanh, "relu": jax.nn.relu}
    return {**activations, "adam": optax.adam, "moments": optax_moments}


def optax_moments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of torch's optimisers by the names that optax has for them."""
    decays = zip(("b1", "b2"), arguments.get("betas", ()), strict=False)
    return {"eps": arguments["eps"], **dict(decays)}


NAMES: dict[str, Callable[[], dict[str, Any]]] = {"sb3": _torch_names, "sbx": _jax_names}


def _evaluations(spec: dict[str, Any], workload: dict[str, Any]) -> Any:
    """A callback that evaluates after the update in which a point is passed, as ours does."""
    from stable_baselines3.common.callbacks import BaseCallback  # type: ignore[import-not-found]

    envs = [_env(spec) for _ in workload["reset_seeds"]]

    class Evaluations(BaseCallback):  # type: ignore[misc]
        before = 0

        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            step = self.model.num_timesteps
            if self.before // workload["every"] != step // workload["every"]:
                self.report(step)
            self.before = step

        def _on_training_end(self) -> None:
            self.report(self.model.num_timesteps)

        def report(self, step: int) -> None:
            mean = _mean_return(self.model, envs, workload["reset_seeds"])
            print(json.dumps({"step": step, "mean_return": mean}), flush=True)

    return Evaluations()


def _mean_return(model: Any, envs: Sequence[Any], seeds: Sequence[int]) -> float:
    """The mean return of one episode from each seed, played side by side."""
    import numpy as np

    normalizer = model.get_vec_normalize_env()
    shown = {
        k: env.reset(seed=seed)[0] for k, (env, seed) in enumerate(zip(envs, seeds, strict=True))
    }
    total = 0.0
    while shown:
        batch = np.stack([*shown.values()])
        batch = batch if normalizer is None else normalizer.normalize_obs(batch)
        actions, _ = model.predict(batch, deterministic=True)
        for k, action in zip([*shown], actions, strict=True):
            observation, reward, terminated, truncated, _ = envs[k].step(action)
            total += float(reward)
            shown[k] = observation
            if terminated or truncated:
                del shown[k]
    return total / len(seeds)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
