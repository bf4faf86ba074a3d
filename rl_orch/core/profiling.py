"""Where the time of a training goes, found out by a child that trains for a short time.

What to make of it is decided in `advice.py`.
"""

from pydantic import BaseModel, ConfigDict

from rl_orch.errors import BadInput
from rl_orch.io.children import FIXED_VARIABLES, THREAD_VARIABLES
from rl_orch.io.watched import Child, Watch
from rl_orch.spec.model import Spec

TRAINED_HERE = "local"
"""The runner that trains with this package."""


class Found(BaseModel):
    """Something that a child has found out."""

    model_config = ConfigDict(frozen=True)


class WarmUp(Found):
    """What came before the measurement, the compilation of kernels in it."""

    steps: int
    seconds: float
    compiling_s: float


class Settled(Found):
    """What trains or steps; `why_not` is why kernels cannot, None if they can, and `mendable`
    whether they could if the spec said otherwise (`spec.mends`)."""

    value: str
    why_not: str | None
    mendable: bool = False


class Profile(Found):
    """Seconds of a training by part: env, policy, learner, other, and buffer where there is one.

    Where `apart`, env and policy work in one call, and were told apart by stepping environments
    alone. `observations` are the kinds of their parts; `at_once`, backends that could step all
    copies at once.
    """

    engine: Settled
    backend: Settled
    observations: tuple[str, ...]
    warm_up: WarmUp
    steps: int
    seconds: float
    parts: dict[str, float]
    apart: bool
    at_once: tuple[str, ...]

    @property
    def steps_per_second(self) -> float:
        """Environment steps a second, with the updates that go with them."""
        return self.steps / self.seconds

    def share(self, *parts: str) -> float:
        """What these parts take of all time, in [0, 1]."""
        return sum(self.parts.get(part, 0.0) for part in parts) / self.seconds

    def ms_per_1000_steps(self, part: str) -> float:
        """What a part takes for a thousand environment steps."""
        return 1e6 * self.parts[part] / self.steps


def refuse_unless_local(spec: Spec) -> None:
    """Raise if it is not this package that would train."""
    if spec.runner.name != TRAINED_HERE:
        raise BadInput(
            f"runner.name is {spec.runner.name!r}; a profile looks into the training of this "
            f"package, so it must be {TRAINED_HERE!r}",
            path="runner.name",
            hint="Programs of your own have profilers of their own, such as py-spy.",
        )


def profile(spec: Spec, *, seconds: float | None, steps: int | None, watch: Watch) -> Profile:
    """Let a child train what the spec says, with nothing left open, until one of the limits is
    reached. When this is interrupted, nothing is left of the child."""
    limits = {"seconds": seconds, "steps": steps}
    question = {"spec": spec.model_dump(mode="json"), "limits": limits}
    child = Child(
        ("rl_orch.worker.profile",),
        variables=dict.fromkeys(THREAD_VARIABLES, str(spec.resources.threads)) | FIXED_VARIABLES,
        doing="the training",
        hint="`rlctl launch` with the same spec keeps the whole log.",
    )
    return Profile.model_validate(child.answer(question, watch))
