"""Retention: which models stay, and letting go of the others so that a crash leaves no doubt.

A model that goes is first marked `retiring`, while nothing needs it; then its files are deleted;
then its row. Whoever comes next finishes what was begun. What an alias needs, what a run at work
has made and what a run may be resumed from is never marked.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from rl_orch.core.registry import aliases
from rl_orch.core.registry.models import NAMED, models
from rl_orch.core.store.database import Lock
from rl_orch.core.store.runs import Store
from rl_orch.core.store.tables import MODELS, RUNS
from rl_orch.errors import RlctlError
from rl_orch.io.policies import artefacts
from rl_orch.io.run.directory import RunDir
from rl_orch.records import ModelVersion, Pruning, Retirement, State

LOG = logging.getLogger(__name__)

DAY_S = 86_400.0
FINAL = (State.SUCCEEDED, State.REJECTED)
"""The ends after which no run goes on: only then its checkpoints are the registry's alone."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """Limits on the models of each environment: how many stay, the best first, and for how many
    days."""

    keep_top_n: int | None = None
    max_age: float | None = None

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return self.keep_top_n is not None or self.max_age is not None


class Retention:
    """Carries retention out on the models of a store."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    def prune(
        self, limits: RetentionLimits, *, env: str | None = None, dry_run: bool = False
    ) -> Pruning:
        """Remove what the limits leave no room for; and finish what others have begun.

        It is done in one environment or in each.
        """
        why = "its removal was cut short"
        begun = [Retirement(model_id=model.id, why=why) for model in self._marked()]
        removed: list[Retirement] = []
        spared: list[Retirement] = []
        for env_id in self._environments(env):
            going, staying = self._look(env_id, limits)
            spared += staying
            for retirement in going:
                if dry_run or self._mark(retirement.model_id, env_id):
                    removed.append(retirement)
        if not dry_run:
            gone = self.finish()
            spared += [
                each.model_copy(update={"why": "its files cannot be deleted; see the log"})
                for each in removed
                if each.model_id not in gone
            ]
            begun, removed = (
                [each for each in retirements if each.model_id in gone]
                for retirements in (begun, removed)
            )
        return Pruning(removed=(*begun, *removed), spared=tuple(spared), dry_run=dry_run)

    def finish(self) -> list[int]:
        """Delete the files, then the rows, of all models that are marked; returns their ids."""
        gone = []
        for model in self._marked():
            path = Path(model.model_path)
            if not path.parent.is_dir():  # It is on another machine, whose turn it is.
                continue
            try:
                artefacts.remove(path)
            except OSError as error:
                LOG.warning("model %s stays until its files can go: %s", model.id, error)
                continue
            this = sa.and_(MODELS.c.id == model.id, MODELS.c.retiring.is_(sa.true()))
            self._store.write(MODELS.delete().where(this))
            gone.append(model.id)
        return gone

    def _marked(self) -> list[ModelVersion]:
        """Models whose removal was begun and not finished."""
        query = sa.select(MODELS).where(MODELS.c.retiring.is_(sa.true())).order_by(MODELS.c.id)
        with self._store.reading() as connection:
            return models(connection, query)

    def _environments(self, env: str | None) -> list[str]:
        if env is not None:
            return [env]
        query = sa.select(MODELS.c.env_id).distinct().order_by(MODELS.c.env_id)
        return [row.env_id for row in self._store.read(query)]

    def _look(
        self, env_id: str, limits: RetentionLimits
    ) -> tuple[list[Retirement], list[Retirement]]:
        """Models that would go, and those that would but for a need of them."""
        with self._store.reading() as connection:
            query = sa.select(MODELS).where(
                MODELS.c.env_id == env_id, MODELS.c.retiring.is_not(sa.true())
            )
            listed = models(connection, query)
            needed = aliases.protected(connection, env_id) | _of_runs(connection, listed)
        needed |= self._to_begin_with()
        here = [model for model in listed if Path(model.model_path).parent.is_dir()]
        return choose(here, needed, limits, now=self._clock())

    def _to_begin_with(self) -> dict[int, str]:
        """Models that queued runs begin with, each with why it stays."""
        wanted = {}
        for run, _ in self._store.active():
            with suppress(RlctlError):
                start = RunDir.of(run).start() if run.state is State.QUEUED else None
                if start is not None and start.get("model") is not None:
                    wanted[int(start["model"])] = f"run {run.id} is queued, and begins with it"
        return wanted

    def _mark(self, model_id: int, env_id: str) -> bool:
        """Whether a model is now retiring: nothing has come to need it in the meantime."""
        with self._store.writing(Lock.REGISTRY) as connection:
            matches = models(connection, sa.select(MODELS).where(MODELS.c.id == model_id))
            if not matches or matches[0].retiring:
                return False
            if model_id in aliases.protected(connection, env_id) | _of_runs(connection, matches):
                return False
            free = sa.and_(MODELS.c.id == model_id, MODELS.c.id.not_in(NAMED))
            marked = sa.update(MODELS).where(free).values(retiring=True)
            return connection.execute(marked).rowcount == 1


def choose(
    listed: Sequence[ModelVersion],
    needed: Mapping[int, str],
    limits: RetentionLimits,
    *,
    now: float,
) -> tuple[list[Retirement], list[Retirement]]:
    """Models of an environment that go, and those that would but for a need. Pure.

    What is validated comes before what is not, then the higher mean reward, then the newer one.
    """
    ranked = sorted(listed, key=_rank, reverse=True)
    going: list[Retirement] = []
    staying: list[Retirement] = []
    for place, model in enumerate(ranked, start=1):
        why = _surplus(model, place, limits, now)
        if why is None:
            continue
        if model.id in needed:
            staying.append(Retirement(model_id=model.id, why=needed[model.id]))
        else:
            going.append(Retirement(model_id=model.id, why=why))
    return going, staying


def _surplus(model: ModelVersion, place: int, limits: RetentionLimits, now: float) -> str | None:
    if limits.max_age is not None and now - model.timestamp > limits.max_age * DAY_S:
        return f"it is older than {limits.max_age:g} days"
    if limits.keep_top_n is not None and place > limits.keep_top_n:
        return f"it is number {place} of {model.env_id}, and only {limits.keep_top_n} may stay"
    return None


def _rank(model: ModelVersion) -> tuple[bool, float, int, int]:
    reward = float("-inf") if model.mean_reward is None else model.mean_reward
    return model.validated, reward, model.timestamp, model.id


def _of_runs(connection: sa.Connection, listed: Sequence[ModelVersion]) -> dict[int, str]:
    """Models that a run or an import still needs, each with why it stays.

    They are those whose run has not come to a final end, and those that were imported and have yet
    to be measured.
    """
    runs = {model.run_id for model in listed if model.run_id is not None}
    query = sa.select(RUNS.c.id, RUNS.c.state).where(RUNS.c.state.not_in(FINAL))
    states = {run_id: state for run_id, state in connection.execute(query) if run_id in runs}
    unmeasured = {
        model.id: f"it was imported, and not judged yet: rlctl registry validate {model.id}"
        for model in listed
        if model.source == "import" and model.mean_reward is None
    }
    return unmeasured | {
        model.id: f"its run {model.run_id} is {states[model.run_id]} and may still need it"
        for model in listed
        if model.run_id in states
    }
