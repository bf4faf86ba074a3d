"""A run as it is shown: its row, and all that its directory and the registry tell of it."""

from collections.abc import Sequence

from rl_orch.core.registry.models import Registry
from rl_orch.core.runs import tracking
from rl_orch.core.runs.resumption import spec_of
from rl_orch.core.store.runs import Store
from rl_orch.io.checkpoints import catalog
from rl_orch.io.checkpoints.catalog import CatalogEntry
from rl_orch.io.metrics import series
from rl_orch.io.run import history
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.heartbeat import last_beat
from rl_orch.records import EventKind, Run, RunView, State

QUIET_S = 120.0
"""Silence from here on is worth a word; evaluations and updates may take as long."""


def view(store: Store, registry: Registry, run: Run, listed: Sequence[CatalogEntry]) -> RunView:
    """A run with its attempts, models and final report, and with those of its checkpoints that
    were looked at."""
    spec, directory = spec_of(run), RunDir.of(run)
    states = series.events(directory.path, EventKind.STATE)
    return RunView(
        run=run,
        spec=spec,
        attempts=tuple(store.attempts(run.id)),
        checkpoints=tuple(entry.record() for entry in listed),
        models=tuple(registry.of_run(run.id)),
        report=directory.read_report("final"),
        exactness=history.exactness(states),
        fails_again=run.state is State.FAILED
        and history.fails_again(states, saved=bool(catalog.all_names(directory.checkpoints))),
        passed_over=history.passed_over(states),
        certificate=directory.read_certificate(),
        changes=tuple(directory.changes()),
        start=directory.start(),
        taken=history.taken(states),
        children=tuple(child for child in directory.children() if child in store),
        let_go=directory.let_go(),
        trackers=tracking.statuses(run, spec),
        quiet_s=quiet_s(run, directory),
    )


def quiet_s(run: Run, directory: RunDir) -> float | None:
    """Seconds from the last event of a training to its last sign of life, by the times of its
    files; None where that is not long."""
    beat, told = last_beat(directory.heartbeat), last_beat(directory.events)
    if run.state is not State.RUNNING or beat is None or told is None:
        return None
    quiet = (beat - told) / 1e9
    return quiet if quiet >= QUIET_S else None
