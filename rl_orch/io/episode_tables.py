"""The episodes of an evaluation as files: a Parquet table, and records that drive some again."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, ValidationError

from rl_orch.errors import Damaged
from rl_orch.io.rundir import write_text
from rl_orch.records import EvalReport

RECORDS = ".episodes.json"
"""How the names of files with records end."""


class Recorded(BaseModel):
    """An episode that can be driven again: the seed of its reset, and its actions."""

    model_config = ConfigDict(frozen=True)

    number: int
    seed: int
    ret: float
    length: int
    actions: list[Any]


def write_table(path: Path, report: EvalReport) -> None:
    """One row for each episode: its number, seed, return, length, and metrics by name."""
    count = len(report.returns)
    columns: dict[str, Any] = {
        "episode": pa.array(range(count), pa.int64()),
        "seed": pa.array(report.seeds or [None] * count, pa.int64()),
        "return": pa.array(report.returns, pa.float64()),
        "length": pa.array(report.lengths, pa.int64()),
    }
    for name, values in report.metrics.items():
        columns[name] = pa.array(values, pa.float64())
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        pq.write_table(pa.table(columns), temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_records(path: Path, episodes: dict[str, Recorded]) -> None:
    """Episodes by what they are called: best, worst."""
    document = {name: each.model_dump() for name, each in episodes.items()}
    write_text(path, json.dumps(document, allow_nan=False) + "\n")


def read_records(path: Path) -> dict[str, Recorded]:
    """What `write_records` wrote; nothing where there is no such file."""
    try:
        document = json.loads(path.read_text("utf-8"))
        return {name: Recorded.model_validate(each) for name, each in document.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, RecursionError, ValidationError) as error:
        raise Damaged(f"{str(path)!r} cannot be read: {error}") from None
