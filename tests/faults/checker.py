"""What must be true of the history once all is over, whatever went wrong in between."""

import json
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import sqlalchemy as sa

from rl_orch.core.store.runs import Store
from rl_orch.core.store.tables import METADATA, RUNS, SUBMISSIONS
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import first_gap, fold, is_start, read
from rl_orch.records import Event, EventKind, Run, State
from rl_orch.records.queries import Query
from tests.faults.lab import Lab
from tests.waiting import PATIENCE_S


@dataclass(frozen=True, slots=True)
class Figures:
    """What it came to."""

    runs: int
    attempts: int
    roots: int
    states: dict[str, int]
    ready_s: tuple[float, ...]

    def __str__(self) -> str:
        """The figures in a sentence."""
        middle_s = sorted(self.ready_s)[len(self.ready_s) // 2]
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        return (
            f"{self.runs} runs ({states}), {self.attempts} attempts, {self.roots} roots seen; "
            f"{len(self.ready_s)} starts, ready after {middle_s:.2f} s in the middle and "
            f"{max(self.ready_s):.2f} s at most"
        )


def check(lab: Lab, acknowledged: Mapping[str, Sequence[str]]) -> Figures:
    """Raise unless the history holds: `acknowledged` is, for each key, the ids that it was told."""
    _settled(lab)
    lab.watcher.close()
    problems = list(dict.fromkeys(lab.watcher.complaints))
    problems += _integrity(lab.location)
    runs = all_runs(lab.store)
    problems += _acknowledged(lab.store, runs, acknowledged)
    attempts = 0
    for run in runs:
        problems += [f"{run.id}: {problem}" for problem in _run_problems(lab.store, run)]
        attempts += len(lab.store.attempts(run.id))
    assert not problems, "\n".join(problems)
    return Figures(
        len(runs),
        attempts,
        len(lab.watcher.seen),
        dict(Counter(run.state.value for run in runs)),
        tuple(seconds for up in lab.services for seconds in up.ready_s),
    )


def all_runs(store: Store) -> list[Run]:
    """Every run in the database."""
    found: list[Run] = []
    cursor = None
    while True:
        page = store.page(Query(limit=200, after=cursor))
        found += page.runs
        cursor = page.next
        if cursor is None:
            return found


def _settled(lab: Lab) -> None:
    """Return once no process of any run is left and no run is leased: the last of them had only
    just ended."""
    deadline, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while left := [*lab.watcher.marked(), *filter(None, _leases(lab.store))]:
        assert time.monotonic() < deadline, f"left behind: {left}"
        pause.wait(0.1)


def _leases(store: Store) -> list[str | None]:
    with store.reading() as connection:
        return list(connection.execute(sa.select(RUNS.c.lease)).scalars())


def _integrity(location: Path | str) -> list[str]:
    if isinstance(location, str):
        with Store(location).reading() as connection:
            for table in METADATA.sorted_tables:
                connection.execute(sa.select(table)).all()
        return []
    with sqlite3.connect(location) as connection:
        found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        found += [str(row) for row in connection.execute("PRAGMA foreign_key_check")]
    return [] if found == ["ok"] else [f"the database is damaged: {found}"]


def _acknowledged(
    store: Store, runs: Sequence[Run], acknowledged: Mapping[str, Sequence[str]]
) -> list[str]:
    """Every acknowledged run is there once, under its key; what is there was asked for."""
    ids = Counter(run.id for run in runs)
    promised = Counter(run_id for made in acknowledged.values() for run_id in made)
    with store.reading() as connection:
        rows = connection.execute(sa.select(SUBMISSIONS.c.key, SUBMISSIONS.c.runs)).all()
    kept = {key: json.loads(made) for key, made in rows}
    problems = [f"{run_id} was acknowledged and is gone" for run_id in promised - ids]
    problems += [
        f"{run_id} was acknowledged for two keys" for run_id in promised - Counter(set(promised))
    ]
    for key, made in acknowledged.items():
        if kept.get(key) != list(made):
            problems.append(f"key {key} was acknowledged as {made} and is {kept.get(key)}")
    unasked = set(ids) - {run_id for made in kept.values() for run_id in made}
    problems += [f"{run_id} was made for no key" for run_id in sorted(unasked)]
    return problems


def _run_problems(store: Store, run: Run) -> Iterable[str]:
    directory = RunDir.of(run)
    if run.active:
        yield f"has not ended: {run.state}, {run.reason}"
    numbers = [attempt.number for attempt in store.attempts(run.id)]
    if numbers != list(range(1, run.attempt + 1)):
        yield f"has attempts {numbers} and is at attempt {run.attempt}"
    if (holder := directory.lock_holder()) is not None:
        yield f"is still locked by {holder}"
    if not directory.path.is_dir():
        yield "has no directory"
        return
    yield from _event_problems(run, list(read(directory.events)))


def _event_problems(run: Run, events: list[Event]) -> Iterable[str]:
    starts = Counter(event.attempt for event in events if is_start(event))
    ends = Counter(e.attempt for e in events if e.kind is EventKind.STATE and e.key == "ended")
    yield from (f"attempt {number} started {n} times" for number, n in starts.items() if n > 1)
    yield from (f"attempt {number} ended {n} times" for number, n in ends.items() if n > 1)
    if late := [number for number in starts if number > run.attempt]:
        yield f"attempts {late} have events, and the newest is {run.attempt}"
    history = fold(events)
    if (gap := first_gap(history)) is not None:
        yield f"its folded events have a gap: {gap}"
    steps = [event.step for event in history if event.kind is EventKind.METRIC]
    if any(after < before for before, after in pairwise(steps)):
        yield f"its steps go back: {steps}"
    if run.runner == "external":
        yield from _count_problems(run, history, steps)


def _count_problems(run: Run, history: list[Event], steps: list[int]) -> Iterable[str]:
    """The program counts: no number may be missing or there twice."""
    if steps != list(range(1, len(steps) + 1)):
        yield f"its steps are not each there once: {steps}"
    spoken = [event for event in history if event.kind is not EventKind.ARTIFACT]
    last = spoken[-1] if spoken else None
    trained = last is not None and (last.key, last.value) == ("ended", "trained")
    if (run.state is State.SUCCEEDED) != trained and run.state is not State.STOPPED:
        yield f"is {run.state}, and its last event is {last}"
    if run.state is State.SUCCEEDED and len(steps) != run.total_timesteps:
        yield f"succeeded after {len(steps)} steps of {run.total_timesteps}"
