"""Tables as data frames: of pandas where it is installed, else of polars, else plain rows."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

from rl_orch.errors import BadInput, MissingExtra

FrameKind: TypeAlias = Literal["auto", "pandas", "polars", "plain"]
"""What a table is made into: `auto` is pandas if that is installed, else polars, else `plain`, a
list with a dict for each row."""

LIBRARIES = ("pandas", "polars")


def framed(columns: Mapping[str, Sequence[Any]], frame: FrameKind = "auto") -> Any:
    """The table with these columns, as it is asked for."""
    chosen = _installed() if frame == "auto" else frame
    if chosen == "plain":
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if chosen not in LIBRARIES:
        raise BadInput(f"frame is {frame!r}; must be auto, {', '.join(LIBRARIES)} or plain")
    if find_spec(chosen) is None:
        raise MissingExtra(
            f"frame is {chosen!r}, and {chosen} is not installed",
            hint=f"`pip install {chosen}`, or frame='plain' for a list of dicts.",
        )
    return import_module(chosen).DataFrame({name: [*values] for name, values in columns.items()})


def _installed() -> str:
    return next((name for name in LIBRARIES if find_spec(name) is not None), "plain")
