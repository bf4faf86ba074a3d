"""A few updates by Stable-Baselines3, with the experience and noise that went into them.

The workload is JSON with a resolved spec of ours and the path of a file of arrays, which gets the
weights before and after, by network, each in the order of ours; `tests/sb3_updates.py` asks for it.
Runs in an environment of its own, so it imports nothing of ours.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.peers.sb3_learning import build

UPDATES = 6
TRANSITIONS = 200
"""Transitions that off-policy algorithms draw from."""


def main(workload: dict[str, Any]) -> None:
    """Carry out the updates of a workload."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    torch.set_num_threads(1)
    spec = workload["spec"]
    model = build(spec)
    kept = {f"before/{name}": array for name, array in _weights(model, spec)}
    if spec["agent"]["algorithm"] in ("ppo", "a2c"):
        kept |= _learn_from_rollout(model, spec)
    else:
        kept |= _learn_from_samples(model, spec)
    kept |= {f"after/{name}": array for name, array in _weights(model, spec)}
    np.savez_compressed(workload["path"], **kept)


def _learn_from_rollout(model: Any, spec: dict[str, Any]) -> dict[str, Any]:
    """One rollout, rows ordered by copy, then time; its minibatches are taken in that order."""
    from stable_baselines3.common.callbacks import BaseCallback  # type: ignore[import-not-found]

    rows: list[dict[str, Any]] = []
    assessed: dict[str, Any] = {}

    class Recorder(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            told, infos = self.locals, self.locals["infos"]
            cut = [info.get("TimeLimit.truncated", False) for info in infos]
            ends = zip(infos, told["new_obs"], strict=True)
            shown = [info.get("terminal_observation", following) for info, following in ends]
            columns = {"actions": told["actions"], "rewards": told["rewards"]}
            columns |= {"dones": told["dones"], "truncated": cut, "next_observations": shown}
            rows.append({name: np.array(column) for name, column in columns.items()})
            return True

        def _on_rollout_end(self) -> None:
            buffer = self.model.rollout_buffer
            for name in ("observations", "advantages", "values", "log_probs"):
                assessed[name] = getattr(buffer, name).copy()

    np.random.permutation = np.arange  # type: ignore[assignment]
    model.learn(spec["rollout"]["steps"] * spec["env"]["num_envs"], callback=Recorder())
    columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]} | assessed
    return {name: _by_copy(column) for name, column in columns.items()}


def _by_copy(column: Any) -> Any:
    """(time, copy, ...) → (copy · time, ...)."""
    return np.swapaxes(column, 0, 1).reshape(-1, *column.shape[2:])


def _learn_from_samples(model: Any, spec: dict[str, Any]) -> dict[str, Any]:
    """Updates from random transitions, with noise that is drawn here."""
    rng = np.random.default_rng(0)
    buffer, size = model.replay_buffer, spec["train"]["batch_size"]
    model.learning_starts = TRANSITIONS
    model.learn(TRANSITIONS)
    samples = []

    def sample(count: int, env: Any = None) -> Any:
        samples.append(buffer._get_samples(rng.integers(0, TRANSITIONS, count)))
        return samples[-1]

    buffer.sample = sample
    noise = rng.normal(size=(2 * UPDATES, size, *model.action_space.shape)).astype(np.float32)
    _provide_noise(iter(noise))
    for _ in range(UPDATES):
        model.train(1, size)
    names = ("observations", "actions", "rewards", "next_observations", "dones")
    columns = {name: np.stack([getattr(drawn, name) for drawn in samples]) for name in names}
    return columns | {"noise": noise}


def _provide_noise(noise: Iterator[Any]) -> None:
    """Let what is drawn in updates be this noise, for actions and then for next actions."""
    import torch
    from torch.distributions import normal  # type: ignore[import-not-found,unused-ignore]

    def standard_normal(*_: Any, **__: Any) -> Any:
        return torch.from_numpy(next(noise))

    def normal_(self: Any, mean: float, std: float) -> Any:
        return self.copy_(mean + std * standard_normal())

    densities: Any = normal
    tensors: Any = torch.Tensor
    densities._standard_normal, tensors.normal_ = standard_normal, normal_


def _weights(model: Any, spec: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values of all parameters, those of one network in the order of ours."""
    for network, modules in _networks(model, spec["agent"]["algorithm"]).items():
        arrays = [p.detach().numpy().copy() for module in modules for p in _parameters(module)]
        if network == "policy" and spec["agent"]["algorithm"] == "qrdqn":
            arrays = [*arrays[:-2], *(_by_action(array, spec) for array in arrays[-2:])]
        if network == "policy" and spec["agent"]["algorithm"] in ("sac", "tqc", "crossq"):
            arrays = [*arrays[:-4], *(np.concatenate(pair) for pair in _halves(arrays[-4:]))]
        yield from ((f"{network}/{k}", array) for k, array in enumerate(arrays))


def _networks(model: Any, algorithm: str) -> dict[str, list[Any]]:
    policy = model.policy
    if algorithm in ("ppo", "a2c"):
        nets, deviation = policy.mlp_extractor, getattr(policy, "log_std", None)
        spread = [] if deviation is None else [deviation]
        actor = [nets.policy_net, policy.action_net]
        return {"policy": [*spread, *actor, nets.value_net, policy.value_net]}
    if algorithm in ("dqn", "qrdqn"):
        return {"policy": [policy.q_net if algorithm == "dqn" else policy.quantile_net]}
    if algorithm == "crossq":
        critics = {"critics": policy.critic.q_networks}
    else:
        critics = {"critics": [policy.critic], "target_critics": [policy.critic_target]}
    if algorithm == "td3":
        return {"policy": [policy.actor], "target_policy": [policy.actor_target], **critics}
    actor = [policy.actor.latent_pi, policy.actor.mu, policy.actor.log_std]
    return {"policy": actor, "temperature": [model.log_ent_coef], **critics}


def _parameters(module: Any) -> list[Any]:
    """Those of layers, and then of the norms between them."""
    if not hasattr(module, "parameters"):
        return [module]
    parts = [part for part in module.modules() if not [*part.children()]]
    parts.sort(key=lambda part: hasattr(part, "ra_mean"))
    return [parameter for part in parts for parameter in part.parameters()]


def _by_action(array: Any, spec: dict[str, Any]) -> Any:
    """Rows that go through the actions of each quantile, as ones that go through its quantiles."""
    rows = np.arange(len(array)).reshape(spec["train"]["n_quantiles"], -1)
    return array[rows.T.reshape(-1)]


def _halves(arrays: list[Any]) -> list[tuple[Any, Any]]:
    """Weights and biases of mean and deviation, which ours has in one layer."""
    return [(arrays[0], arrays[2]), (arrays[1], arrays[3])]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
