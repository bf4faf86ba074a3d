"""What each source gives: a file, variables, flags and overrides, each read into one layer.

A layer maps canonical paths to values as they were typed. What a value must be is checked once,
after the layers are merged, in `resolve.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_orch.errors import BadInput, Problem, SpecInvalid
from rl_orch.spec import mistakes, spelling, zoo
from rl_orch.spec.aliases import ENABLE, WRAPPER, snake
from rl_orch.spec.mistakes import Given
from rl_orch.spec.options import (
    VARIABLE,
    Option,
    is_group,
    names_in,
    path_of,
    read_variables,
    short_names,
    table,
)
from rl_orch.spec.overrides import RESET, parse_override
from rl_orch.spec.texts import arguments_of, value_of


@dataclass(frozen=True, slots=True)
class MapEntry:
    """One entry of an option that is a map: `env.kwargs.gravity`."""

    path: str
    keys: tuple[str, ...]
    given: Given

    def added_to(self, before: Any) -> Given:
        """The map with the entry, or without it where its default is meant."""
        return Given(_with_entry(before, self.keys, self.given.value), self.given.source)


@dataclass(slots=True)
class SpecLayer:
    """Values by canonical path, entries of maps, problems with the rest, and the paths that wrong
    names resemble."""

    values: dict[str, Given] = field(default_factory=dict)
    entries: list[MapEntry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    meant: set[str] = field(default_factory=set)

    def put(self, path: str, given: Given) -> None:
        """Take a value; the same option twice is a problem unless both say the same."""
        before = self.values.get(path)
        if before is not None and before.value != given.value:
            self.problems.append(mistakes.given_twice(path, before, given))
        self.values[path] = given


def from_document(document: Mapping[str, Any]) -> SpecLayer:
    """A file: nested maps or dotted keys, snake_case or camelCase, with aliases and short names."""
    layer = SpecLayer()
    if (problem := zoo.keyed_by_environment(document)) is not None:
        layer.problems.append(problem)
        layer.meant.add("env")
        return layer
    _flatten(document, "", layer)
    return layer


def from_variables(variables: Mapping[str, str]) -> SpecLayer:
    """Environment variables. An empty one counts as not set."""
    layer = SpecLayer()
    given: dict[str, list[str]] = {}
    for name, path in read_variables().items():
        if variables.get(name):
            given.setdefault(path, []).append(name)
    for path, names in given.items():
        # A variable that other programs read too gives way to ours.
        for name in [name for name in names if name.startswith(VARIABLE)] or names:
            _put_text(layer, table()[path], variables[name], name)
    return layer


def from_flags(flags: Mapping[str, str]) -> SpecLayer:
    """Command-line flags, given by canonical path or as typed, and hyperparameters by other
    names."""
    layer = SpecLayer()
    for name, text in flags.items():
        word = name.removeprefix("--")
        path = path_of(name) if word == name else short_names()[word.replace("-", "_")]
        option = table().get(path)
        if option is not None:
            source = option.flags[0] if name == option.path else name
            _put_text(layer, option, text, source)
        elif path == zoo.POLICY and (arguments := arguments_of(text, name)) is not None:
            _flatten(arguments, f"{name}.", layer)
        else:
            _flatten({name: text}, "", layer)
    return layer


def from_overrides(overrides: Sequence[str]) -> SpecLayer:
    """`group.option=value` in Hydra's grammar; `~group.option` and `~group` mean the default.

    As in Hydra, the last of several for one option counts.
    """
    layer = SpecLayer()
    for text in overrides:
        single = SpecLayer()
        try:
            override = parse_override(text)
        except BadInput as error:
            layer.problems.append(Problem(text, text, error.message, error.hint))
            continue
        option = table().get(path_of(override.path))
        literal = option is not None and (option.textual or option.listing)
        value = override.text if literal and override.text is not None else override.value
        _flatten({override.path: value}, "", single)
        layer.values |= single.values
        layer.entries = [each for each in layer.entries if each.path not in single.values]
        layer.entries += single.entries
        layer.problems += single.problems
        layer.meant |= single.meant
    return layer


def _flatten(node: Mapping[Any, Any], prefix: str, layer: SpecLayer) -> None:
    for key, value in node.items():
        typed = f"{prefix}{key}"
        path = path_of(typed)
        if path in table():
            layer.put(path, Given(value, typed))
        elif (entry := _map_entry(typed, value)) is not None:
            layer.entries.append(entry)
        elif path == ENABLE:
            if spelling.switch(value) is not True:
                layer.problems.append(mistakes.not_enabled(typed, value))
        elif path in zoo.ONE_MEMORY:
            problem = zoo.other_memory(path, value)
            layer.problems += [] if problem is None else [problem]
        elif not (path == WRAPPER or is_group(path)):
            problem, near = mistakes.unknown(typed, value)
            layer.problems.append(problem)
            layer.meant.add(near)
        elif isinstance(value, Mapping):
            _flatten(value, f"{typed}.", layer)
        elif path == zoo.POLICY and (arguments := zoo.keywords(value)) is not None:
            _flatten(arguments, f"{typed}.", layer)
        elif value is RESET:
            _flatten(dict.fromkeys(names_in(path), RESET), f"{path}.", layer)
        elif isinstance(value, str | bool) and (meant := _meant_by_group(typed)) is not None:
            layer.put(meant, Given(value, typed))
        elif value is not None:
            layer.problems.append(mistakes.not_a_group(path, Given(value, typed)))


def _meant_by_group(typed: str) -> str | None:
    """The option that a plain value for a group means: that of the flag of its name."""
    return short_names().get(snake(typed).removeprefix(f"{WRAPPER}."))


def _map_entry(typed: str, value: Any) -> MapEntry | None:
    """The entry of a map that a path names, beyond the path of the map itself."""
    words = typed.split(".")
    for length in range(1, len(words)):
        option = table().get(path_of(".".join(words[:length])))
        if option is not None and option.mapping:
            return MapEntry(option.path, tuple(words[length:]), Given(value, typed))
    return None


def _with_entry(before: Any, keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    first, *rest = keys
    whole = dict(before) if isinstance(before, Mapping) else {}
    if rest:
        whole[first] = _with_entry(whole.get(first), tuple(rest), value)
    elif value is RESET:
        whole.pop(first, None)
    else:
        whole[first] = value
    return whole


def _put_text(layer: SpecLayer, option: Option, text: str, source: str) -> None:
    """Take a value from a variable or a flag."""
    try:
        layer.put(option.path, Given(value_of(option, text, source), source))
    except SpecInvalid as error:
        layer.problems += error.problems
