"""What a run's events say about its training, as curves: a view, rebuilt when it is asked for."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rl_orch.io.events import fold, read
from rl_orch.records import EvalReport, Evaluation, Event, EventKind


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """One finished training episode."""

    step: int
    ret: float
    length: int
    env: int


@dataclass(frozen=True, slots=True)
class History:
    """The episodes and evaluations of a run, oldest first, nothing counted twice."""

    episodes: tuple[EpisodeSummary, ...]
    evaluations: tuple[tuple[int, Evaluation], ...]

    def returns(self, points: int = 80) -> tuple[list[int], list[float]]:
        """Training returns averaged over `points` equal stretches of steps: steps and means."""
        if not self.episodes:
            return [], []
        width = max(1, -(-self.episodes[-1].step // points))
        stretches: dict[int, list[float]] = {}
        for episode in self.episodes:
            stretches.setdefault(episode.step // width, []).append(episode.ret)
        steps = [(stretch + 1) * width for stretch in stretches]
        return steps, [sum(values) / len(values) for values in stretches.values()]


def of_run(events_file: Path) -> History:
    """The history in an event file."""
    return of_events(fold(read(events_file)))


def of_events(events: Iterable[Event]) -> History:
    """The history that some events make."""
    episodes: list[EpisodeSummary] = []
    evaluations: list[tuple[int, Evaluation]] = []
    for event in events:
        if event.kind is EventKind.EPISODE:
            length, env = int(event.tags.get("length", 0)), int(event.tags.get("env", 0))
            episodes.append(EpisodeSummary(event.step, float(event.value), length, env))
        elif event.kind is EventKind.EVAL and "report" in event.tags:
            report = EvalReport.model_validate(event.tags["report"])
            evaluations.append((event.step, report.summary))
    return History(tuple(episodes), tuple(evaluations))
