"""`kill -9` of the service, again and again, while runs are submitted and carried out."""

import random
import threading
from functools import partial

from tests.faults import programs
from tests.faults.checker import Figures, check
from tests.faults.lab import Lab
from tests.faults.workload import Make, Submitter

KILLS = 4
LOAD = 8


def killed_again_and_again(
    lab: Lab, make: Make, *, seed: int, kills: int, lives_s: float
) -> Figures:
    """What is left after so many kills of the service under load, once all is over.

    Each time it lives for at most so many seconds once it is ready.
    """
    chance = random.Random(seed)
    lab.service.start()
    lab.watcher.start()
    submitter = Submitter(lab, make, load=LOAD)
    submitter.start()
    submitter.reach(LOAD)
    moment = threading.Event()
    for _ in range(kills):
        moment.wait(chance.uniform(0.0, lives_s))
        submitter.complain()
        lab.service.kill()
        lab.service.start()
    submitter.finish()
    lab.await_end()
    return check(lab, submitter.acknowledged)


def test_a_service_that_is_killed_again_and_again_loses_nothing_and_doubles_nothing(
    lab: Lab,
) -> None:
    make = partial(programs.by_chance, lab.program, most_s=2.5)
    figures = killed_again_and_again(lab, make, seed=1, kills=KILLS, lives_s=1.5)
    assert figures.states == {"succeeded": figures.runs}, str(figures)
    assert figures.attempts == figures.runs, str(figures)
    assert len(figures.ready_s) == KILLS + 1, str(figures)  # `make soak` holds how soon.
