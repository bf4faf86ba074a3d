"""Aliases: names for models, one model per name and environment, and the trail of every change.

A change is one transaction that looks again at all that it rests on; whether a model deserves the
name is decided before, in `promotion.py`.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import sqlalchemy as sa

from rl_orch.core.registry import verdicts
from rl_orch.core.registry.models import models, refuse_at_work
from rl_orch.core.registry.references import registered_digest
from rl_orch.core.store.database import Lock
from rl_orch.core.store.runs import Store
from rl_orch.core.store.tables import ALIAS_HISTORY, ALIASES, MODELS
from rl_orch.errors import BadInput, Conflict
from rl_orch.records import Alias, AliasChange, ModelVersion

LONGEST_REASON = 2000


@dataclass(frozen=True, slots=True)
class Change:
    """A change that is asked for: a name in an environment, its next holder (None: nobody), and
    the previous one, as it was seen when this was decided."""

    env_id: str
    alias: str
    model_id: int | None
    previous_id: int | None
    action: Literal["promote", "rollback", "remove"]
    who: str
    reason: str | None = None
    forced: bool = False
    verdict_id: int | None = None

    @property
    def place(self) -> str:
        """The name, as people write it."""
        return f"{self.alias}@{self.env_id}"


class Aliases:
    """The aliases in a store's database, and their history."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, *, env: str | None = None, alias: str | None = None) -> list[Alias]:
        """The aliases that match, by environment and name."""
        query = sa.select(ALIASES).order_by(ALIASES.c.env_id, ALIASES.c.alias)
        query = query.where(*_matching(ALIASES, env, alias))
        return [Alias.model_validate(dict(row._mapping)) for row in self._store.read(query)]

    def holder(self, env: str, alias: str) -> int | None:
        """The id of the model that has the name."""
        return next((held.model_id for held in self.find(env=env, alias=alias)), None)

    def history(
        self, *, env: str | None = None, alias: str | None = None, model_id: int | None = None
    ) -> list[AliasChange]:
        """The changes that match, the newest first."""
        query = sa.select(ALIAS_HISTORY).order_by(ALIAS_HISTORY.c.id.desc())
        query = query.where(*_matching(ALIAS_HISTORY, env, alias))
        if model_id is not None:
            had = (ALIAS_HISTORY.c.model_id == model_id, ALIAS_HISTORY.c.previous_id == model_id)
            query = query.where(sa.or_(*had))
        return [_change(row) for row in self._store.read(query)]

    def change(self, asked: Change) -> AliasChange:
        """Make a change, if the place is still as it was seen.

        The model must still be there, too.
        """
        with self._store.writing(Lock.REGISTRY) as connection:
            _refuse_overtaken(connection, asked)
            if asked.model_id is not None:
                model = refuse_unfit(connection, asked.model_id, asked.env_id)
                if asked.action == "promote" and not asked.forced:
                    _refuse_unjudged(connection, asked, model)
            at = time.time()
            _put(connection, asked, at)
            statement = ALIAS_HISTORY.insert().values(**asdict(asked), at=at)
            return _change(connection.execute(statement.returning(ALIAS_HISTORY)).one())


def trail(changes: Iterable[AliasChange]) -> list[int]:
    """The holders of one alias that a rollback can return to, the present one last. Pure.

    `changes` are in the order in which they were made. A rollback takes the last ones back; a
    removal begins anew.
    """
    holders: list[int] = []
    for change in changes:
        if change.model_id is None:
            holders = []
        elif change.action == "rollback":
            while holders and holders[-1] != change.model_id:
                holders.pop()
        else:
            holders.append(change.model_id)
    return holders


def returns_to(changes: Iterable[AliasChange], there: Callable[[int], bool]) -> int | None:
    """The model that a rollback of one alias would return to. Pure.

    It is one of those that are still there. It is never the one that has the alias: between the
    two, others may have had it and be gone.
    """
    holders = trail(changes)
    before = (each for each in reversed(holders) if each != holders[-1])
    return next(filter(there, before), None)


def present(changes: Iterable[AliasChange]) -> dict[tuple[str, str], int]:
    """The aliases that a whole history, oldest first, comes to. Pure."""
    holders: dict[tuple[str, str], int] = {}
    for change in changes:
        key = (change.env_id, change.alias)
        if change.model_id is None:
            holders.pop(key, None)
        else:
            holders[key] = change.model_id
    return holders


def protected(connection: sa.Connection, env_id: str) -> dict[int, str]:
    """The models of an environment that aliases need, each with why: those that have one, and
    those that a rollback would return to."""
    query = sa.select(ALIAS_HISTORY).where(ALIAS_HISTORY.c.env_id == env_id)
    changes: dict[str, list[AliasChange]] = {}
    for row in connection.execute(query.order_by(ALIAS_HISTORY.c.id)):
        changes.setdefault(row.alias, []).append(_change(row))
    ids = sa.select(MODELS.c.id).where(MODELS.c.env_id == env_id)
    there = set(connection.execute(ids).scalars())
    reasons: dict[int, str] = {}
    for alias, history in changes.items():
        holder = returns_to(history, there.__contains__)
        if holder is not None:
            reasons[holder] = f"a rollback of {alias} would return to it"
    for row in connection.execute(sa.select(ALIASES).where(ALIASES.c.env_id == env_id)):
        reasons[row.model_id] = f"it is {row.alias}"
    return reasons


def refuse_unfit(connection: sa.Connection, model_id: int, env_id: str) -> ModelVersion:
    """The model, if it can have a name there, whatever gates say of it.

    The run cannot begin to train again before the transaction ends.
    """
    matches = models(connection, sa.select(MODELS).where(MODELS.c.id == model_id))
    if not matches or matches[0].retiring:
        why = "is being removed" if matches else "is not there any more"
        raise Conflict(f"model {model_id} {why}", hint="`rlctl registry list` lists the others.")
    model = matches[0]
    if model.env_id != env_id:
        raise BadInput(f"model {model_id} is of {model.env_id}, not of {env_id}")
    refuse_at_work(connection, model_id, model.run_id)
    registered_digest(model)
    return model


def _refuse_unjudged(connection: sa.Connection, asked: Change, model: ModelVersion) -> None:
    """Raise if what a promotion was decided by no longer holds: the model was judged anew, or is
    another one by now."""
    stored = verdicts.on_files(verdicts.of_model(connection, model.id), model.digests)
    newest = verdicts.alone(stored)
    holds = newest is not None and newest.passed
    if not holds or asked.verdict_id not in {verdict.id for verdict in stored}:
        raise Conflict(
            f"model {asked.model_id} was judged anew, or replaced, while this was decided",
            hint=f"Look at `rlctl registry show {asked.model_id}`, then decide again.",
        )


def _refuse_overtaken(connection: sa.Connection, asked: Change) -> None:
    query = sa.select(ALIASES.c.model_id).where(*_matching(ALIASES, asked.env_id, asked.alias))
    now = connection.execute(query).scalar_one_or_none()
    if now != asked.previous_id:
        was = "nobody" if asked.previous_id is None else f"model {asked.previous_id}"
        has = "nobody has" if now is None else f"model {now} has"
        raise Conflict(
            f"{asked.place} was {was}'s when this was decided, and {has} it now",
            hint="Look at `rlctl registry history`, then decide again.",
        )


def _put(connection: sa.Connection, asked: Change, at: float) -> None:
    connection.execute(ALIASES.delete().where(*_matching(ALIASES, asked.env_id, asked.alias)))
    if asked.model_id is not None:
        held = Alias(
            env_id=asked.env_id,
            alias=asked.alias,
            model_id=asked.model_id,
            since=at,
            verdict_id=asked.verdict_id,
        )
        connection.execute(ALIASES.insert().values(**held.model_dump()))


def _matching(table: sa.Table, env: str | None, alias: str | None) -> Sequence[Any]:
    wanted = {"env_id": env, "alias": alias}
    return [table.c[name] == value for name, value in wanted.items() if value is not None]


def _change(row: sa.Row[Any]) -> AliasChange:
    return AliasChange.model_validate(dict(row._mapping))
