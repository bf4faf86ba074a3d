"""In which options specs differ."""

from collections.abc import Sequence
from typing import Any

from rl_orch.spec.checks import value_at
from rl_orch.spec.model import Spec
from rl_orch.spec.options import table


def differences(specs: Sequence[Spec]) -> dict[str, list[Any]]:
    """The options in which specs differ, with the value in each."""
    differing = {}
    for path in table():
        try:
            values = [value_at(spec, path) for spec in specs]
        except AttributeError:
            continue
        if any(value != values[0] for value in values):
            differing[path] = values
    return differing
