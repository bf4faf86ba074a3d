"""`Clock`: how far a training is, in the unit that its algorithm counts."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

ClockUnit: TypeAlias = Literal["env_steps", "updates"]
CLOCK_UNITS: tuple[ClockUnit, ...] = get_args(ClockUnit)
WORDS: dict[ClockUnit, str] = {"env_steps": "step", "updates": "update"}


@dataclass(frozen=True, slots=True)
class Clock:
    """A reading: environment steps of all copies, or updates of the policy."""

    unit: ClockUnit
    value: int

    @property
    def words(self) -> str:
        """The unit for people, in the plural."""
        return f"{WORDS[self.unit]}s"

    def __str__(self) -> str:
        """So many of them: `1 step`, `1,000 updates`."""
        return f"{self.value:,} {WORDS[self.unit] if self.value == 1 else self.words}"
