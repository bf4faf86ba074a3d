"""Fills the measured part of the page on performance."""

import os
from pathlib import Path

from benchmarks import marks
from benchmarks.speed.results import Results


def fill(page: Path, picture: Path, table: str, results: Results) -> None:
    """Put the picture, the table and where they come from between the marks of a page."""
    marks.fill(page, measured(page, picture, table, results))


def measured(page: Path, picture: Path, table: str, results: Results) -> str:
    """What is said between the marks."""
    entries = [results.workloads[workload.name] for workload in results.known()]
    machines = sorted({f"{entry['processor']}, {entry['cores']} cores" for entry in entries})
    days = sorted({run["date"][:10] for entry in entries for run in entry["runs"]})
    ends = (days[0], days[-1])
    shown = os.path.relpath(picture, page.parent)
    return "\n".join(
        [
            f"![Environment steps per second, by workload and library]({shown})",
            "",
            table,
            "",
            f"Measured on {' and '.join(machines)}, {' to '.join(dict.fromkeys(ends))}.",
        ]
    )
