"""A client that submits, whatever becomes of the service: the same request again and again, until
it is acknowledged.
"""

import random
import threading
import time
from collections.abc import Callable

from rl_orch.errors import RlctlError
from rl_orch.spec.model import Spec
from tests.faults.lab import Lab
from tests.waiting import PATIENCE_S

LEAST_S = 0.02

Make = Callable[[random.Random], Spec]
"""What to submit next."""


class Submitter:
    """Submits specs in a thread, while fewer than `load` of the runs have yet to end.

    `acknowledged` has the ids that each key was answered with. Now and then a request is repeated
    that was answered, as a client does that has lost the answer.
    """

    def __init__(self, lab: Lab, make: Make, *, load: int) -> None:
        self.acknowledged: dict[str, tuple[str, ...]] = {}
        self.failure: BaseException | None = None
        self._lab = lab
        self._make = make
        self._load = load
        self._chance = random.Random(1)
        self._enough = threading.Event()
        self._most: int | None = None
        self._thread = threading.Thread(target=self._work, name="submitter", daemon=True)

    def start(self, *, at_most: int | None = None) -> None:
        """Begin, and go on until told that it is enough, or until so many are acknowledged."""
        self._most = at_most
        self._thread.start()

    def reach(self, count: int, *, timeout_s: float = PATIENCE_S) -> None:
        """Return once so many are acknowledged."""
        deadline = time.monotonic() + timeout_s
        while len(self.acknowledged) < count:
            self.complain()
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} acknowledged"
            self._enough.wait(LEAST_S)

    def finish(self) -> None:
        """Return once what was begun is acknowledged; begin no more."""
        self._enough.set()
        self._thread.join(timeout=PATIENCE_S)
        assert not self._thread.is_alive(), "a submission is not acknowledged"
        self.complain()

    def complain(self) -> None:
        """Raise what went wrong with a submission, if anything did."""
        if self.failure is not None:
            raise self.failure

    def join(self) -> None:
        """Return once all is acknowledged."""
        self._thread.join(timeout=PATIENCE_S)
        self.finish()

    def _work(self) -> None:
        try:
            while not self._enough.is_set() and len(self.acknowledged) != self._most:
                if self._is_busy():
                    self._enough.wait(0.1)
                else:
                    self._submit(f"key-{len(self.acknowledged)}")
        except BaseException as error:
            self.failure = error

    def _is_busy(self) -> bool:
        try:
            return len(self._lab.store.active()) >= self._load
        except RlctlError:  # The database is away: a submission would show that too.
            return False

    def _submit(self, key: str) -> None:
        spec = self._make(self._chance)
        ids = self._sent(spec, key)
        self.acknowledged[key] = ids
        if self._chance.random() < 0.2:
            again = self._sent(spec, key)
            assert again == ids, f"{key} made {ids}, and then {again}"

    def _sent(self, spec: Spec, key: str) -> tuple[str, ...]:
        submission = self._lab.ask(lambda client: client.submit(spec, key=key, consent=True))
        return tuple(run.id for run in submission.runs)
