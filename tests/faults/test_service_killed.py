"""`kill -9` of the service, again and again, while runs are submitted and carried out."""

import random
import threading
from functools import partial
from statistics import median

from tests.faults import programs
from tests.faults.checker import Figures, check
from tests.faults.lab import READY_WITHIN_S, Lab
from tests.faults.workload import Submitter
from tests.integration.conftest import until

KILLS = 5
LOAD = 8


def killed_again_and_again(lab: Lab, chance: random.Random, *, kills: int) -> Figures:
    """What is left after so many kills of the service under load, once all is over."""
    lab.service.start()
    lab.watcher.start()
    submitter = Submitter(lab, partial(programs.by_chance, lab.program, most_s=4.0), load=LOAD)
    submitter.start()
    until(lambda: len(submitter.acknowledged) >= LOAD)
    moment = threading.Event()
    for _ in range(kills):
        moment.wait(chance.uniform(0.0, 2.0))
        lab.service.kill()
        lab.service.start()
    submitter.finish()
    lab.await_end(timeout_s=90.0)
    return check(lab, submitter.acknowledged)


def test_a_service_that_is_killed_again_and_again_loses_nothing_and_doubles_nothing(
    lab: Lab,
) -> None:
    figures = killed_again_and_again(lab, random.Random(1), kills=KILLS)
    assert figures.states == {"succeeded": figures.runs}, str(figures)
    assert figures.attempts == figures.runs, str(figures)
    assert median(figures.ready_s) <= READY_WITHIN_S, str(figures)
    assert max(figures.ready_s) <= 2 * READY_WITHIN_S, str(figures)  # Other tests run beside it.
