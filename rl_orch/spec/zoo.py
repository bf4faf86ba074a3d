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


LAYERS = {
    "pi": "agent.network.hidden_sizes",
    "vf": "agent.network.hidden_sizes",
    "qf": "agent.network.critic_hidden_sizes",
}
"""Whose layers Stable-Baselines3's `net_arch` names, and their option here."""

MEMORY = {
    "MlpLstmPolicy": "MlpPolicy",
    "CnnLstmPolicy": "CnnPolicy",
    "MultiInputLstmPolicy": "MultiInputPolicy",
}
"""Policies of sb3-contrib's that remember → the same without a memory."""

ONE_MEMORY = {
    f"{POLICY}.n_lstm_layers": (1, "the memory is one layer"),
    f"{POLICY}.shared_lstm": (True, "policy and value function have one memory"),
    f"{POLICY}.enable_critic_lstm": (False, "policy and value function have one memory"),
}
"""Arguments of those policies, the only value that each can have here, and why."""

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


def layers(value: Any) -> dict[str, Any] | None:
    """Options, by path, in `dict(pi=[64], qf=[128])`, or in a list of that alone; None if it is no
    such map, or one in which an option has two values."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Mapping) or not value or not {*value} <= {*LAYERS}:
        return None
    options: dict[str, Any] = {}
    if any(options.setdefault(LAYERS[name], each) != each for name, each in value.items()):
        return None
    return options


def other_memory(path: str, value: Any) -> Problem | None:
    """The problem with an argument that asks for another memory than the one there is."""
    ours, why = ONE_MEMORY[path]
    if value == ours:
        return None
    message = f"{path} is {value!r}; must be {ours!r}: {why}"
    return Problem(path, value, message, "Leave it out; lstm_hidden_size is feature.embed_dim.")


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
    """The arguments in a text such as `dict(net_arch=[64, 64], activation_fn=nn.ReLU)`, or in one
    of a map as Python writes it."""
    if not isinstance(value, str):
        return None
    try:
        return _arguments(ast.parse(value.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _arguments(node: ast.expr) -> dict[str, Any] | None:
    names: list[Any]
    if isinstance(node, ast.Dict):
        names = [each.value if isinstance(each, ast.Constant) else None for each in node.keys]
        values = node.values
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "dict" and not node.args:
        names = [each.arg for each in node.keywords]
        values = [each.value for each in node.keywords]
    else:
        return None
    if not all(isinstance(name, str) for name in names):
        return None
    return dict(zip(names, map(_argument, values), strict=True))


def _argument(node: ast.expr) -> Any:
    if isinstance(node, ast.Attribute | ast.Name):
        return ast.unparse(node)
    if isinstance(node, ast.List):
        return [_argument(each) for each in node.elts]
    inner = _arguments(node)
    return ast.literal_eval(node) if inner is None else inner
