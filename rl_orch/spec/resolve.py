"""From what the user typed to one Spec: override, flag, variable, file, default, in that order.

A layer maps canonical paths to values. Layers are merged, then checked once as a whole, and every
problem is reported, not only the first.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from rl_orch.errors import BadInput, Problem, SpecInvalid
from rl_orch.spec import checks
from rl_orch.spec.aliases import FACTORS, PRODUCT, WRAPPER, canonical
from rl_orch.spec.model import Spec
from rl_orch.spec.options import Option, table
from rl_orch.spec.overrides import RESET, parse_override

Layer = dict[str, Any]


def resolve(
    document: Mapping[str, Any] | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> Spec:
    """The Spec that a document, variables, flags (path → text) and overrides add up to."""
    found: list[Problem] = []
    layers = [
        from_document(document or {}, found),
        from_variables(variables or {}, found),
        from_flags(flags or {}, found),
        from_overrides(overrides, found),
    ]
    merged: Layer = {}
    for layer in layers:
        _multiply_factors(layer, merged, found)
        merged |= layer
    merged = {path: value for path, value in merged.items() if value is not RESET}
    spec = _validated(merged, found)
    if spec is not None:
        found += checks.problems(spec)
    if found or spec is None:
        raise SpecInvalid(found)
    return spec


def from_document(document: Mapping[str, Any], found: list[Problem]) -> Layer:
    """The layer of a file: nested maps, dotted keys, snake_case or camelCase, with aliases."""
    layer: Layer = {}
    _flatten(_unwrapped(document, found), "", layer, found)
    return layer


def from_variables(variables: Mapping[str, str], found: list[Problem]) -> Layer:
    """The layer of environment variables. An empty variable counts as not set."""
    layer: Layer = {}
    for option in table().values():
        name = next((name for name in option.variables if variables.get(name)), None)
        if name is not None:
            _put(layer, option.path, _from_text(option, variables[name], found, name), found)
    return layer


def from_flags(flags: Mapping[str, str], found: list[Problem]) -> Layer:
    """The layer of command-line flags, given by canonical path."""
    return {
        path: _from_text(table()[path], text, found, table()[path].flags[0])
        for path, text in flags.items()
    }


def from_overrides(overrides: Sequence[str], found: list[Problem]) -> Layer:
    """The layer of `group.option=value` in Hydra's grammar; `~group.option` means its default."""
    layer: Layer = {}
    for text in overrides:
        try:
            path, value = parse_override(text)
        except BadInput as error:
            found.append(Problem(text, text, error.message, error.hint))
            continue
        _flatten({path: value}, "", layer, found, later_wins=True)
    return layer


def _unwrapped(document: Mapping[str, Any], found: list[Problem]) -> Mapping[str, Any]:
    inner = document.get(WRAPPER)
    if len(document) != 1 or not isinstance(inner, dict):
        return document
    if inner.get("enable", True) is not True:
        message = f"{WRAPPER}.enable is {inner['enable']!r}; must be true for the spec to be used"
        found.append(Problem(f"{WRAPPER}.enable", inner["enable"], message))
    return {key: value for key, value in inner.items() if key != "enable"}


def _flatten(
    node: Mapping[Any, Any],
    prefix: str,
    layer: Layer,
    found: list[Problem],
    later_wins: bool = False,
) -> None:
    for key, value in node.items():
        path = canonical(f"{prefix}{key}")
        if path in table():
            if later_wins:
                layer.pop(path, None)
            _put(layer, path, value, found)
        elif not _is_group(path):
            found.append(_unknown(f"{prefix}{key}", value))
        elif isinstance(value, Mapping):
            _flatten(value, f"{path}.", layer, found, later_wins)
        elif value is not None:
            inside = ", ".join(_names_in(path))
            message = f"{path} is {_show(value)}; must be a group with any of: {inside}"
            found.append(Problem(path, value, message))


def _put(layer: Layer, path: str, value: Any, found: list[Problem]) -> None:
    if path in layer and layer[path] != value:
        message = f"{path} is given twice, as {_show(layer[path])} and as {_show(value)}"
        found.append(Problem(path, value, message, "Keep one; aliases count as the same option."))
    layer[path] = value


def _from_text(option: Option, text: str, found: list[Problem], source: str) -> Any:
    """A value from a variable or a flag: lists and maps are JSON, `null` is nothing."""
    if option.nullable and text.strip().lower() in ("null", "none"):
        return None
    if not option.structured:
        return text
    try:
        return json.loads(text)
    except ValueError:
        message = f"{source} is {_show(text)}; must be JSON: {option.allowed}"
        found.append(Problem(option.path, text, message))
        return RESET


def _multiply_factors(layer: Layer, below: Layer, found: list[Problem]) -> None:
    """Replace the two factors by their product; one may come from a layer below."""
    if not any(factor in layer for factor in FACTORS):
        return
    values = [layer.get(factor, below.get(factor)) for factor in FACTORS]
    counts = [_count(value) for value in values]
    for factor, value, count in zip(FACTORS, values, counts, strict=True):
        if value is None:
            other = next(path for path in FACTORS if path != factor)
            message = f"{factor} is missing; {other} needs it to give {PRODUCT}"
            found.append(Problem(factor, None, message))
        elif count is None:
            allowed = table()[factor].allowed
            found.append(Problem(factor, value, f"{factor} is {_show(value)}; must be {allowed}"))
    if None not in counts:
        product = (counts[0] or 0) * (counts[1] or 0)
        _put(layer, PRODUCT, layer.get(PRODUCT, product), found)
        if _count(layer[PRODUCT]) != product:
            message = (
                f"{PRODUCT} is {_show(layer[PRODUCT])}, but {' × '.join(FACTORS)} is {product}"
            )
            found.append(Problem(PRODUCT, layer[PRODUCT], message, "Keep one of the two."))


def _count(value: Any) -> int | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    fits = not isinstance(value, bool) and number.is_integer() and 1 <= number <= 1e13
    return int(number) if fits else None


def _validated(layer: Layer, found: list[Problem]) -> Spec | None:
    document: dict[str, Any] = {"env": {}}
    for path, value in layer.items():
        if path in FACTORS:
            continue
        *groups, name = path.split(".")
        node = document
        for group in groups:
            node = node.setdefault(group, {})
        node[name] = value
    try:
        return Spec.model_validate(document)
    except ValidationError as error:
        found += _problems(error)
        return None


def _problems(error: ValidationError) -> list[Problem]:
    """One problem for each option that is wrong, however many ways it is wrong in."""
    by_path: dict[str, Problem] = {}
    for detail in error.errors(include_url=False, include_context=False):
        option = _option_at(detail["loc"])
        if option is not None:
            by_path.setdefault(option.path, _problem(option, detail["type"], detail["input"]))
    return list(by_path.values())


def _option_at(location: tuple[int | str, ...]) -> Option | None:
    for length in range(len(location), 0, -1):
        option = table().get(".".join(str(part) for part in location[:length]))
        if option is not None:
            return option
    return None


def _problem(option: Option, kind: str, value: Any) -> Problem:
    if kind == "missing":
        message = f"{option.path} is missing; it has no default"
        example = f"Say which environment, e.g. {option.path}=CartPole-v1."
        return Problem(option.path, None, message, example)
    hint = None
    if option.choices and isinstance(value, str):
        near = difflib.get_close_matches(value.lower(), [c.lower() for c in option.choices], n=1)
        hint = next((f"Did you mean {c!r}?" for c in option.choices if c.lower() in near), None)
    message = f"{option.path} is {_show(value)}; must be {option.allowed}"
    return Problem(option.path, value, message, hint)


def _unknown(path: str, value: Any) -> Problem:
    known = canonical(path)
    parent, _, leaf = known.rpartition(".")
    siblings = _names_in(parent)
    near = difflib.get_close_matches(leaf, siblings, n=1)
    hint = f"Did you mean {f'{parent}.' if parent else ''}{near[0]}?" if near else None
    if hint is None:
        elsewhere = [other for other in table() if other.rpartition(".")[2] == leaf]
        hint = f"Did you mean {elsewhere[0]}?" if elsewhere else None
    where = f"{parent} has" if parent else "a spec has"
    return Problem(path, value, f"{path} is unknown; {where}: {', '.join(siblings)}", hint)


def _is_group(path: str) -> bool:
    return any(known.startswith(f"{path}.") for known in table())


def _names_in(group: str) -> list[str]:
    prefix = f"{group}." if group else ""
    inside = (path[len(prefix) :] for path in table() if path.startswith(prefix))
    return list(dict.fromkeys(name.split(".")[0] for name in inside))


def _show(value: Any) -> str:
    text = "null" if value is None else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
