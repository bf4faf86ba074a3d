"""`StateTree`: the state of a part of a training, of arrays by name and JSON. Needs NumPy alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class StateTree:
    """A state: tensors by name, and a JSON document.

    Names are paths: what a part of a part remembers stands below the part's name, in both.
    """

    tensors: dict[str, NDArray[Any]] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: "Mapping[str, StateTree]") -> Self:
        """The state of a whole from those of its parts; empty documents are left out."""
        return cls(
            {f"{at}/{name}": t for at, part in parts.items() for name, t in part.tensors.items()},
            {at: part.document for at, part in parts.items() if part.document},
        )

    def under(self, name: str) -> "StateTree":
        """The part of that name, with names of its own; empty where there is none."""
        prefix = f"{name}/"
        tensors = {
            key.removeprefix(prefix): tensor
            for key, tensor in self.tensors.items()
            if key.startswith(prefix)
        }
        return StateTree(tensors, self.document.get(name) or {})

    def __or__(self, other: "StateTree") -> "StateTree":
        """Both states side by side; where they share a name, the other's counts."""
        return StateTree(self.tensors | other.tensors, self.document | other.document)
