"""The episodes of an evaluation as a Parquet table."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rl_orch.records import EvalReport


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
