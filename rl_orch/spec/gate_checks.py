"""Gates that cannot be met, or that say nothing: refused before anything is trained."""

import math
from collections.abc import Iterator

from rl_orch.errors import Problem
from rl_orch.spec.groups import ALIAS_FORM, ALIAS_NAME, RESERVED
from rl_orch.spec.model import Spec

JUDGED_EPISODES = 10
"""The fewest episodes of the final evaluation that a gate may read."""

TAIL = 0.025
"""The chance beyond each bound of a 95 % interval. Where all of n episodes succeed, the lower bound
of the exact interval is `TAIL ** (1 / n)`."""

SUCCESS_RATE = "success_rate"
"""The metric of successes; records, which are not known here, have the same name."""

SETTLING = 5
"""The fewest evaluations in the last third of training that say whether returns have settled."""


def problems(spec: Spec) -> Iterator[Problem]:
    """Every gate of the spec that could never pass as it is set."""
    yield from _episodes_to_judge(spec)
    yield from _successes_to_show(spec)
    yield from _gates_without_rules(spec)
    yield from _margin(spec)
    yield from _aliases(spec)
    yield from _evaluations_to_settle(spec)
    yield from _episodes_of_training(spec)
    yield from _own_word(spec)
    yield from _own_success_rate(spec)


def _rules_of_reports(spec: Spec) -> bool:
    """Whether a rule is set that a report alone decides, so that training can be held against it.

    What such rules are is said by `gate.rules_of_reports`, which is not known here.
    """
    gates = spec.gates
    numbers = (gates.min_return, gates.min_episodes, gates.max_std, gates.min_success_rate)
    return any(rule is not None for rule in numbers) or bool(gates.metrics)


def _rules_of_returns(spec: Spec) -> bool:
    """Whether a rule is set that reads the episodes of the final evaluation."""
    gates = spec.gates
    compared = (gates.no_regression, gates.improvement) != (None, None)
    return _rules_of_reports(spec) or compared


def has_rules(spec: Spec) -> bool:
    """Whether any rule is set."""
    gates = spec.gates
    numbers = (gates.max_latency_ms, gates.max_bundle_mb)
    switches = (gates.converged, gates.guardrail_clean, gates.export_parity)
    return _rules_of_returns(spec) or numbers != (None, None) or any(switches)


def _episodes_to_judge(spec: Spec) -> Iterator[Problem]:
    episodes = spec.eval.final_episodes
    if episodes < JUDGED_EPISODES and _rules_of_returns(spec):
        message = (
            f"eval.final_episodes is {episodes}; must be at least {JUDGED_EPISODES} where a gate "
            "is set, since fewer episodes say too little of a policy"
        )
        yield Problem("eval.final_episodes", episodes, message, "Leave it out for 100.")


def _successes_to_show(spec: Spec) -> Iterator[Problem]:
    """Success rates that not even an evaluation full of successes could show."""
    counts = {"eval.final_episodes": spec.eval.final_episodes}
    if spec.gates.patience or spec.gates.stop_when_solved:
        counts["eval.episodes"] = spec.eval.episodes
    for path, value, limit in _success_limits(spec):
        if limit >= 1:
            message = (
                f"{path} is {value}, which no number of episodes can show: the lower bound of the "
                "95 % interval of a share is below 1"
            )
            yield Problem(path, value, message, "Set it below 1, such as 0.95.")
            continue
        for option, episodes in counts.items():
            bound = TAIL ** (1 / episodes)
            if bound < limit:
                needed = math.ceil(math.log(TAIL) / math.log(limit))
                message = (
                    f"{path} is {value}, but {option} = {episodes} can show no more than "
                    f"{bound:.4g}: the lower bound where every episode succeeds"
                )
                yield Problem(path, value, message, f"Set {option} to at least {needed}.")


def _success_limits(spec: Spec) -> Iterator[tuple[str, float | str, float]]:
    """The path, the value and the number of each least success rate."""
    least = spec.gates.min_success_rate
    if least is not None:
        yield "gates.min_success_rate", least, float(least)
    sign, _, number = spec.gates.metrics.get(SUCCESS_RATE, "").partition(" ")
    if sign.startswith(">"):
        yield f"gates.metrics.{SUCCESS_RATE}", f"{sign} {number}", float(number)


def _gates_without_rules(spec: Spec) -> Iterator[Problem]:
    for name in ("patience", "stop_when_solved"):
        path, value = f"gates.{name}", getattr(spec.gates, name)
        if value and not _rules_of_reports(spec):
            message = (
                f"{path} is {str(value).lower()}, but no gate is set that could pass or fail "
                "during training"
            )
            yield Problem(path, value, message, "Set gates.min_return as well.")


def _margin(spec: Spec) -> Iterator[Problem]:
    """What may be lost has to be said, since nothing else can be shown not to be."""
    alias, margin = spec.gates.no_regression, spec.gates.margin
    if alias is not None and margin is None:
        message = (
            f"gates.no_regression is {alias!r}, but gates.margin does not say which loss of return "
            "is acceptable; without any, only a better policy could show that it is no worse"
        )
        hint = "Set gates.margin in units of return, or use gates.improvement instead."
        yield Problem("gates.margin", None, message, hint)


def _aliases(spec: Spec) -> Iterator[Problem]:
    """Names that no model can have, so that nobody would ever be compared with."""
    for name in ("no_regression", "improvement"):
        path, alias = f"gates.{name}", getattr(spec.gates, name)
        if alias is not None and (not ALIAS_NAME.fullmatch(alias) or alias in RESERVED):
            message = f"{path} is {alias!r}; {ALIAS_FORM}"
            yield Problem(path, alias, message, "For example: production.")


def _evaluations_to_settle(spec: Spec) -> Iterator[Problem]:
    """Convergence is read from evaluations, which an external program makes when it likes."""
    every, total = spec.eval.every, spec.train.total_timesteps
    if not spec.gates.converged or not spec.runner.traits.trains_here:
        return
    first, last = -(-2 * total // (3 * every)), (total - 1) // every
    late = max(0, last - first + 1) + 1  # The end is always evaluated.
    if late < SETTLING:
        message = (
            f"gates.converged is true, but eval.every = {every} leaves {late} of the {SETTLING} "
            f"evaluations that it needs in the last third of train.total_timesteps = {total}"
        )
        hint = f"Set eval.every to at most {max(1, total // (3 * SETTLING))}."
        yield Problem("gates.converged", True, message, hint)


def _episodes_of_training(spec: Spec) -> Iterator[Problem]:
    asked, total = spec.gates.min_episodes, spec.train.total_timesteps
    if asked is not None and asked > total:
        message = (
            f"gates.min_episodes is {asked}; must be at most train.total_timesteps = {total}, "
            "since an episode takes a step at least"
        )
        yield Problem("gates.min_episodes", asked, message)


def _own_word(spec: Spec) -> Iterator[Problem]:
    """Rules that believe a run, where no rule asks another process: they must not stand alone."""
    for name in ("converged", "guardrail_clean"):
        path = f"gates.{name}"
        if getattr(spec.gates, name) and not _rules_of_returns(spec):
            message = (
                f"{path} is true, but reads what the run says of itself, and no rule is set that "
                "reads its final evaluation"
            )
            yield Problem(path, True, message, "Set gates.min_return as well.")


def _own_success_rate(spec: Spec) -> Iterator[Problem]:
    """A share of successes that the environment reports, under the name that gates read."""
    if SUCCESS_RATE in spec.env.info_metrics:
        message = (
            f"env.info_metrics lists {SUCCESS_RATE}, the name of what is worked out from "
            "info['is_success']; an environment's own share of successes is not recorded"
        )
        hint = "Say in info['is_success'] whether the episode succeeded; it needs no listing."
        yield Problem("env.info_metrics", SUCCESS_RATE, message, hint)
