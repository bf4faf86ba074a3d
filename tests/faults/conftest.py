"""A lab for each test, a real PostgreSQL, homes with a queued run, and the command in one."""

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.store.database import DATABASE
from rl_orch.core.store.runs import Store
from rl_orch.io.run.directory import RunDir
from rl_orch.testing import a_spec
from tests.faults.lab import Lab
from tests.faults.moments import Runner
from tests.integration.conftest import shell
from tests.postgres import postgres, postgres_url

__all__ = ["postgres", "postgres_url", "shell"]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """One home with a database of its own."""
    made = Lab(tmp_path)
    yield made
    made.close()


@pytest.fixture
def shared_lab(tmp_path: Path, postgres_url: str) -> Iterator[Lab]:
    """Two homes that share a PostgreSQL database."""
    made = Lab(tmp_path, database=postgres_url, homes=2)
    yield made
    made.close()


@pytest.fixture
def homes() -> Iterator[Iterator[Path]]:
    """Homes with a queued run, as many as are asked for, in memory where that can be: it is not
    the machine that dies here."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        first = _queued(Path(folder) / "first")
        yield (_copied(first, Path(folder) / str(number)) for number in itertools.count())


def _queued(home: Path) -> Path:
    verbs = Orchestrator(home, Runner(), resident=True)
    run = verbs.submit(a_spec("gates.min_return=400", "schedule.backoff_s=0")).runs[0]
    # Only what is not as always: to read a whole spec takes longer than all that is tested here.
    spec = RunDir.of(run).spec().model_dump(mode="json", exclude_defaults=True)
    RunDir.of(run).spec_file.write_text(yaml.safe_dump(spec))
    return home


def _copied(home: Path, to: Path) -> Path:
    shutil.copytree(home, to)
    Store(to / DATABASE).relocate(to)
    return to
