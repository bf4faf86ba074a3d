"""Taking in a run directory from elsewhere. All that is known of the run comes from its files."""

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_orch.core.creation import record
from rl_orch.core.registry import Registry
from rl_orch.errors import BadInput, Conflict, Damaged, RlctlError, RunLocked
from rl_orch.io import shelf
from rl_orch.io.events import newest_attempt, read
from rl_orch.io.rundir import RunDir
from rl_orch.io.sealed import sync_directory
from rl_orch.records import Attempt, Event, EventKind, Run, State

LATEST = 1e11
"""Seconds since 1970; the year 5138."""

RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
LEFT_OUT = ("control.sock", "lock", "stop", "attempt", "heartbeat", "gpus", "pinned", ".reserve")
"""Files that say something about a process, not about the run."""


def identify(source: RunDir) -> str:
    """The id of the run in a directory that can be taken in."""
    run_id = run_in(source).id
    if (holder := source.lock_holder()) is not None:
        raise RunLocked(
            f"run directory {str(source.path)!r} is in use by process {holder.partition(':')[0]}",
            hint="Stop the run where it is, then import it.",
        )
    return run_id


def bring(source: RunDir, target: RunDir, *, move: bool) -> None:
    """Put the directory, or a copy of it, where runs of this home live, on the disk for good.

    To move is to rename where that can be done. Elsewhere it is to copy: the caller removes the
    source once the run is known here.
    """
    if target.path.exists() and source.path.samefile(target.path):
        return
    if target.path.exists():
        raise Conflict(
            f"there is a directory {str(target.path)!r} already",
            hint=f"If that is the run: rlctl import-run {str(target.path)!r}",
        )
    _refuse_links(source.path)
    try:
        target.path.parent.mkdir(parents=True, exist_ok=True)
        if not (move and _renamed(source.path, target.path)):
            _copy(source.path, target.path)
        sync_directory(target.path.parent)
    except (OSError, shutil.Error) as error:
        raise RlctlError(f"{str(source.path)!r} cannot be brought here: {error}") from error


def forget_processes(directory: RunDir) -> None:
    """Remove what speaks of processes and folders elsewhere, and set the final evaluation aside.

    Only what was evaluated here is judged here: nobody vouches for a report from elsewhere, nor for
    the modules that lie in a folder which it names.
    """
    if directory.module_path():
        directory.write_manifest(directory.manifest() | {"module_path": []})
    for name in LEFT_OUT:
        (directory.path / name).unlink(missing_ok=True)
    final = directory.report_file("final")
    if final.exists():
        final.replace(directory.report_file("final-elsewhere"))


def run_in(directory: RunDir) -> Run:
    """The run as its files tell of it, up to where its last attempt ended."""
    spec, facts = directory.spec(), directory.manifest()
    attempt = newest_attempt(directory.events)
    run_id, made_at, group = (facts.get(name) for name in ("run_id", "created_at", "group"))
    if not isinstance(run_id, str) or not RUN_ID.fullmatch(run_id):
        raise Damaged(f"{str(directory.manifest_file)!r} has no run_id: {run_id!r} is none")
    if not isinstance(made_at, int | float) or not 0 <= made_at < LATEST:
        raise Damaged(f"{str(directory.manifest_file)!r} has no created_at: {made_at!r} is none")
    if spec.config_hash != directory.noted_hash():
        raise Damaged(
            f"{str(directory.spec_file)!r} is not the spec that the run was trained by: its config "
            "hash is not that of the manifest"
        )
    if attempt == 0 and shelf.newest(directory.checkpoints).path is not None:
        raise Damaged(f"{str(directory.path)!r} has checkpoints, but no events that tell of them")
    if group is not None and not (isinstance(group, str) and RUN_ID.fullmatch(group)):
        raise Damaged(f"{str(directory.manifest_file)!r} has a group that is none: {group!r}")
    said = next((a.reason for a in reversed(attempts_in(directory)) if a.reason), "imported")
    return record(
        spec,
        run_id=run_id,
        path=directory.path,
        group=group,
        made_at=made_at,
        state=State.RUNNING if attempt else State.QUEUED,
        reason=said,
        attempt=attempt,
    )


def attempts_in(directory: RunDir) -> list[Attempt]:
    """The attempts that the event file tells of."""
    found: dict[int, dict[str, Any]] = {}
    for event in read(directory.events):
        if event.kind is not EventKind.STATE or event.key not in ("started", "ended"):
            continue
        known = found.setdefault(event.attempt, {"started_at": event.ts})
        if event.key == "ended":
            known |= {"ended_at": event.ts, "reason": _reason(event)}
    run_id = directory.path.name
    return [Attempt(run_id=run_id, number=n, **known) for n, known in sorted(found.items())]


def register_models(registry: Registry, run: Run, *, lease: str) -> None:
    """Enter every intact checkpoint that was evaluated."""
    directory = RunDir(Path(run.path))
    spec, commit = directory.spec(), directory.manifest().get("git_commit")
    if not spec.registry.enable:
        return
    for entry in shelf.listing(directory.checkpoints):
        if not entry.intact:
            continue
        with suppress(Damaged):
            report = directory.read_report(entry.path.name)
            if report is not None:
                registry.register(run, spec, entry.path, report, lease=lease, git_commit=commit)


def _renamed(source: Path, target: Path) -> bool:
    """Whether a directory now has another name; not where that is on another disk."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def _copy(source: Path, target: Path) -> None:
    """Copy a directory; it gets its name once all of it is on the disk."""
    temporary = target.with_name(f".importing-{target.name}-{secrets.token_hex(8)}")
    try:
        shutil.copytree(source, temporary, ignore=_not_copied)
        os.sync()
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _reason(event: Event) -> str:
    return str(event.tags.get("reason", ""))


def _refuse_links(root: Path) -> None:
    """Raise if the directory has anything that leads out of it."""
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            if stat.S_ISLNK(path.lstat().st_mode):
                raise BadInput(
                    f"{str(path)!r} is a link; a run directory has files and folders only",
                    path=str(path),
                    hint="Put what it points to in its place, or remove it.",
                )


def _not_copied(_folder: str, names: Iterable[str]) -> set[str]:
    return {name for name in names if name in LEFT_OUT or name.startswith(".tmp-")}
