"""The option table as Markdown: what `rlctl options --format markdown` and the docs show."""

import json
from collections.abc import Sequence

from rl_orch.spec.options import Option, aliases_of, groups


def markdown(options: Sequence[Option]) -> str:
    """A section for each group, a row for each option."""
    lines: list[str] = []
    for group in dict.fromkeys(option.group for option in options):
        lines += [f"## {group}", "", groups()[group], ""]
        lines += ["| option | type | default | variable | flag | |"]
        lines += ["|---|---|---|---|---|---|"]
        lines += [_row(option) for option in options if option.group == group]
        lines.append("")
    return "\n".join(lines)


def default_text(option: Option) -> str:
    """The default as one would write it in YAML."""
    if option.required:
        return "required"
    return option.default if isinstance(option.default, str) else json.dumps(option.default)


def _row(option: Option) -> str:
    notes = [option.help]
    if aliases := aliases_of(option.path):
        notes.append("Also " + ", ".join(f"`{alias}`" for alias in aliases) + ".")
    if isinstance(option.pending, str):
        notes.append(f"*Pending: {option.pending}.*")
    elif option.pending:
        notes.append(f"*Pending: {', '.join(option.pending)}.*")
    if option.live:
        notes.append("*Live.*")
    variables = " ".join(f"`{name}`" for name in option.variables[:2])
    cells = [
        f"`{option.path}`",
        option.type.replace("|", r"\|"),
        f"`{default_text(option)}`",
        variables,
        f"`{option.flags[0]}`",
        " ".join(notes).replace("|", r"\|"),
    ]
    return "| " + " | ".join(cells) + " |"
