"""The power goes: the service and all that it carries out are killed at once, many times."""

import os
import signal
from contextlib import suppress

from rl_orch.io.checkpoints import catalog
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.records import Run, State
from tests.faults import programs
from tests.faults.checker import check
from tests.faults.lab import Lab
from tests.integration.conftest import until

RUNS = 3
CUTS = 3


def cut(lab: Lab) -> None:
    """Kill everything. The service is halted first: it must not see a root die before itself."""
    lab.service.halt()
    while left := lab.watcher.marked():
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(pids.pid_of(process.identity), signal.SIGKILL)
    lab.service.kill()
    lab.service.halted = False


def at_work(lab: Lab, runs: list[Run]) -> bool:
    """Whether each run that has yet to end has a root."""
    active = {run.path for run in runs if lab.store.get(run.id).active}
    return active <= {str(root.directory) for root in lab.watcher.roots()}


def newest_steps(runs: list[Run]) -> list[int]:
    """The step of the newest checkpoint of each run."""
    folders = [RunDir.of(run).checkpoints for run in runs]
    return [max((entry.step for entry in catalog.listing(f)), default=0) for f in folders]


def test_power_cuts_spend_no_retry_and_every_run_ends_whole_and_once(lab: Lab) -> None:
    lab.service.start()
    lab.watcher.start()
    spec = programs.a_count(lab.program, "schedule.retries=0", lasts_s=3.0)
    client = lab.client()
    runs = [client.submit(spec, consent=True).runs[0] for _ in range(RUNS)]
    for number in range(CUTS):
        until(lambda: at_work(lab, runs))
        if number % 2:  # The others are cut before they have got any further.
            before = newest_steps(runs)
            until(lambda: newest_steps(runs) != before or not lab.store.active())  # noqa: B023
        cut(lab)
        lab.service.start()
    lab.await_end()
    ended = [lab.store.get(run.id) for run in runs]
    assert [run.state for run in ended] == [State.SUCCEEDED] * RUNS, [r.reason for r in ended]
    assert [run.retries for run in ended] == [0] * RUNS
    assert max(run.attempt for run in ended) > 1
    check(lab, {})
