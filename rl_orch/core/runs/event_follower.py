"""The event file of a run, followed as it grows: new events, and what they add up to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rl_orch.core.runs.progress import Progress, began
from rl_orch.io.run.events import folded, is_start, tail
from rl_orch.records import Event, EventKind

KINDS = (EventKind.STATE, EventKind.EVAL, EventKind.CHECKPOINT, EventKind.LOG)
"""The kinds of events that `Progress` reads."""

WORDS = tuple(f'"{kind}"'.encode() for kind in KINDS)


@dataclass(slots=True)
class EventFollower:
    """Reads on from where it was. Without `every_event` it parses those alone that say what becomes
    of the run, which are few."""

    every_event: bool = True
    progress: Progress = field(default_factory=Progress)
    beginning: str = "training"
    _offset: int = 0

    def read(self, file: Path, attempt: int, hear: Callable[[Event], None]) -> list[Event]:
        """The new events of an attempt. Those of one that another has replaced are passed over.

        `hear` is called with each; where it raises, they are new again the next time.
        """
        news: list[Event] = []
        while True:
            part = tail(file, self._offset, words=() if self.every_event else WORDS)
            for event in part.events:
                if event.attempt == attempt:
                    if is_start(event):
                        self.progress, self.beginning = _before(event, file), began(event)
                    self.progress = self.progress.after(event)
                    hear(event)
                    news.append(event)
            if part.offset == self._offset:
                return news
            self._offset = part.offset


def _before(start: Event, file: Path) -> Progress:
    """Progress of the attempts before a start, as far as it goes on from them."""
    progress = Progress()
    if start.attempt > 1:
        for event in folded(file, KINDS):
            if event.attempt < start.attempt:
                progress = progress.after(event)
    return progress
