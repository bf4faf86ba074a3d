"""Which runs start: never more than fit, every one in the end, each queue its share."""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_orch.core.queue.forecast import Forecast, forecast
from rl_orch.core.queue.scheduler import (
    LIMIT_PLACES,
    PRIORITY_PLACES,
    SHARE_PLACES,
    Capacity,
    Claim,
    choose,
    in_line,
    never_fits,
    place_of,
    shortages,
    standing,
)
from rl_orch.records import Run, State
from tests.counting import calls

SMALL = Capacity(cpus=4, memory_mb=4096, gpus=("GPU-a", "GPU-b"))


def waiting(arrival: int, **values: Any) -> Run:
    """A run that waits: one core, 512 MiB, no GPU, in the queue `default`, unless told."""
    given = {
        "id": f"run-{arrival:06}",
        "name": "test",
        "env": "CartPole-v1",
        "algo": "ppo",
        "config_hash": "0" * 64,
        "path": "/runs/test",
        "seed": 0,
        "total_timesteps": 1000,
        "created_at": 0.0,
        "updated_at": 0.0,
        "arrival": arrival,
    }
    return Run(**given | values)


def at_work(arrival: int, *, on: tuple[str, ...] = (), **values: Any) -> Claim:
    """A run at work, and the GPUs it has."""
    return Claim(waiting(arrival, state=State.RUNNING, **values), on)


def started(queue: Sequence[Run], working: Sequence[Claim], capacity: Capacity) -> list[int]:
    """The arrivals of the runs that are chosen."""
    return [placed.run.arrival for placed in choose(queue, working, capacity)]


some = settings(max_examples=60, deadline=None)
capacities = st.builds(
    Capacity,
    cpus=st.integers(3, 8),
    memory_mb=st.integers(1000, 4096),
    gpus=st.integers(1, 4).map(lambda count: tuple(f"GPU-{n}" for n in range(count))),
)
demands = st.fixed_dictionaries(
    {
        "cpus": st.integers(1, 5),
        "memory_mb": st.sampled_from([100, 500, 2000]),
        "gpus": st.sampled_from([0, 0, 0, 1, 2, 3]),
        "priority": st.integers(-20, 20),
        "queue": st.sampled_from(["default", "a", "b"]),
        "max_running": st.none() | st.integers(1, 3),
    }
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Run], list[Claim], Capacity]:
    """Runs that wait, runs at work that fit together, and a machine."""
    capacity, claims = draw(capacities), list[Claim]()
    arrivals = iter(draw(st.permutations(range(40))))
    for demand in draw(st.lists(demands, max_size=6)):
        # Whoever placed these had the same machine before them.
        run = waiting(next(arrivals), **demand)
        claims += [Claim(placed.run, placed.gpus) for placed in choose([run], claims, capacity)]
    queue = [
        waiting(next(arrivals), **demand)
        for demand in draw(st.lists(demands, min_size=2, max_size=15))
    ]
    return queue, claims, capacity


@some
@given(situations())
def test_nothing_is_given_twice(situation: tuple[list[Run], list[Claim], Capacity]) -> None:
    queue, working, capacity = situation
    placed = choose(queue, working, capacity)
    runs = [claim.run for claim in working] + [placement.run for placement in placed]
    gpus = [name for claim in working for name in claim.gpus]
    gpus += [name for placement in placed for name in placement.gpus]
    assert sum(run.cpus for run in runs) <= capacity.cpus
    assert sum(run.memory_mb for run in runs) <= capacity.memory_mb
    assert len(gpus) == len(set(gpus))
    assert set(gpus) <= set(capacity.gpus)
    assert all(len(placement.gpus) == placement.run.gpus for placement in placed)


@some
@given(situations())
def test_no_run_starts_beside_more_of_its_queue_than_it_allows(
    situation: tuple[list[Run], list[Claim], Capacity],
) -> None:
    queue, working, capacity = situation
    count = Counter(claim.run.queue for claim in working)
    for placed in choose(queue, working, capacity):
        run = placed.run
        assert run.max_running is None or count[run.queue] < run.max_running
        count[run.queue] += 1


@some
@given(situations(), st.randoms(use_true_random=False))
def test_the_choice_depends_on_nothing_but_the_situation(
    situation: tuple[list[Run], list[Claim], Capacity], shuffler: random.Random
) -> None:
    queue, working, capacity = situation
    first = choose(queue, working, capacity)
    shuffled, claims = list(queue), list(working)
    shuffler.shuffle(shuffled)
    shuffler.shuffle(claims)
    assert choose(shuffled, claims, capacity) == first


@some
@given(situations())
def test_the_choice_is_that_of_the_rules_read_word_by_word(
    situation: tuple[list[Run], list[Claim], Capacity],
) -> None:
    queue, working, capacity = situation
    assert choose(queue, working, capacity) == by_the_rules(queue, working, capacity)


@given(demands, capacities)
def test_a_run_never_fits_if_and_only_if_an_empty_machine_would_not_take_it(
    demand: dict[str, Any], capacity: Capacity
) -> None:
    run = waiting(1, **demand)
    assert (never_fits(run, capacity) is not None) == (choose([run], [], capacity) == [])


def by_the_rules(queue: Sequence[Run], working: Sequence[Claim], capacity: Capacity) -> list[Claim]:
    """Slow and plain: take the smallest place again and again; what does not fit is set aside."""
    left = [run for run in queue if never_fits(run, capacity) is None]
    at_work = Counter(claim.run.queue for claim in working)
    used = {name for claim in working for name in claim.gpus}
    cpus = capacity.cpus - sum(claim.run.cpus for claim in working)
    memory = capacity.memory_mb - sum(claim.run.memory_mb for claim in working)
    gpus, aside = [name for name in capacity.gpus if name not in used], 0
    later = [capacity.cpus, capacity.memory_mb, len(capacity.gpus)]
    held: dict[str, int] = {}
    chosen = []
    while left:
        run = min(left, key=lambda r: (place_of(r, at_work[r.queue]), r.arrival, r.id))
        left.remove(run)
        if run.queue in held and standing(run) > held[run.queue]:
            continue
        if run.max_running is not None and at_work[run.queue] >= run.max_running:
            held.setdefault(run.queue, standing(run) + LIMIT_PLACES)
            continue
        needs = [run.cpus, run.memory_mb, run.gpus]
        if any(need > free for need, free in zip(needs, later, strict=True)):
            continue
        later = [free - need for need, free in zip(needs, later, strict=True)]
        fits = run.cpus <= cpus and run.memory_mb <= memory
        fits = fits and (run.gpus == 0 or run.gpus <= len(gpus) - aside)
        cpus, memory = cpus - run.cpus, memory - run.memory_mb
        if fits:
            chosen.append(Claim(run, tuple(gpus[: run.gpus])))
            gpus = gpus[run.gpus :]
            at_work[run.queue] += 1
        else:
            aside += run.gpus
    return chosen


class Machine:
    """A machine on which runs start by the scheduler and end by chance."""

    def __init__(self, capacity: Capacity, arrive: Callable[[int], Run], chance: random.Random):
        self.capacity = capacity
        self.working: list[Claim] = []
        self.queue: list[Run] = []
        self.began: list[Run] = []
        self.arrivals = 0
        self._arrive = arrive
        self._chance = chance

    def submit(self, run: Run) -> None:
        self.queue.append(run)
        self.arrivals += 1

    def step(self, *, backlog: int) -> None:
        """Keep so many runs waiting, start what can be started, and let something end."""
        while len(self.queue) < backlog:
            self.submit(self._arrive(self.arrivals))
        placed = choose(self.queue, self.working, self.capacity)
        for placement in placed:
            self.queue.remove(placement.run)
            self.working.append(Claim(placement.run, placement.gpus))
            self.began.append(placement.run)
        for _ in range(self._chance.randint(1, 2)):
            if self.working:
                self.working.pop(self._chance.randrange(len(self.working)))


class Small:
    """Arrivals that never end, small ones of high priority, in one of several kinds of queues."""

    def __init__(self, queues: str, priority: int) -> None:
        self._queues = queues
        self._priority = priority

    def __call__(self, arrival: int) -> Run:
        names = {"same": "default", "other": "other", "each its own": f"group-{arrival}"}
        return waiting(arrival, queue=names[self._queues], priority=self._priority)


@settings(max_examples=40, deadline=None)
@given(
    cpus=st.integers(1, SMALL.cpus),
    gpus=st.integers(0, len(SMALL.gpus)),
    priority=st.integers(-2, 0),
    others=st.integers(0, 2),
    queues=st.sampled_from(["same", "other", "each its own"]),
    limit=st.none() | st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_a_run_that_fits_starts_after_a_bounded_number_of_later_arrivals(
    cpus: int, gpus: int, priority: int, others: int, queues: str, limit: int | None, seed: int
) -> None:
    machine = Machine(SMALL, Small(queues, others), random.Random(seed))
    for _ in range(5):
        machine.step(backlog=6)
    last = waiting(
        machine.arrivals, cpus=cpus, gpus=gpus, memory_mb=2048, priority=priority, max_running=limit
    )
    machine.submit(last)
    overtaking = PRIORITY_PLACES * (others - priority) + LIMIT_PLACES
    overtaking += SHARE_PLACES * (SMALL.cpus if queues != "same" else 0)
    before = machine.arrivals
    while last not in machine.began:
        machine.step(backlog=7)
        assert machine.arrivals - before <= overtaking + 100


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_queues_that_always_wait_have_equally_many_at_work(count: int, seed: int) -> None:
    names = [f"queue-{n}" for n in range(count)]
    chance, arrival = random.Random(seed), itertools.count()
    machine = Machine(Capacity(7, 10**6), Small("same", 0), chance)
    for _ in range(100):
        for name in names:
            while sum(run.queue == name for run in machine.queue) < 8:
                machine.queue.append(waiting(next(arrival), queue=name))
        placed = choose(machine.queue, machine.working, machine.capacity)
        machine.queue = without(machine.queue, placed)
        machine.working += [Claim(p.run) for p in placed]
        shares = Counter(claim.run.queue for claim in machine.working)
        assert max(shares.values()) - min(shares[name] for name in names) <= 1
        machine.working.pop(chance.randrange(len(machine.working)))


def test_queues_whose_runs_last_equally_long_start_equally_many() -> None:
    queue = [waiting(n, queue="early") for n in range(200)]
    queue += [waiting(200 + n, queue="late") for n in range(200)]
    working: list[Claim] = []
    starts: Counter[str] = Counter()
    for _ in range(300):
        placed = choose(queue, working, Capacity(4, 10**6))
        queue = without(queue, placed)
        starts.update(p.run.queue for p in placed)
        working = [*working, *(Claim(p.run) for p in placed)][1:]
        assert abs(starts["early"] - starts["late"]) <= 2


def test_the_one_who_came_first_is_first() -> None:
    queue = [waiting(3), waiting(1), waiting(2)]
    assert started(queue, [], Capacity(2, 4096)) == [1, 2]


def test_a_point_of_priority_is_worth_a_hundred_places() -> None:
    assert started([waiting(1), waiting(100, priority=1)], [], Capacity(1, 512)) == [100]
    assert started([waiting(1), waiting(101, priority=1)], [], Capacity(1, 512)) == [1]
    assert started([waiting(1), waiting(102, priority=1)], [], Capacity(1, 512)) == [1]


def test_a_run_at_work_costs_the_others_of_its_queue_a_thousand_places() -> None:
    working = [at_work(1, queue="a")]
    assert place_of(waiting(2, queue="a"), 1) == 1002
    assert started([waiting(2, queue="a"), waiting(900, queue="b")], working, SMALL) == [900, 2]


def test_those_behind_a_large_run_cannot_take_what_it_waits_for_but_may_take_the_rest() -> None:
    working = [at_work(1, gpus=1, on=("GPU-a",))]
    large = waiting(2, gpus=2, cpus=2)
    queue = [large, waiting(3, gpus=1), waiting(4), waiting(5)]
    assert started(queue, working, SMALL) == [4]
    assert started(queue, [], SMALL) == [2, 4, 5]


def test_a_gpu_that_is_free_is_kept_for_the_run_that_waits_for_a_second_one() -> None:
    three = Capacity(8, 8192, ("GPU-a", "GPU-b", "GPU-c"))
    working = [at_work(1, gpus=2, on=("GPU-a", "GPU-b"))]
    assert started([waiting(2, gpus=2), waiting(3, gpus=1), waiting(4)], working, three) == [4]


def test_those_that_wait_for_a_busy_gpu_do_not_keep_the_cores_idle() -> None:
    working = [at_work(1, gpus=2, on=SMALL.gpus)]
    queue = [waiting(n, gpus=1) for n in range(2, 50)] + [waiting(50), waiting(51)]
    assert started(queue, working, SMALL) == [50]


def test_a_run_that_could_never_fit_holds_nobody_up() -> None:
    queue = [waiting(1, cpus=99), waiting(2, gpus=3), waiting(3)]
    assert started(queue, [], SMALL) == [3]
    assert never_fits(queue[2], SMALL) is None
    limited = waiting(1, cpus=99, max_running=1)
    assert started([limited, waiting(300)], [at_work(0)], SMALL) == [300]


def test_a_queue_that_is_full_lets_others_pass() -> None:
    working = [at_work(1, queue="a")]
    queue = [waiting(2, queue="a", max_running=1), waiting(3, queue="b")]
    assert started(queue, working, SMALL) == [3]
    assert started(queue, [], SMALL) == [2, 3]


def test_a_run_that_wants_a_quiet_queue_is_not_overtaken_without_end() -> None:
    working = [at_work(1)]
    alone, near, far = waiting(2, max_running=1), waiting(2 + LIMIT_PLACES), waiting(103)
    assert started([alone, near, far], working, SMALL) == [near.arrival]


def test_gpus_are_given_one_run_each_and_none_to_those_that_ask_for_none() -> None:
    placed = choose([waiting(1, gpus=1), waiting(2), waiting(3, gpus=1)], [], SMALL)
    assert [p.gpus for p in placed] == [("GPU-a",), (), ("GPU-b",)]


def test_a_run_elsewhere_on_the_machine_counts_though_its_gpus_are_not_known() -> None:
    foreground = [at_work(1, cpus=2, gpus=1)]
    placed = choose([waiting(2, gpus=1), waiting(3, gpus=1), waiting(4)], foreground, SMALL)
    assert [(p.run.arrival, p.gpus) for p in placed] == [(2, ("GPU-b",))]


def test_a_machine_that_is_used_beyond_its_capacity_takes_nothing_more() -> None:
    assert choose([waiting(1)], [at_work(0, cpus=9)], SMALL) == []


def test_a_refusal_names_all_that_is_lacking() -> None:
    reason = never_fits(waiting(1, cpus=8, gpus=1, memory_mb=512), Capacity(2, 512))
    assert reason == "run test asks for 8 cores and 1 GPU; this machine has 2 cores and no GPUs"
    reason = never_fits(waiting(1, memory_mb=513), Capacity(2, 512))
    assert reason == "run test asks for 513 MiB of memory; this machine has 512 MiB of memory"


def test_ten_thousand_waiting_runs_are_looked_through_a_few_times_each() -> None:
    queue = [waiting(n, queue=f"group-{n % 100}") for n in range(10_000)]
    placed: list[Claim] = []
    work = calls(lambda: placed.extend(choose(queue, [], Capacity(64, 10**6))))
    assert len(placed) == 64
    assert work < 10 * len(queue)


@some
@given(situations())
def test_everybody_in_line_has_a_position(
    situation: tuple[list[Run], list[Claim], Capacity],
) -> None:
    queue, working, capacity = situation
    found = forecast(queue, working, capacity)
    assert sorted(f.position for f in found.values()) == list(range(1, len(queue) + 1))
    assert {run.id for run in in_line(queue, working)} == {run.id for run in queue}
    for placed in choose(queue, working, capacity):
        assert found[placed.run.id].wait_s == 0


@some
@given(situations())
def test_only_a_run_that_does_not_start_lacks_something(
    situation: tuple[list[Run], list[Claim], Capacity],
) -> None:
    queue, working, capacity = situation
    begun = {placed.run.id for placed in choose(queue, working, capacity)}
    lacking = shortages(queue, working, capacity).keys()
    assert begun.isdisjoint(lacking)
    assert begun | lacking == {run.id for run in queue}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"cpus": 3}, "1 core short: it asks for 3, and the runs at work and before it leave 2"),
        ({"memory_mb": 4000}, "928 MiB of memory short: it asks for 4000"),
        ({"gpus": 2}, "1 GPU short: it asks for 2, and the runs at work and before it leave 1 of"),
        ({"cpus": 5}, "asks for 5 cores; this machine has 4 cores"),
        ({"max_running": 1}, "queue default has 1 at work"),
        ({}, None),
    ],
)
def test_what_a_run_lacks_is_told_with_how_much(values: dict[str, Any], said: str | None) -> None:
    run, working = waiting(3, **values), [at_work(1, on=("GPU-a",), gpus=1)]
    queue = [waiting(2, queue="other"), run]
    lacking = shortages(queue, working, SMALL).get(run.id)
    assert (lacking is None) if said is None else (said in (lacking or ""))


def test_a_wait_follows_from_the_speed_of_the_runs_at_work() -> None:
    busy = [at_work(1, env_steps=500, sps=10.0)]
    queue = [waiting(2), waiting(3, total_timesteps=50), waiting(4)]
    found = forecast(queue, busy, Capacity(1, 512))
    assert list(waits(found, queue)) == [(1, 50.0), (2, 150.0), (3, 155.0)]


def test_runs_of_the_same_environment_tell_more_of_the_speed_than_others() -> None:
    busy = [at_work(1, sps=10.0), at_work(2, env="Ant-v5", sps=1.0, total_timesteps=10_000)]
    queue = [waiting(3), waiting(4)]
    assert list(waits(forecast(queue, busy, Capacity(2, 1024)), queue)) == [(1, 100.0), (2, 200.0)]


def test_a_wait_that_nothing_tells_of_is_not_made_up() -> None:
    queue = [waiting(2), waiting(3, cpus=9)]
    found = forecast(queue, [at_work(1)], Capacity(1, 512))
    assert [f.wait_s for f in found.values()] == [None, None]
    free = forecast(queue, [], Capacity(1, 512))
    assert [free[run.id].wait_s for run in queue] == [0.0, None]


def test_a_long_queue_is_forecast_as_far_as_it_is_little_work() -> None:
    queue = [waiting(n, queue=f"group-{n % 10}") for n in range(1, 5000)]
    found: dict[str, Forecast] = {}
    busy = [at_work(0, sps=100.0)]
    assert calls(lambda: found.update(forecast(queue, busy, Capacity(1, 512)))) < 500_000
    known = [f for f in found.values() if f.wait_s is not None]
    assert sorted(f.position for f in known) == list(range(1, len(known) + 1))


def test_there_is_no_place_yet_while_runs_that_made_all_their_steps_are_evaluated() -> None:
    done = at_work(0, sps=100.0, env_steps=1000, total_timesteps=1000)
    found = forecast([waiting(1)], [done], Capacity(1, 512))["run-000001"]
    assert found.wait_s == 1.0
    assert found.sentence == "first in the queue; a place is expected in about 10 s"


def test_a_forecast_reads_as_a_sentence() -> None:
    said = [
        Forecast(1, 0.0).sentence,
        Forecast(2, 3.0).sentence,
        Forecast(3, 240.0).sentence,
        Forecast(11, 7 * 3600.0).sentence,
        Forecast(1, None).sentence,
    ]
    assert said == [
        "first in the queue; there is a place for it",
        "second in the queue; a place is expected in about 10 s",
        "third in the queue; a place is expected in about 4 min",
        "number 11 in the queue; a place is expected in about 7 h",
        "first in the queue; when it will start cannot be told yet",
    ]


def without(queue: Sequence[Run], placed: Sequence[Claim]) -> list[Run]:
    """The runs that still wait."""
    begun = {placement.run.id for placement in placed}
    return [run for run in queue if run.id not in begun]


def waits(found: dict[str, Forecast], queue: Sequence[Run]) -> Iterator[tuple[int, float | None]]:
    for run in queue:
        yield found[run.id].position, found[run.id].wait_s
