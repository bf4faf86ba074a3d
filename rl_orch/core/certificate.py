"""The certificate of exact resume: one training undisturbed, one killed again and again, compared.

The kills are real: SIGKILL to the root, at moments that are drawn by chance. What is compared, and
how, is in `io/chain.py`.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from rl_orch.core.foreground import StopRequests, Watch, never, nobody
from rl_orch.core.orchestrator import Orchestrator, RunResult
from rl_orch.core.resumption import RESUMABLE
from rl_orch.errors import RlctlError
from rl_orch.io import chain, manifest
from rl_orch.io.events import tail
from rl_orch.io.history import exactness
from rl_orch.io.rundir import RunDir
from rl_orch.records import Certificate, Event, Kill, Run, State
from rl_orch.spec.model import Spec

ALL_CHECKPOINTS = 100_000
LOOK_EVERY_S = 0.002
JITTER_S = 0.1
"""A kill comes up to so long after its step was told of: within an iteration, not only between."""

SAVING_S = 2.0
"""How long a kill that is to hit the writing of a checkpoint waits for one."""

CarryOut: TypeAlias = Callable[[Watch], RunResult]


@dataclass(frozen=True, slots=True)
class Trial:
    """Two trainings of one spec, and who watches them. Both stay in the home."""

    orchestrator: Orchestrator
    spec: Spec
    kills: int
    chance: random.Random
    watch: Watch = nobody
    stop_requests: StopRequests = never

    def certify(self) -> Certificate:
        """Train twice, compare, and leave the certificate in both run directories."""
        whole = self._launch("undisturbed")(self.watch).run
        _refuse_untrained(whole)
        killed, moments = self._killed(whole.env_steps)
        certificate = _certificate(self.spec, whole, killed, moments)
        for run in (whole, killed):
            RunDir(Path(run.path)).write_certificate(certificate)
        return certificate

    def _killed(self, env_steps: int) -> tuple[Run, list[Kill]]:
        """A training that is killed in each of so many equal stretches of steps, and the kills."""
        carry_out = self._launch("killed")
        moments: list[Kill] = []
        for number in range(self.kills):
            aim = int(0.9 * env_steps * (number + self.chance.random()) / self.kills)
            killer = Killer(self.orchestrator, aim, self.chance, self.watch)
            run = carry_out(killer.watch).run
            if killer.kill is None or run.state not in RESUMABLE:
                break
            moments.append(killer.kill)
            carry_out = self._resume(run.id)
        else:
            run = carry_out(self.watch).run
        _refuse_untrained(run)
        return run, moments

    def _launch(self, name: str) -> CarryOut:
        """Carry the spec out; every checkpoint is kept, and no model is registered."""
        spec = self.spec.model_copy(
            update={
                "name": f"{self.spec.label}-{name}"[:100],
                "checkpoint": self.spec.checkpoint.model_copy(
                    update={"keep_last": ALL_CHECKPOINTS}
                ),
                "registry": self.spec.registry.model_copy(update={"enable": False}),
            }
        )
        return lambda watch: self.orchestrator.launch(
            spec, watch=watch, stop_requests=self.stop_requests
        )

    def _resume(self, run_id: str) -> CarryOut:
        return lambda watch: self.orchestrator.resume(
            run_id, watch=watch, stop_requests=self.stop_requests
        )


@dataclass(slots=True)
class Killer:
    """Kills a run once it has told of a step; every third time while it writes a checkpoint."""

    orchestrator: Orchestrator
    aim: int
    chance: random.Random
    watched_by: Watch
    kill: Kill | None = None
    _thread: threading.Thread | None = None
    _run: Run | None = field(default=None)

    def watch(self, run: Run, events: Sequence[Event]) -> None:
        """Begin to lie in wait as soon as there is a run; wait for the kill when it has ended."""
        self._run = run
        if self._thread is None and run.attempt:
            offset = RunDir(Path(run.path)).events.stat().st_size
            saving = self.chance.random() < 1 / 3
            delay_s = self.chance.uniform(0.0, JITTER_S)
            self._thread = threading.Thread(
                target=self._lie_in_wait, args=(run, offset, saving, delay_s), daemon=True
            )
            self._thread.start()
        self.watched_by(run, events)
        if not run.active and self._thread is not None:
            self._thread.join()

    def _lie_in_wait(self, run: Run, offset: int, saving: bool, delay_s: float) -> None:
        directory, step = RunDir(Path(run.path)), -1
        while step < self.aim:
            if self._ended():
                return
            time.sleep(LOOK_EVERY_S)
            part = tail(directory.events, offset)
            offset = part.offset
            step = max([step, *(event.step for event in part.events)])
        if saving:
            _wait_for_a_checkpoint(directory)
        else:
            time.sleep(delay_s)
        if not self._ended():
            self.kill = Kill(attempt=run.attempt, step=step)
            self.orchestrator.kill(run.id)

    def _ended(self) -> bool:
        return self._run is not None and not self._run.active


def _wait_for_a_checkpoint(directory: RunDir) -> None:
    """Return while a checkpoint is being written, or when that has not happened for a while."""
    deadline = time.monotonic() + SAVING_S
    while time.monotonic() < deadline:
        with suppress(OSError):
            if any(directory.checkpoints.glob(".tmp-*")):
                return
        time.sleep(LOOK_EVERY_S / 4)


def _refuse_untrained(run: Run) -> None:
    if run.state not in (State.SUCCEEDED, State.REJECTED):
        raise RlctlError(
            f"nothing can be certified: run {run.id} is {run.state}: {run.reason}",
            hint=f"rlctl logs {run.id}",
        )


def _certificate(spec: Spec, whole: Run, killed: Run, moments: Sequence[Kill]) -> Certificate:
    compared = chain.compare(RunDir(Path(whole.path)), RunDir(Path(killed.path)))
    said = exactness(RunDir(Path(killed.path)).events)
    exact = compared.difference is None and said is not None and said.level == "bitwise"
    return Certificate(
        level="bitwise" if exact else "approximate",
        kills=len(moments),
        first_difference=compared.difference,
        reason=None if said is None else said.reason,
        undisturbed=whole.id,
        killed=killed.id,
        moments=tuple(moments),
        checkpoints=compared.checkpoints,
        events=compared.events,
        chain=compared.chain,
        config_hash=spec.config_hash,
        fingerprint=manifest.fingerprint(spec),
        created_at=time.time(),
    )
