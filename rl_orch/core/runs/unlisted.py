"""Run directories beside a database that knows no run: it was lost, or another one is named."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rl_orch.errors import NotFound


def directories(home: Path) -> list[Path]:
    """The run directories of a home, whether or not its database knows them."""
    try:
        return sorted(path.parent for path in (home / "runs").glob("[!.]*/spec.yaml"))
    except OSError:
        return []


def sentence(home: Path, paths: Sequence[Path]) -> str:
    """Sentence on run directories that the database does not know."""
    count = "1 run directory" if len(paths) == 1 else f"{len(paths)} run directories"
    return f"the database has no runs, but {str(home / 'runs')!r} has {count}"


def remedy(home: Path, paths: Sequence[Path], *, flags: str) -> str:
    """The command that takes the directory in, or each of them; flags say where."""
    if len(paths) == 1:
        return f"Take it in: rlctl import-run {shlex.quote(str(paths[0]))}{flags}"
    folders = f"{shlex.quote(str(home / 'runs'))}/*/"
    return f'Take them in: for run in {folders}; do rlctl import-run "$run"{flags}; done'


def not_found(home: Path, reference: str) -> NotFound | None:
    """The error that a run is not known, where there are directories of some."""
    there = directories(home)
    if not there:
        return None
    meant = [path for path in there if path.name == reference] or there
    hint = remedy(home, meant, flags=f" --home {shlex.quote(str(home))}")
    return NotFound(f"no run {reference!r}: {sentence(home, there)}", hint=hint)
