"""The group `start`: the one way in which weights enter a new run."""

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, StringConstraints, create_model

from rl_orch.spec.groups import Location, OptionGroup, Switch, option

StartParts: TypeAlias = Literal["policy", "policy+optimizer", "all"]
PARTS = ("policy", "optimizer", "replay")
"""What can be taken of a source, each only together with those before it."""

BETWEEN = re.compile(r"""[][\s,+"']+""")
"""What stands between the names in a text: `policy,optimizer`, or a list in JSON."""


def parts_of_names(value: Any) -> Any:
    """A choice of parts from their names in a list; `optimizer` alone takes the policy along."""
    named = [*filter(None, BETWEEN.split(value))] if isinstance(value, str) else value
    if not isinstance(named, list | tuple) or not {*map(str, named)} <= {*PARTS} or not named:
        return value
    most = max(map(PARTS.index, named))
    return "all" if most == len(PARTS) - 1 else "+".join(PARTS[: most + 1])


_FROM: dict[str, Any] = {
    "from": (
        Location | None,
        option(
            None,
            "Whose weights to begin with: a run, a model's id, an alias, `best@ENV`, or the path "
            "of a checkpoint or bundle. Without an environment, the whole spec is that run's.",
            flag="--from",
        ),
    )
}
# A field of that name cannot be written in a class: the word is Python's.
_Origin: Any = create_model("_Origin", __base__=OptionGroup, **_FROM)


class StartGroup(_Origin):
    """The policy that training begins with, instead of a new one."""

    parts: Annotated[StartParts, BeforeValidator(parts_of_names)] = option(
        "policy",
        "What to take: the `policy` with its critics and normalisers, also the optimiser's state, "
        "or `all`, with the replay buffer; a list of `policy`, `optimizer`, `replay` will do.",
    )
    partial: Switch = option(
        False, "Take the tensors that fit and say which, instead of refusing other networks."
    )
    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = option(
        None,
        "SHA-256 that `from` must have; filled in by a launch.",
        allowed="64 hexadecimal digits",
    )

    @property
    def source(self) -> str | None:
        """What `from` says."""
        source: str | None = getattr(self, "from")
        return source

    @property
    def wanted(self) -> tuple[str, ...]:
        """The names of the parts to take."""
        return PARTS if self.parts == "all" else tuple(self.parts.split("+"))
