"""Profile of a training, made by a child that trains for a short time.

It says where the time goes. What to make of it is decided in `advice.py`.
"""

from rl_orch.errors import BadInput
from rl_orch.io.processes.task_worker import ProgressCallback, TaskWorker
from rl_orch.records.profile import Profile
from rl_orch.records.tasks import ProfileTask
from rl_orch.spec.model import Spec


def refuse_unless_local(spec: Spec) -> None:
    """Raise if it is not this package that would train."""
    if not spec.runner.traits.trains_here:
        raise BadInput(
            f"runner.name is {spec.runner.name!r}; a profile looks into the training of this "
            "package, so it must be 'local' or another that trains here",
            path="runner.name",
            hint="Programs of your own have profilers of their own, such as py-spy.",
        )


def profile(
    spec: Spec, *, seconds: float | None, steps: int | None, watch: ProgressCallback
) -> Profile:
    """Let a child train what the spec says until one limit is reached.

    The spec has nothing left open. When this is interrupted, nothing is left of the child.
    """
    child = TaskWorker(
        Profile,
        ("profile",),
        threads=spec.resources.threads,
        doing="the training",
        hint="`rlctl launch` with the same spec keeps the whole log.",
    )
    return child.answer(ProfileTask(spec=spec, seconds=seconds, steps=steps), watch)
