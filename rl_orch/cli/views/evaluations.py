"""Evaluations in words and as documents: of a policy, of two, of a group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_orch.cli.output import out, safe
from rl_orch.cli.views.grid import number_table
from rl_orch.cli.views.text import counted, group_sentence, plain
from rl_orch.core.policies import evaluation
from rl_orch.core.policies.evaluation import Evaluated, PairedEvaluation
from rl_orch.core.registry.references import PolicySource
from rl_orch.records import Estimate, EvalReport, GroupEvaluation, Run
from rl_orch.stats.text import bounds_text, figure

NAMES = {"mean": "mean", "median": "median", "iqm": "IQM", "optimality_gap": "optimality gap"}
DECISIONS = {"superior": "it is better", "not": "it is not shown to be better"}


@dataclass(frozen=True, slots=True)
class Member:
    """The evaluation of the model of one run of a group, and where it is kept."""

    run: Run
    source: PolicySource
    evaluated: Evaluated
    files: Mapping[str, Path]

    def document(self) -> dict[str, Any]:
        """As `--json` shows it."""
        return document(self.run.id, self.source, self.evaluated, self.files)


def print_members(members: Sequence[Member], whole: GroupEvaluation) -> None:
    """A line for each run of a group, and what they come to."""
    table = number_table("run", "seed", "mean return", "95 %", "IQM")
    for member in members:
        run, summary = member.run, member.evaluated.answer.report.summary
        interval = bounds_text(summary.ci95)
        table.add_row(
            safe(run.id), str(run.seed), figure(summary.mean), interval, figure(summary.iqm)
        )
    out().print(table)
    out().print(f"\n{group_sentence(whole)}")


def document(
    word: str, source: PolicySource, evaluated: Evaluated, files: Mapping[str, Path]
) -> dict[str, Any]:
    """A policy and what was found, as `--json` shows them."""
    report, baseline = evaluated.answer.report, evaluated.answer.baseline
    shown: dict[str, Any] = {
        "policy": word,
        "path": str(source.path),
        "model_id": None if source.model is None else source.model.id,
        "run_id": None if source.run is None else source.run.id,
        "env": report.env_id,
        "seed": report.seed,
        "deterministic": report.deterministic,
        "eval": plain(report.summary),
        "aggregates": {name: plain(each) for name, each in _aggregates(source, evaluated).items()},
        "mean_length": report.mean_length,
        "metrics": {name: sum(values) / len(values) for name, values in report.metrics.items()},
        "files": {name: str(path) for name, path in files.items()},
    }
    if baseline is not None and evaluated.comparison is not None:
        shown["against"] = {"model_id": baseline.model, "eval": plain(baseline.summary)}
        shown["comparison"] = _comparison(evaluated.comparison)
    return shown


def _aggregates(source: PolicySource, evaluated: Evaluated) -> dict[str, Estimate]:
    return evaluation.aggregates(evaluated.answer.report, evaluation.target_of(source))


def _comparison(comparison: PairedEvaluation) -> dict[str, Any]:
    apart, chance = comparison.difference, plain(comparison.improvement)
    fixed = comparison.decision is None
    return {
        "difference": {
            "mean": apart.mean,
            "ci95": list(apart.ci95) if fixed else None,
            "low": comparison.low,
            "pairs": apart.n[0],
        },
        "probability_of_improvement": chance if fixed else chance | {"ci95": None},
        "decision": comparison.decision,
        "episodes_asked": comparison.asked,
    }


def print_evaluation(source: PolicySource, evaluated: Evaluated, against: str | None) -> None:
    """What was found, in a table; of two policies side by side, and how they differ."""
    report, console = evaluated.answer.report, out()
    how = "likeliest actions" if report.deterministic else "sampled actions"
    console.print(
        f"{safe(report.env_id)}: {counted(report.summary.n, 'episode')}, {how}, seed {report.seed}",
        style="dim",
    )
    sides = {"estimate": report}
    if evaluated.answer.baseline is not None and against is not None:
        sides = {source.name: report, against: evaluated.answer.baseline}
    table = number_table("return", *(cell for name in sides for cell in (safe(name), "95 %")))
    columns = [_column(each, evaluation.target_of(source)) for each in sides.values()]
    for name in columns[0]:
        table.add_row(safe(name), *(cell for column in columns for cell in column[name]))
    console.print(table)
    if evaluated.comparison is not None and against is not None:
        console.print(f"\n{_sentence(evaluated.comparison, against)}")


def _column(report: EvalReport, target: float | None) -> dict[str, tuple[str, str]]:
    """The numbers of a report by their names, each with its interval if it has one."""
    estimates = {
        NAMES[name]: (figure(each.value), bounds_text(each.ci95))
        for name, each in evaluation.aggregates(report, target).items()
    }
    plain_ones = {"std": report.summary.std, "length": report.mean_length}
    plain_ones |= {name: sum(values) / len(values) for name, values in report.metrics.items()}
    return estimates | {name: (figure(value), "") for name, value in plain_ones.items()}


def _sentence(comparison: PairedEvaluation, against: str) -> str:
    apart, better = comparison.difference, comparison.improvement
    minus = f"minus {safe(against)}: {figure(apart.mean)}"
    pairs = f"{counted(apart.n[0], 'pair')} of episodes"
    if comparison.decision is not None and comparison.low is not None:
        return (
            f"{minus}, at least {figure(comparison.low)} by all looks, over {pairs} (of at most "
            f"{comparison.asked}: {DECISIONS.get(comparison.decision, 'not decided')})"
        )
    return (
        f"{minus} {bounds_text(apart.ci95)} over {pairs}; "
        f"it returns more with a chance of {better.value:.0%} "
        f"[{better.ci95[0]:.0%}, {better.ci95[1]:.0%}] (ties count half)"
    )
