"""RL Orchestrator: one control plane for the whole life of a policy.

`from rl_orch import orchestrator` is the Python surface; `rlctl` is the command.
Nothing heavy is imported here, so that every part loads only what it needs.
"""

from rl_orch.former_names import install

__version__ = "0.1.0"

install()
