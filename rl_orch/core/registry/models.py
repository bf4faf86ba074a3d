"""The model registry: policies that were evaluated, and whether a gate has passed them.

A row appears when a kept checkpoint has been evaluated, or a policy from elsewhere was imported
(`validated = 0`), once its artefact is sealed; training that drops the checkpoint drops both. Only
a passing verdict sets `validated = 1`. Names for models are in `aliases.py`.
"""

import json
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from rl_orch.core.registry import verdicts
from rl_orch.core.registry.verdicts import Judgement
from rl_orch.core.store.database import Lock
from rl_orch.core.store.runs import Store, nothing
from rl_orch.core.store.tables import ALIASES, MODELS, RUNS, VERDICTS
from rl_orch.errors import Conflict, NotFound
from rl_orch.io.files import sealed
from rl_orch.io.policies import artefacts
from rl_orch.records import EvalReport, ModelVersion, Run, State, StoredVerdict, Verdict
from rl_orch.records.queries import ModelQuery
from rl_orch.spec.model import Spec
from rl_orch.spec.upgrade import without_address

AT_WORK = (State.QUEUED, State.STARTING, State.RUNNING, State.EVALUATING)

FILES = ("model_path", "digest", "checkpoint_digest")
"""The columns about the files of a model."""

NAMED = sa.select(ALIASES.c.model_id)
"""The models that have an alias."""

JUDGED = sa.select(VERDICTS.c.model_id)
"""The models that a gate was asked about."""


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
        lineage: Mapping[str, Any] | None = None,
    ) -> int:
        """The id of the row for a policy that was evaluated, by its artefact.

        The same path keeps its row: a resumed run tells of its checkpoint again, or saves another
        one in its place, whose numbers then count as long as no gate has passed the old ones.
        """
        values = _described(run, spec, path) | _measured(report)
        values |= {
            "total_timesteps": report.trained_steps,
            "git_commit": git_commit,
            "policy": report.policy,
            "lineage": json.dumps(
                {"run": run.id, "attempt": run.attempt, "seed": run.seed, **(lineage or {})}
            ),
        }
        with self._store.holding(run.id, lease) as connection:
            row = connection.execute(sa.select(MODELS).where(_at(path))).one_or_none()
            if row is not None:
                _renew(connection, row, report, {name: values[name] for name in FILES})
                return int(row.id)
            return _insert(connection, values)

    def enter(
        self, run: Run, spec: Spec, path: Path, lineage: Mapping[str, Any], *, lease: str
    ) -> int:
        """The id of a new row for a policy from elsewhere. Nobody here has measured it yet."""
        values = _described(run, spec, path) | {
            "total_timesteps": run.env_steps,
            "lineage": json.dumps({"run": run.id, **lineage}),
            "source": "import",
        }
        with self._store.holding(run.id, lease) as connection:
            return _insert(connection, values)

    def judge(
        self,
        run: Run,
        model_id: int,
        report: EvalReport,
        judgement: Judgement | None,
        *,
        lease: str,
    ) -> None:
        """Record the final evaluation of a model, and validate it if the verdict passed. One that
        did not takes nothing back: promotions read the newest. The judgement is on the model's
        files as they are registered.
        """
        with self._store.holding(run.id, lease) as connection:
            here = MODELS.c.id == model_id
            values = _measured(report)
            if judgement is not None:
                values |= _judged(judgement.verdict)
                digest = connection.execute(sa.select(MODELS.c.digest).where(here)).scalar_one()
                judgement = replace(judgement, digest=digest)
                verdicts.keep(connection, model_id, judgement, at=time.time())
            connection.execute(sa.update(MODELS).where(here).values(**values))

    def decide(
        self, model: ModelVersion, judgement: Judgement, report: EvalReport
    ) -> StoredVerdict:
        """Keep a judgement on a model, which is as it was seen when that began. One on the model by
        itself that passed validates it; files that no digest was kept of are those that were
        played.
        """
        values: dict[str, Any] = {}
        if judgement.baseline_id is None:
            values = _judged(judgement.verdict)
            values |= _files(Path(model.model_path)) if model.digest is None else {}
        model_id = model.id
        with self._store.writing() as connection:
            here = sa.and_(MODELS.c.id == model_id, MODELS.c.retiring.is_not(sa.true()))
            there = sa.select(MODELS.c.digest).where(here).with_for_update()
            row = connection.execute(there).one_or_none()
            if row is None:
                raise NotFound(f"model {model_id} was removed while it was judged")
            refuse_at_work(connection, model_id, model.run_id)
            now = sealed.manifest_digest(Path(model.model_path))
            if row.digest != model.digest or judgement.digest not in (None, now):
                raise Conflict(
                    f"model {model_id} was replaced while it was judged",
                    hint="`rlctl registry verify` says whether its files are those registered.",
                )
            if judgement.baseline_id is None and _is_largest(connection, model, judgement):
                values |= _measured(report)
            if values:
                connection.execute(sa.update(MODELS).where(here).values(**values))
            number = verdicts.keep(connection, model_id, judgement, at=time.time())
            stored = verdicts.of_model(connection, model_id)
        return next(verdict for verdict in stored if verdict.id == number)

    def get(self, model_id: int) -> ModelVersion:
        """The model of that id."""
        model = next(iter(self._select(MODELS.c.id == model_id)), None)
        if model is None:
            raise NotFound(f"no model {model_id}", hint="`rlctl registry list` lists them.")
        return model

    def find(self, query: ModelQuery) -> list[ModelVersion]:
        """The models that a query asks for: the newest first, or the best so many of each
        environment, whose returns alone compare."""
        statement = sa.select(MODELS).where(*_conditions(query))
        if query.top_n is None:
            statement = statement.order_by(MODELS.c.id.desc()).limit(query.limit)
        else:
            best = (MODELS.c.mean_reward.desc().nulls_last(), MODELS.c.id.desc())
            place = sa.func.row_number().over(partition_by=MODELS.c.env_id, order_by=best)
            ranked = sa.select(MODELS.c.id, place.label("place")).where(*_conditions(query))
            leading = ranked.subquery()
            statement = statement.join(leading, leading.c.id == MODELS.c.id)
            statement = statement.where(leading.c.place <= query.top_n)
            statement = statement.order_by(MODELS.c.env_id, *best)
            statement = statement.limit(max(query.limit, query.top_n))
        with self._store.reading() as connection:
            return models(connection, statement)

    def environments(self) -> list[str]:
        """The environments that have a validated model, by name."""
        query = sa.select(MODELS.c.env_id).where(*_conditions(ModelQuery(validated=True)))
        return sorted(row.env_id for row in self._store.read(query.distinct()))

    def of_run(self, run_id: str) -> list[ModelVersion]:
        """The models that a run registered, oldest first."""
        return self._select(MODELS.c.run_id == run_id)

    def at(self, path: Path) -> ModelVersion | None:
        """The model whose artefact, or checkpoint, is at that path."""
        return next(iter(self._select(_at(path))), None)

    def verdicts_on(self, model_id: int) -> list[StoredVerdict]:
        """All verdicts on a model, the newest first."""
        with self._store.reading() as connection:
            return verdicts.of_model(connection, model_id)

    def kept_of(self, run_id: str) -> list[str]:
        """The names of the run's checkpoints that stay whatever its training does: those of models
        that were validated or have an alias, and are no artefacts yet."""
        wanted = sa.or_(MODELS.c.validated.is_(sa.true()), MODELS.c.id.in_(NAMED))
        query = sa.select(MODELS.c.model_path).where(MODELS.c.run_id == run_id, wanted)
        paths = [Path(row.model_path) for row in self._store.read(query)]
        return sorted(path.name for path in paths if not artefacts.is_artefact(path))

    def forget(self, run: Run, path: Path, *, lease: str) -> None:
        """Drop the row of a checkpoint that is no longer kept; what was validated or has an alias
        stays."""
        with self._store.holding(run.id, lease) as connection:
            connection.execute(
                MODELS.delete().where(
                    _at(path),
                    MODELS.c.validated.is_not(sa.true()),
                    MODELS.c.id.not_in(NAMED),
                )
            )

    def forget_others(
        self, run: Run, path: Path, *, spared: Collection[str], lease: str
    ) -> list[Path]:
        """Drop the rows that earlier ends of a run have left, but for that of the path; returns
        the paths of their files. What was judged, or has an alias, stays, and what is spared by the
        name of its checkpoint."""
        mine = sa.and_(MODELS.c.run_id == run.id, sa.not_(_at(path)), MODELS.c.source == "run")
        unjudged = sa.and_(
            *(MODELS.c.validated.is_not(sa.true()), MODELS.c.verdict.is_(None)),
            *(MODELS.c.id.not_in(JUDGED), MODELS.c.id.not_in(NAMED)),
        )
        with self._store.holding(run.id, lease) as connection:
            rows = connection.execute(sa.select(MODELS).where(mine, unjudged)).all()
            going = {row.id: Path(row.model_path) for row in rows}
            going = {key: file for key, file in going.items() if file.name not in spared}
            connection.execute(MODELS.delete().where(MODELS.c.id.in_(going)))
        return list(going.values())

    def refuse_named(self, run_id: str) -> None:
        """Raise if a model of the run has an alias."""
        with self._store.reading() as connection:
            refuse_named(connection, run_id)

    def forget_run(self, run_id: str, *, files: Callable[[], None] = nothing) -> None:
        """Drop every row of a run that is being removed; refused while one of them has an alias.

        They are marked `retiring` first; then `files` deletes what they are of; then they go. Who
        dies in between leaves models that nobody can promote, and the next removal goes on. Where
        files cannot be deleted, the models stay.
        """
        mine = MODELS.c.run_id == run_id
        with self._store.writing(Lock.REGISTRY) as connection:
            refuse_named(connection, run_id)
            free = sa.and_(mine, MODELS.c.retiring.is_not(sa.true()))
            marked = connection.execute(sa.select(MODELS.c.id).where(free)).scalars().all()
            connection.execute(sa.update(MODELS).where(free).values(retiring=True))
        try:
            files()
        except Exception:
            back = sa.update(MODELS).where(MODELS.c.id.in_(marked)).values(retiring=False)
            self._store.write(back)
            raise
        self._store.write(MODELS.delete().where(mine))

    def _select(self, which: sa.ColumnElement[bool]) -> list[ModelVersion]:
        """The models that meet a condition, oldest first."""
        with self._store.reading() as connection:
            return models(connection, sa.select(MODELS).where(which).order_by(MODELS.c.id))


def refuse_at_work(connection: sa.Connection, model_id: int, run_id: str | None) -> None:
    """Raise if the run of a model is under way; it cannot begin before the transaction ends."""
    query = sa.select(RUNS.c.state).where(RUNS.c.id == run_id).with_for_update()
    state = connection.execute(query).scalar_one_or_none()
    if state in AT_WORK:
        raise at_work(model_id, run_id, state)


def at_work(model_id: int, run_id: str | None, state: str) -> Conflict:
    """The error that the run of a model is under way."""
    return Conflict(
        f"model {model_id} is of run {run_id}, which is {state} and may still drop it",
        hint=f"rlctl wait {run_id}",
    )


def models(connection: sa.Connection, statement: sa.Select[Any]) -> list[ModelVersion]:
    """The models that a statement selects, each with its aliases."""
    rows = connection.execute(statement).all()
    ids = [row.id for row in rows]
    names: dict[int, list[str]] = {}
    named = sa.select(ALIASES.c.model_id, ALIASES.c.alias).order_by(ALIASES.c.alias)
    for model_id, alias in connection.execute(named.where(ALIASES.c.model_id.in_(ids))):
        names.setdefault(model_id, []).append(alias)
    return [_model(row, tuple(names.get(row.id, ()))) for row in rows]


def refuse_named(connection: sa.Connection, run_id: str) -> None:
    """Raise if a model of the run has an alias."""
    query = sa.select(ALIASES).join(MODELS, MODELS.c.id == ALIASES.c.model_id)
    row = connection.execute(query.where(MODELS.c.run_id == run_id)).first()
    if row is None:
        return
    name = f"{row.alias}@{row.env_id}"
    raise Conflict(
        f"run {run_id} cannot be removed: its model {row.model_id} is {name}",
        hint=f"Promote another model to it, `rlctl rollback {name}`, or "
        f"`rlctl registry unalias {name}`.",
    )


def _described(run: Run, spec: Spec, path: Path) -> dict[str, Any]:
    """Columns of a checkpoint that no gate has seen."""
    return {
        **_files(path),
        "algorithm": run.algo,
        "env_id": run.env,
        "timestamp": int(run.updated_at),
        "hyperparams": json.dumps(spec.model_dump(mode="json")),
        "validated": False,
        "run_id": run.id,
        "config_hash": run.config_hash,
        "group": run.group,
    }


def _files(path: Path) -> dict[str, Any]:
    """Columns about the files at a path, an artefact's or a checkpoint's."""
    sealed_from = artefacts.checkpoint_digest(path) if artefacts.is_artefact(path) else None
    digest = sealed.manifest_digest(path)
    return dict(zip(FILES, (str(path), digest, sealed_from), strict=True))


def _at(path: Path) -> sa.ColumnElement[bool]:
    """The condition that a row is of that path: of the artefact, or of the checkpoint that it is
    from, which a model of an earlier release is."""
    return MODELS.c.model_path.in_([str(path), *map(str, artefacts.places_of(path))])


def _insert(connection: sa.Connection, values: dict[str, Any]) -> int:
    statement = MODELS.insert().values(**values).returning(MODELS.c.id)
    return int(connection.execute(statement).scalar_one())


def _renew(
    connection: sa.Connection, row: sa.Row[Any], report: EvalReport, files: dict[str, Any]
) -> None:
    """Bring the row of a policy that is told of again up to date.

    Another one in its place has not been judged. Where the old one has an alias its row stays, so
    that whoever verifies sees that the files are others now.
    """
    if files["digest"] is None:
        files = {}
    before = {row.digest, row.checkpoint_digest} - {None}
    same = not files or not before or not before.isdisjoint(files.values())
    if same and files:
        connection.execute(sa.update(MODELS).where(MODELS.c.id == row.id).values(**files))
        if row.digest not in files.values():
            verdicts.follow(connection, row.id, row.digest, files["digest"])
    if same and row.verdict is not None:
        return
    values = _measured(report) | files
    if not same:
        values |= {"validated": False, "verdict": None}
    free = sa.and_(MODELS.c.id == row.id, MODELS.c.id.not_in(NAMED))
    connection.execute(sa.update(MODELS).where(free).values(**values))


def _conditions(query: ModelQuery) -> list[sa.ColumnElement[bool]]:
    columns = {"env": "env_id", "algo": "algorithm", "run": "run_id"}
    wanted = {columns[name]: getattr(query, name) for name in columns}
    conditions = [MODELS.c[name] == value for name, value in wanted.items() if value is not None]
    conditions.append(MODELS.c.retiring.is_not(sa.true()))
    if query.validated:
        conditions.append(MODELS.c.validated.is_(sa.true()))
    if query.alias is not None:
        conditions.append(MODELS.c.id.in_(NAMED.where(ALIASES.c.alias == query.alias)))
    return conditions


def _is_largest(connection: sa.Connection, model: ModelVersion, judgement: Judgement) -> bool:
    """Whether no verdict on the same files was over more episodes: a small sample takes no place of
    a larger one."""
    same = model.digests if judgement.digest in model.digests else (judgement.digest,)
    stored = verdicts.on_files(verdicts.of_model(connection, model.id), same)
    sizes = (verdict.episodes or 0 for verdict in stored if verdict.baseline_id is None)
    return (judgement.episodes or 0) >= max(sizes, default=0)


def _measured(report: EvalReport) -> dict[str, Any]:
    return {
        "mean_reward": report.summary.mean,
        "std_reward": report.summary.std,
        "mean_episode_length": report.mean_length,
        "episodes": report.summary.n,
    }


def _judged(verdict: Verdict) -> dict[str, Any]:
    validated = {"validated": True} if verdict.passed else {}
    return {"verdict": verdict.model_dump_json()} | validated


def _model(row: sa.Row[Any], aliases: tuple[str, ...]) -> ModelVersion:
    values = dict(zip(MODELS.c.keys(), row, strict=True))
    if values["verdict"] is not None:
        values["verdict"] = Verdict.model_validate_json(values["verdict"])
    for name, nothing_known in (("lineage", {}), ("hyperparams", None)):
        values[name] = _parsed(values[name]) or nothing_known
    values["hyperparams"] = values["hyperparams"] and without_address(values["hyperparams"])
    return ModelVersion.model_validate(values | {"aliases": aliases})


def _parsed(text: str | None) -> dict[str, Any] | None:
    """An object out of a column, if there is one."""
    with suppress(ValueError):
        document = json.loads(text or "null")
        return document if isinstance(document, dict) else None
    return None
