"""Choice of the runs to start next: `choose(queue, working, capacity)`, pure. Nothing here acts.

Every run has a place in one line, and no place is worth more than so many others, so that each
overtaking is bounded and nothing waits for ever. When a place will be had is in `forecast.py`.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rl_orch.records import Run

PRIORITY_PLACES = 100
"""What a point of priority is worth."""

SHARE_PLACES = 1000
"""What each run at work costs the others of its queue, so that queues get equal shares."""

LIMIT_PLACES = 100
"""By how much runs of the same queue may overtake one that waits for the queue to be emptier."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Resources of a machine. `gpus` are the names that CUDA_VISIBLE_DEVICES has for them."""

    cpus: int
    memory_mb: int
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """A run at work on the machine, or about to be, and its GPUs where they are known.

    It counts whoever started it.
    """

    run: Run
    gpus: tuple[str, ...] = ()


def choose(queue: Sequence[Run], working: Sequence[Claim], capacity: Capacity) -> list[Claim]:
    """The runs that are to start now, in the order in which they are to, each with the only GPUs
    that it may see.

    `queue` has the runs that wait for nothing but room. The one with the smallest place is looked
    at first; those chosen before it count as at work. One that does not fit sets aside what it
    needs, so that those behind it cannot take it; they may use what is left. One that would not fit
    even if all that is at work now had ended, since those before it need that, sets nothing aside.
    """
    room = _Room(working, capacity)
    line = _Line(queue, working)
    chosen = []
    for run in line:
        if room.cpus < 1 or room.memory_mb < 1:
            break
        if never_fits(run, capacity) is None and line.open_to(run):
            gpus = room.take(run)
            if gpus is not None:
                line.start(run)
                chosen.append(Claim(run, gpus))
    return chosen


def shortages(queue: Sequence[Run], working: Sequence[Claim], capacity: Capacity) -> dict[str, str]:
    """What each run lacks that `choose` would not start now, and how much of it, by its id."""
    room, line = _Room(working, capacity), _Line(queue, working)
    lacking: dict[str, str] = {}
    for run in line:
        if (never := never_fits(run, capacity)) is not None:
            lacking[run.id] = never
        elif not line.open_to(run):
            lacking[run.id] = line.limit_text(run)
        elif (short := room.shortage(run, capacity)) is not None:
            lacking[run.id] = short
            room.take(run)
        else:
            room.take(run)
            line.start(run)
    return lacking


def never_fits(run: Run, capacity: Capacity) -> str | None:
    """Reason why the run could not start even on an empty machine.

    It is a sentence, or None if the run could.
    """
    asked = [
        ("core", run.cpus, capacity.cpus),
        ("MiB of memory", run.memory_mb, capacity.memory_mb),
        ("GPU", run.gpus, len(capacity.gpus)),
    ]
    lacking = [row for row in asked if row[1] > row[2]]
    if not lacking:
        return None
    wanted = " and ".join(_amount(count, noun) for noun, count, _ in lacking)
    there = " and ".join(_amount(count, noun) for noun, _, count in lacking)
    return f"run {run.name} asks for {wanted}; this machine has {there}"


def place_of(run: Run, working_in_queue: int) -> int:
    """The place of a waiting run, of whose queue so many are at work; the smallest is next."""
    return standing(run) + SHARE_PLACES * working_in_queue


def standing(run: Run) -> int:
    """The place of a run within its queue."""
    return run.arrival - PRIORITY_PLACES * run.priority


def in_line(queue: Sequence[Run], working: Sequence[Claim]) -> list[Run]:
    """The waiting runs in the order in which they would start if they were alike."""
    line = _Line(queue, working)
    ordered = []
    for run in line:
        line.start(run)
        ordered.append(run)
    return ordered


class _Room:
    """Room that is free now, and once all that is at work has ended.

    Both are less what the runs looked at so far have taken or set aside. What is free now may be
    less than nothing.
    """

    def __init__(self, working: Sequence[Claim], capacity: Capacity) -> None:
        self.cpus = capacity.cpus - sum(claim.run.cpus for claim in working)
        self.memory_mb = capacity.memory_mb - sum(claim.run.memory_mb for claim in working)
        taken_gpus = {name for claim in working for name in claim.gpus}
        free = [name for name in capacity.gpus if name not in taken_gpus]
        # A run whose GPUs are not known uses the first ones: a program does, if it sees them all.
        unknown = sum(max(0, claim.run.gpus - len(claim.gpus)) for claim in working)
        self._gpus, self._gpus_aside = free[unknown:], 0
        self._later = [capacity.cpus, capacity.memory_mb, len(capacity.gpus)]

    def take(self, run: Run) -> tuple[str, ...] | None:
        """The run's GPUs, which are its own now; None if it does not fit at this moment."""
        asked = (run.cpus, run.memory_mb, run.gpus)
        later = [free - need for free, need in zip(self._later, asked, strict=True)]
        if min(later) < 0:
            return None
        now = (self.cpus, self.memory_mb, len(self._gpus) - self._gpus_aside)
        fits = all(need == 0 or need <= free for need, free in zip(asked, now, strict=True))
        self._later = later
        self.cpus -= run.cpus
        self.memory_mb -= run.memory_mb
        if not fits:
            self._gpus_aside += run.gpus
            return None
        taken, self._gpus = tuple(self._gpus[: run.gpus]), self._gpus[run.gpus :]
        return taken

    def shortage(self, run: Run, capacity: Capacity) -> str | None:
        """What is less than the run asks for, and by how much."""
        asked = [
            ("core", run.cpus, self.cpus, capacity.cpus),
            ("MiB of memory", run.memory_mb, self.memory_mb, capacity.memory_mb),
            ("GPU", run.gpus, len(self._gpus) - self._gpus_aside, len(capacity.gpus)),
        ]
        lacking = [
            f"{_amount(need - max(0, free), noun)} short: it asks for {need}, and the runs at work "
            f"and before it leave {max(0, free)} of {of}"
            for noun, need, free, of in asked
            if need > max(0, free)
        ]
        return "; ".join(lacking) or None


class _Line:
    """The waiting runs, the smallest place first, as it is when each is asked for."""

    def __init__(self, queue: Sequence[Run], working: Sequence[Claim]) -> None:
        self._working = Counter(claim.run.queue for claim in working)
        self._waiting: dict[str, list[tuple[int, int, str, Run]]] = {}
        self._held_from: dict[str, int] = {}
        for run in queue:
            row = (standing(run), run.arrival, run.id, run)
            self._waiting.setdefault(run.queue, []).append(row)
        for rows in self._waiting.values():
            heapq.heapify(rows)

    def __iter__(self) -> Iterator[Run]:
        heads = [(*self._head(name), name) for name in self._waiting]
        heapq.heapify(heads)
        while heads:
            *_, name = heads[0]
            run = heapq.heappop(self._waiting[name])[-1]
            yield run
            # Meanwhile the run may have started, which moves the others of its queue back.
            if self._waiting[name]:
                heapq.heapreplace(heads, (*self._head(name), name))
            else:
                heapq.heappop(heads)

    def _head(self, name: str) -> tuple[int, int, str]:
        *_, run = self._waiting[name][0]
        return place_of(run, self._working[name]), run.arrival, run.id

    def start(self, run: Run) -> None:
        """Count a run as at work."""
        self._working[run.queue] += 1

    def open_to(self, run: Run) -> bool:
        """Whether the limit of the run's queue allows it to start.

        One that has to wait for this holds back those far behind it, or it might wait for ever.
        """
        held = standing(run) > self._held_from.get(run.queue, standing(run))
        full = run.max_running is not None and self._working[run.queue] >= run.max_running
        if full and not held:
            self._held_from.setdefault(run.queue, standing(run) + LIMIT_PLACES)
        return not (held or full)

    def limit_text(self, run: Run) -> str:
        """Why the limit of the run's queue does not allow it to start."""
        if run.max_running is not None and self._working[run.queue] >= run.max_running:
            return (
                f"queue {run.queue} has {self._working[run.queue]} at work, and the run asks for "
                f"fewer than {run.max_running} (schedule.max_running)"
            )
        return f"it may not overtake one of queue {run.queue} that waits for fewer to be at work"


def _amount(count: int, noun: str) -> str:
    plural = "" if count == 1 or noun.startswith("MiB") else "s"
    return f"{count or 'no'} {noun}{plural}"
