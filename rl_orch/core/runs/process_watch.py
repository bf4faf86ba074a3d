"""The process of a run as its supervisor sees it: started, found again, listened to, ended."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rl_orch.core.ports import Exit, Runner, Task
from rl_orch.io.run.heartbeat import last_beat

BLINK_S = 2.0
"""What the time between two ticks counts for at most as silence."""


@dataclass(slots=True)
class RunProcess:
    """The run process, by the handle from its runner, if known.

    It is `watched` once it was seen alive. `why_forced` says why it was made to end.
    """

    runner: Runner
    path: Path
    timer: Callable[[], float]
    handle: str | None = None
    watched: bool = False
    forced: bool = False
    why_forced: str = ""
    _unseen_since: float = 0.0
    _beat: int | None = None
    _silent_s: float = 0.0
    _listened_at: float = 0.0

    def __post_init__(self) -> None:
        self._unseen_since = self._listened_at = self.timer()

    def start(self, task: Task) -> str:
        """Start one and return its handle."""
        self.handle, self.watched = self.runner.start(self.path, task), True
        self._unseen_since = self._listened_at = self.timer()
        self._silent_s = 0.0
        return self.handle

    def forget(self) -> None:
        """Know of none, from now on."""
        self.handle, self._unseen_since = None, self.timer()

    def poll(self) -> Exit | None:
        """Exit of the process; None while it lives. One without a noted handle is looked for."""
        if self.handle is None:
            self.handle = self.runner.adopt(self.path)
        if self.handle is None:
            return Exit(None)
        gone = self.runner.poll(self.handle)
        self.watched = self.watched or gone is None
        return gone

    def unseen_s(self) -> float:
        """For how long there has been none."""
        return self.timer() - self._unseen_since

    def silent_s(self, heartbeat: Path) -> float:
        """For how long it has shown no sign of life, as far as somebody listened."""
        beat, now = last_beat(heartbeat), self.timer()
        # Of a long time without a tick, this process may have been halted as well.
        self._silent_s += min(now - self._listened_at, BLINK_S)
        self._listened_at = now
        if beat != self._beat:
            self._beat, self._silent_s = beat, 0.0
        return self._silent_s

    def stop(self, *, force: bool, why: str = "") -> None:
        """Ask it to end, or make it; why it was made to is for its last reason."""
        self.forced, self.why_forced = self.forced or force, why or self.why_forced
        if self.handle is not None:
            self.runner.stop(self.handle, force=force)

    def sweep(self, *, through: int) -> int:
        """Kill what is left of attempts up to one; returns how many processes that was."""
        return self.runner.sweep(self.path, through=through)
