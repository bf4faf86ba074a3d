"""The episodes of an evaluation as a Parquet table."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rl_orch.errors import RlctlError
from rl_orch.io.files import private
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
    table = pa.table(columns)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        private.inner_folder(path.parent)
        with open(temporary, "wb", opener=private.inner_file) as file:
            pq.write_table(table, file)
        temporary.replace(path)
    except OSError as error:
        raise RlctlError(
            f"cannot write {path}: {error.strerror or error}",
            path=str(path),
            hint="Free space on that disk or correct its permissions, then evaluate again.",
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
