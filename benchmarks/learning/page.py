"""What the runs add up to, as tables, and the page that has them between its marks."""

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.learning.differences import Comparison
from benchmarks.learning.results import PAIRS, PEERS, Curve, Results, Side
from benchmarks.learning.tasks import Task

TITLES: dict[Side, str] = {"ours": "ours", "torch": "ours in torch", "sb3": "SB3"}


def thresholds(results: Results, tasks: Iterable[Task]) -> str:
    """The ends of the curves, IQM and 95 % interval, and the bars, as a table in Markdown."""
    lines = [
        "| task | steps | SB3 | SBX | ours, the same | ours, as shipped | asked for | passed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    words = {True: "yes", False: "**no**", None: "not known"}
    for task in tasks:
        peers = (results.curve(task, peer) for peer in PEERS)
        curves = (*peers, results.like(task), results.curve(task, "ours"))
        bar, steps = results.bar(task), max(curve.steps[-1] for curve in curves if curve)
        ends = (_end(curve) for curve in curves)
        cells = (task.name, f"{steps:,}", *ends, bar.rule, words[bar.passed])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def differences(results: Results, tasks: Sequence[Task]) -> str:
    """For each pair of sides, a table with a row for each task in which both have runs, and one of
    the rows that were repeated."""
    texts: list[str] = []
    for one, other in PAIRS:
        texts += filter(None, [_pair(results, tasks, one, other)])
        if repeated := _pair(results, tasks, one, other, fresh=True):
            texts += ["Of rows that were repeated, the fresh seeds alone:", repeated]
    return "\n\n".join(texts)


def measured(results: Results, tasks: Sequence[Task], picture: str) -> str:
    """What the page says between its marks of these tasks, with or without runs."""
    entries = [results.tasks[task.name] for task in tasks if task.name in results.tasks]
    machines = sorted({f"{entry['processor']}, {entry['cores']} cores" for entry in entries})
    parts = [
        f"![Learning curves at equal steps and settings]({picture})",
        differences(results, tasks),
        *_pending(results, tasks),
        f"Trained on {' and '.join(machines)}.",
    ]
    return "\n\n".join(parts)


def _pending(results: Results, tasks: Sequence[Task]) -> Iterator[str]:
    """The tasks of which there is nothing to compare yet, of each pair of sides."""
    for one, other in PAIRS:
        asked = (task for task in tasks if other != "torch" or task.in_torch)
        left = [task.title for task in asked if results.compared(task, one, other) is None]
        if left:
            yield f"Not compared with {TITLES[other]} yet: {', '.join(left)}."


def _pair(
    results: Results, tasks: Sequence[Task], one: Side, other: Side, *, fresh: bool = False
) -> str:
    names = f"{TITLES[one]}, {TITLES[other]}"
    compared = ((task, results.compared(task, one, other, fresh=fresh)) for task in tasks)
    rows = [_row(task, found) for task, found in compared if found is not None]
    measures = (f"{measure}: {names} | difference" for measure in ("final return", "area"))
    head = f"| task | steps | seeds | {' | '.join(measures)} | |"
    return "\n".join((head, "|---|---|---|---|---|---|---|---|", *rows)) if rows else ""


def _row(task: Task, found: Comparison) -> str:
    seeds = " and ".join(dict.fromkeys(str(n) for n in found.seeds))
    cells = (task.title, f"{task.env_steps:,}", seeds, *_leads(found), verdict(task, found))
    return f"| {' | '.join(cells)} |"


def _leads(comparison: Comparison) -> Iterator[str]:
    for lead in (comparison.final, comparison.area):
        low, high = lead.difference.ci95
        yield f"{lead.means[0]:,.1f}, {lead.means[1]:,.1f}"
        yield f"{lead.difference.mean:+,.1f} [{low:+,.1f}, {high:+,.1f}]"


def verdict(task: Task, comparison: Comparison) -> str:
    """Whether ours is below, in a word; nothing is said of too few seeds."""
    if min(comparison.seeds) < task.seeds:
        return "not complete"
    return "**below**" if comparison.below else "not below"


def _end(curve: Curve | None) -> str:
    if curve is None:
        return "–"
    low, high, n = curve.low[-1], curve.high[-1], len(curve.seeds)
    return f"{curve.iqm[-1]:.1f} [{low:.1f}, {high:.1f}], n = {n}"
