"""Policies played by children, several at a time: what `rlctl eval` and promotions ask for.

A child has torch, we do not. Episodes are numbered, and each child plays a range of numbers, so
that how many children there are changes no episode.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from rl_orch import stats
from rl_orch.io.processes.task_worker import TaskWorker
from rl_orch.records import EvalReport
from rl_orch.records.reports import info_metric, table_of
from rl_orch.records.tasks import EvaluateAnswer, EvaluateTask, Recorded

WORTH_A_CHILD = 50
"""Episodes from which on another child pays: it takes a second or two to get ready."""

FractionCallback = Callable[[float], None]
"""Takes the part of all episodes that is done."""


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Report on a policy, and on the one it was compared with.

    `episodes` are notable episodes of each with their actions.
    """

    report: EvalReport
    baseline: EvalReport | None = None
    episodes: tuple[dict[str, Recorded], ...] = ()


@dataclass(slots=True)
class _Child:
    worker: TaskWorker[EvaluateAnswer]
    done: float = 0.0


@dataclass(slots=True)
class EvalWorkers:
    """Children that play; made by `playing`."""

    children: list[_Child] = field(default_factory=list)

    def play(
        self, task: EvaluateTask, first: int, episodes: int, watch: FractionCallback
    ) -> EvalResult:
        """The episodes from number `first` on."""
        ranges = _ranges(first, episodes, len(self.children))
        used = self.children[: len(ranges)]
        counts = [count for _, count in ranges]

        def heard(child: _Child, done: float) -> None:
            child.done = done
            watch(sum(c.done * n for c, n in zip(used, counts, strict=True)) / episodes)

        for child in used:
            child.done = 0.0
        with ThreadPoolExecutor(len(used)) as pool:
            asked = [
                pool.submit(_ask, child, task, *each, heard)
                for child, each in zip(used, ranges, strict=True)
            ]
            try:
                parts = [each.result() for each in asked]
            except BaseException:
                self.end()
                raise
        return joined(parts, parts[0].report.seed)

    def end(self) -> None:
        """End all children, and what they have started."""
        children, self.children = self.children, []
        for child in children:
            child.worker.ask_to_end()
        for child in children:
            child.worker.close()


@contextmanager
def playing(children: int) -> Iterator[EvalWorkers]:
    """So many children, until they are no longer needed."""
    with ExitStack() as stack:
        players = EvalWorkers()
        for _ in range(children):
            child = _started()
            stack.callback(child.worker.close)
            players.children.append(child)
        stack.callback(players.end)
        yield players


def worth(episodes: int, cores: int) -> int:
    """Number of children that so many episodes are worth."""
    return max(1, min(cores, -(-episodes // WORTH_A_CHILD)))


def merged(parts: Sequence[EvalReport], seed: int) -> EvalReport:
    """One report on the episodes of all parts, which follow one another."""
    returns = tuple(ret for part in parts for ret in part.returns)
    missing = {key: why for part in parts for key, why in part.missing.items()}
    metrics = table_of([row for part in parts for row in _rows(part)], missing)
    joined = {
        "returns": returns,
        "lengths": tuple(each for part in parts for each in part.lengths),
        "seeds": tuple(each for part in parts for each in part.seeds),
        "metrics": metrics,
        "shares": tuple(name for name in metrics if all(name in part.shares for part in parts)),
        "missing": {key: why for key, why in missing.items() if info_metric(key) not in metrics},
        "summary": stats.summarize(returns, seed=seed),
        "seed": seed,
        "cut": sum(part.cut for part in parts),
        "digest": parts[0].digest if len({part.digest for part in parts}) == 1 else None,
    }
    return parts[0].model_copy(update=joined)


def _rows(part: EvalReport) -> list[dict[str, float]]:
    """The metrics of each episode."""
    return [
        {name: values[number] for name, values in part.metrics.items()}
        for number in range(len(part.returns))
    ]


def _ranges(first: int, episodes: int, children: int) -> list[tuple[int, int]]:
    """(first, count) for each child that gets any."""
    bounds = [first + episodes * n // children for n in range(children + 1)]
    return [(low, high - low) for low, high in pairwise(bounds) if high > low]


def _started() -> _Child:
    return _Child(TaskWorker(EvaluateAnswer, ("assess",), doing="the evaluation", hint=None))


def _ask(
    child: _Child,
    task: EvaluateTask,
    first: int,
    episodes: int,
    heard: Callable[[_Child, float], None],
) -> EvalResult:
    asked = task.model_copy(update={"first": first, "episodes": episodes})
    answer = child.worker.ask(asked, lambda _doing, done: heard(child, done))
    heard(child, 1.0)
    episodes_of = tuple(notable(side) for side in answer.episodes)
    return EvalResult(answer.report, answer.baseline, episodes_of)


def joined(parts: Sequence[EvalResult], seed: int) -> EvalResult:
    """One answer about the episodes of all parts, which follow one another."""
    against = [part.baseline for part in parts if part.baseline is not None]
    sides = zip(*(part.episodes for part in parts), strict=True)
    noted = (notable([each for part in side for each in part.values()]) for side in sides)
    return EvalResult(
        merged([part.report for part in parts], seed),
        merged(against, seed) if against else None,
        tuple(noted),
    )


def notable(episodes: Sequence[Recorded]) -> dict[str, Recorded]:
    """The best and the worst of some episodes; the first of those that are alike."""
    if not episodes:
        return {}
    best = min(episodes, key=lambda each: (-each.ret, each.number))
    return {"best": best, "worst": min(episodes, key=lambda each: (each.ret, each.number))}
