"""Policies played by children, several at a time: what `rlctl eval` and promotions ask for.

A child has torch, we do not. Episodes are numbered, and each child plays a range of numbers, so
that how many children there are changes no episode.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from rl_orch import stats
from rl_orch.errors import RlctlError
from rl_orch.io.policies.episode_records import Recorded
from rl_orch.io.processes.contained import ContainedProcess
from rl_orch.io.processes.environment import program_variables
from rl_orch.io.processes.task_child import refusal
from rl_orch.records import EvalReport

WORTH_A_CHILD = 50
"""Episodes from which on another child pays: it takes a second or two to get ready."""

FractionCallback = Callable[[float], None]
"""Takes the part of all episodes that is done."""


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """Policies to play, and how. Each is named as `worker/policies/sources.playable` takes it.

    A seed of None is a fresh one, which the report names; without a word on whether actions are
    sampled, the challenger's spec decides.
    """

    challenger: dict[str, Any]
    seed: int
    champion: dict[str, Any] | None = None
    deterministic: bool | None = None
    metrics: Sequence[str] = ()
    actions: bool = False


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
    process: ContainedProcess
    done: float = 0.0


@dataclass(slots=True)
class EvalWorkers:
    """Children that play; made by `playing`."""

    children: list[_Child] = field(default_factory=list)

    def play(
        self, question: EvalRequest, first: int, episodes: int, watch: FractionCallback
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
                pool.submit(_ask, child, question, *each, heard)
                for child, each in zip(used, ranges, strict=True)
            ]
            try:
                parts = [each.result() for each in asked]
            except BaseException:
                self.end()
                raise
        return joined(parts, question.seed)

    def end(self) -> None:
        """End all children, and what they have started."""
        children, self.children = self.children, []
        for child in children:
            child.process.ask_to_end()
        for child in children:
            child.process.end()


@contextmanager
def playing(children: int) -> Iterator[EvalWorkers]:
    """So many children, until they are no longer needed."""
    with ExitStack() as stack:
        players = EvalWorkers()
        for _ in range(children):
            child = _started()
            stack.callback(child.process.close)
            players.children.append(child)
        stack.callback(players.end)
        yield players


def worth(episodes: int, cores: int) -> int:
    """Number of children that so many episodes are worth."""
    return max(1, min(cores, -(-episodes // WORTH_A_CHILD)))


def merged(parts: Sequence[EvalReport], seed: int) -> EvalReport:
    """One report on the episodes of all parts, which follow one another."""
    returns = tuple(ret for part in parts for ret in part.returns)
    joined = {
        "returns": returns,
        "lengths": tuple(each for part in parts for each in part.lengths),
        "seeds": tuple(each for part in parts for each in part.seeds),
        "metrics": {
            name: tuple(each for part in parts for each in part.metrics[name])
            for name in parts[0].metrics
        },
        "summary": stats.summarize(returns, seed=seed),
        "seed": seed,
        "digest": parts[0].digest if len({part.digest for part in parts}) == 1 else None,
    }
    return parts[0].model_copy(update=joined)


def _ranges(first: int, episodes: int, children: int) -> list[tuple[int, int]]:
    """(first, count) for each child that gets any."""
    bounds = [first + episodes * n // children for n in range(children + 1)]
    return [(low, high - low) for low, high in pairwise(bounds) if high > low]


def _started() -> _Child:
    return _Child(ContainedProcess(("assess",), program_variables(threads=1)))


def _ask(
    child: _Child,
    question: EvalRequest,
    first: int,
    episodes: int,
    heard: Callable[[_Child, float], None],
) -> EvalResult:
    document = asdict(question) | {"first": first, "episodes": episodes}
    child.process.send(json.dumps(document) + "\n")
    for line in child.process.lines():
        try:
            reply = json.loads(line)
        except ValueError:  # A blank line, or half of one.
            continue
        match reply:
            case {"doing": _, "done": done}:
                heard(child, float(done))
            case {"report": _}:
                heard(child, 1.0)
                return _answer(reply)
            case {"error": _}:
                raise refusal(reply)
    code = child.process.wait()
    raise RlctlError(f"the evaluation ended with exit code {code}: {child.process.last_line}")


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


def _answer(reply: Mapping[str, Any]) -> EvalResult:
    against = reply["baseline"]
    return EvalResult(
        EvalReport.model_validate(reply["report"]),
        None if against is None else EvalReport.model_validate(against),
        tuple(notable([Recorded.model_validate(e) for e in side]) for side in reply["episodes"]),
    )


def notable(episodes: Sequence[Recorded]) -> dict[str, Recorded]:
    """The best and the worst of some episodes; the first of those that are alike."""
    if not episodes:
        return {}
    best = min(episodes, key=lambda each: (-each.ret, each.number))
    return {"best": best, "worst": min(episodes, key=lambda each: (each.ret, each.number))}
