"""Two services on one PostgreSQL: one of them dies, then the database restarts."""

import random
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rl_orch import orchestrator
from rl_orch.errors import Unavailable
from rl_orch.io.processes import pids as processes
from rl_orch.io.run.directory import RunDir
from rl_orch.records import State
from tests.faults import programs
from tests.faults.checker import Figures, check
from tests.faults.lab import Lab, Up
from tests.faults.workload import Submitter
from tests.integration.conftest import until
from tests.postgres import Postgres
from tests.waiting import PATIENCE_S

RUNS = 12


def shared(lab: Lab, postgres: Postgres, chance: random.Random, *, runs: int) -> Figures:
    """What becomes of so many queued runs while a service is killed and the database restarts."""
    lab.watcher.start()
    start_both(lab)
    gate = programs.Gate(lab.folder / "gate")
    # One of the runs is held, so that not all is over when the database restarts.
    held = iter([programs.a_count(lab.program, gate=gate)])
    by_chance = partial(programs.by_chance, lab.program, most_s=1.5)
    submitter = Submitter(lab, lambda chance: next(held, None) or by_chance(chance), load=runs + 1)
    submitter.start(at_most=runs)
    submitter.join()
    at_work(lab).kill()
    threading.Event().wait(chance.uniform(0.5, 1.0))
    assert lab.store.active(), "all was over before the database restarted"
    postgres.restart(immediate=True)
    gate.open()
    lab.await_end(timeout_s=PATIENCE_S + 3.0 * runs)
    return check(lab, submitter.acknowledged)


def start_both(lab: Lab) -> None:
    """Start the services side by side."""
    began = time.monotonic()
    for up in lab.services:
        up.begin()
    for up in lab.services:
        up.await_ready(began)


def at_work(lab: Lab) -> Up:
    """A service that has runs at work, once one does."""

    def found() -> list[Up]:
        leases = [lease for run, lease in lab.store.active() if run.state is State.RUNNING]
        pids = {processes.pid_of(processes.holder_of(lease)[1]) for lease in leases if lease}
        return [up for up in lab.services if up.process.pid in pids]

    services: list[Up] = until(found)
    return services[0]


def test_each_run_is_claimed_once_though_a_service_dies_and_the_database_restarts(
    shared_lab: Lab, postgres: Postgres
) -> None:
    figures = shared(shared_lab, postgres, random.Random(1), runs=RUNS)
    assert figures.states == {"succeeded": RUNS}, str(figures)
    assert figures.attempts == RUNS, str(figures)


def test_a_submission_whose_answer_from_the_database_was_lost_is_whole_when_it_is_repeated(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = orchestrator.connect(tmp_path / "home", database=postgres_url, resident=True)
    spec = programs.a_count(programs.counts(tmp_path))
    assert verbs.store.location
    commit = psycopg.Connection.commit

    def commit_and_lose_the_answer(connection: "psycopg.Connection[Any]") -> None:
        commit(connection)
        connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Connection, "commit", commit_and_lose_the_answer)
        with pytest.raises(Unavailable):
            verbs.submit(spec, key="k")
    again = verbs.submit(spec, key="k")
    assert again.repeated
    assert RunDir.of(again.runs[0]).spec() == spec
    assert [path.name for path in (tmp_path / "home" / "runs").iterdir()] == [again.runs[0].id]
