"""What a spec would have to say for kernels to train it, as far as that is for a spec to say."""

from collections.abc import Mapping
from typing import Any

from rl_orch.spec.engine import why_not
from rl_orch.spec.model import Spec

REQUIREMENTS: Mapping[str, Any] = {
    "resources.device": "cpu",
    "agent.network.activation": "relu",
    "agent.network.dueling": False,
    "feature.embed_dim": None,
    "train.precision": "float32",
    "train.compile": False,
    "train.use_sde": False,
}
"""Options that may stand against kernels, with values that do not. Another algorithm, encoder or
action masks would make it another experiment."""


def kernel_requirements(spec: Spec) -> dict[str, Any]:
    """The options that stand against kernels, with values that would not."""
    return {
        path: value
        for path, value in REQUIREMENTS.items()
        if why_not(spec.changed({k: v for k, v in REQUIREMENTS.items() if k != path})) is not None
        and why_not(spec.changed(REQUIREMENTS)) is None
    }
