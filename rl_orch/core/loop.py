"""Supervision: one tick reads what a run has told, looks at its root, and takes the next step.

What follows from what is decided in `progress.py` and `gate.py`; `Supervisor` carries it out.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_orch import gate
from rl_orch.core.ports import Exit, Runner, Task
from rl_orch.core.progress import Progress, after_training, began, checkpoint_name
from rl_orch.core.registry import Registry
from rl_orch.core.state import advance
from rl_orch.core.store import Store
from rl_orch.errors import LeaseLost, RlctlError
from rl_orch.io.events import folded, is_start, tail
from rl_orch.io.rundir import RunDir
from rl_orch.records import Attempt, EvalReport, Event, EventKind, Run, State, Verdict

LOG = logging.getLogger(__name__)
STOP_GRACE_S = 120.0
"""How long a run that was asked to end may take to finish its iteration and save."""

APPEARS_WITHIN_S = 30.0
SAVE_EVERY_S = 1.0
TOLD = (EventKind.STATE, EventKind.EVAL, EventKind.CHECKPOINT, EventKind.LOG)
"""The kinds of events that `Progress` reads."""

FINAL = "final"
"""The name of the report that the gate reads."""


@dataclass(slots=True)
class Supervisor:
    """Carries one run from where it is to its end, a tick at a time.

    Every write is made as the holder of the run's lease, and refused if somebody else holds it.
    While it is `waiting`, a queued run is not started.
    """

    store: Store
    registry: Registry
    runner: Runner
    run: Run
    lease: str
    may_start: bool = True
    waiting: bool = False
    clock: Callable[[], float] = time.time
    timer: Callable[[], float] = time.monotonic
    verdict: Verdict | None = None
    _progress: Progress = field(default_factory=Progress)
    _began: str = "training"
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
        self._heed_stop()
        match self.run.state:
            case State.QUEUED if not self.waiting:
                self._start_training()
            case State.STARTING | State.RUNNING if gone is not None:
                self._after_training(gone)
            case State.EVALUATING if gone is not None:
                self._after_evaluation()
        self._keep(force=self.run.state is not before)
        return events

    def hold_back(self) -> None:
        """End the run if it has not started yet."""
        if self.run.state is State.QUEUED:
            self._become(State.STOPPED, "stopped before it started")
            self._save()

    def ask_to_stop(self) -> None:
        """Ask the run to end: the first time kindly, the second time at once."""
        if self.run.state is State.QUEUED:
            self.hold_back()
        elif self.run.active:
            force = self._stop_asked_at is not None or self.run.state is State.EVALUATING
            self._stop_asked_at = self._stop_asked_at or self.timer()
            with suppress(OSError):  # On a full disk the request is known to this process alone.
                self.directory.request_stop()
            self._stop_root(force=force)

    def _heed_stop(self) -> None:
        """Pass a request from elsewhere on, and force what has not ended within the grace."""
        if self._stop_asked_at is None:
            if self.directory.stop_requested:
                self.ask_to_stop()
        elif self.timer() - self._stop_asked_at > STOP_GRACE_S and not self._forced:
            self._stop_root(force=True)

    @property
    def _stopping(self) -> bool:
        return self._stop_asked_at is not None or self.directory.stop_requested

    def _stop_root(self, *, force: bool) -> None:
        self._forced = self._forced or force
        if self._handle is not None and self.run.active:
            self.runner.stop(self._handle, force=force)

    def _poll(self) -> Exit | None:
        """How the root ended, if it has. One whose handle was never noted is looked for."""
        if self.run.state is State.QUEUED:
            return None
        if self._handle is None:
            self._handle = self.runner.adopt(Path(self.run.path))
        if self._handle is not None:
            return self.runner.poll(self._handle)
        return None if self._may_still_appear() else Exit(None)

    def _may_still_appear(self) -> bool:
        """Whether a root may have been started a moment ago, by a supervisor that then died.

        A root takes seconds to load before it holds the directory and can be found there.
        """
        if self.run.state not in (State.STARTING, State.EVALUATING):
            return False
        noted = [a for a in self.store.attempts(self.run.id) if a.number == self.run.attempt]
        since = max((a.ended_at or a.started_at for a in noted), default=self.run.updated_at)
        return abs(self.clock() - since) < APPEARS_WITHIN_S

    def _read_events(self) -> list[Event]:
        """The new events. Those of an attempt that another one has replaced are passed over."""
        news: list[Event] = []
        while self.run.state is not State.QUEUED:
            part = tail(self.directory.events, self._offset)
            for event in part.events:
                if event.attempt == self.run.attempt:
                    if is_start(event):
                        self._progress = self._so_far(event)
                        self._began = began(event)
                    self._progress = self._progress.after(event)
                    self._keep_registry(event)
                    news.append(event)
            if part.offset == self._offset:
                return news
            self._offset = part.offset
        return news

    def _so_far(self, start: Event) -> Progress:
        """What the attempts before a start, as far as it goes on from them, add up to."""
        seen = Progress()
        for event in folded(self.directory.events, TOLD):
            if event.attempt < start.attempt:
                seen = seen.after(event)
        return seen

    def _follow(self) -> None:
        """Bring the run's row up to what its events say."""
        seen = self._progress
        if not seen.started:
            return
        changes: dict[str, Any] = {"env_steps": seen.env_steps, "sps": seen.sps}
        if seen.resume is not None:
            changes["resume"] = seen.resume
        if seen.evaluation is not None and self.run.state is not State.EVALUATING:
            changes["eval"] = seen.evaluation
        self.run = self.run.model_copy(update=changes)
        if self.run.state is State.STARTING:
            self._become(State.RUNNING, self._began)

    def _keep_registry(self, event: Event) -> None:
        """Register an evaluated checkpoint when it appears; forget those that are pruned."""
        name = checkpoint_name(event.value)
        if event.kind is not EventKind.CHECKPOINT or event.key != "saved" or name is None:
            return
        spec, folder = self.directory.spec(), self.directory.checkpoints
        if not spec.registry.enable:
            return
        report = self._report_on(name) if event.tags.get("evaluated") else None
        if report is not None:
            commit = self.directory.manifest().get("git_commit")
            self.registry.register(
                self.run, spec, folder / name, report, lease=self.lease, git_commit=commit
            )
        pruned = event.tags.get("removed")
        for gone in map(checkpoint_name, pruned if isinstance(pruned, list) else ()):
            if gone is not None:
                self.registry.forget(self.run, folder / gone, lease=self.lease)

    def _report_on(self, name: str) -> EvalReport | None:
        """The report on a checkpoint. One that is damaged costs the model, never the run."""
        try:
            return self.directory.read_report(name)
        except RlctlError as error:
            LOG.warning("model not registered: %s", error)
            return None

    def _start_training(self) -> None:
        if not self.may_start:
            self._become(State.LOST, "its supervisor died before it was started")
            return
        number = self.run.attempt + 1
        self.run = self.run.model_copy(update={"attempt": number})
        self._become(State.STARTING, "starting its process")
        self._save()
        self.directory.note_attempt(number)
        self._begin(Task(number))

    def _begin(self, task: Task) -> None:
        """Start a root and note its handle; if we die in between, its handle is found again."""
        self._handle = None
        self._note_attempt(handle=None)
        self._handle = self.runner.start(Path(self.run.path), task)
        self._note_attempt(handle=self._handle)

    def _after_training(self, gone: Exit) -> None:
        to, why = after_training(self._progress, gone, stopping=self._stopping)
        self._note_attempt(ended_at=self.clock(), exit_code=gone.code, reason=why)
        if to is not State.EVALUATING:
            self._become(to, why)
        elif self._progress.best is None:
            self._become(State.FAILED, "training ended without an evaluated checkpoint")
        elif not self.may_start:
            self._become(State.LOST, f"{why}; the final evaluation is still to be made")
        else:
            self._become(State.EVALUATING, why)
            self._save()
            self.directory.report_file(FINAL).unlink(missing_ok=True)
            self._begin(Task(self.run.attempt, checkpoint=self._progress.best))

    def _after_evaluation(self) -> None:
        """Judge the checkpoint by what a process of its own found, not by what training said."""
        best = self._progress.best
        report = self._report_on(FINAL)
        if report is None or best is None or report.checkpoint != best:
            self._become(*self._without_report())
            return
        rules = gate.rules_from(self.directory.spec().gates)
        self.verdict = gate.judge(report, None, rules, env_steps=report.step)
        model = self.registry.at(self.directory.checkpoints / best)
        if model is not None:
            self.registry.judge(self.run, model.id, report, self.verdict, lease=self.lease)
        self.run = self.run.model_copy(
            update={
                "eval": report.summary,
                "verdict": None if self.verdict is None else self.verdict.word,
                "model_id": None if model is None else model.id,
            }
        )
        self._become(*self._conclusion(self.verdict))

    def _without_report(self) -> tuple[State, str]:
        if self._stopping:
            return State.STOPPED, "the final evaluation was stopped"
        if self._handle is None:
            return State.LOST, "its supervisor died as the final evaluation was to start"
        return State.FAILED, "the final evaluation failed; see its log"

    def _conclusion(self, verdict: Verdict | None) -> tuple[State, str]:
        trained = self.run.reason
        if verdict is None:
            return State.SUCCEEDED, f"{trained}; no gate was set"
        if verdict.passed:
            return State.SUCCEEDED, f"{trained}; the final evaluation passed the gate"
        failed = next(check for check in verdict.checks if not check.passed)
        return State.REJECTED, f"{trained}; {failed.sentence}"

    def _note_attempt(self, **news: Any) -> None:
        number = self.run.attempt
        known = [a for a in self.store.attempts(self.run.id) if a.number == number]
        fresh = Attempt(run_id=self.run.id, number=number, started_at=self.clock())
        self.store.put_attempt((known or [fresh])[0].model_copy(update=news), lease=self.lease)

    def _become(self, to: State, why: str) -> None:
        self.run = advance(self.run, to, why)

    def _keep(self, *, force: bool) -> None:
        """Save now or when it is time. While a run goes on, a full disk may have room later."""
        if not force and self.timer() - self._saved_at < SAVE_EVERY_S:
            return
        try:
            self._save()
        except LeaseLost:
            raise
        except RlctlError as error:
            if not self.run.active:
                raise
            LOG.warning("run not saved yet: %s: %s", self.run.id, error)
            self._saved_at = self.timer()

    def _save(self) -> None:
        self.run = self.run.model_copy(update={"updated_at": self.clock()})
        self.store.save(self.run, lease=self.lease)
        self._saved_at = self.timer()
