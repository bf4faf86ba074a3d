"""Policies trained by scripts of CleanRL, and the returns that its own classes reach.

Arguments: a folder, and a seed. Each policy is a file in the folder; `cleanrl.json` says of each
which returns were found on which seeds: episode k begins with the one that
`rl_orch.rl.streams.derive(seed, k)` gives. DQN is saved by its script and played by CleanRL's
own evaluation, without exploration; other scripts of version 1.2.0 save nothing, so the state dict
of their agent is saved as later ones do. Runs in an environment of its own: nothing of ours but
this folder is imported.
"""

import json
import os
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import torch

from benchmarks.peers.cleanrl_speed import PACKAGES, Writer, _take_spaces_of_gym

EPISODES = 10
DISCRETE, CONTINUOUS = "CartPole-v1", "Pendulum-v1"
REPLAYED = {"learning-starts": 500, "buffer-size": 5000}

CASES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "cleanrl-dqn": (
        *("dqn", DISCRETE, "q_network"),
        {"total-timesteps": 25_000, "save-model": True, "learning-starts": 1000},
    ),
    "cleanrl-ppo": ("ppo", DISCRETE, "agent", {"total-timesteps": 20_000}),
    "cleanrl-td3": (
        *("td3_continuous_action", CONTINUOUS, "actor"),
        {"total-timesteps": 3_000, **REPLAYED},
    ),
    "cleanrl-sac": (
        *("sac_continuous_action", CONTINUOUS, "actor"),
        {"total-timesteps": 2_500, **REPLAYED},
    ),
}
"""File → script, environment, the variable that is the policy, arguments."""

GREEDY: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "cleanrl-ppo": lambda agent, seen: agent.actor(seen).argmax(1),
    "cleanrl-td3": lambda actor, seen: actor(seen),
    "cleanrl-sac": lambda actor, seen: actor.get_action(seen)[2],
}


def main(folder: Path, seed: int, names: list[str]) -> None:
    """Train, save and evaluate all of them."""
    torch.set_num_threads(1)
    _take_spaces_of_gym()
    made = [case(folder, name, seed) for name in names or CASES]
    versions = {each: version(each) for each in PACKAGES}
    document = {"versions": versions, "seed": seed, "policies": made}
    (folder / "cleanrl.json").write_text(json.dumps(document, indent=2) + "\n")


def case(folder: Path, name: str, seed: int) -> dict[str, Any]:
    """One policy, in a file, and what CleanRL says of it."""
    script, env_id, variable, arguments = CASES[name]
    file = folder / f"{name}.cleanrl_model"
    told = {"env-id": env_id, "seed": 1, "cuda": False, **arguments}
    with tempfile.TemporaryDirectory() as scratch:
        left = trained(script, told, Path(scratch))
        saved = sorted(Path(scratch).rglob("*.cleanrl_model"))
        if saved:
            file.write_bytes(saved[0].read_bytes())
        else:
            torch.save(left[variable].state_dict(), file)
    seeds = derived(seed)
    reports = "cleanrl_utils.evals.dqn_eval.evaluate, epsilon 0"
    return {
        "file": file.name,
        "algorithm": script.partition("_")[0],
        "env": env_id,
        "reported_by": reports if saved else f"greedy actions of cleanrl.{script}",
        "seeds": [next(seeds) for _ in range(EPISODES)],
        "returns": evaluated(file, env_id, seed) if saved else played(name, left[variable], seed),
    }


def trained(script: str, arguments: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """What a script leaves, in a folder that it may write to."""
    module = ModuleType("torch.utils.tensorboard")
    vars(module)["SummaryWriter"] = writer_to
    sys.modules[module.__name__] = module
    sys.argv = [script, *(f"--{name}={value}" for name, value in arguments.items())]
    evaluation: Any = import_module("cleanrl_utils.evals.dqn_eval")
    here, evaluate = Path.cwd(), evaluation.evaluate
    evaluation.evaluate = partial(evaluate, capture_video=False)  # No script films without ffmpeg.
    os.chdir(scratch)
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            return runpy.run_module(f"cleanrl.{script}", run_name="__main__")
    finally:
        evaluation.evaluate = evaluate
        os.chdir(here)


def writer_to(folder: str) -> Writer:
    """A writer that writes nothing, but makes its folder, which models go to as well."""
    Path(folder).mkdir(parents=True)
    return Writer(0)


def evaluated(file: Path, env_id: str, seed: int) -> list[float]:
    """The returns that CleanRL's evaluation of DQN reports."""
    evaluation: Any = import_module("cleanrl_utils.evals.dqn_eval")
    script: Any = import_module("cleanrl.dqn")
    seeds = derived(seed)

    def numbered(*arguments: Any) -> Callable[[], Any]:
        make: Callable[[], Any] = script.make_env(*arguments)
        return lambda: Numbered(make(), seeds)

    found = evaluation.evaluate(
        str(file), numbered, env_id, EPISODES, "eval", script.QNetwork, epsilon=0.0,
        capture_video=False,
    )  # fmt: skip
    return [float(np.asarray(each).item()) for each in found]


@torch.no_grad()
def played(name: str, policy: Any, seed: int) -> list[float]:
    """The returns of the policy's own greedy actions."""
    env_id, seeds, returns = CASES[name][1], derived(seed), []
    env: Any = gymnasium.make(env_id)
    for _ in range(EPISODES):
        (seen, _), total, over = env.reset(seed=next(seeds)), 0.0, False
        while not over:
            action = GREEDY[name](policy, torch.Tensor(np.asarray(seen)[None]))[0].numpy()
            seen, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


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
    main(Path(sys.argv[1]).absolute(), int(sys.argv[2]), sys.argv[3:])
