"""A run as it is looked at: all that is known of it, and its curves."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from rl_orch.records.exactness import Certificate, Exactness
from rl_orch.records.models import ModelVersion
from rl_orch.records.record import Record
from rl_orch.records.reports import EvalReport, Evaluation, Verdict
from rl_orch.records.runs import Attempt, Checkpoint, LetGo, Run
from rl_orch.spec.model import Spec


class TrackerStatus(Record):
    """How far a tracker has come with a run: the bytes of events that it is yet to get, whether it
    was told of the end, if there was one, and the error that stands in its way."""

    name: str
    behind_bytes: int = 0
    told_end: bool = True
    error: str | None = None

    @property
    def is_behind(self) -> bool:
        """Whether something of an ended run has yet to reach the tracker."""
        return self.behind_bytes > 0 or not self.told_end


class RunView(Record):
    """A run with everything that belongs to it.

    `fails_again` is whether it has failed for a reason that a further attempt would meet again;
    `quiet_s` for how long a training whose process lives has told nothing, if that is long.
    """

    run: Run
    spec: Spec
    attempts: tuple[Attempt, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    models: tuple[ModelVersion, ...] = ()
    report: EvalReport | None = None
    exactness: Exactness | None = None
    passed_over: tuple[str, ...] = ()
    watched: bool = False
    certificate: Certificate | None = None
    changes: tuple[dict[str, Any], ...] = ()
    start: dict[str, Any] | None = None
    taken: dict[str, Any] | None = None
    children: tuple[str, ...] = ()
    forecast: str | None = None
    let_go: LetGo | None = None
    fails_again: bool = False
    trackers: tuple[TrackerStatus, ...] = ()
    quiet_s: float | None = None

    @property
    def verdict(self) -> Verdict | None:
        """What the gate said of the model that the run ended with."""
        return next((m.verdict for m in self.models if m.id == self.run.model_id), None)


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """One finished training episode."""

    step: int
    ret: float
    length: int
    env: int


@dataclass(frozen=True, slots=True)
class Episodes:
    """Finished training episodes as columns: there may be millions, and a curve wants two."""

    steps: tuple[int, ...] = ()
    rets: tuple[float, ...] = ()
    lengths: tuple[int, ...] = ()
    envs: tuple[int, ...] = ()

    @classmethod
    def of(cls, episodes: Iterable[EpisodeSummary]) -> "Episodes":
        """Some episodes as columns."""
        rows = map(attrgetter("step", "ret", "length", "env"), episodes)
        return cls(*zip(*rows, strict=True))

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[EpisodeSummary]:
        return map(EpisodeSummary, self.steps, self.rets, self.lengths, self.envs)

    def __getitem__(self, place: int) -> EpisodeSummary:
        return EpisodeSummary(
            self.steps[place], self.rets[place], self.lengths[place], self.envs[place]
        )


@dataclass(frozen=True, slots=True)
class History:
    """The episodes and evaluations of a run, oldest first, nothing counted twice."""

    episodes: Episodes = Episodes()
    evaluations: tuple[tuple[int, Evaluation], ...] = ()

    def returns(
        self, points: int = 80, *, until: int | None = None
    ) -> tuple[list[int], list[float]]:
        """Training returns averaged over `points` equal stretches of steps: steps and means.

        The stretches are those of a run that lasts `until` a step, or else as long as this one.
        """
        if not self.episodes:
            return [], []
        width = max(1, -(-(until or self.episodes.steps[-1]) // points))
        stretches: dict[int, list[float]] = {}
        for step, ret in zip(self.episodes.steps, self.episodes.rets, strict=True):
            stretches.setdefault(step // width, []).append(ret)
        steps = [(stretch + 1) * width for stretch in stretches]
        return steps, [sum(values) / len(values) for values in stretches.values()]
