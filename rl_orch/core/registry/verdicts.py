"""Verdicts of gates, kept with what they read: the report by its digest, the rules as data.

Functions on a transaction; who may write in it is the caller's business.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from rl_orch.core.store.tables import VERDICTS
from rl_orch.errors import Damaged
from rl_orch.gate import Rule
from rl_orch.io.files import regular
from rl_orch.records import ModelVersion, StoredVerdict, Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with the rules that it goes by and what it read.

    That is the file of the report, and the model that this was compared with; the digests of the
    files that were played, over so many episodes.
    """

    verdict: Verdict
    rules: tuple[Rule, ...] = ()
    report_file: Path | None = None
    baseline_id: int | None = None
    digest: str | None = None
    baseline_digest: str | None = None
    episodes: int | None = None


def keep(connection: sa.Connection, model_id: int, judgement: Judgement, *, at: float) -> int:
    """The id of the row for a judgement; said twice in a row, it is one row."""
    values: dict[str, Any] = {
        "passed": judgement.verdict.passed,
        "verdict": judgement.verdict.model_dump_json(),
        "rules": json.dumps([_document(rule) for rule in judgement.rules]),
        "report_path": None if judgement.report_file is None else str(judgement.report_file),
        "report_sha256": None if judgement.report_file is None else digest(judgement.report_file),
        "baseline_id": judgement.baseline_id,
        "digest": judgement.digest,
        "baseline_digest": judgement.baseline_digest,
        "episodes": judgement.episodes,
    }
    last = connection.execute(_newest_first(model_id).limit(1)).one_or_none()
    if last is not None and all(last._mapping[name] == value for name, value in values.items()):
        return int(last.id)
    statement = VERDICTS.insert().values(model_id=model_id, at=at, **values)
    return int(connection.execute(statement.returning(VERDICTS.c.id)).scalar_one())


def follow(connection: sa.Connection, model_id: int, before: str, now: str) -> None:
    """Have verdicts on a model count for what its checkpoint was sealed as anew."""
    for of, digest in (("model_id", "digest"), ("baseline_id", "baseline_digest")):
        here = sa.and_(VERDICTS.c[of] == model_id, VERDICTS.c[digest] == before)
        connection.execute(sa.update(VERDICTS).where(here).values({digest: now}))


def of_model(connection: sa.Connection, model_id: int) -> list[StoredVerdict]:
    """All verdicts on a model, the newest first."""
    return [_stored(row) for row in connection.execute(_newest_first(model_id))]


def on_files(
    verdicts: Sequence[StoredVerdict], digests: Sequence[str | None]
) -> list[StoredVerdict]:
    """Verdicts on the files of these digests: of what was replaced since, none count. Pure."""
    return [verdict for verdict in verdicts if verdict.digest in digests]


def alone(verdicts: Sequence[StoredVerdict]) -> StoredVerdict | None:
    """The newest verdict on the model by itself. Pure."""
    return next((verdict for verdict in verdicts if verdict.baseline_id is None), None)


def against(
    verdicts: Sequence[StoredVerdict], baseline: ModelVersion, rules: Sequence[str]
) -> list[StoredVerdict]:
    """Verdicts on a comparison with that model by any of these rules. Pure.

    The model counts as its files are.
    """
    return [
        verdict
        for verdict in verdicts
        if verdict.baseline_id == baseline.id
        and verdict.baseline_digest in baseline.digests
        and {check.rule for check in verdict.verdict.checks}.intersection(rules)
    ]


def digest(file: Path) -> str:
    """The digest of a report's file."""
    try:
        return hashlib.sha256(regular.read(file)).hexdigest()
    except OSError as error:
        raise Damaged(f"report {str(file)!r} cannot be read: {error.strerror}") from None


def _document(rule: Rule) -> dict[str, Any]:
    """A rule as JSON has it; a limit that is no number is none."""
    fields = asdict(rule)
    finite = isinstance(rule.limit, int | float) and abs(rule.limit) != float("inf")
    return fields if finite else fields | {"limit": None}


def _newest_first(model_id: int) -> sa.Select[Any]:
    query = sa.select(VERDICTS).where(VERDICTS.c.model_id == model_id)
    return query.order_by(VERDICTS.c.id.desc())


def _stored(row: sa.Row[Any]) -> StoredVerdict:
    values = dict(row._mapping)
    values["verdict"] = json.loads(values["verdict"])
    values["rules"] = json.loads(values["rules"])
    return StoredVerdict.model_validate(values)
