"""Evaluations in words and as documents: of a policy, of two, of a group."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_orch.cli.output import out, safe
from rl_orch.cli.views.grid import number_table
from rl_orch.cli.views.text import counted, group_sentence, plain
from rl_orch.records import GroupEvaluation, Run
from rl_orch.records.jobs import EvaluatedPolicy, PairedComparison, PolicyEvaluation
from rl_orch.stats.text import bounds_text, figure

NAMES = {"mean": "mean", "median": "median", "iqm": "IQM", "optimality_gap": "optimality gap"}
NUMBERS_SHOWN = 30
REWARD_TERM = "reward_"
DECISIONS = {"superior": "it is better", "not": "it is not shown to be better"}


def print_members(members: Sequence[tuple[Run, PolicyEvaluation]], whole: GroupEvaluation) -> None:
    """A line for each run of a group, and what they come to."""
    table = number_table("run", "seed", "mean return", "95 %", "IQM")
    for run, evaluated in members:
        summary = evaluated.result.eval
        interval = bounds_text(summary.ci95)
        table.add_row(
            safe(run.id), str(run.seed), figure(summary.mean), interval, figure(summary.iqm)
        )
    out().print(table)
    out().print(f"\n{group_sentence(whole)}")


def document(
    evaluated: PolicyEvaluation,
    files: Mapping[str, Path],
    *,
    typed: tuple[str, str | None] | None = None,
) -> dict[str, Any]:
    """A policy and what was found, as `--json` shows them; `typed` is how both were named."""
    named, other = typed or (evaluated.word, None)
    result, against = evaluated.result, evaluated.against
    shown: dict[str, Any] = {
        "policy": evaluated.word,
        "typed": named,
        "path": evaluated.path,
        "model_id": result.model_id,
        "run_id": evaluated.run_id,
        "env": evaluated.env,
        "seed": evaluated.seed,
        "deterministic": evaluated.deterministic,
        "eval": plain(result.eval),
        "aggregates": {name: plain(each) for name, each in result.aggregates.items()},
        "mean_length": result.mean_length,
        "metrics": result.metrics,
        "estimates": {name: plain(each) for name, each in result.estimates.items()},
        "cut": result.cut,
        "files": {name: str(path) for name, path in files.items()},
    }
    if against is not None and evaluated.comparison is not None:
        model = None if against.model_id is None else str(against.model_id)
        shown["against"] = {"typed": other, "model_id": model, "eval": plain(against.eval)}
        shown["comparison"] = _comparison(evaluated.comparison)
    return shown


def _comparison(comparison: PairedComparison) -> dict[str, Any]:
    chance = plain(comparison.improvement)
    fixed = comparison.decision is None
    return {
        "difference": {
            "mean": comparison.mean,
            "ci95": None if comparison.ci95 is None else list(comparison.ci95),
            "low": comparison.low,
            "pairs": comparison.pairs,
        },
        "probability_of_improvement": chance if fixed else chance | {"ci95": None},
        "decision": comparison.decision,
        "episodes_asked": comparison.asked,
    }


def print_evaluation(evaluated: PolicyEvaluation, word: str, against: str | None) -> None:
    """What was found, in a table; of two policies side by side as they were typed, and how they
    differ."""
    console, result = out(), evaluated.result
    how = "likeliest actions" if evaluated.deterministic else "sampled actions"
    episodes = counted(result.eval.n, "episode")
    console.print(f"{safe(evaluated.env)}: {episodes}, {how}, seed {evaluated.seed}", style="dim")
    sides = [("estimate", result)]
    if evaluated.against is not None and against is not None:
        sides = [(word, result), (against, evaluated.against)]
    table = number_table("return", *(cell for name, _ in sides for cell in (safe(name), "95 %")))
    columns = [_column(each) for _, each in sides]
    names = sorted(columns[0], key=lambda name: name.startswith(REWARD_TERM))
    for name in names[:NUMBERS_SHOWN]:
        cells = (column.get(name, ("", "")) for column in columns)
        table.add_row(safe(name), *(cell for pair in cells for cell in pair))
    console.print(table)
    if len(names) > NUMBERS_SHOWN:
        rest = len(names) - NUMBERS_SHOWN
        console.print(f"and {rest:,} more; --json has all of them", style="dim")
    for name, each in sides:
        if each.cut is not None:
            who = "" if len(sides) == 1 else f"{name}: "
            console.print(f"[yellow]cut[/yellow]  {safe(who)}{each.cut} (eval.max_episode_steps)")
    if evaluated.comparison is not None and against is not None:
        console.print(f"\n{safe(word)} {_sentence(evaluated.comparison, against)}")


def _column(policy: EvaluatedPolicy) -> dict[str, tuple[str, str]]:
    """The numbers of a policy by their names, each with its interval if it has one."""
    estimates = {
        NAMES[name]: (figure(each.value), bounds_text(each.ci95))
        for name, each in policy.aggregates.items()
    }
    plain_ones = {"std": policy.eval.std, "length": policy.mean_length, **policy.metrics}
    bounds = {name: bounds_text(each.ci95) for name, each in policy.estimates.items()}
    return estimates | {
        name: (figure(value), bounds.get(name, "")) for name, value in plain_ones.items()
    }


def _sentence(comparison: PairedComparison, against: str) -> str:
    better = comparison.improvement
    minus = f"minus {safe(against)}: {figure(comparison.mean)}"
    pairs = f"{counted(comparison.pairs, 'pair')} of episodes"
    if comparison.ci95 is None or comparison.decision is not None:
        low = float("nan") if comparison.low is None else comparison.low
        return (
            f"{minus}, at least {figure(low)} by all looks, over {pairs} (of at most "
            f"{comparison.asked}: {DECISIONS.get(str(comparison.decision), 'not decided')})"
        )
    return (
        f"{minus} {bounds_text(comparison.ci95)} over {pairs}; "
        f"it returns more with a chance of {better.value:.0%} "
        f"[{better.ci95[0]:.0%}, {better.ci95[1]:.0%}] (ties count half)"
    )
