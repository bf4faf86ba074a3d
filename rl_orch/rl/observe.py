"""The `Observer` seam: hooks around collect, update, evaluate and save.

An observer hears and may raise; it changes nothing. One that has no hook of a name is not called.
A `Callback` is one in the field's words, which may also report metrics and end the training.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from rl_orch.errors import RlctlError
from rl_orch.printable import one_line
from rl_orch.records import EvalReport
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.snapshot import TrainingSnapshot
from rl_orch.spec.model import Spec

Phase: TypeAlias = Literal["collect", "update", "evaluate", "save"]


LONGEST_NAME = 200
"""Characters in the name of a metric."""


LONGEST_REASON = 300
"""Characters of the reason that a callback gives for ending the training."""


FIELD_HOOKS = {"collected": "on_step", "updated": "on_update", "evaluated": "on_evaluation"}
"""The hooks of a callback, by those of an observer that call them."""


REQUESTS = "_requests"


class Observer(Protocol):
    """A callback of the training loop. `step` is the clock of the training at that moment.

    Saves that somebody asks for, to stop or in between, are not told: undisturbed, the training
    would not make them.
    """

    def before(self, phase: Phase, step: int) -> None:
        """A phase begins."""
        return None

    def collected(self, batch: Batch, step: int) -> None:
        """Experience was collected, and is about to be learned from."""
        return None

    def updated(self, metrics: Mapping[str, float], step: int) -> None:
        """The learner has learned, or, without metrics, has not."""
        return None

    def evaluated(self, report: EvalReport, step: int) -> None:
        """The policy was evaluated, and is about to be saved."""
        return None

    def saved(self, snapshot: TrainingSnapshot, step: int) -> None:
        """A snapshot is with the recorder; told again to whoever goes on from it, which knows
        nothing of this. A callback that logs or stops here is refused."""
        return None


class Callback(Observer):
    """An observer with the hooks of the field: `on_step`, `on_update` and `on_evaluation`.

    Each may call `log` and `stop`. What a callback remembers is `state()`, plain data as JSON has
    it, which `load_state` takes back: without them, a run with one that remembers is resumed as
    `approximate`, and says so. Arguments that a spec gives are keywords besides the spec:
    `def __init__(self, spec, threshold=0.5)`, which begins with `super().__init__(spec)`.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def reconfigure(self, spec: Spec) -> None:
        """Go on by the options of that spec, some of which were changed as the run goes on."""
        self.spec = spec

    def on_step(self, batch: Batch, step: int) -> None:
        """`rollout.steps` steps of every copy were taken; the batch has all of them."""
        return None

    def on_update(self, metrics: Mapping[str, float], step: int) -> None:
        """The learner has learned; its metrics are there, or none where it only collects yet."""
        return None

    def on_evaluation(self, report: EvalReport, step: int) -> None:
        """The policy was evaluated."""
        return None

    def log(self, name: str, value: float) -> None:
        """Report a metric at the present step, as losses are; it is on every screen and tracker."""
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise _refusal(
                self,
                f"logs a metric by the name {name!r:.80}; must be printable text of at most "
                f"{LONGEST_NAME} characters",
            )
        try:
            number = float(value if not isinstance(value, str | bytes) else "")
        except (TypeError, ValueError, RuntimeError):
            raise _refusal(self, f"logs {name!r} as {value!r:.80}; must be a number") from None
        requests_of(self).metrics.append((name, number))

    def stop(self, why: str) -> None:
        """End the training as if its budget ended here: it is evaluated, judged and registered.
        Of the reason, 300 printable characters are kept, on one line."""
        if not isinstance(why, str) or (not why.isascii() and any(map(_is_surrogate, why))):
            raise _refusal(self, f"ends the training with {why!r:.80}; must be text")
        requests_of(self).stop = one_line(why, LONGEST_REASON) or "it gave no reason"

    def collected(self, batch: Batch, step: int) -> None:
        """As `on_step`."""
        self.on_step(batch, step)

    def updated(self, metrics: Mapping[str, float], step: int) -> None:
        """As `on_update`."""
        self.on_update(metrics, step)

    def evaluated(self, report: EvalReport, step: int) -> None:
        """As `on_evaluation`."""
        self.on_evaluation(report, step)


@dataclass(slots=True)
class CallbackRequests:
    """Metrics that a callback reports, and why it ends the training, if it does."""

    metrics: list[tuple[str, float]] = field(default_factory=list)
    stop: str | None = None


def requests_of(callback: Any) -> CallbackRequests:
    """The requests of a callback that nobody has heeded yet; none of any other observer."""
    if not isinstance(callback, Callback):
        return CallbackRequests()
    requests: CallbackRequests = vars(callback).setdefault(REQUESTS, CallbackRequests())
    return requests


def _is_surrogate(letter: str) -> bool:
    return "\ud800" <= letter <= "\udfff"


def _refusal(callback: Callback, why: str) -> RlctlError:
    kind = type(callback)
    name = f"{kind.__module__}:{kind.__qualname__}"
    return RlctlError(f"the callback {name} {why}", path="train.observers")
