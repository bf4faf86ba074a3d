"""Records in words and in colour, alike in every command."""

import json
import math
import os
import time
from typing import Any

from pydantic import BaseModel

from rl_orch.records import Evaluation, Run, State

STATE_STYLES = {
    State.QUEUED: "dim",
    State.STARTING: "cyan",
    State.RUNNING: "cyan",
    State.EVALUATING: "cyan",
    State.SUCCEEDED: "green",
    State.REJECTED: "yellow",
    State.FAILED: "red",
    State.STOPPED: "yellow",
    State.LOST: "red",
}


def plain(record: BaseModel) -> dict[str, Any]:
    """A record as JSON would hold it."""
    document = json.loads(record.model_dump_json())
    assert isinstance(document, dict)
    return document


def state_text(run: Run) -> str:
    """The state of a run in its colour."""
    return f"[{STATE_STYLES[run.state]}]{run.state}[/]"


def figure(value: float) -> str:
    """A return with as many digits as it takes: 489.7, 12.34, 0.0512. What is none is a dash."""
    if math.isnan(value):
        return "–"
    if not math.isfinite(value) or value == 0 or abs(value) >= 100:
        return f"{value:,.1f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def evaluation_text(run: Run) -> str:
    """A return with its interval; `~` marks one that the run reported about itself."""
    if run.eval is None:
        return "–"
    final = run.state in (State.SUCCEEDED, State.REJECTED)
    return f"{'' if final else '~'}{figure(run.eval.mean)} {interval_text(run.eval)}"


def interval_text(evaluation: Evaluation) -> str:
    """The 95 % interval; a single episode has none."""
    low, high = evaluation.ci95
    return f"[{figure(low)}, {figure(high)}]" if evaluation.n > 1 else "[unknown]"


def age_text(since: float) -> str:
    """How long ago something was."""
    seconds = max(0.0, time.time() - since)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def short(path: str) -> str:
    """A path relative to the working directory where that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) else path
