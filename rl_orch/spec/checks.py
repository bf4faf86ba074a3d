"""What options mean together: combinations that cannot work, and options that wait for a part.

Whether an environment exists and suits the algorithm takes Gymnasium, and is asked in the worker.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from rl_orch.errors import OptionPending, Problem
from rl_orch.spec import gate_checks
from rl_orch.spec.algorithms import BUILT_IN, Traits
from rl_orch.spec.aliases import FACTORS
from rl_orch.spec.engine import left_open
from rl_orch.spec.groups import (
    BEST,
    ENCODERS,
    LAST,
    LAST_SEED,
)
from rl_orch.spec.model import Spec
from rl_orch.spec.options import table
from rl_orch.spec.part_traits import USUAL_COLLECTOR, collector_traits

RECURRENT = ("gru", "lstm")
"""Encoders with a memory."""

SELECTIVE = ("train.", "buffer.", "agent.network.")
"""Where options stand that only some algorithms read."""

ALWAYS_READ = frozenset(
    {
        *("train.total_timesteps", "train.report_every", "train.off_policy", "train.observers"),
        *("agent.network.hidden_sizes", "agent.network.activation"),
    }
)

LARGE_OVERRUN = 0.1
"""Part of the budget that the last rollout may take beyond it without a word."""

NORMALIZING = {
    "NormalizeObservation": "obs.normalize=running",
    "NormalizeReward": "train.normalize_reward=true",
}
"""Wrappers of Gymnasium's that learn from what they see → the option that does the same."""


def problems(spec: Spec) -> Iterator[Problem]:
    """Every combination of options in the spec that cannot work."""
    yield from _name(spec)
    yield from _last_seed(spec)
    traits = spec.runner.traits
    yield from _native(spec) if traits.trains_here else ()
    yield from _program(spec) if traits.needs_consent else _no_program(spec)
    yield from _gpu(spec) if traits.needs_gpu else ()
    if spec.start.source is not None and not traits.warm_start:
        message = f"start.from is set, but runner {spec.runner.name!r} begins with its own weights"
        hint = "Leave it out; an external program can be handed a file by runner.env."
        yield Problem("start.from", spec.start.source, message, hint)
    yield from _learning_wrappers(spec)
    yield from _bounds(spec, "obs.clip_range")
    yield from _bounds(spec, "train.clip_reward")
    yield from gate_checks.problems(spec)


def _name(spec: Spec) -> Iterator[Problem]:
    """Words by which nobody could ever name the run: they mean something else already."""
    name = spec.name
    if name is None:
        return
    means = {LAST: "the newest run", BEST: "the best validated model"}.get(name.lower())
    if name.isascii() and name.isdigit():
        means = "the model of that id"
    elif name.lower().startswith(f"{BEST}@"):
        means = "the best model of an environment"
    if means is not None:
        message = f"name is {name!r}, which means {means} wherever runs and models are named"
        yield Problem("name", name, message, f"Take another name, such as {name}-run.")


def findings(spec: Spec | None, warnings: Iterable[Problem] = ()) -> dict[str, Any]:
    """What a check says of a spec that has passed it, or of one that has not: None."""
    return {
        "ok": spec is not None,
        "config_hash": None if spec is None else spec.config_hash,
        "settled": {} if spec is None else left_open(spec),
        "pending": [] if spec is None else pending(spec),
        "seeds": [] if spec is None else [each.env.seed for each in spec.members or [spec]],
        "warnings": [asdict(warning) for warning in warnings],
    }


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


def is_learners(path: str) -> bool:
    """Whether it is for the learner to read an option."""
    return path.startswith(SELECTIVE) and path not in ALWAYS_READ


def value_at(spec: Spec, path: str) -> Any:
    """The value of an option."""
    value: Any = spec
    for part in path.split("."):
        value = getattr(value, part)
    return value


def unread(spec: Spec) -> list[Problem]:
    """A warning of each option that is set, but that the algorithm does not read."""
    traits = BUILT_IN.get(spec.agent.algorithm)
    if traits is None or not spec.runner.traits.trains_here:
        return []
    readable = traits.reads | ALWAYS_READ | set(traits.defaults)
    others = [
        option
        for option in table().values()
        if option.path.startswith(SELECTIVE)
        and option.path not in readable
        and option.path not in FACTORS
    ]
    warnings = _inert(spec)
    for option in others:
        value = value_at(spec, option.path)
        if _plain(value) != option.default:
            by = [name for name, other in BUILT_IN.items() if option.path in other.reads]
            who = f"; {', '.join(by)} would" if by else ""
            why = f"{spec.agent.algorithm} does not read it{who}"
            warnings.append(_useless(option.path, value, why))
    return warnings


def overrun(spec: Spec) -> list[Problem]:
    """A warning if whole rollouts take far more steps than the budget, or the first one does."""
    traits = BUILT_IN.get(spec.agent.algorithm)
    if traits is None or traits.clock != "env_steps" or not spec.runner.traits.trains_here:
        return []
    budget, size = spec.train.total_timesteps, spec.rollout_size
    trained = -(-budget // size) * size
    if budget >= size and trained - budget <= LARGE_OVERRUN * budget:
        return []
    copies, steps = spec.env.num_envs, spec.rollout.steps
    message = (
        f"train.total_timesteps is {budget:,}, but rollouts are whole, and one is {copies} × "
        f"{steps} = {size:,} steps (env.num_envs × rollout.steps): {trained:,} will be trained"
    )
    return [Problem("train.total_timesteps", budget, message)]


def _useless(path: str, value: Any, why: str) -> Problem:
    return Problem(path, value, f"{path} is {json.dumps(_plain(value))}, but {why}")


def _inert(spec: Spec) -> list[Problem]:
    """A warning of each option that would count only together with another one."""
    conditions = {
        "agent.options": (False, "only algorithms that are plugins read it"),
        "feature.options": (
            spec.feature.encoder not in ENCODERS,
            "only encoders that are plugins read it",
        ),
        "train.sequence_length": (
            spec.feature.encoder in RECURRENT,
            "there is no memory; feature.encoder gru or lstm has one",
        ),
        "train.sde_sample_freq": (spec.train.use_sde, "train.use_sde is off"),
        "buffer.alpha": (spec.buffer.prioritized, "buffer.prioritized is off"),
        "buffer.her_k": (spec.buffer.her_strategy is not None, "buffer.her_strategy is not set"),
        "buffer.beta": (spec.buffer.prioritized, "buffer.prioritized is off"),
        **{
            f"start.{name}": (spec.start.source is not None, "start.from is not set")
            for name in ("parts", "partial", "digest")
        },
        "gates.margin": (
            spec.gates.no_regression is not None,
            "gates.no_regression, which reads it, is not set",
        ),
    }
    return [
        _useless(path, value_at(spec, path), why)
        for path, (counts, why) in conditions.items()
        if not counts and _plain(value_at(spec, path)) != table()[path].default
    ]


def pairing(spec: Spec, traits: Traits) -> Iterator[Problem]:
    """What the algorithm cannot do of what the spec asks for, and which ones can."""
    name, expected = spec.agent.algorithm, spec.train.off_policy
    if expected is not None and expected != traits.off_policy:
        kind = "off-policy" if traits.off_policy else "on-policy"
        message = f"train.off_policy is {_word(expected)}, but agent.algorithm {name!r} is {kind}"
        hint = f"Set it to {_word(traits.off_policy)}, or leave it out."
        yield Problem("train.off_policy", expected, message, hint)
    encoder = spec.feature.encoder
    if encoder in RECURRENT and not traits.recurrent:
        message = f"feature.encoder is {encoder!r}, but {name} cannot train a policy with a memory"
        hint = f"Use {_those('recurrent')}; or obs.stack_frames, which {name} can learn from."
        yield Problem("feature.encoder", encoder, message, hint)
    if spec.agent.action_masks and not traits.masks:
        message = f"agent.action_masks is true, but {name} does not heed action masks"
        hint = f"Use {_those('masks')}, or leave it out."
        yield Problem("agent.action_masks", True, message, hint)
    if spec.train.ent_coef == "auto" and not traits.learns_entropy:
        able = _those("learns_entropy")
        message = f"train.ent_coef is 'auto', but {name} does not learn it; {able} does"
        yield Problem("train.ent_coef", "auto", message, "Set a number ≥ 0.")
    collector, overlap = spec.rollout.collector, spec.rollout.overlap
    ahead = collector_traits(collector).overlaps
    if (overlap or ahead) and not traits.overlaps:
        path, value = ("rollout.overlap", True) if overlap else ("rollout.collector", collector)
        message = (
            f"{path} is {_word(value)}, but {name} cannot correct for an older policy's actions"
        )
        yield Problem(path, value, message, "Use ppo, or leave it out.")
    if overlap and not ahead and collector != USUAL_COLLECTOR:
        message = f"rollout.overlap is true, but rollout.collector is {collector!r}"
        yield Problem("rollout.overlap", True, message, "Leave one of them out.")
    if traits.off_policy:
        yield from _replay(spec)
    if traits.off_policy and traits.clock == "env_steps":
        yield from _warm_up(spec)


def _those(trait: str) -> str:
    """The algorithms that have a trait."""
    *most, last = [name for name, traits in BUILT_IN.items() if getattr(traits, trait)]
    return f"{', '.join(most)} or {last}"


def _native(spec: Spec) -> Iterator[Problem]:
    """Problems with training by this package."""
    yield from _minibatches(spec)
    yield from _sequences(spec)
    yield from _entropy(spec)
    yield from _quantiles(spec)
    if spec.agent.algorithm in BUILT_IN:
        yield from pairing(spec, BUILT_IN[spec.agent.algorithm])


def _no_program(spec: Spec) -> Iterator[Problem]:
    """Options of a program, where none is run."""
    for name in ("command", "policy", "tensorboard"):
        if value := getattr(spec.runner, name):
            value = list(value) if isinstance(value, tuple) else value
            shown = json.dumps(value, ensure_ascii=False)
            message = f"runner.{name} is {shown}, but runner.name is {spec.runner.name!r}"
            hint = "Set runner.name to external."
            yield Problem(f"runner.{name}", value, message, hint)


def _program(spec: Spec) -> Iterator[Problem]:
    """Problems with training by a program that knows nothing of us."""
    if not spec.runner.command:
        message = "runner.command is missing; an external run needs a program"
        hint = 'For example: runner.command: ["python", "train.py"].'
        yield Problem("runner.command", None, message, hint)
    if gate_checks.has_rules(spec) and not spec.runner.policy:
        message = (
            "a gate is set, but runner.policy is not: numbers that a program reports about itself "
            "never pass a gate"
        )
        hint = 'For example: runner.policy: ["python", "act.py", "{checkpoint}"].'
        yield Problem("runner.policy", None, message, hint)
    for name in ("max_bundle_mb", "export_parity"):
        if value := getattr(spec.gates, name):
            message = f"gates.{name} asks for a bundle, and an external program's policy has none"
            yield Problem(f"gates.{name}", value, message, "Leave it out.")


def _gpu(spec: Spec) -> Iterator[Problem]:
    if spec.gpus == 0:
        message = f"resources.gpus is 0, but runner.name {spec.runner.name!r} needs a GPU"
        yield Problem("resources.gpus", 0, message, "Set it to 1.")


def _last_seed(spec: Spec) -> Iterator[Problem]:
    count, first = spec.seeds, spec.env.seed
    if isinstance(count, int) and first + count - 1 > LAST_SEED:
        message = (
            f"seeds is {count}, so that the last seed would be {first + count - 1}; a seed must be "
            f"at most {LAST_SEED}"
        )
        yield Problem("seeds", count, message, "Set a smaller env.seed.")


def _minibatches(spec: Spec) -> Iterator[Problem]:
    size, rollout = spec.train.batch_size, spec.rollout_size
    if spec.agent.algorithm == "ppo" and rollout % size:
        near = sorted(_divisors(rollout), key=lambda divisor: abs(divisor - size))[:2]
        message = (
            f"train.batch_size is {size}; must divide env.num_envs × rollout.steps = "
            f"{spec.env.num_envs} × {spec.rollout.steps} = {rollout}"
        )
        hint = f"Nearest that do: {', '.join(map(str, sorted(near)))}."
        yield Problem("train.batch_size", size, message, hint)


def _sequences(spec: Spec) -> Iterator[Problem]:
    """A recurrent policy is trained through whole sequences, so that they must fit."""
    length, steps, size = spec.train.sequence_length, spec.rollout.steps, spec.train.batch_size
    if spec.feature.encoder not in RECURRENT or length is None:
        return
    what = f"rollout.steps = {steps}"
    if spec.agent.algorithm == "ppo":
        steps, what = math.gcd(steps, size), f"{what} and train.batch_size = {size}"
    if steps % length:
        message = f"train.sequence_length is {length}; must divide {what}"
        hint = f"Leave it out for the longest that does, {steps}."
        yield Problem("train.sequence_length", length, message, hint)


def _entropy(spec: Spec) -> Iterator[Problem]:
    weight = spec.train.ent_coef
    if weight != "auto" and weight < 0:
        message = f"train.ent_coef is {weight}; must be ≥ 0, or auto"
        yield Problem("train.ent_coef", weight, message)


def _quantiles(spec: Spec) -> Iterator[Problem]:
    """Of the quantiles of TQC's critics some have to be left as targets."""
    dropped, count = spec.train.top_quantiles_to_drop_per_net, spec.train.n_quantiles
    if spec.agent.algorithm == "tqc" and dropped >= count:
        message = (
            f"train.top_quantiles_to_drop_per_net is {dropped}; must be below train.n_quantiles = "
            f"{count}"
        )
        yield Problem("train.top_quantiles_to_drop_per_net", dropped, message)


def _replay(spec: Spec) -> Iterator[Problem]:
    """Problems with learning from a buffer."""
    size = spec.buffer.size
    if spec.train.gradient_steps == 0:
        message = "train.gradient_steps is 0, so that nothing would be learned"
        hint = "Set a number of updates, or -1 for one for each transition."
        yield Problem("train.gradient_steps", 0, message, hint)
    if spec.train.batch_size >= size:
        message = f"train.batch_size is {spec.train.batch_size}; must be below buffer.size = {size}"
        yield Problem("train.batch_size", spec.train.batch_size, message)
    # A transition can be drawn once its window is there, and while its stack still is.
    window = spec.buffer.n_step + (spec.obs.stack_frames or 1)
    needed = 2 * window * spec.env.num_envs
    if size < needed:
        message = (
            f"buffer.size is {size}; must be at least {needed}, twice what {spec.env.num_envs} "
            f"copies need for windows of {window} rows (buffer.n_step and obs.stack_frames)"
        )
        yield Problem("buffer.size", size, message)
    if spec.buffer.her_strategy is not None:
        yield from _hindsight(spec)


def _warm_up(spec: Spec) -> Iterator[Problem]:
    """A budget of environment steps has to last beyond those at random; one of updates does."""
    starts, total = spec.train.learning_starts, spec.train.total_timesteps
    if starts >= total:
        message = (
            f"train.learning_starts is {starts}; must be below train.total_timesteps = {total}, "
            "or nothing would be learned"
        )
        hint = f"For a short try, set train.learning_starts={total // 10}."
        yield Problem("train.learning_starts", starts, message, hint)


def _hindsight(spec: Spec) -> Iterator[Problem]:
    """Another goal changes the rewards of a step alone, and what one frame shows."""
    plain = {"buffer.n_step": 1, "obs.stack_frames": None}
    for path, allowed in plain.items():
        if (value := value_at(spec, path)) != allowed:
            message = f"{path} is {value}, but buffer.her_strategy gives single steps other goals"
            yield Problem(path, value, message, "Leave one of them out.")


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return small + [number // d for d in small]


def _learning_wrappers(spec: Spec) -> Iterator[Problem]:
    """Wrappers whose statistics would be those of each copy alone, and unknown to evaluations."""
    for chosen in spec.env.chosen_wrappers:
        if chosen.name in NORMALIZING:
            message = (
                f"env.wrappers has {chosen.name!r}, which keeps statistics of one copy; "
                "evaluations and exports would have others"
            )
            hint = f"Use {NORMALIZING[chosen.name]}, which the policy keeps."
            yield Problem("env.wrappers", list(spec.env.wrappers), message, hint)


def _bounds(spec: Spec, path: str) -> Iterator[Problem]:
    bounds = value_at(spec, path)
    if bounds is not None and bounds[0] >= bounds[1]:
        message = f"{path} is {list(bounds)}; must be [low, high] with low below high"
        yield Problem(path, list(bounds), message)


def _word(value: bool | int | str) -> str:
    return str(value).lower()


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
