"""Flags for a whole spec, made from the option table and added to a command's signature."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rl_orch.spec.model import Spec
from rl_orch.spec.options import Option, table
from rl_orch.spec.reader import read_spec
from rl_orch.spec.resolve import resolve

SpecFile = Annotated[
    Path | None, typer.Option("-f", "--file", help="Spec file, YAML or JSON.", show_default=False)
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[GROUP.OPTION=VALUE]...",
        help="Overrides in Hydra's grammar; they beat flags, variables and the file.",
        show_default=False,
    ),
]


def with_spec_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command that takes every option as a flag and passes them on as `flags`, path → text."""
    parameters = {_parameter_name(path): option for path, option in table().items()}
    signature = inspect.signature(command)
    own = [p for name, p in signature.parameters.items() if name != "flags"]

    @functools.wraps(command)
    def wrapper(**given: Any) -> Any:
        values = {option.path: given.pop(name) for name, option in parameters.items()}
        flags = {path: _text(value) for path, value in values.items() if value is not None}
        return command(**given, flags=flags)

    added = [_parameter(name, option) for name, option in parameters.items()]
    wrapper.__dict__["__signature__"] = signature.replace(parameters=[*own, *added])
    wrapper.__annotations__ = {p.name: p.annotation for p in (*own, *added)}
    return wrapper


def spec_from(file: Path | None, overrides: list[str] | None, flags: Mapping[str, str]) -> Spec:
    """The spec that was typed: file, variables, flags and overrides."""
    document = None if file is None else read_spec(file)
    return resolve(document, variables=os.environ, flags=flags, overrides=overrides or ())


def _parameter_name(path: str) -> str:
    return "flag_" + path.replace(".", "__")


def _parameter(name: str, option: Option) -> inspect.Parameter:
    note = " [dim](pending)[/dim]" if isinstance(option.pending, str) else ""
    default = "" if option.default is None else f" [default: {option.default}]".replace("[", r"\[")
    declared = [_switched(flag) for flag in option.flags] if option.switch else option.flags
    info = typer.Option(
        *declared,
        help=f"{option.help}{default}{note}",
        rich_help_panel=f"Options: {option.group}",
        metavar=None if option.switch else _metavar(option),
        show_default=False,
    )
    annotation = Annotated[bool | None if option.switch else str | None, info]  # type: ignore[valid-type]
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=annotation)


def _switched(flag: str) -> str:
    return f"{flag}/--no-{flag.removeprefix('--')}"


def _metavar(option: Option) -> str:
    if option.choices:
        return "|".join(option.choices)
    words = ("list", "pair", "map", "whole", "number")
    return next((word.upper() for word in words if option.type.startswith(word)), "TEXT")


def _text(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value
