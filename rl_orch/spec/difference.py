"""In which options specs differ, and whether they play the same task."""

from collections.abc import Mapping, Sequence
from typing import Any

from rl_orch.spec.checks import value_at
from rl_orch.spec.model import Spec
from rl_orch.spec.options import table

TASK = (
    "env.id",
    "env.kwargs",
    "env.wrappers",
    "env.max_episode_steps",
    "eval.max_episode_steps",
)
"""Options that make the task that policies are evaluated at: where one differs, returns do not
compare."""


def differences(specs: Sequence[Spec]) -> dict[str, list[Any]]:
    """The options in which specs differ, with the value in each."""
    differing = {}
    for path in table():
        try:
            values = [value_at(spec, path) for spec in specs]
        except AttributeError:
            continue
        if any(value != values[0] for value in values):
            differing[path] = values
    return differing


def task_differences(specs: Sequence[Spec]) -> dict[str, list[Any]]:
    """The options in which the tasks of specs differ, with the value in each."""
    values = {path: [value_at(spec, path) for spec in specs] for path in TASK}
    return {path: each for path, each in values.items() if any(one != each[0] for one in each)}


def task_in(document: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the task in a resolved spec as JSON holds it; what it does not have, as the
    specs of earlier releases, is the default."""
    options, task = table(), {}
    for path in TASK:
        group, _, name = path.partition(".")
        section = document.get(group)
        default = options[path].default
        task[path] = section.get(name, default) if isinstance(section, Mapping) else default
    return task
