"""`kill -9` of the service, again and again, while runs are submitted and carried out."""

import random
import threading

from tests.faults import programs
from tests.faults.checker import Figures, check
from tests.faults.lab import READY_WITHIN_S, Lab
from tests.faults.workload import Submitter

KILLS = 6
LOAD = 8


def killed_again_and_again(lab: Lab, chance: random.Random, *, kills: int) -> Figures:
    """What is left after so many kills of the service under load, once all is over."""
    lab.service.start()
    lab.watcher.start()
    submitter = Submitter(lab, lambda own: programs.by_chance(lab.program, own), load=LOAD)
    submitter.start()
    moment = threading.Event()
    for _ in range(kills):
        moment.wait(chance.uniform(0.0, 1.5))
        lab.service.kill()
        lab.service.start()
    submitter.finish()
    lab.await_end(timeout_s=90.0)
    assert len(submitter.acknowledged) >= LOAD
    return check(lab, submitter.acknowledged)


def test_a_service_that_is_killed_again_and_again_loses_nothing_and_doubles_nothing(
    lab: Lab,
) -> None:
    figures = killed_again_and_again(lab, random.Random(1), kills=KILLS)
    assert figures.states == {"succeeded": figures.runs}, str(figures)
    assert figures.attempts == figures.runs, str(figures)
    assert max(figures.ready_s) <= READY_WITHIN_S, str(figures)
