"""Commands to runs at work, and what those reply."""

from collections.abc import Callable
from typing import Any

from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.views import subjects
from rl_orch.errors import Conflict

Reply = dict[str, Any]


def tell(
    target: ConnectionOptions,
    reference: str,
    order: tuple[str, dict[str, Any]],
    *,
    json: bool,
    text: Callable[[Reply], str],
) -> None:
    """Give a run an order, or all runs of a group that are at work, and print the replies; a
    refusal is an error."""
    connected = target.connect()
    meant = subjects.find_only(connected, reference, active=True, ask=not json)
    runs = meant.runs if meant.group is None else [run for run in meant.runs if run.active]
    if not runs:
        raise Conflict(f"no run of group {meant.id} is at work")
    replies: dict[str, Reply] = {}
    for run in runs:
        replies[run.id] = reply = connected.command(run.id, *order)
        if not json:
            out().print(safe(f"{run.id}  {text(reply)}"))
    if json:
        print_json(replies)
