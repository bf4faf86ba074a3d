"""Commands to an attempt: by the command socket, or by a signal."""

import time
from pathlib import Path
from typing import Any

from rl_orch.errors import BadInput, Conflict
from rl_orch.io.run.command_socket import Request
from rl_orch.rl.training_recorder import TrainingCommand
from rl_orch.worker.attempt.live_changes import LiveChanges

PAUSED_POLL_S = 0.05


class PendingCommands:
    """Orders that the training loop has yet to heed."""

    def __init__(self, changes: LiveChanges | None = None) -> None:
        self._changes = changes
        self._stopping = False
        self._checkpoint_wanted = False
        self._paused = False

    @property
    def stopping(self) -> bool:
        """Whether the attempt was asked to end."""
        return self._stopping

    def next(self) -> TrainingCommand | None:
        """The next command, `stop` before all else; waits here while the run is paused."""
        while self._paused and not (self._stopping or self._checkpoint_wanted):
            time.sleep(PAUSED_POLL_S)
        if self._stopping:
            return "stop"
        if self._checkpoint_wanted:
            self._checkpoint_wanted = False
            return "checkpoint"
        return None

    def handle(self, request: Request) -> dict[str, Any]:
        """Answer a command that came over the socket."""
        told: dict[str, Any] = {}
        if request.command in ("set", "load"):
            told = self._changed(request)
        else:
            self.give(request.command)
        return {"accepted": request.command, **told}

    def _changed(self, request: Request) -> dict[str, Any]:
        if self._changes is None:
            raise BadInput(f"this run cannot {request.command}")
        match request:
            case Request("set", {"overrides": [*overrides]}) if all(map(_is_text, overrides)):
                return self._changes.ask(overrides)
            case Request("load", {"source": str(source)}):
                if self._paused:
                    raise Conflict("the run is paused", hint="Unpause it, or load and then pause.")
                return self._changes.load(Path(source))
        raise BadInput(
            f"arguments are {request.arguments!r:.200}; set takes overrides, a list of "
            "OPTION=VALUE, and load takes source, a path",
            path="arguments",
        )

    def give(self, name: str) -> None:
        """Take a command; the loop sees it before its next iteration.

        A signal handler calls this in the loop's own thread, at any moment: it only sets flags,
        because a lock that the loop holds just then would never be free.
        """
        match name:
            case "stop":
                self._stopping = True
            case "checkpoint":
                self._checkpoint_wanted = True
            case "pause" | "unpause":
                self._paused = name == "pause"


def _is_text(value: object) -> bool:
    return isinstance(value, str)
