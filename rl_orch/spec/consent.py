"""Before a program of somebody's is run: what it would be, for whoever must agree to it. Pure.

Nothing is looked up: a secret is shown as the reference that the spec holds.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from rl_orch.spec.model import Spec

OWN_FOLDER = "a folder of the run's own"


def is_needed(spec: Spec) -> bool:
    """Whether the spec would run a program that is not part of this package."""
    return spec.runner.traits.needs_consent


def preview(spec: Spec) -> list[str]:
    """A line for each thing that would be done; none where no consent is needed."""
    if not is_needed(spec):
        return []
    runner = spec.runner
    lines = [f"runs      {shown(runner.command)}"]
    if runner.policy:
        lines.append(f"then      {shown(runner.policy)}")
    lines.append(f"in        {OWN_FOLDER if runner.cwd is None else _quoted(runner.cwd)}")
    lines += [f"with      {name}={_quoted(value)}" for name, value in sorted(runner.env.items())]
    times = len(spec.members)
    return [*lines, f"times     {times}, once for each seed"] if times > 1 else lines


def shown(arguments: Sequence[str]) -> str:
    """An argument list as JSON: every word apart, nothing in it that a terminal would obey."""
    return f"[{', '.join(map(_quoted, arguments))}]"


def located(spec: Spec, folder: Path) -> Spec:
    """The spec with a relative `runner.cwd` made absolute: it is meant from that folder on."""
    cwd = spec.runner.cwd
    if cwd is None or Path(cwd).is_absolute():
        return spec
    return spec.changed({"runner.cwd": str((folder / cwd).resolve())})


def _quoted(text: str) -> str:
    """The text as JSON writes it; what cannot be seen is written as its number."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in quoted)
