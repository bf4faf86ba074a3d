"""Options that change while a run goes on: which may, and which are in force at a step. Pure.

A note of the manifest with a `step` is such a change; it counts from the first iteration at or
after that step, and from no step yet where that is null. A note without one is of a resumed
attempt, whose changes are in the spec.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rl_orch.errors import BadInput
from rl_orch.spec.algorithms import BUILT_IN
from rl_orch.spec.checks import ALWAYS_READ, SELECTIVE
from rl_orch.spec.difference import differences
from rl_orch.spec.model import Spec
from rl_orch.spec.options import table
from rl_orch.spec.resolve import resolve


def change(spec: Spec, overrides: Sequence[str]) -> dict[str, list[Any]]:
    """The options that overrides change under a run: path → [before, after]; all of them may."""
    changes = differences([spec, resolve(spec.model_dump(mode="json"), overrides=overrides)])
    for path, (before, after) in changes.items():
        if (why := _fixed(spec, path, before, after)) is not None:
            may = ", ".join(option.path for option in table().values() if option.live)
            raise BadInput(
                f"{path} is {before!r} and cannot become {after!r} while the run goes on: {why}",
                path=path,
                hint=f"These may change: {may}.",
            )
    return changes


def in_force(notes: Iterable[Mapping[str, Any]], before: int | None = None) -> dict[str, Any]:
    """Values that were set before a step, by path; without one, all that took effect.

    Of two notes about an option the later one counts, also where the earlier one is of a later
    step: a run that went back to a checkpoint was told otherwise then.
    """
    values: dict[str, Any] = {}
    for note in notes:
        if "step" not in note:
            values = {path: value for path, value in values.items() if path not in note["set"]}
        elif note["step"] is not None and (before is None or note["step"] < before):
            values |= {path: after for path, (_, after) in note["set"].items()}
    return values


def _fixed(spec: Spec, path: str, before: Any, after: Any) -> str | None:
    """The reason why an option stays as it is, if it does."""
    name, traits = spec.agent.algorithm, BUILT_IN.get(spec.agent.algorithm)
    if not table()[path].live:
        return "it is not live"
    readable = ALWAYS_READ | (frozenset() if traits is None else traits.reads)
    if path.startswith(SELECTIVE) and path not in readable:
        return f"{name} does not read it"
    if "auto" in (before, after):
        return "whether it is learned is decided at the start"
    return None
