"""Runs that are new: their ids, their records, and directories that appear whole or not at all."""

import re
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_orch.errors import RlctlError
from rl_orch.io.files import private
from rl_orch.io.files.sealed import sync_directory
from rl_orch.io.processes import import_path
from rl_orch.io.run import manifest
from rl_orch.io.run.directory import RunDir
from rl_orch.records import Run
from rl_orch.spec import code
from rl_orch.spec.model import Spec

ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
"""Letters and digits that are not mistaken for each other."""

UNFINISHED = ".new-"
"""How the name of a directory begins while its run is not yet known."""


def new_id(label: str) -> str:
    """An id for people to read and type: a name, and letters that make it the only one."""
    slug = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:40] or "run"
    return f"{slug}-{''.join(secrets.choice(ALPHABET) for _ in range(6))}"


def record(
    spec: Spec, *, run_id: str, path: Path, group: str | None, made_at: float, **more: Any
) -> Run:
    """The run that a spec makes."""
    facts: dict[str, Any] = {
        "env": spec.env.id,
        "algo": spec.algo,
        "seed": spec.env.seed,
        "runner": spec.runner.name,
        "clock": manifest.clock_of(spec),
        "after": spec.schedule.after,
        "parent": spec.parent or group,
        "role": spec.role or ("seed" if group else None),
        "tags": spec.tags,
        "created_at": made_at,
        "updated_at": made_at,
    }
    facts |= asked_of(spec, group)
    return Run(id=run_id, path=str(path), group=group, **(facts | more))


def asked_of(spec: Spec, group: str | None) -> dict[str, Any]:
    """Columns of a run by a spec that may change when it is resumed."""
    return {
        "name": spec.label,
        "config_hash": spec.config_hash,
        "total_timesteps": spec.train.total_timesteps,
        "queue": spec.schedule.queue or group or "default",
        "priority": spec.schedule.priority,
        "max_running": spec.schedule.max_running,
        "cpus": spec.cpus,
        "gpus": spec.gpus,
        "memory_mb": spec.resources.memory_mb,
    }


@dataclass(frozen=True, slots=True)
class Draft:
    """Runs that are not known yet. Each has its spec along.

    Their directories are made under names that nobody looks at, in a folder of their own or beside
    where they will be.
    """

    runs: tuple[Run, ...]
    specs: tuple[Spec, ...]
    folder: Path | None = None

    @property
    def ids(self) -> list[str]:
        """The ids of the runs."""
        return [run.id for run in self.runs]

    def unfinished(self, run: Run) -> Path:
        """Path at which the directory of a run is made before the run is known."""
        path = Path(run.path)
        return (self.folder or path.parent) / f"{UNFINISHED}{path.name}"

    def publish(self) -> None:
        """Give the directories their names."""
        for run in self.runs:
            private.own_folder(Path(run.path).parent)
            self.unfinished(run).rename(run.path)
        for folder in {Path(run.path).parent for run in self.runs}:
            sync_directory(folder)

    def discard(self, *, only_unpublished: bool = False) -> None:
        """Remove the directories, whichever name they have, or those that have yet to get one."""
        for run in self.runs:
            shutil.rmtree(self.unfinished(run), ignore_errors=True)
            if not only_unpublished:
                shutil.rmtree(run.path, ignore_errors=True)


def draft(
    home: Path,
    spec: Spec,
    *,
    after: Sequence[str] = (),
    parent: str | None = None,
    folder: Path | None = None,
    module_path: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
) -> Draft:
    """Draft of the run that a spec asks for, or of one for each seed.

    The runs are in directories of their own; their manifests hold further `facts`.
    """
    now, first = time.time(), new_id(spec.label)
    members = spec.members
    group, specs = (first, tuple(members)) if members else (None, (spec,))
    ids = [f"{group}-s{each.env.seed}" if group else first for each in specs]
    runs = [
        record(
            member,
            run_id=run_id,
            path=home / "runs" / run_id,
            group=group,
            made_at=now,
            after=tuple(after),
            parent=parent or group,
            group_size=len(specs) if group else None,
        )
        for run_id, member in zip(ids, specs, strict=True)
    ]
    drafted = Draft(tuple(runs), specs, folder)
    try:
        for member, run in zip(specs, runs, strict=True):
            known = manifest.describe(
                member, run_id=run.id, group=group, created_at=now, module_path=module_path
            )
            known |= {} if group is None else {"group_size": len(specs)}
            known |= {"parent": run.parent, "role": run.role, "tags": run.tags}
            RunDir(drafted.unfinished(run)).create(member, known | dict(facts or {}))
    except (OSError, RlctlError) as error:
        drafted.discard()
        why = error.strerror if isinstance(error, OSError) else error
        raise RlctlError(
            f"run directory {str(home / 'runs' / first)!r} cannot be made: {why}",
            hint="Set RLCTL_HOME to a folder that can be written to.",
        ) from None
    return drafted


def kept_folders(spec: Spec, given: Sequence[str] | None) -> list[str]:
    """The folders that a new run keeps: those it was submitted with, and those of this process; a
    run that names no module needs none."""
    if not names_module(spec):
        return []
    own = import_path.typed_in() if given is None else given
    return list(dict.fromkeys([*own, *import_path.searched()]))


def names_module(spec: Spec) -> bool:
    """Whether a spec names any module, for which folders are searched."""
    return any(named.module for named in code.named_by(spec))
