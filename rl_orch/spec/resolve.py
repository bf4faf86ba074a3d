"""From what the user typed to one Spec: override, flag, variable, file, default, in that order.
Defaults are those of the algorithm, where it has some of its own.

Layers are merged, then checked once as a whole, and every problem is reported, not only the first.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from rl_orch.errors import Problem, SpecInvalid
from rl_orch.spec import checks, layers, mistakes, spelling, zoo
from rl_orch.spec.algorithms import BUILT_IN
from rl_orch.spec.aliases import FACTORS, PRODUCT, spelled_out
from rl_orch.spec.layers import SpecLayer
from rl_orch.spec.mistakes import Given
from rl_orch.spec.model import Spec
from rl_orch.spec.options import Option, table
from rl_orch.spec.overrides import RESET
from rl_orch.spec.spelling import lower

BOTH = " × ".join(FACTORS)


def resolve(
    document: Mapping[str, Any] | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    base: Mapping[str, Any] | None = None,
) -> Spec:
    """The Spec that a document, variables, flags (path → text) and overrides add up to.

    `base` is a document below them. What users ask for is resolved by `tuned.resolve_tuned`.
    """
    sources = _layers(base, document, variables, flags, overrides)
    merged = _merged(sources)
    mistakes = [problem for layer in sources for problem in layer.problems]
    mistakes += _lone_factor(merged)
    meant = {path for layer in sources for path in layer.meant}
    spec = _validated(_with_defaults(merged), meant, mistakes)
    if spec is not None:
        mistakes += checks.problems(spec)
    if mistakes or spec is None:
        raise SpecInvalid(mistakes)
    return spec


def outline(
    document: Mapping[str, Any] | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> Spec | None:
    """The Spec that is asked for, whether or not its options go together; None if one of them is
    wrong."""
    sources = _layers(None, document, variables, flags, overrides)
    merged = _merged(sources)
    if any(layer.problems for layer in sources):
        return None
    return _validated(_with_defaults(merged), set(), [])


def given(path: str, document: Mapping[str, Any] | None = None, **typed: Any) -> Any:
    """The value that is asked for an option; None where none is."""
    found = _merged(_layers(None, document, **_TYPED | typed)).get(path)
    return None if found is None or found.value is RESET else found.value


_TYPED: dict[str, Any] = {"variables": None, "flags": None, "overrides": ()}


def _layers(
    base: Mapping[str, Any] | None,
    document: Mapping[str, Any] | None,
    variables: Mapping[str, str] | None,
    flags: Mapping[str, str] | None,
    overrides: Sequence[str],
) -> list[SpecLayer]:
    sources = [
        layers.from_document(base or {}),
        layers.from_document(document or {}),
        layers.from_variables(variables or {}),
        layers.from_flags(flags or {}),
        layers.from_overrides(overrides),
    ]
    for layer in sources:
        _spell_out(layer)
        _spell_out_schedules(layer)
        _spell_out_normalizer(layer)
        _spell_out_layers(layer)
        _spell_out_memory(layer)
    return sources


def _spell_out(layer: SpecLayer) -> None:
    """Let a layer say which options are meant by an algorithm that is one of another's."""
    named = layer.values.get("agent.algorithm")
    meant = None if named is None else spelled_out(named.value)
    if named is None or meant is None:
        return
    algorithm, options = meant
    layer.values["agent.algorithm"] = Given(algorithm, named.source)
    for path, value in options.items():
        layer.values.setdefault(path, Given(value, named.source))


def _spell_out_schedules(layer: SpecLayer) -> None:
    """Let a layer say by which schedule a number falls, where the zoo writes both in one."""
    for path, schedule in zoo.SCHEDULES.items():
        named = layer.values.get(path)
        first = None if named is None else zoo.falling(named.value)
        if named is not None and first is not None:
            layer.values[path] = Given(first, named.source)
            layer.put(schedule, Given("linear", named.source))


def _spell_out_normalizer(layer: SpecLayer) -> None:
    """Let a layer say what is normalised, where the zoo writes it as arguments."""
    named = layer.values.get("obs.normalize")
    options = None if named is None else zoo.normalizer(named.value)
    if named is None or options is None:
        return
    del layer.values["obs.normalize"]
    for path, value in options.items():
        layer.put(path, Given(value, named.source))


def _spell_out_layers(layer: SpecLayer) -> None:
    """Let a layer say how wide which network is, where Stable-Baselines3 writes it as one map."""
    path = "agent.network.hidden_sizes"
    named = layer.values.get(path)
    options = None if named is None else zoo.layers(named.value)
    if named is None or options is None:
        return
    del layer.values[path]
    for each, value in options.items():
        layer.put(each, Given(value, named.source))


def _spell_out_memory(layer: SpecLayer) -> None:
    """Let a layer say that the policy remembers, where sb3-contrib has it in the policy's name."""
    path = "agent.policy_type"
    named = layer.values.get(path)
    if named is None or named.value not in zoo.MEMORY:
        return
    layer.values[path] = Given(zoo.MEMORY[named.value], named.source)
    layer.values.setdefault("feature.encoder", Given("lstm", named.source))


def _merged(sources: Sequence[SpecLayer]) -> dict[str, Given]:
    """What counts of the layers, the later ones before the earlier, with factors multiplied."""
    merged: dict[str, Given] = {}
    for layer in sources:
        merged |= layer.values
        for entry in layer.entries:
            before = merged.get(entry.path)
            merged[entry.path] = entry.added_to(None if before is None else before.value)
        if any(factor in layer.values for factor in FACTORS):
            _multiply(layer, merged)
        elif PRODUCT in layer.values:
            _forget(merged, *FACTORS)
    return merged


def _with_defaults(merged: Mapping[str, Given]) -> dict[str, Given]:
    """What is given, over the defaults of the algorithm that is given."""
    given = {path: value for path, value in merged.items() if value.value is not RESET}
    name = given["agent.algorithm"].value if "agent.algorithm" in given else None
    traits = BUILT_IN.get(str(lower(name)))
    defaults = {} if traits is None else traits.defaults
    return {path: Given(value, path) for path, value in defaults.items()} | given


def _multiply(layer: SpecLayer, merged: dict[str, Given]) -> None:
    """Bring the product in line with the factors that a layer has changed."""
    if PRODUCT in merged and merged[PRODUCT].source == BOTH:
        _forget(merged, PRODUCT)
    for factor in FACTORS:
        if factor in merged and merged[factor].value in (None, RESET):
            _forget(merged, factor)
        elif factor in layer.values and _whole(layer.values[factor].value) is None:
            layer.problems.append(mistakes.wrong(table()[factor], layer.values[factor]))
    counts = [_whole(merged[factor].value) for factor in FACTORS if factor in merged]
    if len(counts) < len(FACTORS) or counts[0] is None or counts[1] is None:
        return
    product = Given(counts[0] * counts[1], BOTH)
    total = layer.values.get(PRODUCT)
    if total is not None and _whole(total.value) != product.value:
        layer.problems.append(mistakes.given_twice(PRODUCT, total, product))
    merged[PRODUCT] = product


def _forget(merged: dict[str, Given], *paths: str) -> None:
    for path in paths:
        merged.pop(path, None)


def _lone_factor(merged: Mapping[str, Given]) -> list[Problem]:
    given = [factor for factor in FACTORS if factor in merged]
    if len(given) != 1:
        return []
    missing = next(factor for factor in FACTORS if factor not in given)
    message = f"{missing} is missing; {given[0]} needs it to give {PRODUCT}"
    return [Problem(missing, None, message, f"Or set {PRODUCT} instead of both.")]


def _whole(value: Any) -> int | None:
    try:
        number = float(spelling.whole(value))
    except (TypeError, ValueError, OverflowError):
        return None
    fits = not isinstance(value, bool) and number.is_integer() and 1 <= number <= 1e13
    return int(number) if fits else None


def _validated(
    merged: Mapping[str, Given], meant: set[str], mistakes: list[Problem]
) -> Spec | None:
    document: dict[str, Any] = {"env": {}}
    for path, given in merged.items():
        if path in FACTORS:
            continue
        *groups, name = path.split(".")
        node = document
        for group in groups:
            node = node.setdefault(group, {})
        node[name] = given.value
    try:
        return Spec.model_validate(document)
    except ValidationError as error:
        mistakes += _problems(error, merged, meant)
        return None


def _problems(
    error: ValidationError, merged: Mapping[str, Given], meant: set[str]
) -> list[Problem]:
    """One problem for each option that is wrong, however many ways it is wrong in."""
    by_path: dict[str, Problem] = {}
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        option = _option_at(detail["loc"])
        if option.path in merged:
            by_path[option.path] = mistakes.wrong(option, merged[option.path])
        elif not {option.path, option.group} & meant:
            by_path[option.path] = mistakes.missing(option)
    return list(by_path.values())


def _option_at(location: tuple[int | str, ...]) -> Option:
    paths = (".".join(map(str, location[:length])) for length in range(len(location), 0, -1))
    return next(table()[path] for path in paths if path in table())
