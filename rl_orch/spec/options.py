"""The option table: each leaf of the Spec with its path, type, default, variables and flags.

Files, variables, flags, overrides, `rlctl options`, the docs and every error message read it.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rl_orch.spec.aliases import (
    ALIASES,
    FACTORS,
    FLAGS,
    GROUPS,
    PRODUCT,
    SHORT,
    VARIABLE_PREFIXES,
    canonical,
)
from rl_orch.spec.model import Spec

KINDS: dict[Any, str] = {int: "whole number", float: "number", bool: "true or false", str: "text"}
LISTS: dict[Any, str] = {int: "list of whole numbers", str: "list of text"}
ALLOWED: dict[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "one line of printable text",
}
BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}


VARIABLE = "RL_"
"""How our variables begin, but for those that other programs read, too."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `type` reads well in a table, `allowed` in a sentence after "must be"."""

    path: str
    type: str
    allowed: str
    help: str
    variables: tuple[str, ...]
    flags: tuple[str, ...]
    nullable: bool
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()
    structured: bool = False
    pending: str | dict[str, str] | None = None
    live: bool = False

    @property
    def group(self) -> str:
        """The first part of the path; options outside a group have the group `spec`."""
        return self.path.split(".")[0] if "." in self.path else "spec"

    @property
    def switch(self) -> bool:
        """Whether the option is on or off, so that its flag takes no value."""
        return self.type.startswith(KINDS[bool])

    @property
    def textual(self) -> bool:
        """Whether any text will do, so that a number may be meant as text."""
        return self.type.startswith(KINDS[str])

    @property
    def listing(self) -> bool:
        """Whether the option is a list of text, in which a text that stands alone is the only one.

        One that begins with a bracket is a list in JSON.
        """
        return self.type.startswith(LISTS[str])

    @property
    def numbers(self) -> bool:
        """Whether the option is a list of whole numbers, which commas separate."""
        return self.type.startswith(LISTS[int])

    @property
    def mapping(self) -> bool:
        """Whether the option is a map, whose entries may be given one by one."""
        return self.type.startswith("map")

    @property
    def of_text(self) -> bool:
        """Whether the option is a map whose values are all text."""
        return self.type.startswith("map of text")

    def document(self) -> dict[str, Any]:
        """The option as `rlctl options --json` shows it."""
        return {
            "path": self.path,
            "type": self.type,
            "default": self.default,
            "env": self.variables[0],
            "flag": self.flags[0],
            "help": self.help,
            "required": self.required,
            "pending": self.pending,
            "live": self.live,
            "aliases": aliases_of(self.path),
            "env_aliases": list(self.variables[1:]),
            "flag_aliases": list(self.flags[1:]),
        }


@cache
def table() -> dict[str, Option]:
    """Every option by its canonical path, in the order of the Spec."""
    options = {option.path: option for option in _leaves(Spec, "")}
    for path in FACTORS:
        options[path] = _factor(path)
    return options


def groups() -> dict[str, str]:
    """The names of the groups, in the order of the Spec, each with a line about it."""
    names = dict.fromkeys(option.group for option in table().values())
    return {name: _about(name) for name in names}


@cache
def short_names() -> dict[str, str]:
    """Paths by the names of their flags, in snake_case, and by the last word of their own and of
    their aliases, where it is that of no other option."""
    words: dict[str, set[str]] = {}
    for path in (*table(), *ALIASES):
        words.setdefault(path.rpartition(".")[2], set()).add(canonical(path))
    own = {word: paths.pop() for word, paths in words.items() if len(paths) == 1}
    flags = {
        flag.removeprefix("--").replace("-", "_"): option.path
        for option in table().values()
        for flag in option.flags
        if flag.startswith("--")
    }
    return own | flags


@cache
def read_variables() -> dict[str, str]:
    """Paths by the variables that are read: those of the options, and their short names."""
    named = {name: option.path for option in table().values() for name in option.variables}
    short = {f"{VARIABLE}{word.upper()}": path for word, path in short_names().items()}
    return named | {name: path for name, path in short.items() if name not in named}


def path_of(name: str) -> str:
    """The canonical path behind a path in any spelling or a short name, whether or not it is known.

    A name that is also that of a group stands for the group.
    """
    path = canonical(name)
    return path if path in table() or is_group(path) else short_names().get(path, path)


def is_group(path: str) -> bool:
    """Whether a path is that of a group, of a group in a group, or of one of aliases alone."""
    return any(name.startswith(f"{path}.") for name in (*table(), *ALIASES))


def names_in(group: str) -> list[str]:
    """The options and groups that stand in a group; the empty path is the whole spec."""
    prefix = f"{group}." if group else ""
    known = [path for path in table() if path.startswith(prefix)]
    known = known or [path for path in ALIASES if path.startswith(prefix)]
    return list(dict.fromkeys(path[len(prefix) :].split(".")[0] for path in known))


def aliases_of(path: str) -> list[str]:
    """The other paths of an option."""
    paths = [alias for alias, target in ALIASES.items() if target == path]
    for alias, group in GROUPS.items():
        paths += [alias + p[len(group) :] for p in (path, *paths) if p.startswith(group + ".")]
    return paths


def json_schema() -> dict[str, Any]:
    """The Spec as JSON Schema, for editors that complete and check YAML."""
    schema: dict[str, Any] = _with_standard_bounds(Spec.model_json_schema())
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


def _with_standard_bounds(node: Any) -> Any:
    """The schema with bounds under the names that JSON Schema has for them.

    Inside `X | None`, pydantic leaves them as `ge`, `gt` and `le`, which no editor understands.
    """
    if isinstance(node, list):
        return [_with_standard_bounds(part) for part in node]
    if not isinstance(node, dict):
        return node
    return {BOUNDS.get(key, key): _with_standard_bounds(part) for key, part in node.items()}


def _about(group: str) -> str:
    field = Spec.model_fields.get(group)
    model = Spec if field is None else field.annotation
    return (model.__doc__ or "").strip().splitlines()[0]


def _leaves(model: type[BaseModel], prefix: str) -> Iterator[Option]:
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _leaves(field.annotation, f"{path}.")
        else:
            yield _option(path, field)


def _option(path: str, field: FieldInfo) -> Option:
    extra: Any = field.json_schema_extra or {}
    annotation, nullable = _without_none(field.annotation)
    kind = _kind(field, annotation)
    missing = field.default is PydanticUndefined
    return Option(
        path=path,
        type=str(extra.get("words", kind.words)) + (" or null" if nullable else ""),
        allowed=str(extra.get("allowed", kind.allowed)) + (", or null" if nullable else ""),
        default=None if missing else _plain(field.default),
        required=missing,
        nullable=nullable,
        choices=tuple(extra.get("choices", kind.choices)),
        structured=kind.structured,
        help=field.description or "",
        pending=extra.get("pending"),
        live=bool(extra.get("live")),
        variables=_variables(path, extra.get("env")),
        flags=_flags(path, extra.get("flag")),
    )


def _factor(path: str) -> Option:
    other = next(factor for factor in FACTORS if factor != path)
    return Option(
        path=path,
        type="whole number in [1, 10^13] or null",
        allowed="a whole number in [1, 10^13]",
        nullable=True,
        help=f"Times `{other}`, another way to give `{PRODUCT}`.",
        variables=_variables(path, None),
        flags=_flags(path, None),
    )


def _variables(path: str, given: object) -> tuple[str, ...]:
    """The variables that are read for an option; the first that is set wins."""
    names = [str(given)] if given else []
    for name in (path, *aliases_of(path)):
        group, _, rest = name.partition(".")
        names.append(VARIABLE + name.replace(".", "_").upper())
        if rest and group in VARIABLE_PREFIXES:
            names.append(VARIABLE_PREFIXES[group] + rest.replace(".", "_").upper())
    return tuple(dict.fromkeys(names))


def _flags(path: str, given: object) -> tuple[str, ...]:
    names = [str(given)] if given else []
    names += ["--" + p.replace(".", "-").replace("_", "-") for p in (path, *aliases_of(path))]
    short = [p for p in (path, *aliases_of(path)) if p in SHORT or p.split(".")[0] in SHORT[:1]]
    names += ["--" + p.split(".")[-1].replace("_", "-") for p in short]
    return tuple(dict.fromkeys([*names, *FLAGS.get(path, ())]))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class OptionKind:
    """The type of an option: its words in a table, what is allowed as a sentence says it, the
    choices that it names, and whether a text of it is JSON."""

    words: str
    allowed: str
    choices: tuple[str, ...] = ()
    structured: bool = False


def _kind(field: FieldInfo, annotation: Any) -> OptionKind:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        choices = tuple(str(value) for value in arguments)
        return OptionKind(" | ".join(choices), _one_of(choices), choices)
    if origin is tuple and arguments[-1] is ...:
        words = LISTS[_without_none(arguments[0])[0]]
        return OptionKind(words, f"a {words}", structured=True)
    if origin is tuple:
        allowed = "a pair of numbers [low, high], one number"
        return OptionKind("pair of numbers", allowed, structured=True)
    if origin is dict:
        allowed = "a map of names to JSON values, all numbers finite"
        return OptionKind("map", allowed, structured=True)
    bounds = _bounds(field.metadata)
    longest = min(_lengths(field.annotation, field.metadata), default=None)
    length = f" of 1 to {longest} characters" if longest else ""
    return OptionKind(KINDS[annotation] + bounds, ALLOWED[annotation] + bounds + length)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """The annotation without `Annotated` and without None, and whether None was allowed."""
    if get_origin(annotation) is Annotated:
        return _without_none(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        some = [part for part in get_args(annotation) if part is not NoneType]
        return _without_none(some[0])[0], len(some) < len(get_args(annotation))
    return annotation, False


def _lengths(annotation: Any, metadata: Iterable[Any]) -> Iterator[int]:
    """Every bound on the length of a text, wherever in the annotation it stands."""
    for part in metadata:
        longest = getattr(part, "max_length", None)
        if longest is not None:
            yield longest
    for inner in get_args(annotation):
        yield from _lengths(inner, getattr(inner, "__metadata__", ()))


def _one_of(choices: tuple[str, ...]) -> str:
    return choices[0] if len(choices) == 1 else "one of " + ", ".join(choices)


def _bounds(metadata: list[Any]) -> str:
    at_least = next((bound.ge for bound in metadata if isinstance(bound, Ge)), None)
    above = next((bound.gt for bound in metadata if isinstance(bound, Gt)), None)
    at_most = next((bound.le for bound in metadata if isinstance(bound, Le)), None)
    below = next((bound.lt for bound in metadata if isinstance(bound, Lt)), None)
    low = above if at_least is None else at_least
    high = below if at_most is None else at_most
    if low is None:
        return ""
    if high is None:
        return f" {'>' if at_least is None else '≥'} {_amount(low)}"
    opening, closing = "(" if at_least is None else "[", ")" if at_most is None else "]"
    return f" in {opening}{_amount(low)}, {_amount(high)}{closing}"


def _amount(number: Any) -> str:
    """A bound, where long rows of digits would have to be counted as a power."""
    for base in (10, 2):
        power = round(math.log(number, base)) if number > 10**5 else 0
        if power and base**power == number:
            return f"{base}^{power}"
        if power and base**power == number + 1:
            return f"{base}^{power} - 1"
    return str(number)
