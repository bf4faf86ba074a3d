"""Former names of modules that the pages once printed, so that code written by them still runs.

Importing one gives the module of today, the very same object, and a `DeprecationWarning`.
"""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

FORMER = {
    "rl_orch.core.pages": "rl_orch.records.queries",
    "rl_orch.io.commands": "rl_orch.io.run.command_socket",
    "rl_orch.io.events": "rl_orch.io.run.events",
    "rl_orch.io.history": "rl_orch.io.run.history",
    "rl_orch.io.recent": "rl_orch.io.metrics.recent",
    "rl_orch.io.series": "rl_orch.io.metrics.series",
    "rl_orch.rl.actor_critic": "rl_orch.rl.policies.actor_critic",
    "rl_orch.rl.batch": "rl_orch.rl.data.batch",
    "rl_orch.rl.learner": "rl_orch.rl.learn.learner",
    "rl_orch.rl.optimizer": "rl_orch.rl.learn.optimizer",
    "rl_orch.rl.policy": "rl_orch.rl.policies.policy",
}


class FormerNames:
    """Finds and loads modules under their former names, once nothing else has found them."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for a former name; None for all others."""
        return ModuleSpec(name, self) if name in FORMER else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """An empty module, as usual; `exec_module` has another take its place."""

    def exec_module(self, module: ModuleType) -> None:
        """Let the former name stand for the module of today."""
        today = FORMER[module.__name__]
        warnings.warn(f"{module.__name__} is {today} now", DeprecationWarning, stacklevel=2)
        sys.modules[module.__name__] = import_module(today)


def install() -> None:
    """Let former names be imported from here on."""
    sys.meta_path.append(FormerNames())
