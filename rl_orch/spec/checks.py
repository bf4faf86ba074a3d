"""What options mean together: combinations that cannot work, and options that wait for a part.

Whether an environment exists and suits the algorithm takes Gymnasium, and is asked in the worker.
"""

import json
from typing import Any

from rl_orch.errors import OptionPending, Problem
from rl_orch.spec.groups import LAST_SEED
from rl_orch.spec.model import Spec
from rl_orch.spec.options import table

ON_POLICY = frozenset({"ppo", "a2c"})

JUDGED_EPISODES = 10
"""The fewest episodes of the final evaluation that a gate may read."""


def problems(spec: Spec) -> list[Problem]:
    """Every combination of options in the spec that cannot work."""
    found = [
        _last_seed(spec),
        *(_external(spec) if spec.runner.name == "external" else _native(spec)),
        _clip_bounds(spec),
        _episodes_to_judge(spec),
        *_gates_without_rules(spec),
    ]
    return [problem for problem in found if problem is not None]


def pending(spec: Spec) -> list[str]:
    """The paths that are set, but whose part is not in this release.

    A group that is switched off by its `enable` is inert, and so is everything in it.
    """
    paths = []
    for option in table().values():
        if option.pending is None:
            continue
        value = value_at(spec, option.path)
        group = getattr(spec, option.group)
        waits = value in option.pending if isinstance(option.pending, dict) else True
        if getattr(group, "enable", True) and waits and _plain(value) != option.default:
            paths.append(option.path)
    return paths


def refuse_pending(spec: Spec) -> None:
    """Raise if the spec asks for something that this release cannot do."""
    paths = pending(spec)
    if not paths:
        return
    first = table()[paths[0]]
    value, allowed = value_at(spec, first.path), ""
    part = first.pending
    if isinstance(part, dict):
        built = [choice for choice in first.choices if choice not in part]
        part, allowed = part[value], f" (only {', '.join(built)} is)"
    others = f"; the same goes for {', '.join(paths[1:])}" if paths[1:] else ""
    raise OptionPending(
        f"{first.path} is {json.dumps(value)}, but {part} is not in this release{allowed}{others}",
        path=first.path,
        hint="Remove it to launch; `rlctl check` accepts it and lists what is pending.",
    )


def value_at(spec: Spec, path: str) -> Any:
    """The value of an option."""
    value: Any = spec
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _native(spec: Spec) -> list[Problem | None]:
    """Problems with training by this package."""
    found = [_minibatches(spec), _expected_policy_kind(spec)]
    for name in ("command", "policy", "tensorboard"):
        if value := getattr(spec.runner, name):
            value = list(value) if isinstance(value, tuple) else value
            shown = json.dumps(value, ensure_ascii=False)
            message = f"runner.{name} is {shown}, but runner.name is {spec.runner.name!r}"
            hint = "Set runner.name to external."
            found.append(Problem(f"runner.{name}", value, message, hint))
    return found


def _external(spec: Spec) -> list[Problem | None]:
    """Problems with training by a program that knows nothing of us."""
    found: list[Problem | None] = []
    if not spec.runner.command:
        message = "runner.command is missing; an external run needs a program"
        hint = 'For example: runner.command: ["python", "train.py"].'
        found.append(Problem("runner.command", None, message, hint))
    if _has_rules(spec) and not spec.runner.policy:
        message = (
            "a gate is set, but runner.policy is not: numbers that a program reports about itself "
            "never pass a gate"
        )
        hint = 'For example: runner.policy: ["python", "act.py", "{checkpoint}"].'
        found.append(Problem("runner.policy", None, message, hint))
    return found


def _last_seed(spec: Spec) -> Problem | None:
    count, first = spec.seeds, spec.env.seed
    if not isinstance(count, int) or first + count - 1 <= LAST_SEED:
        return None
    return Problem(
        "seeds",
        count,
        f"seeds is {count}, so that the last seed would be {first + count - 1}; a seed must be at "
        f"most {LAST_SEED}",
        "Set a smaller env.seed.",
    )


def _minibatches(spec: Spec) -> Problem | None:
    size, rollout = spec.train.batch_size, spec.rollout_size
    if spec.agent.algorithm not in ON_POLICY or rollout % size == 0:
        return None
    near = sorted(_divisors(rollout), key=lambda divisor: abs(divisor - size))[:2]
    return Problem(
        "train.batch_size",
        size,
        f"train.batch_size is {size}; must divide env.num_envs × rollout.steps = "
        f"{spec.env.num_envs} × {spec.rollout.steps} = {rollout}",
        f"Nearest that do: {', '.join(map(str, sorted(near)))}.",
    )


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return small + [number // d for d in small]


def _expected_policy_kind(spec: Spec) -> Problem | None:
    expected, algorithm = spec.train.off_policy, spec.agent.algorithm
    actual = algorithm not in ON_POLICY
    if expected is None or expected == actual:
        return None
    kind = "off-policy" if actual else "on-policy"
    return Problem(
        "train.off_policy",
        expected,
        f"train.off_policy is {str(expected).lower()}, but agent.algorithm {algorithm!r} is {kind}",
        f"Set it to {str(actual).lower()}, or leave it out.",
    )


def _clip_bounds(spec: Spec) -> Problem | None:
    bounds = spec.obs.clip_range
    if bounds is None or bounds[0] < bounds[1]:
        return None
    return Problem(
        "obs.clip_range",
        list(bounds),
        f"obs.clip_range is {list(bounds)}; must be [low, high] with low below high",
    )


def _has_rules(spec: Spec) -> bool:
    gates = spec.gates
    return any(rule is not None for rule in (gates.min_return, gates.min_episodes, gates.max_std))


def _episodes_to_judge(spec: Spec) -> Problem | None:
    episodes = spec.eval.final_episodes
    if episodes >= JUDGED_EPISODES or not _has_rules(spec):
        return None
    return Problem(
        "eval.final_episodes",
        episodes,
        f"eval.final_episodes is {episodes}; must be at least {JUDGED_EPISODES} where a gate is "
        "set, since fewer episodes say too little of a policy",
        "Leave it out for 100.",
    )


def _gates_without_rules(spec: Spec) -> list[Problem]:
    gates = spec.gates
    if _has_rules(spec):
        return []
    asked = {"gates.patience": gates.patience, "gates.stop_when_solved": gates.stop_when_solved}
    return [
        Problem(
            path,
            value,
            f"{path} is {str(value).lower()}, but no gate is set that could pass or fail",
            "Set gates.min_return as well.",
        )
        for path, value in asked.items()
        if value
    ]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
