"""RL Orchestrator: one control plane for the whole life of a policy.

`rl_orch.train`, `rl_orch.load_policy` and `rl_orch.runs` are for scripts and notebooks,
`from rl_orch import orchestrator` is all of it in Python, `rlctl` is the command.
Nothing heavy is imported here, so that every part loads only what it needs.
"""

from rl_orch.plugins import exports

__version__ = "0.1.0"

PLACES = {
    "interactive.policy": ["load_policy"],
    "interactive.runs": ["runs"],
    "interactive.training": ["train"],
    "rl.observe": ["Callback"],
}
"""Names that are loaded with their first use, by module; `__init__.pyi` tells editors of them."""

__getattr__ = exports(__name__, PLACES)


def __dir__() -> list[str]:
    return [*globals(), *(name for names in PLACES.values() for name in names)]
