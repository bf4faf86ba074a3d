"""The trackers of runs: which of them a spec names, and the pumps that carry events to each."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from rl_orch import plugins
from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.processes import import_path
from rl_orch.io.run.directory import RunDir
from rl_orch.io.trackers import position, sink_process
from rl_orch.io.trackers.pump import Pump, Sink
from rl_orch.io.trackers.sink_process import SinkProcess
from rl_orch.records import Event, Run, State, TrackerStatus
from rl_orch.spec.model import Spec
from rl_orch.spec.operations import TRACKERS, TrackerChoice

LAST_EFFORT_S = 5.0
"""How long whoever closes its pumps waits for all of them."""

HANGS_AFTER_S = 120.0
"""How long the pump of an ended run is waited for before another one has its turn."""

LOOK_EVERY_S = 0.05
LOG = logging.getLogger(__name__)


def check(spec: Spec, module_path: Sequence[str] = ()) -> None:
    """Raise if a tracker of the spec cannot be loaded, or does not take its options."""
    for choice in spec.store.chosen_trackers:
        if choice.options or choice.name not in TRACKERS:
            try:
                if plugins.is_importable(choice.name):
                    folders = [*module_path, *import_path.searched()]
                    sink_process.check(choice.name, choice.options, folders)
                else:
                    plugins.load("trackers", choice.name).check(choice.options)
            except (RlctlError, ImportError) as error:
                said = f"store.trackers: {choice.name}: {error}"
                hint = getattr(error, "hint", None)
                raise BadInput(said, path="store.trackers", hint=hint) from error


def statuses(run: Run, spec: Spec) -> tuple[TrackerStatus, ...]:
    """How far each tracker of a run has come."""
    names = [choice.name for choice in spec.store.chosen_trackers]
    return tuple(position.status(Path(run.path), name) for name in names)


def deliver(run: Run, only: Collection[str] | None = None) -> None:
    """Try once to bring the trackers of an ended run up to date; or `only` those of some names."""
    pumps = Pumps(once=True, only=only)
    pumps.follow(run)
    pumps.close()


class Pumps:
    """The pumps of some runs, one for each tracker. They are waited for by `close` alone.

    A tracker that cannot be opened or fails is tried again, and misses nothing. `also` makes a
    further sink for each run at work, which has no position. With `once`, nothing is tried again;
    with `only`, trackers of other names are left to others.
    """

    def __init__(
        self,
        also: Callable[[Run], Sink] | None = None,
        *,
        once: bool = False,
        only: Collection[str] | None = None,
    ) -> None:
        self._also = also
        self._once = once
        self._only = only
        self._open: dict[str, list[Pump]] = {}
        self._ending: list[tuple[str, Pump]] = []

    def follow(self, run: Run, _events: Sequence[Event] = (), spec: Spec | None = None) -> None:
        """Open the pumps of a run that has begun; let those of an ended one deliver the rest."""
        self._tell_of_done()
        if not run.active:
            self._finish(run, spec)
        elif run.state is not State.QUEUED and run.id not in self._open:
            self._open[run.id] = self._pumps(run, spec)
            if self._also is not None:
                self._open[run.id] += _begun(run, None, partial(self._also, run))

    def drop(self, run_id: str) -> None:
        """Leave a run to whoever has it now: what is there is delivered, and no end told."""
        for pump in self._open.pop(run_id, []):
            pump.finish()
            self._ending.append((run_id, pump))

    def carries(self, run_id: str) -> bool:
        """Whether there is a pump of a run."""
        ending = any(other == run_id and not pump.done for other, pump in self._ending)
        return ending or run_id in self._open

    def close(self) -> None:
        """Deliver what is left, as far as that goes in a moment."""
        for run_id in list(self._open):
            self.drop(run_id)
        deadline = time.monotonic() + LAST_EFFORT_S
        for run_id, pump in self._ending:
            _tell(run_id, pump, max(0.0, deadline - time.monotonic()))
        self._ending.clear()

    def _finish(self, run: Run, spec: Spec | None) -> None:
        pumps = self._open.pop(run.id, [])
        if not pumps and not any(run_id == run.id and pump.ends for run_id, pump in self._ending):
            pumps = self._pumps(run, spec, behind=True)
        for pump in pumps:
            pump.finish(run)
            self._ending.append((run.id, pump))

    def _pumps(self, run: Run, spec: Spec | None, *, behind: bool = False) -> list[Pump]:
        """A pump for each tracker of a run, or for those alone that are behind."""
        return [
            pump
            for name, opener in _sinks(run, spec, behind=behind)
            if self._only is None or name in self._only
            for pump in _begun(run, name, opener, once=self._once)
        ]

    def _tell_of_done(self) -> None:
        for run_id, pump in self._ending:
            if pump.done:
                _tell(run_id, pump)
        self._ending = [(run_id, pump) for run_id, pump in self._ending if not pump.done]


class Backlog:
    """Deliveries to trackers that lack something of ended runs, by one pump at a time.

    Nothing is tried twice in a round. A sink that hangs is left to itself, and its tracker is
    passed over until that returns.
    """

    def __init__(self, until: threading.Event) -> None:
        self._until = until
        self._hanging: list[Pump] = []
        self._errors: dict[tuple[str, str], str | None] = {}

    def deliver(self, runs: Iterable[Run]) -> None:
        """Go through ended runs whose notes say that a tracker is yet to get something."""
        for run in runs:
            path = Path(run.path)
            if any(position.status(path, n).is_behind for n in position.noted_trackers(path)):
                for name, opener in _sinks(run, None, behind=True):
                    self._deliver(run, name, opener)

    def _deliver(self, run: Run, name: str, opener: Callable[[], Sink]) -> None:
        self._hanging = [pump for pump in self._hanging if not pump.done]
        if self._until.is_set() or any(pump.name == name for pump in self._hanging):
            return
        for pump in _begun(run, name, opener, once=True):
            self._finish(run, name, pump)

    def _finish(self, run: Run, name: str, pump: Pump) -> None:
        pump.finish(run)
        deadline = time.monotonic() + HANGS_AFTER_S
        while not pump.done and time.monotonic() < deadline and not self._until.wait(LOOK_EVERY_S):
            pass
        lacking = pump.stop(0.0)
        if not pump.done:
            self._hanging.append(pump)
        if lacking.error != self._errors.get((run.id, name)) and not self._until.is_set():
            LOG.warning("%s: %s lacks %d events: %s", run.id, name, lacking.dropped, lacking.error)
        self._errors[run.id, name] = lacking.error


def _sinks(run: Run, spec: Spec | None, *, behind: bool) -> list[tuple[str, Callable[[], Sink]]]:
    """The trackers of a run, or those that are behind, each with what opens its sink."""
    try:
        spec = RunDir.of(run, spec).spec()
    except RlctlError as error:
        LOG.warning("no tracker is told of %s: %s", run.id, error)
        return []
    return [
        (choice.name, partial(_opened, run, spec, choice))
        for choice in spec.store.chosen_trackers
        if not behind or position.status(Path(run.path), choice.name).is_behind
    ]


def _begun(
    run: Run, name: str | None, opener: Callable[[], Sink], *, once: bool = False
) -> list[Pump]:
    """The pump of a tracker; none where it cannot begin, which must hinder neither the run nor
    other trackers. A backlog tries again once the run has ended: the note says what is lacking."""
    path = Path(run.path)
    try:
        return [Pump(path, name, opener, once=once)]
    except Exception as error:  # No room for another thread, for one.
        LOG.warning("%s: %s is told nothing: %s", run.id, name or "memory", error)
        if name is not None and path.is_dir():
            with suppress(OSError):
                note = position.note_file(path, name)
                position.write(note, position.read(note), f"{type(error).__name__}: {error}")
        return []


def _opened(run: Run, spec: Spec, choice: TrackerChoice) -> Sink:
    if plugins.is_importable(choice.name):
        folders = RunDir.of(run).module_path()
        return SinkProcess(choice.name, run, spec, choice.options, folders)
    sink: Sink = plugins.load("trackers", choice.name)(run, spec, choice.options)
    return sink


def _tell(run_id: str, pump: Pump, timeout_s: float = 0.0) -> None:
    """Log what a pump has not delivered, once it is done or the time is over."""
    lost = pump.stop(timeout_s)
    if lost.dropped or lost.error:
        LOG.warning("%s: %s lacks %d events: %s", run_id, pump.name, lost.dropped, lost.error)
