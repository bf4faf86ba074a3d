"""Flags for a whole spec, made from the option table and added to a command's signature."""

import inspect
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from rl_orch.cli.arguments import ArgumentGroup
from rl_orch.cli.output import note, warn
from rl_orch.errors import BadInput, SpecInvalid
from rl_orch.spec import checks, tuned
from rl_orch.spec.mistakes import stray_variables
from rl_orch.spec.model import Spec
from rl_orch.spec.options import Option, groups, table
from rl_orch.spec.reader import read_spec
from rl_orch.spec.reference import default_text
from rl_orch.spec.resolve import outline, resolve

SpecFile = Annotated[Path | None, typer.Option("-f", "--file", help="Spec file, YAML or JSON.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="GROUP.OPTION=VALUE",
        help="Overrides in Hydra's grammar; they beat flags, variables and the file.",
    ),
]


class SpecArguments(ArgumentGroup):
    """A spec as it is typed: a file, overrides, and a flag for every option, by path."""

    about = (
        "Every option of a spec is a flag, listed below by group; --no-FLAG turns a switch off. "
        "The same options are keys of the file, variables and overrides: "
        "`rlctl options` names them."
    )

    def __init__(
        self, overrides: Overrides = None, file: SpecFile = None, **flags: str | bool | None
    ) -> None:
        self.overrides = overrides or []
        self.file = file
        self.flags = dict(_given_flags(flags))

    def spec(self) -> Spec:
        """The spec that was typed: file, variables, flags and overrides.

        Without a file, tuned hyperparameters stand in for one, if there are any.
        """
        for sentence in stray_variables(os.environ):
            warn(sentence)
        typed: Any = {"variables": os.environ, "flags": self.flags, "overrides": self.overrides}
        if self.file is not None:
            spec = resolve(read_spec(self.file), **typed)
        else:
            spec = _tuned(typed) or resolve(None, **typed)
        for sentence in checks.unread(spec):
            warn(sentence)
        source = spec.start.source
        return spec if source is None else spec.changed({"start.from": absolute(source)})


def absolute(word: str) -> str:
    """A reference to a policy that a service elsewhere understands: paths are meant from here."""
    path = Path(word).expanduser()
    is_path = word.startswith((".", "~")) or (os.sep in word and path.is_dir())
    return str(path.absolute()) if is_path else word


def _tuned(typed: dict[str, Any]) -> Spec | None:
    """What was typed over tuned hyperparameters; None where there are none, or
    where they do not go together with what was typed."""
    outlined = outline(**typed)
    match = None if outlined is None else tuned.find(outlined)
    if outlined is None or match is None:
        return None
    try:
        spec = resolve(tuned.hyperparameters(match), **typed)
    except SpecInvalid as error:
        plain = resolve(None, **typed)  # What is wrong without them as well is said alone.
        note(f"not tuned: {match.name} does not go together with what you typed ({error})")
        return plain
    note(f"hyperparameters tuned for {outlined.env.id} ({match.name}); -f takes others")
    return spec


def _given_flags(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for option in table().values():
        names = (_name(option), _name(option, other=True))
        values = [given[name] for name in names if given.get(name) is not None]
        texts = dict.fromkeys(str(v).lower() if isinstance(v, bool) else v for v in values)
        if len(texts) > 1:
            seen = " and as ".join(texts)
            message = f"{option.flags[0]} is given twice, as {seen}"
            raise BadInput(message, path=option.path, hint="Keep one; aliases count as the same.")
        if texts:
            yield option.path, next(iter(texts))


def _in_help_order() -> list[Option]:
    """What this release can do comes before what is pending."""
    return sorted(table().values(), key=lambda option: _waits(option.group))


def _waits(group: str) -> bool:
    inside = [option for option in table().values() if option.group == group]
    return all(isinstance(option.pending, str) for option in inside)


def _parameters(option: Option) -> Iterator[inspect.Parameter]:
    """One parameter that help shows, and one that takes the other spellings."""
    first, *others = option.flags
    if option.switch:
        others = [f" /--no-{first[2:]}", *(f"{flag}/--no-{flag[2:]}" for flag in others)]
    kind: Any = bool | None if option.switch else str | None
    shown = typer.Option(
        first,
        help=_help(option),
        rich_help_panel=_panel(option.group),
        metavar=None if option.switch else _metavar(option),
    )
    yield _parameter(_name(option), Annotated[kind, shown])
    if others:
        hidden = typer.Option(*others, hidden=True)
        yield _parameter(_name(option, other=True), Annotated[kind, hidden])


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=annotation)


def _name(option: Option, *, other: bool = False) -> str:
    return ("other_" if other else "flag_") + option.path.replace(".", "__")


def _panel(group: str) -> str:
    about = groups()[group].partition(". ")[0].rstrip(".")
    return f"{group} (pending): {about}" if _waits(group) else f"{group}: {about}"


def _help(option: Option) -> str:
    parts = [option.help]
    if len(option.choices) > 1:
        parts.append(f"One of {', '.join(option.choices)}.")
    if option.default is not None:
        parts.append(f"[default: {default_text(option)}]")
    if isinstance(option.pending, str) and not _waits(option.group):
        parts.append("(pending)")
    return escape(" ".join(parts))


def _metavar(option: Option) -> str:
    if option.choices:
        return "NAME" if len(option.choices) > 1 else option.choices[0]
    words = ("list", "pair", "map", "whole", "number")
    return next((word.upper() for word in words if option.type.startswith(word)), "TEXT")


SpecArguments.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        _parameter("overrides", Overrides),
        _parameter("file", SpecFile),
        *(parameter for option in _in_help_order() for parameter in _parameters(option)),
    ]
)
