"""Progress of a run from its events, and its state without a run process. Pure.

That state is the one it has once its run process is gone. Anything may append to an event file, so
what cannot be read here is passed over.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from signal import Signals
from typing import Any, Literal, TypeAlias

from rl_orch.core.ports import Exit
from rl_orch.io.checkpoints import catalog
from rl_orch.io.run.heartbeat import Beat
from rl_orch.io.run.history import evaluation_of, number_of
from rl_orch.records import CLOCK_UNITS, ClockUnit, Evaluation, Event, EventKind, State, Verdict

BAD_INPUT = 2
LONGEST_DELAY_S = 600.0
SUSPECT = 10
"""As many attempts in a row that got no checkpoint further may themselves be why all came down."""

ExactnessLevel: TypeAlias = Literal["bitwise", "approximate"]
EXACT: dict[Any, ExactnessLevel] = {"bitwise": "bitwise", "approximate": "approximate"}


@dataclass(frozen=True, slots=True)
class Progress:
    """The newest facts of a run: those of an attempt, and of the attempts that it goes on from."""

    env_steps: int = 0
    started: bool = False
    ended: Event | None = None
    evaluation: Evaluation | None = None
    best: str | None = None
    resume: ExactnessLevel | None = None
    clock: ClockUnit | None = None
    paced_steps: int = 0
    paced_s: float = 0.0
    budget: int | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of the run's row that follow its events."""
        told = {
            "total_timesteps": self.budget,
            "clock": self.clock,
            "resume": self.resume,
            "eval": self.evaluation,
        }
        known = {name: value for name, value in told.items() if value is not None}
        return {"env_steps": self.env_steps, "sps": self.sps, **known}

    def after(self, event: Event) -> "Progress":
        """The progress once an event is known."""
        seen = replace(self, env_steps=max(self.env_steps, event.step))
        match event.kind, event.key:
            case EventKind.LOG, "charts/SPS":
                return seen._paced(event)
            case EventKind.STATE, "started":
                at = event.step
                seen = replace(seen, started=True, ended=None, budget=None)
                return replace(seen, env_steps=at, paced_steps=at)
            case EventKind.STATE, "ended":
                return replace(seen, ended=event)
            case EventKind.STATE, "clock" if event.value in CLOCK_UNITS:
                return replace(seen, clock=event.value)
            case EventKind.STATE, "resume" if event.value in EXACT:
                return replace(seen, resume=EXACT[event.value])
            case EventKind.STATE, "set":
                return replace(seen, budget=_budget(event.tags) or self.budget)
            case EventKind.EVAL, _:
                return replace(seen, evaluation=evaluation_of(event) or self.evaluation)
            case EventKind.CHECKPOINT, "saved" if event.tags.get("best"):
                return replace(seen, best=catalog.checkpoint_name(event.value) or self.best)
            case _:
                return seen

    @property
    def sps(self) -> float | None:
        """Environment steps a second over all of training, evaluations left out."""
        return None if self.paced_s == 0 else round(self.paced_steps / self.paced_s, 1)

    def at_beat(self, beat: Beat | None) -> "Progress":
        """The progress as a heartbeat tells it, which is ahead of the events; of the speed, events
        know more."""
        if beat is None:
            return self
        seen = replace(self, env_steps=max(self.env_steps, beat.step))
        if self.paced_s or not beat.sps:
            return seen
        return replace(seen, paced_steps=beat.step, paced_s=beat.step / beat.sps)

    def _paced(self, event: Event) -> "Progress":
        speed = number_of(event.value)
        if speed is None or not 1e-6 < speed < 1e12:
            return self
        seconds = max(0, event.step - self.paced_steps) / speed
        return replace(self, paced_steps=event.step, paced_s=self.paced_s + seconds)


def _budget(tags: Any) -> int | None:
    """The budget that was set, if one was."""
    match tags:
        case {"set": {"train.total_timesteps": [_, int(steps)]}}:
            return steps
    return None


def began(start: Event) -> str:
    """Reason with which an attempt begins, from its first event."""
    name = catalog.checkpoint_name(start.tags.get("checkpoint"))
    if name is None:
        return "training"
    passed_over = start.tags.get("passed_over")
    problems = passed_over if isinstance(passed_over, list) else []
    return "; ".join([*map(str, problems), f"resumed from {name}"])


def after_training(progress: Progress, gone: Exit, *, stopping: bool) -> tuple[State, str]:
    """The state that follows once the run process of a training attempt is gone, and why."""
    last = progress.ended
    if last is not None:
        return _after_last_words(last, stopping=stopping)
    where = f"at step {progress.env_steps:,}" if progress.started else "before it began"
    if stopping:
        return State.STOPPED, f"killed {where}, before a last checkpoint"
    if gone.code is None:
        return State.LOST, f"its process vanished {where}"
    if gone.code < 0:
        return State.FAILED, f"its process was killed by {_signal_name(-gone.code)} {where}"
    return State.FAILED, f"its process ended with exit code {gone.code} {where}; see its log"


def worth_a_retry(progress: Progress, gone: Exit) -> bool:
    """Whether a further attempt may end better: after a crash, not after a reasoned refusal.

    A run process that says why it failed and exits as for bad input, or because numbers were no
    longer finite, would do so again.
    """
    last = progress.ended
    return last is None or (gone.code != BAD_INPUT and not last.tags.get("final"))


def failed_alike(attempt: int, events: Iterable[Event]) -> int | None:
    """Step at which this attempt and the one before failed by one error, word for word, if so.

    An error in code of others may be one that comes and goes, until it has come again.
    """
    ends = {each.attempt: each for each in events if each.value == "failed" and each.key == "ended"}
    last, before = ends.get(attempt), ends.get(attempt - 1)
    if last is None or before is None or last.tags.get("repeats") is not True:
        return None
    alike = (last.step, last.tags.get("reason")) == (before.step, before.tags.get("reason"))
    return last.step if alike else None


def was_interrupted(gone: Exit, *, watched: bool, idle: int) -> bool:
    """Whether a run process ended by no fault of its run, as in a power cut.

    It ended without a word. Its supervisor died as well, before it saw that end. After so many idle
    attempts in a row, the run itself may be what brings all down, and it is no longer taken for
    that.
    """
    return gone.code is None and not watched and idle < SUSPECT


def idle_attempts(attempt: int, events: Iterable[Event]) -> int:
    """Number of attempts in a row, up to this one, without a further checkpoint."""
    furthest, advanced = 0, 0
    for event in events:
        saved = event.kind is EventKind.CHECKPOINT and event.key == "saved"
        if saved and event.step > furthest:
            furthest, advanced = event.step, max(advanced, event.attempt)
    return max(0, attempt - advanced)


def retry_delay_s(retries: int, backoff_s: float) -> float:
    """Seconds before the next retry, after so many."""
    return min(backoff_s * 2.0 ** min(retries, 30), LONGEST_DELAY_S)


def _after_last_words(last: Event, *, stopping: bool) -> tuple[State, str]:
    why = str(last.tags.get("reason", "it did not say why"))
    if last.value == "trained" and stopping:
        return State.STOPPED, f"{why}; stopped before the final evaluation"
    states = {"trained": State.EVALUATING, "stopped": State.STOPPED}
    return states.get(str(last.value), State.FAILED), why


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def conclusion(trained: str, verdict: Verdict | None) -> tuple[State, str]:
    """The state of a run that was evaluated, and the reason, after that why its training ended."""
    if verdict is None:
        return State.SUCCEEDED, f"{trained}; no gate was set"
    if verdict.passed:
        return State.SUCCEEDED, f"{trained}; the final evaluation passed the gate"
    failed = next(check for check in verdict.checks if not check.passed)
    return State.REJECTED, f"{trained}; {failed.sentence}"
