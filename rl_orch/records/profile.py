"""Where the time of a training went, as the child that trained says it."""

from rl_orch.records.record import Record


class WarmUp(Record):
    """What came before: making all parts, compiling, random steps and the first updates."""

    steps: int
    seconds: float
    compiling_s: float


class Resolved(Record):
    """What trains or steps; `why_not` is why kernels cannot, None if they can, and `mendable`
    whether they could if the spec said otherwise (`spec.kernel_requirements`)."""

    value: str
    why_not: str | None
    mendable: bool = False


class Profile(Record):
    """Seconds of a training by part: env, policy, learner, other, and buffer where there is one.

    Where `apart`, env and policy work in one call, and were told apart by stepping environments
    alone. `observations` are the kinds of their parts; `at_once`, backends that could step all
    copies at once.
    """

    engine: Resolved
    backend: Resolved
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
