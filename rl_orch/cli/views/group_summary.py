"""A group as it stands: curve with its band, what it says of the spec, and each of its runs."""

from rich.console import Console
from rich.table import Table

from rl_orch.cli.connection import Connected
from rl_orch.cli.output import safe
from rl_orch.cli.views.grid import grid_of
from rl_orch.cli.views.run_summary import print_chart, row
from rl_orch.cli.views.text import (
    counted,
    group_sentence,
    outcome_cells,
    seeds_text,
    state_counts,
    state_text,
)
from rl_orch.core.runs import curves
from rl_orch.core.runs.groups import RunOrGroup, shortfall
from rl_orch.records import Group, Run, State

BROKEN = (State.FAILED, State.LOST)
COLUMNS = ("run", "seed", "state", "steps", "return [95 % over episodes]", "gate", "resume")


def print_group(
    console: Console, connected: Connected, subject: RunOrGroup, *, flags: str = ""
) -> None:
    """Everything one wants to know of a group; `flags` are what the next commands need."""
    group, runs = subject.group, subject.runs
    assert group is not None
    if not console.is_terminal:
        console.width = 160
    console.print()
    target = connected.show(runs[0].id, checkpoints=False).spec.gates.min_return
    print_chart(console, [curves.of_group(runs, connected.history, "return")], target=target)
    row(console, "group", f"[bold]{safe(group.id)}[/]  {state_text(group)}: {state_counts(group)}")
    seeds = f"seed{'s' if len(group.seeds) > 1 else ''} {seeds_text(group.seeds)}"
    chosen = f"{safe(group.algo)} on {safe(group.env)}, {seeds}, config {group.config_hash[:12]}"
    row(console, "spec", chosen)
    steps = f"{group.trained} (budget {group.total_timesteps:,})"
    row(console, "trained", f"{steps} in {counted(len(runs), 'run')}")
    row(console, "evaluated", _evaluated(group))
    if group.verdicts.n:
        passed, n = group.verdicts.passed, group.verdicts.n
        colour = "green" if passed == n else "red"
        row(console, "gate", f"[{colour}]passed by {passed} of {n}[/] runs that were judged")
    if (lacking := shortfall(group, runs)) is not None:
        row(console, "note", safe(lacking))
    row(console, "next", safe("\n".join(_next_commands(group, runs, flags))))
    console.print()
    console.print(_table(runs))


def _evaluated(group: Group) -> str:
    if group.eval is None:
        return "no run has had its final evaluation" + (" yet" if group.active else "")
    return safe(group_sentence(group.eval))


def _table(runs: tuple[Run, ...]) -> Table:
    grid = grid_of(COLUMNS, fixed=("run", "state"))
    for run in runs:
        state, evaluation, gate = outcome_cells(run)
        grid.add_row(
            safe(run.id),
            str(run.seed),
            state,
            f"{run.env_steps:,}",
            safe(evaluation),
            gate,
            run.resume,
        )
    return grid


def _next_commands(group: Group, runs: tuple[Run, ...], flags: str) -> list[str]:
    commands = [f"rlctl show {group.id}{flags}"]
    if not group.active and any(run.state in (*BROKEN, State.STOPPED) for run in runs):
        commands.insert(0, f"rlctl resume {group.id}{flags}")
    broken = next((run for run in runs if run.state in BROKEN), None)
    if broken is not None:
        commands.insert(0, f"rlctl logs {broken.id}{flags}")
    return commands
