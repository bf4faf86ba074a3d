"""Supervision: one tick reads what a run has told, looks at its process, and takes the next step.

What follows from what is decided in `progress.py` and `gate/`; `Supervisor` carries it out.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_orch import gate
from rl_orch.core.ports import Exit, Runner, Task
from rl_orch.core.registry.evidence import wanted
from rl_orch.core.registry.models import Registry
from rl_orch.core.registry.registration import (
    FINAL,
    forget_pruned,
    judge,
    let_go_of_training_state,
    register_best,
    report_on,
    retain_models,
)
from rl_orch.core.runs import ancestry
from rl_orch.core.runs.event_follower import EventFollower
from rl_orch.core.runs.process_watch import RunProcess
from rl_orch.core.runs.progress import (
    Progress,
    after_training,
    conclusion,
    failed_alike,
    idle_attempts,
    retry_delay_s,
    was_interrupted,
    worth_a_retry,
)
from rl_orch.core.runs.state import advance
from rl_orch.core.store.runs import Store
from rl_orch.errors import Damaged, LeaseLost, NotFound, RlctlError
from rl_orch.io.run import gate_evidence
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import Reader
from rl_orch.io.run.heartbeat import reading
from rl_orch.records import Attempt, Event, EventKind, Run, State, Verdict
from rl_orch.spec.model import Spec

LOG = logging.getLogger(__name__)
LAST_WORDS_S = 2.0
"""What a run process gets beyond its grace, to say what it did with it."""

APPEARS_WITHIN_S = 2.0
"""How long after its start a run process may be neither seen nor heard."""


@dataclass(slots=True)
class Supervisor:
    """Carries one run from where it is to its end, a tick at a time.

    Every write is made as the holder of the run's lease, and refused if somebody else holds it.
    While it is `waiting`, a queued run is not started. Where it `retries`, a run that crashed is
    queued again, as often as its spec allows. Where it does not hear `every_event`, it parses those
    alone that say what becomes of the run. Who has its spec at hand gives it along as
    `carried_spec`; else it is read once. `pin_start` finds what a run begins with that had to wait
    for it.
    """

    store: Store
    registry: Registry
    runner: Runner
    run: Run
    lease: str
    may_start: bool = True
    waiting: bool = False
    retries: bool = False
    every_event: bool = True
    save_every_s: float = 1.0
    gpus: tuple[str, ...] | None = None
    carried_spec: Spec | None = None
    pin_start: Callable[[Spec], tuple[Spec, dict[str, Any] | None]] | None = None
    clock: Callable[[], float] = time.time
    timer: Callable[[], float] = time.monotonic
    verdict: Verdict | None = None
    _follower: EventFollower = field(init=False)
    _process: RunProcess = field(init=False)
    _doing: str | None = None
    _not_before: float = 0.0
    _stop_asked_at: float | None = None
    _training_since: tuple[int, float] | None = None
    _why_stopped: str = ""
    _saved_at: float = float("-inf")

    def __post_init__(self) -> None:
        self._follower = EventFollower(self.every_event)
        self._process = RunProcess(self.runner, Path(self.run.path), self.timer)
        self._find_handle()

    def _find_handle(self) -> None:
        attempt = self._noted_attempt
        self._process.handle = None if attempt is None else attempt.handle

    @property
    def _noted_attempt(self) -> Attempt | None:
        attempts = self.store.attempts(self.run.id)
        return next((each for each in attempts if each.number == self.run.attempt), None)

    @property
    def _progress(self) -> Progress:
        return self._follower.progress

    @property
    def directory(self) -> RunDir:
        """The run's directory."""
        return RunDir.of(self.run, self.carried_spec)

    @property
    def spec(self) -> Spec:
        """The run's spec, read once."""
        if self.carried_spec is None:
            self.carried_spec = self.directory.spec()
        return self.carried_spec

    @property
    def rested(self) -> bool:
        """Whether a run that crashed has waited long enough to be started again."""
        return self.timer() >= self._not_before

    def look_again(self, run: Run, lease: str) -> None:
        """Go on with a run that others may have had in the meantime."""
        self.run, self.lease = run, lease
        self._find_handle()

    def tick(self) -> list[Event]:
        """Look once and act once; returns the events that were new.

        A run whose files are lost or damaged is ended: nobody could carry it out.
        """
        try:
            return self._tick()
        except (Damaged, NotFound) as error:
            if not self.run.active:
                raise
            self._give_up(error)
            return []

    def _tick(self) -> list[Event]:
        before = self.run.state
        if not self.directory.path.is_dir():
            raise NotFound(f"its directory is gone: {self.run.path!r}")
        gone = self._poll()
        events = self._read_events()
        self._follow(alive=gone is None)
        self._follow_evaluation()
        self._heed_time_limit()
        self._heed_stop()
        match self.run.state:
            case State.QUEUED if not self.waiting:
                self._start_training()
            case State.STARTING | State.RUNNING if gone is not None:
                self._after_training(gone)
            case State.EVALUATING if gone is not None:
                self._after_evaluation(gone)
        ended_well = self.run.state is State.SUCCEEDED and before is not State.SUCCEEDED
        if ended_well and not ancestry.waiting(self.store, self.directory):
            # Before the row says so: whoever dies in between leaves a run that comes here again.
            let_go_of_training_state(
                self.registry, self.run, self.spec, self._progress.best, now=self.clock()
            )
        self._keep(force=self.run.state is not before)
        if not self.run.active and before is not self.run.state:
            retain_models(self.store, self.run, self.directory, self.clock)
        self._release_source(events)
        return events

    def _release_source(self, events: Sequence[Event]) -> None:
        """Wait no longer for the run that this one began with, once it has begun or ended."""
        if not self.run.active or any(each.kind is EventKind.CHECKPOINT for each in events):
            ancestry.release_source(self.store, self.registry, self.directory, now=self.clock())

    def save(self) -> None:
        """Write the run's row, as the holder of its lease."""
        self.run = self.run.model_copy(update={"updated_at": self.clock()})
        self.store.save(self.run, lease=self.lease)
        self._saved_at = self.timer()

    def hold_back(self, why: str | None = None) -> None:
        """End the run if it waits to be started."""
        if self.run.state is State.QUEUED:
            next_one = f"attempt {self.run.attempt + 1}" if self.run.attempt else "it started"
            self._become(State.STOPPED, why or f"stopped before {next_one}")
            self.save()
            self._release_source(())

    def ask_to_stop(self) -> None:
        """Ask the run to end: the first time kindly, the second time at once."""
        if self.run.state is State.QUEUED:
            self.hold_back()
        elif self.run.active:
            again = self._stop_asked_at is not None
            asked = again or self.directory.kill_requested
            force = asked or self.run.state is State.EVALUATING
            self._stop_asked_at = self._stop_asked_at or self.timer()
            with suppress(OSError):  # On a full disk the request is known to this process alone.
                self.directory.request_stop(force=asked)
            self._stop_process(force=force, why="killed as asked" if asked else "")

    def _heed_stop(self) -> None:
        """Pass a request from elsewhere on, and force what has not ended within the grace."""
        if self._stop_asked_at is None:
            if self.directory.stop_requested:
                self.ask_to_stop()
        elif not self._process.forced and self.run.active:
            grace_s = self.spec.runner.stop_grace_s
            if self.directory.kill_requested:
                self._stop_process(force=True, why="killed as asked")
            elif self.timer() - self._stop_asked_at > grace_s + LAST_WORDS_S:
                why = f"it ignored SIGTERM for {grace_s:g} s and was killed"
                self._stop_process(force=True, why=why)

    def _heed_time_limit(self) -> None:
        """Ask a training to end that has taken as long as its spec allows an attempt."""
        limit_s = self.spec.schedule.time_limit_s
        training = self.run.state in (State.STARTING, State.RUNNING)
        if limit_s is None or not training or self._stopping or self._trained_s() < limit_s:
            return
        self._why_stopped = f"its time limit of {limit_s:g} s was reached"
        self.ask_to_stop()

    def _trained_s(self) -> float:
        """Seconds since this attempt began; the wall clock counts only until it is first seen."""
        if self._training_since is None or self._training_since[0] != self.run.attempt:
            attempt = self._noted_attempt
            before = 0.0 if attempt is None else max(0.0, self.clock() - attempt.started_at)
            self._training_since = self.run.attempt, self.timer() - before
        return self.timer() - self._training_since[1]

    @property
    def _stopping(self) -> bool:
        return self._stop_asked_at is not None or self.directory.stop_requested

    def _stop_process(self, *, force: bool, why: str = "") -> None:
        if self.run.active:
            self._process.stop(force=force, why=why)

    def _poll(self) -> Exit | None:
        """Exit of the run process, if it has ended.

        One that shows no sign of life for too long is ended: it hangs, or was halted.
        """
        if self.run.state is State.QUEUED:
            return None
        gone = self._process.poll()
        if self._process.handle is None:
            return None if self._may_still_appear() else gone
        if gone is None:
            silent_s = self._process.silent_s(self.directory.heartbeat)
            if not self._process.forced and silent_s > self.spec.runner.silence_s:
                why = f"it showed no sign of life for {silent_s:.0f} s and was killed"
                self._stop_process(force=True, why=why)
        return gone

    def _may_still_appear(self) -> bool:
        """Whether a run process may just have been started, by a supervisor that then died.

        Who only looks once goes by when the start was noted.
        """
        if self.run.state not in (State.STARTING, State.EVALUATING):
            return False
        if self.may_start:
            return self._process.unseen_s() < APPEARS_WITHIN_S
        attempt = self._noted_attempt
        since = attempt.ended_at or attempt.started_at if attempt else self.run.updated_at
        return abs(self.clock() - since) < APPEARS_WITHIN_S

    def _read_events(self) -> list[Event]:
        if self.run.state is State.QUEUED:
            return []

        def hear(event: Event) -> None:
            forget_pruned(self.registry, self.run, self.spec, event, lease=self.lease)

        return self._follower.read(self.directory.events, self.run.attempt, hear)

    def _follow(self, *, alive: bool) -> None:
        """Bring the run's row up to what its events say, and its heartbeat while it trains."""
        seen = self._progress
        if not seen.started or self.run.state is State.QUEUED:
            return
        if alive and self.run.state is not State.EVALUATING:
            seen = seen.at_beat(reading(self.directory.heartbeat, self.run.attempt))
        left_out = {"eval"} if self.run.state is State.EVALUATING else set[str]()
        changes = {k: v for k, v in seen.columns.items() if k not in left_out}
        self.run = self.run.model_copy(update=changes)
        if self.run.state is State.STARTING:
            self._become(State.RUNNING, self._follower.beginning)

    def _follow_evaluation(self) -> None:
        """Bring the run's reason up to what is being gathered for its gate."""
        doing = gate_evidence.said(self.directory) if self.run.state is State.EVALUATING else None
        if doing != self._doing:
            self._doing = doing
            reason = self._trained if doing is None else f"{self._trained}; {doing}"
            if self.run.state is State.EVALUATING:
                self.run = self.run.model_copy(update={"reason": reason})

    @property
    def _trained(self) -> str:
        """Reason why training ended, as its attempt notes it."""
        attempt = self._noted_attempt
        return (attempt.reason if attempt else None) or self.run.reason

    def _start_training(self) -> None:
        if not self.may_start:
            self._become(State.LOST, "its supervisor died before it was started")
            return
        try:
            self._pin_start()
        except RlctlError as error:
            self._become(State.FAILED, error.message)
            return
        number = self.run.attempt + 1
        self.run = self.run.model_copy(update={"attempt": number})
        self._become(State.STARTING, "starting its process")
        self._follower.progress, self._process.handle = Progress(), None
        self.save()
        self._begin_training()

    def _pin_start(self) -> None:
        start = self.spec.start
        if start.source is None or self.pin_start is None:
            return
        if start.digest is None:
            self.carried_spec, facts = self.pin_start(self.spec)
            known = {"start": facts, "config_hash": self.spec.config_hash}
            self.directory.write_manifest(self.directory.manifest() | known)
            self.directory.write_spec(self.spec)
        self.run = self.run.model_copy(update={"config_hash": self.spec.config_hash})

    def _begin_training(self) -> None:
        number = self.run.attempt
        self.directory.note_attempt(number)
        self.directory.pin(self.registry.kept_of(self.run.id))
        if self.gpus is not None:
            self.directory.note_gpus(self.gpus)
        if number > 1:
            self._process.sweep(through=number - 1)
        self._begin()

    def _begin(self, checkpoint: str | None = None) -> None:
        """Start a run process and note its handle; if we die in between, it is found again."""
        self._process.handle = None
        self._note_attempt(handle=None)
        task = Task(self.run.attempt, checkpoint, gpus=self.gpus, spec=self.spec)
        self._note_attempt(handle=self._process.start(task))

    def _after_training(self, gone: Exit) -> None:
        if self._never_began and not self._progress.started:
            self._begin_training()
            return
        to, why = after_training(self._progress, gone, stopping=self._stopping)
        best = self._progress.best
        why = self._with_what_was_done(why)
        ended = {"ended_at": self.clock(), "exit_code": gone.code, "reason": why}
        # From then on a handle is the evaluation's process, also if we die before it starts.
        self._note_attempt(**ended, **({"handle": None} if to is State.EVALUATING else {}))
        if to is not State.EVALUATING:
            self._end_or_retry(to, why, gone)
        if self.run.state is not State.QUEUED:
            register_best(self.registry, self.run, self.spec, best, lease=self.lease)
        if to is not State.EVALUATING:
            return
        if self.spec.runner.traits.serves_policy and not self.spec.runner.policy:
            self._become(State.EVALUATING, why)
            self._become(State.SUCCEEDED, f"{why}; no policy was given to evaluate")
        elif best is None:
            self._become(State.FAILED, "training ended without an evaluated checkpoint")
        elif not self.may_start:
            still = f"still to be made here, by `rlctl resume {self.run.id}`"
            self._become(State.LOST, f"{why}; the final evaluation is {still}")
        else:
            # If the row cannot be written now, the next tick finds no run process and begins one.
            self._process.forget()
            self.directory.report_file(FINAL).unlink(missing_ok=True)
            self._become(State.EVALUATING, why)
            self.save()
            self._begin_evaluation(best)

    @property
    def _never_began(self) -> bool:
        """Whether a run process never came to be, so that it still can."""
        return self._process.handle is None and self.may_start and not self._stopping

    def _begin_evaluation(self, best: str) -> None:
        """Start the final evaluation, told what its gate wants to know of the checkpoint."""
        rules = gate.rules_from(self.directory.spec_before().gates)
        path = self.directory.checkpoints / best
        gate_evidence.say(self.directory, None)
        gate_evidence.ask(self.directory, wanted(self.registry, self.run.env, path, rules))
        self._begin(best)

    def _with_what_was_done(self, why: str) -> str:
        """A reason with how the run process was ended and what was killed with it."""
        left = self._sweep()
        parts = [self._why_stopped, why, self._process.why_forced]
        if left:
            what = "1 process" if left == 1 else f"{left} processes"
            parts.append(f"killed with it: {what} that it had started")
        return "; ".join(filter(None, parts))

    def _sweep(self) -> int:
        """Kill what a dead run process left behind, and return the number of processes."""
        self.save()  # Refused where another supervisor's run process may be at work by now.
        return self._process.sweep(through=self.run.attempt)

    def _after_evaluation(self, gone: Exit) -> None:
        """Judge the checkpoint by its final evaluation.

        A process of its own found that; what training said does not count.
        """
        best = self._progress.best
        report = report_on(self.directory, FINAL)
        if report is None or best is None or report.checkpoint != best:
            if self._never_began and best is not None:
                self._begin_evaluation(best)
            else:
                to, why = self._without_report(gone)
                self._end_or_retry(to, self._with_what_was_done(why), gone)
            return
        self._sweep()
        spec = self.directory.spec_before()
        self.run, self.verdict = judge(self.registry, self.run, spec, report, lease=self.lease)
        self._become(*conclusion(self._trained, self.verdict))

    def _without_report(self, gone: Exit) -> tuple[State, str]:
        if self._stopping:
            return State.STOPPED, "the final evaluation was stopped"
        if self._process.handle is None:
            return State.LOST, "its supervisor died as the final evaluation was to start"
        said = self.directory.evaluation_problem()
        if said is None and gone.code is None and not self._process.watched:
            return State.LOST, "the process of its final evaluation vanished"
        why = "the final evaluation failed"
        return State.FAILED, f"{why}: {said}" if said else f"{why}; see its log"

    def _end_or_retry(self, to: State, why: str, gone: Exit) -> None:
        """End the run, or queue it again if it crashed and may have another attempt."""
        used, schedule = self.run.retries, self.spec.schedule
        crashed = to in (State.FAILED, State.LOST) and worth_a_retry(self._progress, gone)
        again = self.retries and crashed and not self._stopping
        ends = Reader(self.directory.events, [b'"ended"']) if again else ()
        if (step := failed_alike(self.run.attempt, ends)) is not None:
            self._become(to, f"{why}; failed twice alike at step {step:,}, not tried again")
        elif again and to is State.LOST and (idle := self._idle_if_interrupted(gone)) is not None:
            delay_s = retry_delay_s(idle - 1, schedule.backoff_s) if idle else 0.0
            when = f"; it goes on in {delay_s:g} s" if delay_s else ""
            self._requeue(f"{why}; nobody saw it end, so no retry is spent{when}", delay_s)
        elif again and used < schedule.retries:
            delay_s = retry_delay_s(used, schedule.backoff_s)
            self.run = self.run.model_copy(update={"retries": used + 1})
            count = f"retry {used + 1} of {schedule.retries}"
            self._requeue(f"{why}; {count} in {delay_s:g} s", delay_s)
        else:
            times = "once" if used == 1 else f"{used} times"
            self._become(to, f"{why}; it was retried {times}" if crashed and used else why)

    def _idle_if_interrupted(self, gone: Exit) -> int | None:
        """Number of idle attempts in a row, if this one was interrupted."""
        idle = idle_attempts(self.run.attempt, Reader(self.directory.events, [b'"saved"']))
        return idle if was_interrupted(gone, watched=self._process.watched, idle=idle) else None

    def _requeue(self, why: str, delay_s: float) -> None:
        self._not_before, self.waiting = self.timer() + delay_s, True
        self._process.forced, self._process.why_forced = False, ""
        self._become(State.QUEUED, why)

    def _give_up(self, error: RlctlError) -> None:
        """End a run that cannot be carried out, and whatever is left of it."""
        self._process.stop(force=True)
        self._process.sweep(through=self.run.attempt)
        if self._stopping:
            self._become(State.STOPPED, f"stopped; {error.message}")
        else:
            self._become(State.FAILED, error.message)
        self._keep(force=True)

    def _note_attempt(self, **news: Any) -> None:
        run = self.run
        fresh = Attempt(run_id=run.id, number=run.attempt, started_at=self.clock())
        attempt = self._noted_attempt or fresh
        self.store.put_attempt(attempt.model_copy(update=news), lease=self.lease)

    def _become(self, to: State, why: str) -> None:
        self.run = advance(self.run, to, why)

    def _keep(self, *, force: bool) -> None:
        """Save now or when it is time. While a run goes on, a full disk may have room later."""
        if not force and self.timer() - self._saved_at < self.save_every_s:
            return
        try:
            self.save()
        except RlctlError as error:
            if not self.run.active or isinstance(error, LeaseLost):
                raise
            LOG.warning("run not saved yet: %s: %s", self.run.id, error)
            self._saved_at = self.timer()
