"""Spellings of RL Zoo that are more than other names: what they mean, or how to write it."""

import ast
import re
from collections.abc import Mapping
from typing import Any

from rl_orch.errors import Problem

PAIR = re.compile(r"([a-z][a-z0-9_]*)([:=])(.+)", re.DOTALL)
"""A name and its value, as the zoo takes them on a command line."""

POLICY = "policy_kwargs"
"""The arguments of a policy, which the zoo writes as the text of a call of `dict`."""

LINEAR = re.compile(r"lin_([0-9][0-9.]*(?:[eE][-+]?[0-9]+)?)")
SCHEDULES = {"train.lr": "train.lr_schedule", "train.clip_range": "train.clip_schedule"}
"""Options of which the zoo's `lin_0.001` is the value at the start → the option of the schedule."""

ENV_ID = re.compile(r"(?:[\w.:-]+/)?[\w.:-]+-v[0-9]+")


NORMALIZER = {
    "norm_obs": "obs.normalize",
    "norm_reward": "train.normalize_reward",
    "clip_obs": "obs.clip_range",
    "clip_reward": "train.clip_reward",
}
"""Arguments of Stable-Baselines3's `VecNormalize`, as the zoo writes them, and what they are."""


def normalizer(value: Any) -> dict[str, Any] | None:
    """Options, by path, in `dict(norm_obs=True, norm_reward=False)`; None if it has others, or is
    no such map."""
    given = value if isinstance(value, Mapping) else keywords(value)
    if given is None or not set(given) <= set(NORMALIZER):
        return None
    whole = {"norm_obs": True, "norm_reward": True, **given}
    return {NORMALIZER[name]: each for name, each in whole.items()}


def falling(value: Any) -> str | None:
    """The number that `lin_0.001` falls from; None where that is not what is written."""
    match = LINEAR.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if match is None else match[1]


def keyed_by_environment(document: Mapping[Any, Any]) -> Problem | None:
    """The problem with a file of hyperparameters by environment; None where it is no such file."""
    ids = [
        key
        for key, value in document.items()
        if isinstance(key, str) and isinstance(value, Mapping) and ENV_ID.fullmatch(key)
    ]
    if not ids:
        return None
    more = f", and of {len(ids) - 1} more" if len(ids) > 1 else ""
    return Problem(
        ids[0],
        None,
        f"{ids[0]} is the id of an environment{more}, with hyperparameters below it, as files of "
        "rl-zoo3 have them; a spec is of one environment",
        f"Write `env: {ids[0]}` and `algo: ppo`, or what it is for, and below them what stands "
        f"under {ids[0]}, not indented.",
    )


def pair(word: str, *, signs: str = ":") -> tuple[str, str] | None:
    """The name and the value of a word such as `learning_rate:0.001`, without quotes around it."""
    match = PAIR.fullmatch(word)
    if match is None or match[2] not in signs:
        return None
    text = match[3].strip()
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return match[1], text[1:-1] if quoted else text


def keywords(value: Any) -> dict[str, Any] | None:
    """The arguments in a text such as `dict(net_arch=[64, 64], activation_fn=nn.ReLU)`."""
    if not isinstance(value, str):
        return None
    try:
        return _arguments(ast.parse(value.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _arguments(node: ast.expr) -> dict[str, Any] | None:
    if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "dict" and not node.args):
        return None
    named = [(each.arg, _argument(each.value)) for each in node.keywords]
    return None if any(name is None for name, _ in named) else {str(k): v for k, v in named}


def _argument(node: ast.expr) -> Any:
    if isinstance(node, ast.Attribute | ast.Name):
        return ast.unparse(node)
    inner = _arguments(node)
    return ast.literal_eval(node) if inner is None else inner
