"""The model registry: policies that were evaluated, and whether a gate has passed them.

A row appears when a kept checkpoint has been evaluated (`validated = 0`) and goes when the
checkpoint does. Only a passing verdict sets `validated = 1`.
"""

import json
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from rl_orch.core.store import Store
from rl_orch.core.tables import MODELS
from rl_orch.errors import NotFound
from rl_orch.records import EvalReport, ModelVersion, Run, Verdict
from rl_orch.spec.model import Spec


class Registry:
    """The models in a store's database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def register(
        self,
        run: Run,
        spec: Spec,
        path: Path,
        report: EvalReport,
        *,
        lease: str,
        git_commit: str | None,
    ) -> int:
        """The id of the row for an evaluated checkpoint.

        The same path keeps its row: a resumed run tells of its checkpoint again, or saves another
        one in its place, whose numbers then count as long as no gate has passed the old ones.
        """
        values: dict[str, Any] = {
            "model_path": str(path),
            "algorithm": run.algo,
            "env_id": run.env,
            "timestamp": int(run.updated_at),
            "total_timesteps": report.step,
            "hyperparams": json.dumps(spec.model_dump(mode="json")),
            "git_commit": git_commit,
            "validated": False,
            "run_id": run.id,
            "policy": report.policy,
        } | _measured(report)
        with self._store.holding(run.id, lease) as connection:
            found = sa.select(MODELS.c.id).where(MODELS.c.model_path == str(path))
            known = connection.execute(found).scalar_one_or_none()
            if known is not None:
                open_row = sa.and_(MODELS.c.id == known, MODELS.c.verdict.is_(None))
                connection.execute(sa.update(MODELS).where(open_row).values(**_measured(report)))
                return int(known)
            statement = MODELS.insert().values(**values).returning(MODELS.c.id)
            return int(connection.execute(statement).scalar_one())

    def judge(
        self, run: Run, model_id: int, report: EvalReport, verdict: Verdict | None, *, lease: str
    ) -> None:
        """Record the final evaluation of a model, and validate it if the verdict passed."""
        values = _measured(report) | {
            "validated": verdict is not None and verdict.passed,
            "verdict": None if verdict is None else verdict.model_dump_json(),
        }
        with self._store.holding(run.id, lease) as connection:
            connection.execute(sa.update(MODELS).where(MODELS.c.id == model_id).values(**values))

    def get(self, model_id: int) -> ModelVersion:
        """The model of that id."""
        with self._store.reading() as connection:
            row = connection.execute(sa.select(MODELS).where(MODELS.c.id == model_id)).one_or_none()
        if row is None:
            raise NotFound(f"no model {model_id}")
        return _model(row)

    def of_run(self, run_id: str) -> list[ModelVersion]:
        """The models that a run registered, oldest first."""
        with self._store.reading() as connection:
            query = sa.select(MODELS).where(MODELS.c.run_id == run_id).order_by(MODELS.c.id)
            return [_model(row) for row in connection.execute(query)]

    def at(self, path: Path) -> ModelVersion | None:
        """The model whose checkpoint is at that path."""
        with self._store.reading() as connection:
            query = sa.select(MODELS).where(MODELS.c.model_path == str(path))
            row = connection.execute(query).one_or_none()
        return None if row is None else _model(row)

    def forget(self, run: Run, path: Path, *, lease: str) -> None:
        """Drop the row of a checkpoint that is no longer kept; a validated one stays."""
        gone = sa.and_(MODELS.c.model_path == str(path), MODELS.c.validated.is_not(sa.true()))
        with self._store.holding(run.id, lease) as connection:
            connection.execute(MODELS.delete().where(gone))

    def forget_run(self, run_id: str) -> None:
        """Drop every row of a run that is being removed."""
        with self._store.writing() as connection:
            connection.execute(MODELS.delete().where(MODELS.c.run_id == run_id))


def _measured(report: EvalReport) -> dict[str, Any]:
    return {
        "mean_reward": report.summary.mean,
        "std_reward": report.summary.std,
        "mean_episode_length": report.mean_length,
    }


def _model(row: sa.Row[Any]) -> ModelVersion:
    values = dict(row._mapping)
    if values["verdict"] is not None:
        values["verdict"] = Verdict.model_validate_json(values["verdict"])
    return ModelVersion.model_validate(values)
