"""Writes `docs/reference/` from the program itself: `make docs`, or `python docs/generate.py`.

A test fails where these pages are not what this script would write. Help is laid out here and not
by typer, so that a new release of it does not change them.
"""

import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from typer.models import ArgumentInfo, OptionInfo

from rl_orch.api.app import description
from rl_orch.cli.rlctl import PANELS, load
from rl_orch.spec.options import json_schema, table
from rl_orch.spec.reference import markdown

REFERENCE = Path(__file__).parent / "reference"
WIDTH = 100
COLUMN = 34
KINDS: dict[Any, str] = {Path: "PATH", str: "TEXT", int: "NUMBER", float: "NUMBER"}

OPTIONS = """# Options

*Made by `make docs` from the option table; `rlctl options` prints the same.*

Every option can be set in a file, by a variable, by a flag and by an override.
[Where values come from](../spec.md) says how they combine, and what *pending* means.

"""

COMMANDS = """# Commands

*Made by `make docs` from the commands themselves.*

`RUN` is an id, a unique beginning of one, a name, or `last`. Of several runs of a name the newest
is meant; what changes or deletes one lists them and asks which, or exits with 2. Exit codes: 0
succeeded, 1 failed or lost, 2 bad input, 3 rejected by a gate, 4 stopped. With `--json`, standard
output holds one document and nothing else (`logs`: one event a line); an error is
`{"error": {"code", "message", …}}`.

"""

SPEC_FLAGS = "Besides these, every [option](options.md) of a spec is a flag."


def documents() -> dict[Path, str]:
    """Every generated page and what should be in it."""
    return {
        REFERENCE / "options.md": OPTIONS + markdown(list(table().values())).rstrip() + "\n",
        REFERENCE / "commands.md": COMMANDS + "\n".join(_commands()),
        REFERENCE / "spec.schema.json": _json(json_schema()),
        REFERENCE.parent / "openapi.json": _json(description()),
    }


def _json(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the pages that have changed, and name them."""
    REFERENCE.mkdir(exist_ok=True)
    for path, text in documents().items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            sys.stdout.write(f"wrote {path.relative_to(REFERENCE.parents[1])}\n")


def _commands() -> Iterator[str]:
    for panel, commands in PANELS.items():
        for name, (module, about) in commands.items():
            found = load(module)
            if callable(found):
                yield _command("##", name, found, f"*{panel}*\n\n")
                continue
            yield f"## rlctl {name}\n\n*{panel}*\n\n{about}\n"
            for word, function in found.items():
                yield _command("###", f"{name} {word}", function)


def _command(level: str, name: str, command: Callable[..., Any], panel: str = "") -> str:
    taken = inspect.signature(command).parameters
    own = [p for name, p in taken.items() if not name.startswith(("flag_", "other_"))]
    about = inspect.getdoc(inspect.unwrap(command)) or ""
    text = f"{level} rlctl {name}\n\n{panel}```text\n{_help(name, about, own)}\n```\n"
    return text if len(own) == len(taken) else f"{text}\n{SPEC_FLAGS}\n"


def _help(name: str, about: str, own: Sequence[inspect.Parameter]) -> str:
    """Usage, what the command does, and its own parameters."""
    arguments = [_metavar(p) for p in own if isinstance(_info(p), ArgumentInfo)]
    usage = " ".join(["rlctl", name, *arguments, "[options]"])
    rows = [_row(_label(p), _explained(p)) for p in own]
    return "\n".join([usage, "", about, "", *rows])


def _row(label: str, text: str) -> str:
    if len(label) > COLUMN - 2:
        return textwrap.indent(label, "  ") + "\n" + _row("", text)
    lines = textwrap.wrap(text, WIDTH - COLUMN) or [""]
    first = f"  {label:<{COLUMN - 2}}{lines[0]}".rstrip()
    return "\n".join([first, *(" " * COLUMN + line for line in lines[1:])])


def _info(parameter: inspect.Parameter) -> OptionInfo | ArgumentInfo:
    info = get_args(parameter.annotation)[1]
    assert isinstance(info, OptionInfo | ArgumentInfo)
    return info


def _label(parameter: inspect.Parameter) -> str:
    info = _info(parameter)
    if isinstance(info, ArgumentInfo):
        return _metavar(parameter)
    # In an annotation, typer keeps the first declaration where a default would stand.
    given = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]
    names = given or [f"--{parameter.name.replace('_', '-')}"]
    return " ".join([", ".join(names), _metavar(parameter)]).strip()


def _metavar(parameter: inspect.Parameter) -> str:
    """What stands for the value: its given name, its kind, or nothing for a switch."""
    given, kind = _info(parameter).metavar, _kind(parameter.annotation)
    if isinstance(_info(parameter), ArgumentInfo):
        return _shape(given or parameter.name.upper(), parameter)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return given or "|".join(kind)
    if get_origin(kind) is Literal:
        return given or "|".join(get_args(kind))
    return given or KINDS.get(kind, "")


def _shape(word: str, parameter: inspect.Parameter) -> str:
    """An argument as usage lines have it: in brackets if optional, with dots if repeated."""
    many = "..." if "list[" in str(parameter.annotation) and not word.endswith("...") else ""
    optional = parameter.default is None and not word.startswith("[")
    return (f"[{word}]" if optional else word) + many


def _kind(annotation: Any) -> Any:
    """The plain type in an annotation, without `Annotated`, None and list."""
    if get_origin(annotation) is Literal:
        return annotation
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    inner = [part for part in get_args(annotation) if part is not NoneType]
    return _kind(inner[0]) if inner else annotation


def _explained(parameter: inspect.Parameter) -> str:
    info = _info(parameter)
    text = info.help or ""
    if info.envvar:
        names = [info.envvar] if isinstance(info.envvar, str) else info.envvar
        text += f" Variable: {', '.join(names)}."
    if parameter.default not in (None, False, inspect.Parameter.empty):
        text += f" Default: {parameter.default}."
    return text.strip()


if __name__ == "__main__":
    main()
