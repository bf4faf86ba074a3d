"""The certificate of exact resume: one training undisturbed, one killed again and again, compared.

The kills are real: SIGKILL to the run process, at moments drawn by chance. What is compared, and
how, is in `io/checkpoints/hash_chain.py`.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from rl_orch.core.orchestrator import Orchestrator, RunResult
from rl_orch.core.runs.foreground import RunObserver, StopRequests, never, no_observer
from rl_orch.core.runs.state import RESUMABLE
from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.checkpoints import catalog, hash_chain
from rl_orch.io.metrics import series
from rl_orch.io.run import manifest
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import folded, is_start, read, tail
from rl_orch.io.run.history import exactness
from rl_orch.records import Certificate, Event, EventKind, Kill, Run, State
from rl_orch.spec import live
from rl_orch.spec.model import Spec

ALL_CHECKPOINTS = 100_000
SAVES_BETWEEN_KILLS = 3
LOOK_EVERY_S = 0.002
CarryOut: TypeAlias = Callable[..., RunResult]
"""Carries a run out to its end; takes who is to `watch`."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Two trainings of one spec, and who watches them. Both stay in the home."""

    orchestrator: Orchestrator
    spec: Spec
    kills: int
    chance: random.Random
    watch: RunObserver = no_observer
    stop_requests: StopRequests = never
    settings: tuple[tuple[int, str], ...] = ()
    """Steps, and options to set from there on, as overrides."""

    def certify(self) -> Certificate:
        """Train twice, compare, and leave the certificate in both run directories."""
        whole = self._launch("undisturbed")(watch=self.watch).run
        _refuse_untrained(whole)
        killed, moments = self._killed(RunDir.of(whole), whole.env_steps)
        certificate = _certificate(self.spec, whole, killed, moments)
        for run in (whole, killed):
            RunDir.of(run).write_certificate(certificate)
        return certificate

    def _killed(self, whole: RunDir, env_steps: int) -> tuple[Run, list[Kill]]:
        """A training killed once in each of equal stretches of steps, and the kills.

        Each comes after the first checkpoint, so that there is something to go on from.
        """
        carry_out = self._launch("killed")
        first = catalog.step_of(Path(catalog.all_names(whole.checkpoints)[0])) or 0
        lag_s = 0.1 * _training_s(whole) / self.kills
        moments: list[Kill] = []
        for number in range(self.kills):
            part = (number + self.chance.random()) / self.kills
            aim = int(first + 0.8 * (env_steps - first) * part)
            killer = Killer(self.orchestrator, aim, lag_s, self.chance, self.watch)
            run = carry_out(watch=killer.watch).run
            if killer.kill is None or run.state not in RESUMABLE:
                raise RlctlError(
                    f"only {len(moments)} of {self.kills} kills came in time, so nothing is "
                    f"certified: run {run.id} is {run.state}: {run.reason}",
                    hint="Lengthen train.total_timesteps, or ask for fewer --kills.",
                )
            moments.append(killer.kill)
            resume = self.orchestrator.resume
            carry_out = partial(resume, run.id, stop_requests=self.stop_requests)
        run = carry_out(watch=self.watch).run
        _refuse_untrained(run)
        return run, _with_restores(run, moments)

    def _launch(self, name: str) -> CarryOut:
        """Carry the spec out; checkpoints are many and all kept, and no model is registered."""
        spec = self.spec.changed(
            {
                "name": f"{self.spec.label}-{name}"[:100],
                "checkpoint.keep_last": ALL_CHECKPOINTS,
                "checkpoint.every": self._every(),
                "checkpoint.keep_training_state": "always",
                "registry.enable": False,
                "role": "certificate",
            }
        )
        launch = partial(self.orchestrator.launch, spec, stop_requests=self.stop_requests)
        return partial(launch, changes=planned(spec, self.settings))

    def _every(self) -> int:
        """As often as the spec asks for, and at least some times between two kills."""
        often = self.spec.train.total_timesteps // (SAVES_BETWEEN_KILLS * self.kills)
        asked = self.spec.checkpoint.every or self.spec.train.total_timesteps
        return max(1, min(asked, often))


def planned(spec: Spec, settings: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """Notes of options that are to be set at steps, as `rlctl set` would leave them."""
    notes = []
    for step, override in sorted(settings, key=lambda setting: setting[0]):
        if not 0 <= step < spec.train.total_timesteps:
            raise BadInput(
                f"{override!r} is to be set at step {step}, which no training of "
                f"train.total_timesteps={spec.train.total_timesteps} comes to",
                path="settings",
            )
        options = live.change(spec, [override])
        spec = spec.changed({path: after for path, (_, after) in options.items()})
        notes.append({"attempt": 1, "at": time.time(), "step": step, "set": options})
    return notes


@dataclass(slots=True)
class Killer:
    """Kills a run up to `lag_s` after it has told of a step: within an iteration, not only between
    two; every third time while it writes a checkpoint."""

    orchestrator: Orchestrator
    aim: int
    lag_s: float
    chance: random.Random
    watched_by: RunObserver
    kill: Kill | None = None
    _thread: threading.Thread | None = None
    _run: Run | None = None

    def watch(self, run: Run, events: Sequence[Event]) -> None:
        """Begin to lie in wait as soon as there is a run; wait for the kill when it has ended."""
        self._run = run
        if self._thread is None and run.attempt:
            offset = RunDir.of(run).events.stat().st_size
            saving = self.chance.random() < 1 / 3
            delay_s = self.chance.uniform(0.0, self.lag_s)
            self._thread = threading.Thread(
                target=self._lie_in_wait, args=(run, offset, saving, delay_s), daemon=True
            )
            self._thread.start()
        self.watched_by(run, events)
        if not run.active and self._thread is not None:
            self._thread.join()

    def _lie_in_wait(self, run: Run, offset: int, saving: bool, delay_s: float) -> None:
        directory, step = RunDir.of(run), -1
        while step < self.aim:
            if self._ended():
                return
            time.sleep(LOOK_EVERY_S)
            part = tail(directory.events, offset)
            offset = part.offset
            step = max([step, *(event.step for event in part.events)])
        if saving:
            _wait_for_a_checkpoint(directory, 5.0 * self.lag_s)
        else:
            time.sleep(delay_s)
        if not self._ended():
            self.kill = Kill(attempt=run.attempt, step=step)
            self.orchestrator.kill(run.id)

    def _ended(self) -> bool:
        return self._run is not None and not self._run.active


def _training_s(directory: RunDir) -> float:
    """Duration of a training, from its first iteration to its last, in seconds."""
    times = [event.ts for event in folded(directory.events, (EventKind.METRIC,))]
    return times[-1] - times[0] if times else 0.0


def _wait_for_a_checkpoint(directory: RunDir, patience_s: float) -> None:
    """Wait until a checkpoint is being written, or patience is over."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        with suppress(OSError):
            if any(directory.checkpoints.glob(".tmp-*")):
                return
        time.sleep(LOOK_EVERY_S / 4)


def _with_restores(run: Run, moments: Sequence[Kill]) -> list[Kill]:
    """The kills, each with the step at which the next attempt went on."""
    events = read(RunDir.of(run).events)
    begun = {event.attempt: event for event in events if is_start(event)}
    return [
        kill.model_copy(update={"resumed_at": begun[kill.attempt + 1].step}) for kill in moments
    ]


def _refuse_untrained(run: Run) -> None:
    if run.state not in (State.SUCCEEDED, State.REJECTED):
        raise RlctlError(
            f"nothing can be certified: run {run.id} is {run.state}: {run.reason}",
            hint=f"rlctl logs {run.id}",
        )


def _certificate(spec: Spec, whole: Run, killed: Run, moments: Sequence[Kill]) -> Certificate:
    compared = hash_chain.compare(RunDir.of(whole), RunDir.of(killed))
    said = exactness(series.events(Path(killed.path), EventKind.STATE))
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
