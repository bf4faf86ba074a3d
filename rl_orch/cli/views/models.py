"""Models, verdicts and changes of aliases in words, alike in every command of the registry."""

import time
from collections.abc import Sequence

from rl_orch.cli.output import safe
from rl_orch.cli.views.grid import grid_of, wide
from rl_orch.cli.views.text import age_text
from rl_orch.records import AliasChange, ModelVersion, Verdict
from rl_orch.stats.text import figure

COLUMNS = ("model", "alias", "env", "algo", "return", "n", "validated", "steps", "run", "age")
CHANGES = ("when", "alias", "model", "before", "what", "who", "why")


def print_models(models: Sequence[ModelVersion]) -> None:
    """A row for each model."""
    grid = grid_of(COLUMNS, fixed=("model", "alias", "validated", "age"))
    for model in models:
        grid.add_row(
            f"#{model.id}",
            safe(", ".join(model.aliases)) or "–",
            safe(model.env_id),
            safe(model.algorithm),
            return_text(model),
            "–" if model.episodes is None else f"{model.episodes:,}",
            "[green]yes[/]" if model.validated else "no",
            "–" if model.total_timesteps is None else f"{model.total_timesteps:,}",
            safe(model.run_id or "–"),
            age_text(model.timestamp),
        )
    wide().print(grid)


def print_changes(changes: Sequence[AliasChange]) -> None:
    """A row for each change."""
    grid = grid_of(CHANGES, fixed=("when", "model", "before", "what"))
    for change in changes:
        grid.add_row(
            moment(change.at),
            safe(f"{change.alias}@{change.env_id}"),
            _number(change.model_id),
            _number(change.previous_id),
            f"{change.action}[yellow], forced[/]" if change.forced else change.action,
            safe(change.who),
            safe(change.reason or "–"),
        )
    wide().print(grid)


def change_line(change: AliasChange) -> str:
    """A change in a sentence."""
    name = safe(f"{change.alias}@{change.env_id}")
    if change.model_id is None:
        return f"{name} is nobody's now; it was model {change.previous_id}"
    before = "" if change.previous_id is None else f", instead of model {change.previous_id}"
    why = "forced" if change.action == "promote" else safe(str(change.reason))
    forced = f" [yellow]({why})[/]" if change.forced else ""
    return f"{name} is model {change.model_id} now{before}{forced}"


def verdict_lines(verdict: Verdict) -> list[str]:
    """What a verdict says, and each of its checks."""
    style = "green" if verdict.passed else "yellow"
    marks = {True: "[green]passed[/]", False: "[yellow]failed[/]"}
    checks = [f"  {marks[c.passed]}  {safe(c.rule)}: {safe(c.sentence)}" for c in verdict.checks]
    return [f"[{style}]{verdict.word}[/]", *checks]


def return_text(model: ModelVersion) -> str:
    """The mean return with its deviation."""
    if model.mean_reward is None:
        return "–"
    spread = "" if model.std_reward is None else f" ± {figure(model.std_reward)}"
    return f"{figure(model.mean_reward)}{spread}"


def moment(at: float) -> str:
    """A moment as the clock on the wall has it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _number(model_id: int | None) -> str:
    return "–" if model_id is None else f"#{model_id}"
