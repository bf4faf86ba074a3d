"""Updates that Stable-Baselines3 has made, with all that went into them.

`python -m tests.sb3_updates .venv-peers/bin/python` has them made anew.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "data" / "sb3_updates"
SMALL = ("agent.network.hidden_sizes=[8, 8]", "train.total_timesteps=10_000", "env.seed=3")
ROLLOUT = (*SMALL, "env.num_envs=2", "rollout.steps=64", "train.batch_size=32")
SAMPLES = (*SMALL, "train.batch_size=32", "buffer.size=1000")

CASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "ppo": ("ppo", "CartPole-v1", (*ROLLOUT, "env.max_episode_steps=15", "train.ent_coef=0.01")),
    "ppo-continuous": ("ppo", "Pendulum-v1", (*ROLLOUT, "env.max_episode_steps=15")),
    "a2c": ("a2c", "CartPole-v1", (*ROLLOUT, "env.max_episode_steps=15")),
    "dqn": ("dqn", "CartPole-v1", (*SAMPLES, "env.max_episode_steps=15")),
    "qrdqn": (
        "qrdqn",
        "CartPole-v1",
        (*SAMPLES, "env.max_episode_steps=15", "train.n_quantiles=5"),
    ),
    "sac": ("sac", "InvertedPendulum-v5", (*SAMPLES, "env.max_episode_steps=5")),
    "tqc": (
        "tqc",
        "InvertedPendulum-v5",
        (*SAMPLES, "env.max_episode_steps=5", "train.n_quantiles=5"),
    ),
    "crossq": (
        "crossq",
        "InvertedPendulum-v5",
        (*SAMPLES, "env.max_episode_steps=5", "agent.network.critic_hidden_sizes=[8, 8]"),
    ),
    "td3": ("td3", "InvertedPendulum-v5", (*SAMPLES, "env.max_episode_steps=5")),
}
"""Algorithm, environment and options; time limits cut episodes short besides those that end."""


def spec_of(case: str, engine: str = "torch") -> Spec:
    """The settings of a case."""
    algorithm, env, options = CASES[case]
    document = {"env": {"id": env}, "agent": {"algorithm": algorithm}}
    return resolve(document, overrides=[*options, f"train.engine={engine}"])


class Recorded:
    """What was recorded of a case: columns, and weights by network."""

    def __init__(self, case: str) -> None:
        with np.load(FOLDER / f"{case}.npz") as arrays:
            self._arrays: dict[str, NDArray[Any]] = dict(arrays)

    def __getitem__(self, column: str) -> NDArray[Any]:
        return self._arrays[column]

    def weights(self, moment: str, network: str) -> list[NDArray[Any]]:
        """The parameters of a network `before` or `after`, in the order of ours."""
        names = [name for name in self._arrays if name.startswith(f"{moment}/{network}/")]
        return [self._arrays[f"{moment}/{network}/{k}"] for k in range(len(names))]


def record(python: str) -> None:
    """Have all cases made by an interpreter that has Stable-Baselines3."""
    FOLDER.mkdir(exist_ok=True)
    for case in CASES:
        spec, path = spec_of(case).model_dump(mode="json"), FOLDER / f"{case}.npz"
        workload = json.dumps({"spec": spec, "path": str(path)})
        module = "benchmarks.peers.sb3_updates"
        subprocess.run([python, "-m", module, workload], cwd=ROOT, check=True)


if __name__ == "__main__":
    record(sys.argv[1])
