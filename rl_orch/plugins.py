"""The one extension mechanism: Python entry points, loaded only when asked for by name.

A package adds an algorithm with an entry point in the group `rl_orch.algorithms`, a vector
environment with one in `rl_orch.vector_envs`, which a spec then names. Our own are found the same
way. What each kind must provide is the protocol named in `KINDS`.
"""

import difflib
from importlib.metadata import entry_points
from typing import Any

from rl_orch.errors import BadInput

KINDS = {
    "algorithms": "rl_orch.rl.learner.Algorithm",
    "encoders": "a callable (pipeline, feature options, generator) -> torch module with `size`",
    "metrics": "rl_orch.rl.playing.Metric",
    "runners": "rl_orch.core.ports.Runner",
    "trackers": "rl_orch.io.telemetry.Sink",
    "vector_envs": "a callable (spec, num_envs) -> gymnasium.vector.VectorEnv",
}


def names(kind: str) -> list[str]:
    """The names that can be loaded, ours and those of installed packages."""
    return sorted(entry.name for entry in entry_points(group=f"rl_orch.{kind}"))


def load(kind: str, name: str) -> Any:
    """What the plugin of that name provides; importing it happens here and not before."""
    for entry in entry_points(group=f"rl_orch.{kind}", name=name):
        return entry.load()
    known = names(kind)
    near = difflib.get_close_matches(name, known, n=1)
    raise BadInput(
        f"no plugin {name!r} of kind {kind}; installed: {', '.join(known) or 'none'}",
        hint=f"Did you mean {near[0]!r}?" if near else None,
    )
