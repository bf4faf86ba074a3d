"""The choice of engine and backend where a spec leaves them open: kernels where they can."""

from collections.abc import Mapping

from rl_orch.errors import BadInput
from rl_orch.rl.envs.leaves import Leaf
from rl_orch.rl.envs.vector import backend_of
from rl_orch.spec import engine
from rl_orch.spec.model import Spec


def why_not(spec: Spec, leaves: Mapping[str, Leaf], actions: str) -> str | None:
    """The reason why kernels cannot train this, as the end of a sentence; None if they can.

    `leaves` are the parts of an observation, `actions` the kind of their space.
    """
    if reason := engine.why_not(spec):
        return reason
    if actions not in ("Discrete", "Box"):
        return f"actions are {actions}, not Discrete or Box"
    if [*leaves] != [""] or leaves[""].kind != "vector":
        return "observations are not a single vector"
    return None


def engine_of(spec: Spec, leaves: Mapping[str, Leaf], actions: str) -> str:
    """The engine of a training; `BadInput` if the spec insists on impossible kernels."""
    asked = spec.train.engine
    if asked not in ("auto", "kernels"):
        return asked
    reason = why_not(spec, leaves, actions)
    if reason is None and (asked == "kernels" or not engine.too_wide(spec)):
        return "kernels"
    if asked == "kernels":
        raise BadInput(
            f"train.engine is 'kernels', but {reason}",
            path="train.engine",
            hint="Leave it at auto: what kernels cannot train, torch does.",
        )
    return "torch"


def resolve_auto(spec: Spec, leaves: Mapping[str, Leaf], actions: str) -> Spec:
    """The spec with nothing left open."""
    values = {
        "env.backend": backend_of(spec),
        "train.engine": engine_of(spec, leaves, actions),
    }
    return engine.assign(spec, values)
