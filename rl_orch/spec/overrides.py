"""`group.option=value`, read by Hydra's own grammar: one typed seam around that library."""

from typing import Any, Final

from rl_orch.errors import BadInput

RESET: Final = object()
"""Stands for the default: what `~group.option` asks for."""


def parse_override(text: str) -> tuple[str, Any]:
    """The path and the plain value of one override."""
    # Hydra takes a quarter of a second to load and is needed only where something is overridden.
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise BadInput(
            f"override {text!r} is not understood: {str(error).splitlines()[0]}",
            hint="Write group.option=value, e.g. train.lr=1e-3 or 'env.kwargs={gravity:9.8}'.",
        ) from None
    if override.is_sweep_override():
        raise BadInput(
            f"override {text!r} names several values; a run takes one",
            hint="Write a single value; launch once for each of them.",
        )
    value = RESET if override.is_delete() else override.value()
    return override.key_or_group, value
