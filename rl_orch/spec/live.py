"""Options that change while a run goes on: which may, and which are in force at a step. Pure.

A note of the manifest with a `step` is such a change; it counts from the first iteration at or
after that step, and from no step yet where that is null; from which environment step on, it says
once it does. A note without one is of a resumed
attempt, whose changes are in the spec.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rl_orch.errors import BadInput, SpecInvalid
from rl_orch.spec.algorithms import BUILT_IN
from rl_orch.spec.checks import is_learners
from rl_orch.spec.difference import differences
from rl_orch.spec.model import Spec
from rl_orch.spec.options import path_of, table
from rl_orch.spec.resolve import resolve


def change(
    spec: Spec, overrides: Sequence[str], reads: Collection[str] | None = None
) -> dict[str, list[Any]]:
    """The options that overrides change under a run: path → [before, after]; all of them may.

    `reads` are those of its algorithm; without it, and of one that is not ours, any may be.
    """
    known = BUILT_IN.get(spec.agent.algorithm)
    reads = known.reads if reads is None and known is not None else reads
    may = [path for path in table() if _fixed(path, reads) is None]
    hint = f"These may change: {', '.join(may)}."
    try:
        changed = resolve(spec.model_dump(mode="json"), overrides=overrides)
    except SpecInvalid:
        # That other options go with a new value is no advice about one that stays.
        named = (path_of(text.lstrip("+~").partition("=")[0]) for text in overrides)
        for path in named:
            if path in table() and path not in may:
                why = _fixed(path, reads)
                raise BadInput(f"{path} cannot change: {why}", path=path, hint=hint) from None
        raise
    changes = differences([spec, changed])
    for path, (before, after) in changes.items():
        why = _fixed(path, reads)
        if why is None and "auto" in (before, after):
            why = "whether it is learned is decided at the start"
        if why is not None:
            raise BadInput(
                f"{path} is {before!r} and cannot become {after!r} while the run goes on: {why}",
                path=path,
                hint=hint,
            )
    return changes


def in_force(
    notes: Iterable[Mapping[str, Any]], before: int | None = None, *, clock: str = "step"
) -> dict[str, Any]:
    """Values that were set before a step, by path; without one, all that took effect. The `clock`
    is what the run counts, or `env_steps`.

    Of two notes about an option the later one counts, also where the earlier one is of a later
    step: a run that went back to a checkpoint was told otherwise then.
    """
    values: dict[str, Any] = {}
    for note in notes:
        if "step" not in note:
            values = {path: value for path, value in values.items() if path not in note["set"]}
        elif note.get(clock) is not None and (before is None or note[clock] < before):
            values |= {path: after for path, (_, after) in note["set"].items()}
    return values


def _fixed(path: str, reads: Collection[str] | None) -> str | None:
    """The reason why an option stays as it is, if it does."""
    if not table()[path].live:
        return "it is not live"
    if reads is not None and is_learners(path) and path not in reads:
        return "the algorithm does not read it"
    return None
