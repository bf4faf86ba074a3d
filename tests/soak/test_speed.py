"""How fast it is, on a machine that has nothing else to do: `make test` counts the same work.

Time is that of the processor where nothing is waited for, and the least of several tries.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.stream_clients import Load, measure
from rl_orch.core.preflight.facts import quick
from rl_orch.core.queue.forecast import forecast
from rl_orch.core.queue.scheduler import Capacity, choose
from rl_orch.core.store.runs import Store
from rl_orch.io.processes import pids
from rl_orch.records.queries import Query
from tests.api.conftest import Api, api, runner
from tests.api.test_limits import JSON, ODD_JSON
from tests.contract.test_store_pages import ORDERS, full
from tests.faults import programs
from tests.faults.lab import Lab
from tests.faults.test_roots import NOTICED_WITHIN_S, begun
from tests.integration.conftest import until
from tests.integration.test_startup import LIBRARIES, MAIN, empty_home, environment, home
from tests.unit import test_preflight, test_scheduler
from tests.unit.test_spec_reader import ATTACKS, refusal

__all__ = ["api", "empty_home", "full", "home", "runner"]


def least_s(work: Callable[[], object], *, tries: int = 5) -> float:
    """The least processor time that it takes."""
    taken = []
    for _ in range(tries):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def least_s_of(code: str, folder: Path, *words: str) -> float:
    """The least processor time that a program takes."""
    program = [sys.executable, "-c", code, *words]
    taken = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(program, env=environment(folder), stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


def test_help_takes_less_than_0_4_s(empty_home: Path) -> None:
    assert least_s_of(MAIN, empty_home, "--help") < 0.4


def test_ls_takes_little_more_than_its_libraries_and_a_thousand_runs_add_at_most_0_2_s(
    empty_home: Path, home: Path
) -> None:
    """0.7 s where the libraries take 0.45; how fast the machine is at the moment cancels out."""
    none = least_s_of(MAIN, empty_home, "ls")
    assert none < 1.55 * least_s_of(LIBRARIES, empty_home)
    assert least_s_of(MAIN, home, "ls") < none + 0.2


@pytest.mark.parametrize(("text", "is_json"), [attack[:2] for attack in ATTACKS])
def test_an_attack_is_refused_within_100_ms(text: str, is_json: bool) -> None:
    assert least_s(lambda: refusal(text, is_json=is_json)) < 0.1


@pytest.mark.parametrize("body", ODD_JSON)
def test_odd_json_is_refused_within_a_tenth_of_a_second(api: Api, body: str) -> None:
    client = api.client()
    assert least_s(lambda: client.post("/experiments", content=body, headers=JSON)) < 0.1


def test_a_page_of_many_runs_is_read_within_10_ms(full: Store) -> None:
    for sort in ORDERS:
        middle = full.page(Query(limit=5000, sort=sort)).next
        for query in (Query(sort=sort), Query(sort=sort, after=middle)):
            assert least_s(lambda query=query: full.page(query), tries=10) < 0.01  # type: ignore[misc]


def test_the_check_before_every_launch_takes_less_than_50_ms(tmp_path: Path) -> None:
    wanted = test_preflight.spec()
    assert least_s(lambda: quick(tmp_path / "home", wanted)) < 0.05


def test_ten_thousand_waiting_runs_are_looked_through_in_half_a_second() -> None:
    queue = [test_scheduler.waiting(n, queue=f"group-{n % 100}") for n in range(10_000)]
    assert least_s(lambda: choose(queue, [], Capacity(64, 10**6))) < 0.5


def test_a_long_queue_is_forecast_in_a_second() -> None:
    queue = [test_scheduler.waiting(n, queue=f"group-{n % 10}") for n in range(1, 5000)]
    busy = [test_scheduler.at_work(0, sps=100.0)]
    assert least_s(lambda: forecast(queue, busy, Capacity(1, 512))) < 1.0


def test_a_root_that_is_killed_is_noticed_within_a_second(lab: Lab) -> None:
    lab.service.start()
    run, _, root = begun(lab, programs.a_count(lab.program, lasts_s=10.0))
    began = time.monotonic()
    os.kill(pids.pid_of(root.identity), signal.SIGKILL)
    until(lambda: lab.store.get(run.id).retries == 1)
    assert time.monotonic() - began < NOTICED_WITHIN_S


def test_events_reach_clients_within_a_second_beside_those_that_take_nothing() -> None:
    row = measure(Load(clients=40, stalled=5, seconds=2.0, stall_timeout_s=10.0))
    assert row["delay_p99_s"] < 1.0
