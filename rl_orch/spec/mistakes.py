"""What is wrong in a spec, in sentences: the path, the value, what is allowed, the nearest name."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rl_orch.addresses import masked
from rl_orch.errors import Problem
from rl_orch.spec.algorithms import NEAREST
from rl_orch.spec.aliases import (
    ALGORITHMS,
    ALIASES,
    GROUPS,
    VARIABLE_PREFIXES,
    bare,
    canonical,
)
from rl_orch.spec.options import (
    VARIABLE,
    Option,
    is_group,
    names_in,
    read_variables,
    table,
)
from rl_orch.spec.zoo import NORMALIZER, SCHEDULES

ZOO_ONLY = {
    "agent.network.hidden_sizes": (
        "pi",
        "Policy (pi) and value function (vf) of ppo and a2c are of the same widths here: "
        "net_arch=[64,64]. Critics (qf) of sac, td3, tqc and crossq may have others.",
    ),
    "rollout.steps": (
        "episode",
        "Rollouts are counted in steps of each copy, not in episodes: for example, train_freq=64.",
    ),
    "train.ent_coef": ("auto_", "What is learned begins at 1: ent_coef=auto; or give a number."),
}
"""Options with values of Stable-Baselines3's that cannot be had here: what those hold, and what
can be had."""

DOTTED = re.compile(r"[A-Za-z_][\w.]*\.[A-Z]\w*")
"""A class as Python names one, where `module:Class` is meant."""

SHOWN = 60
"""Characters of a value that a sentence has room for."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was typed, and the key, variable or flag that it was typed for."""

    value: Any
    source: str

    def at(self, path: str) -> str:
        """The beginning of a sentence about the value."""
        origin = "" if self.source == path else f" (from {self.source})"
        return f"{path} is {show(self.value)}{origin}"


def wrong(option: Option, given: Given, form: str = "") -> Problem:
    """A value that the option cannot take."""
    message = f"{given.at(option.path)}; must be {form}{option.allowed}"
    return Problem(option.path, given.value, message, _correction(option, given.value))


def missing(option: Option) -> Problem:
    """A required option that nobody gave."""
    message = f"{option.path} is missing; a spec must say which environment to learn in"
    hint = (
        f"Add `env: {{id: CartPole-v1}}` to the file, or type {option.flags[0]} CartPole-v1, "
        f"or set {option.variables[0]}."
    )
    return Problem(option.path, None, message, hint)


def unknown(typed: str, value: Any) -> tuple[Problem, str]:
    """A key that no option has, and the path it seems to mean, empty if it resembles none."""
    parts = canonical(typed).split(".")
    depth = 0
    while is_group(".".join(parts[: depth + 1])):
        depth += 1
    group, name, rest = ".".join(parts[:depth]), parts[depth], parts[depth + 1 :]
    near = _nearest_name(group, name)
    whole = ".".join(part for part in (near, *rest) if part)
    if near and rest and canonical(whole) in table():
        near = whole
    inside = ", ".join(names_in(group))
    message = f"{typed} is unknown; {group or 'a spec'} has: {inside}"
    return Problem(typed, value, message, f"Did you mean {near}?" if near else None), near


def not_a_group(path: str, given: Given) -> Problem:
    """A plain value where a group of options belongs."""
    inside = ", ".join(names_in(path))
    return Problem(path, given.value, f"{given.at(path)}; must be a group with any of: {inside}")


def not_enabled(typed: str, value: Any) -> Problem:
    """A nix module that is switched off."""
    message = f"{typed} is {show(value)}; must be true for the spec to be used"
    return Problem(typed, value, message)


def given_twice(path: str, first: Given, second: Given) -> Problem:
    """Two values for one option in one place."""
    message = (
        f"{path} is given twice, as {show(first.value)} by {first.source} "
        f"and as {show(second.value)} by {second.source}"
    )
    return Problem(path, second.value, message, "Keep one; aliases count as the same option.")


def stray_variables(variables: Mapping[str, str]) -> list[Problem]:
    """A warning of each variable that looks like one of ours, but that no option reads."""
    names, warnings = read_variables(), []
    for name in sorted(set(variables) - set(names)):
        if not name.startswith(VARIABLE):
            continue
        ours = next(
            (prefix for prefix in _variable_prefixes() if name.startswith(prefix)), VARIABLE
        )
        rests = [known.removeprefix(ours) for known in names if known.startswith(ours)]
        near = closest(name.removeprefix(ours), rests)
        advice = f"did you mean {ours}{near}?" if near else "`rlctl options` lists those in use"
        message = f"{name} is set, but no option reads it; {advice}"
        warnings.append(Problem(name, None, message))
    return warnings


def show(value: Any) -> str:
    """A value as one would type it, short enough for a sentence."""
    if isinstance(value, str) and _is_number(value):
        text = value.strip()
    else:
        try:
            text = json.dumps(value, default=str, ensure_ascii=False, skipkeys=True)
        except (ValueError, RecursionError):
            text = f"a {type(value).__name__} without end"
    text = masked(text)  # Before it is cut.
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def closest(word: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name most like a word, or the one that a longer word begins with."""
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    near += [name for name in by_lower if len(name) > 2 and word.lower().startswith(name)]
    return by_lower[near[0]] if near else None


def _correction(option: Option, value: Any) -> str | None:
    if option.path in SCHEDULES and callable(value):
        name, schedule = option.path.rpartition(".")[2], SCHEDULES[option.path].rpartition(".")[2]
        return f"It falls by {schedule}='linear' or 'cosine'; {name}='lin_0.001' is both in one."
    if "plugin" in option.allowed and isinstance(value, str) and DOTTED.fullmatch(value):
        module, _, name = value.rpartition(".")
        return f"Did you mean {module}:{name}?"
    if option.path == "agent.algorithm" and isinstance(value, str):
        return _nearest_algorithm(option, value)
    if option.path == "obs.normalize" and (isinstance(value, dict) or "(" in str(value)):
        named = ", ".join(f"{name} is {path}" for name, path in NORMALIZER.items())
        return f"Of VecNormalize's arguments {named}; others have no option."
    if option.mapping and isinstance(value, str) and re.fullmatch(r"\w+", value):
        return f"Write {value}=VALUE."
    if option.path in ZOO_ONLY and (hint := _instead_of_zoo(option.path, str(value))):
        return hint
    if option.choices and isinstance(value, str):
        near = closest(value, option.choices)
        return f"Did you mean {near}?" if near else None
    if option.textual and isinstance(value, bool | int | float):
        return "Put it in quotes to make it text."
    if option.listing and isinstance(value, list):
        odd = [part for part in value if isinstance(part, bool | int | float)]
        return f"Put {show(odd[0])} in quotes to make it text." if odd else None
    return None


def _instead_of_zoo(path: str, text: str) -> str | None:
    sign, hint = ZOO_ONLY[path]
    return hint if sign in text else None


def _nearest_algorithm(option: Option, value: str) -> str:
    name = bare(value)
    if name in NEAREST:
        return NEAREST[name]
    near = closest(name, (*option.choices, *ALGORITHMS, *NEAREST))
    if near is not None:
        return f"Did you mean {near}? {NEAREST.get(near, '')}".strip()
    return "MaskablePPO and RecurrentPPO are taken too, as options of ppo."


def _nearest_name(group: str, name: str) -> str:
    """The path that an unknown name in a group resembles most."""
    paths = [*table(), *ALIASES]
    same = [path for path in paths if path.endswith(f".{name}")]
    if same and not group:
        return same[0]
    prefix = f"{group}." if group else ""
    inside = {path[len(prefix) :].split(".")[0] for path in paths if path.startswith(prefix)}
    near = closest(name, sorted(inside | (set() if group else set(GROUPS))))
    if near:
        return prefix + near
    if same:
        return same[0]
    leaves = {path.rpartition(".")[2]: path for path in reversed(paths)}
    near = closest(name, sorted(leaves), cutoff=0.8)
    return leaves[near] if near else ""


def _variable_prefixes() -> list[str]:
    groups = {path.partition(".")[0] for path in (*table(), *ALIASES) if "." in path}
    prefixes = [f"RL_{group.upper()}_" for group in (*groups, *GROUPS)]
    return prefixes + [p for p in VARIABLE_PREFIXES.values() if p.startswith("RL_")]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
