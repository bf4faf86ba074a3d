"""Supervision: one tick reads what a run has told, looks at its root, and takes the next step.

Decisions (`Progress`, `after_training`) are pure; `Supervisor` carries them out.
"""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rl_orch import gate
from rl_orch.core.ports import Exit, Runner, Task
from rl_orch.core.registry import Registry
from rl_orch.core.state import advance
from rl_orch.core.store import Store
from rl_orch.io.events import tail
from rl_orch.io.rundir import RunDir
from rl_orch.records import Attempt, EvalReport, Event, EventKind, Run, State, Verdict

STOP_GRACE_S = 30.0
SAVE_EVERY_S = 1.0
FINAL = "final"
"""The name of the report that the gate reads."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run's events add up to so far."""

    env_steps: int = 0
    paced_steps: int = 0
    paced_s: float = 0.0
    started: bool = False
    ended: Event | None = None
    report: EvalReport | None = None
    best: str | None = None

    def after(self, event: Event) -> "Progress":
        """The progress once an event is known."""
        step = max(self.env_steps, event.step)
        seen = replace(self, env_steps=step)
        match event.kind, event.key:
            case EventKind.LOG, "charts/SPS":
                return seen._paced(event.step, float(event.value))
            case EventKind.STATE, "started":
                at = event.step
                return replace(seen, env_steps=at, paced_steps=at, started=True, ended=None)
            case EventKind.STATE, "ended":
                return replace(seen, ended=event)
            case EventKind.EVAL, _:
                return replace(seen, report=EvalReport.model_validate(event.tags["report"]))
            case EventKind.CHECKPOINT, "saved" if event.tags.get("best"):
                return replace(seen, best=str(event.value))
            case _:
                return seen

    @property
    def sps(self) -> float | None:
        """Environment steps a second over all of training, evaluations left out."""
        return None if self.paced_s == 0 else round(self.paced_steps / self.paced_s, 1)

    def _paced(self, step: int, steps_per_second: float) -> "Progress":
        seconds = (step - self.paced_steps) / max(steps_per_second, 1e-9)
        return replace(self, paced_steps=step, paced_s=self.paced_s + seconds)


def after_training(progress: Progress, ended: Exit, *, stopping: bool) -> tuple[State, str]:
    """The state that follows once the root of a training attempt is gone, and why."""
    last = progress.ended
    if last is not None and last.value == "trained":
        return State.EVALUATING, str(last.tags["reason"])
    if last is not None and last.value == "stopped":
        return State.STOPPED, str(last.tags["reason"])
    if last is not None:
        return State.FAILED, str(last.tags["reason"])
    where = f"at step {progress.env_steps:,}"
    if stopping:
        return State.STOPPED, f"killed {where}, before a last checkpoint"
    if ended.code is None:
        return State.LOST, f"its process vanished {where} while nobody watched"
    if ended.code < 0:
        return State.FAILED, f"its process was killed by {_signal_name(-ended.code)} {where}"
    return State.FAILED, f"its process ended with exit code {ended.code} {where}; see its log"


@dataclass(slots=True)
class Supervisor:
    """Carries one run from where it is to its end, a tick at a time."""

    store: Store
    registry: Registry
    runner: Runner
    run: Run
    lease: str
    may_start: bool = True
    clock: Callable[[], float] = time.time
    timer: Callable[[], float] = time.monotonic
    verdict: Verdict | None = None
    _progress: Progress = Progress()
    _offset: int = 0
    _handle: str | None = None
    _stop_asked_at: float | None = None
    _forced: bool = False
    _saved_at: float = field(default=-SAVE_EVERY_S)

    def __post_init__(self) -> None:
        attempts = self.store.attempts(self.run.id)
        self._handle = attempts[-1].handle if attempts else None

    @property
    def directory(self) -> RunDir:
        """The run's directory."""
        return RunDir(Path(self.run.path))

    def tick(self) -> list[Event]:
        """Look once and act once; returns the events that were new."""
        before = self.run.state
        gone = self._poll()
        events = self._read_events()
        self._follow()
        match self.run.state:
            case State.QUEUED:
                self._start_training()
            case State.STARTING | State.RUNNING if gone is not None:
                self._after_training(gone)
            case State.EVALUATING if gone is not None:
                self._after_evaluation()
        self._escalate()
        self._save(force=self.run.state is not before)
        return events

    def _poll(self) -> Exit | None:
        """How the root ended, if it has. Without a handle there is nobody to wait for."""
        if self._handle is not None:
            return self.runner.poll(self._handle)
        return None if self.run.state is State.QUEUED else Exit(None)

    def ask_to_stop(self) -> None:
        """Ask the run to end: the first time kindly, the second time at once."""
        if self.run.state is State.QUEUED:
            self._become(State.STOPPED, "stopped before it started")
            self._save(force=True)
        elif self._handle is not None and self.run.active:
            force = self._stop_asked_at is not None or self.run.state is State.EVALUATING
            self._stop_asked_at = self._stop_asked_at or self.timer()
            self.directory.request_stop()
            self._forced = self._forced or force
            self.runner.stop(self._handle, force=force)

    def _escalate(self) -> None:
        asked = self._stop_asked_at
        overdue = asked is not None and self.timer() - asked > STOP_GRACE_S
        if overdue and not self._forced and self.run.active and self._handle is not None:
            self._forced = True
            self.runner.stop(self._handle, force=True)

    def _read_events(self) -> list[Event]:
        """The new events. Those of an attempt that another one has replaced are passed over."""
        news: list[Event] = []
        while True:
            part = tail(self.directory.events, self._offset)
            self._offset = part.offset
            for event in part.events:
                if event.attempt == self.run.attempt:
                    self._progress = self._progress.after(event)
                    self._keep_registry(event)
                    news.append(event)
            if not part.events:
                return news

    def _follow(self) -> None:
        """Bring the run's row up to what its events say."""
        seen = self._progress
        changes: dict[str, Any] = {"env_steps": seen.env_steps, "sps": seen.sps}
        if seen.report is not None and self.run.state is not State.EVALUATING:
            changes["eval"] = seen.report.summary
        self.run = self.run.model_copy(update=changes)
        if seen.started and self.run.state is State.STARTING:
            self._become(State.RUNNING, "training")

    def _keep_registry(self, event: Event) -> None:
        """Register an evaluated checkpoint when it appears; forget those that are pruned."""
        if event.kind is not EventKind.CHECKPOINT or event.key != "saved":
            return
        spec, report = self.directory.spec(), self._progress.report
        folder = self.directory.checkpoints
        if not spec.registry.enable:
            return
        if event.tags.get("evaluated") and report is not None:
            commit = self.directory.manifest().get("git_commit")
            path = folder / str(event.value)
            self.registry.register(self.run, spec, path, report, git_commit=commit)
        for name in event.tags.get("removed", ()):
            self.registry.forget(folder / str(name))

    def _start_training(self) -> None:
        if not self.may_start:
            self._become(State.LOST, "its supervisor died before it was started")
            return
        number = self.run.attempt + 1
        self.run = self.run.model_copy(update={"attempt": number})
        self._become(State.STARTING, "starting its process")
        self._save(force=True)
        self._note_attempt()
        self._start(Task(number))

    def _start(self, task: Task) -> None:
        """Start a root; its handle is durable before anything else happens."""
        self._handle = self.runner.start(Path(self.run.path), task)
        self._note_attempt(handle=self._handle)

    def _after_training(self, gone: Exit) -> None:
        stopping = self.directory.stop_requested
        to, why = after_training(self._progress, gone, stopping=stopping)
        self._note_attempt(ended_at=self.clock(), exit_code=gone.code, reason=why)
        if to is not State.EVALUATING:
            self._become(to, why)
        elif self._progress.best is None:
            self._become(State.FAILED, "training ended without an evaluated checkpoint")
        elif not self.may_start:
            self._become(State.LOST, f"{why}; its supervisor died before the final evaluation")
        else:
            self._become(State.EVALUATING, why)
            self._start(Task(self.run.attempt, checkpoint=self._progress.best))

    def _after_evaluation(self) -> None:
        """Judge the checkpoint by what a process of its own found, not by what training said."""
        best = self._progress.best
        report = self.directory.read_report(FINAL)
        if report is None or best is None or report.checkpoint != best:
            stopped = self.directory.stop_requested
            to = State.STOPPED if stopped else State.FAILED
            self._become(to, "the final evaluation was stopped" if stopped else _EVAL_FAILED)
            return
        rules = gate.rules_from(self.directory.spec().gates)
        self.verdict = gate.judge(report, None, rules, env_steps=report.step)
        model = self.registry.at(self.directory.checkpoints / best)
        if model is not None:
            self.registry.judge(model.id, report, self.verdict)
        self.run = self.run.model_copy(
            update={
                "eval": report.summary,
                "verdict": None if self.verdict is None else self.verdict.word,
                "model_id": None if model is None else model.id,
            }
        )
        self._conclude()

    def _conclude(self) -> None:
        trained = self.run.reason
        if self.verdict is None:
            self._become(State.SUCCEEDED, f"{trained}; no gate was set")
        elif self.verdict.passed:
            self._become(State.SUCCEEDED, f"{trained}; the final evaluation passed the gate")
        else:
            failed = next(check for check in self.verdict.checks if not check.passed)
            self._become(State.REJECTED, f"{trained}; {failed.sentence}")

    def _note_attempt(self, **news: Any) -> None:
        number = self.run.attempt
        known = [a for a in self.store.attempts(self.run.id) if a.number == number]
        fresh = Attempt(run_id=self.run.id, number=number, started_at=self.clock())
        self.store.put_attempt((known or [fresh])[0].model_copy(update=news))

    def _become(self, to: State, why: str) -> None:
        self.run = advance(self.run, to, why)

    def _save(self, *, force: bool) -> None:
        if force or self.timer() - self._saved_at >= SAVE_EVERY_S:
            self.run = self.run.model_copy(update={"updated_at": self.clock()})
            self.store.save(self.run, lease=self.lease)
            self._saved_at = self.timer()


_EVAL_FAILED = "the final evaluation failed; see its log"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
