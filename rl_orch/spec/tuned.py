"""Tuned hyperparameters: the example specs, found by algorithm and environment."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_orch.spec.model import Spec
from rl_orch.spec.reader import read_spec

CONFIGS = Path(__file__).parent.parent / "configs"

PROVIDERS = ("ale_py", "gym_anytrading")
"""Modules whose environments are meant, where an id names one."""

LEARNING = ("env", "obs", "feature", "agent", "train", "rollout", "buffer")
"""Groups that are taken over. When to evaluate, what to ask for and where to run is not tuned."""


def find(spec: Spec) -> Path | None:
    """The example for the spec's algorithm in its environment, if there is one.

    None for a program that is not ours: its hyperparameters are its own affair.
    """
    if not spec.runner.traits.trains_here:
        return None
    module, _, env_id = spec.env.id.rpartition(":")
    if module not in ("", *PROVIDERS):
        return None
    name = f"{spec.agent.algorithm}-{env_id.replace('/', '-')}.yaml"
    path = CONFIGS / name
    return path if re.fullmatch(r"[\w.-]+", name) and path.is_file() else None


def hyperparameters(path: Path) -> Mapping[str, Any]:
    """What an example says of learning; the seed is left to whoever asks."""
    document = read_spec(path)
    chosen = {group: document[group] for group in LEARNING if group in document}
    env = {key: value for key, value in chosen.get("env", {}).items() if key not in ("id", "seed")}
    return chosen | {"env": env}
