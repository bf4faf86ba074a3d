"""Commands to runs at work, and what those reply."""

from typing import Any

from rl_orch.cli.connection import Connected
from rl_orch.cli.views import subjects
from rl_orch.errors import BadInput, Conflict


def tell(
    connected: Connected, reference: str, command: str, arguments: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """The replies of a run, or of all runs of a group that are at work, by id; a refusal is an
    error."""
    meant = subjects.find(connected, reference)
    runs = meant.runs if meant.group is None else [run for run in meant.runs if run.active]
    if not runs:
        raise Conflict(f"no run of group {meant.id} is at work; nobody would carry out {command!r}")
    replies = {}
    for run in runs:
        reply = connected.command(run.id, command, arguments)
        if not reply.get("ok"):
            raise BadInput(f"run {run.id} refuses: {reply.get('error')}", hint=reply.get("hint"))
        replies[run.id] = reply
    return replies
