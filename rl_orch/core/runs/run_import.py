"""Taking in a run directory from elsewhere. All that is known of the run comes from its files."""

import errno
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_orch.core.registry.models import Registry
from rl_orch.core.registry.registration import register
from rl_orch.core.runs.creation import record
from rl_orch.errors import Conflict, Damaged, RlctlError, RunLocked
from rl_orch.io.checkpoints import catalog
from rl_orch.io.files import private, trees, workspaces
from rl_orch.io.files.sealed import advice, sync_directory
from rl_orch.io.machine import room
from rl_orch.io.machine.hardware import nearest
from rl_orch.io.policies import artefacts
from rl_orch.io.processes.task_worker import ProgressCallback
from rl_orch.io.run import command_socket
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import newest_attempt, read
from rl_orch.records import CLOCK_UNITS, Attempt, EvalReport, EventKind, Run, State
from rl_orch.spec.groups import MOST_SEEDS

LATEST = 1e11
"""Seconds since 1970; the year 5138."""

FINAL, ELSEWHERE = "final", "final-elsewhere"
RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
LEFT_OUT = (
    command_socket.SOCKET,
    "lock",
    "metrics.db",
    "metrics.db-journal",
    "stop",
    "attempt",
    "heartbeat",
    "gpus",
    "pinned",
    "standby",
    "strays",
    ".reserve",
)
"""Files that say something about a process, not about the run."""


def identify(source: RunDir) -> str:
    """Id of the run in a directory, as its manifest gives it.

    Raises if the directory cannot be taken in.
    """
    if not source.is_run:
        raise source.not_a_run()
    run_id = _run_id(source, source.manifest())
    if (holder := source.lock_holder()) is not None:
        raise RunLocked(
            f"run directory {str(source.path)!r} is in use by process {holder.partition(':')[0]}",
            hint="Stop the run where it is, then import it.",
        )
    return run_id


@dataclass(slots=True)
class IncomingRun:
    """A run directory on its way in. `run` is what its files tell; `place` is where they are until
    `publish` gives them their name in this home, and `withdraw` takes that back.
    """

    source: RunDir
    target: RunDir
    run: Run
    place: Path
    renamed: bool = False
    workspace: Path | None = None
    set_aside: bool = False
    module_path: Sequence[str] = ()

    @property
    def is_copy(self) -> bool:
        """Whether the source is still where it was."""
        return self.workspace is not None

    def publish(self) -> None:
        """Give the directory its name, on the disk for good."""
        if self.place != self.target.path:
            self.place.rename(self.target.path)
            self.place = self.target.path
        sync_directory(self.target.path.parent)

    def withdraw(self) -> None:
        """Leave all as it was before: no copy, and what was renamed where it came from."""
        if self.workspace is not None:
            if self.place == self.target.path:
                self.place.rename(self.workspace / "withdrawn")
            return
        if self.renamed:
            self.target.path.rename(self.source.path)
        if self.set_aside:
            self.source.report_file(ELSEWHERE).replace(self.source.report_file(FINAL))
        if self.module_path:
            facts = self.source.manifest() | {"module_path": list(self.module_path)}
            self.source.write_manifest(facts)


@contextmanager
def bringing(
    source: RunDir, target: RunDir, *, move: bool, watch: ProgressCallback
) -> Iterator[IncomingRun]:
    """A run directory, or a copy of it, on its way into this home.

    Nothing is copied before all of it was measured and found to fit. To move is to rename where
    that can be done. Elsewhere it is to copy: the caller removes the source once the run is known
    here. Whatever is raised meanwhile, nothing stays.
    """
    try:
        with ExitStack() as stack:
            coming = _brought(source, target, stack, move=move, watch=watch)
            try:
                arrived = RunDir(coming.place)
                if coming.renamed or coming.is_copy:  # It was not in this home before.
                    coming.module_path = arrived.module_path()
                    forget_modules(arrived)
                    private.close_tree(arrived.path, like=target.path.parent)
                    _let_append(arrived.path)
                coming.set_aside = forget_processes(arrived)
                yield coming
            except BaseException:
                with suppress(OSError, RlctlError):
                    coming.withdraw()
                raise
    except OSError as error:
        said = f"{str(source.path)!r} cannot be brought here: {error.strerror or error}"
        raise RlctlError(said, hint=advice(error, then="import it again")) from error


def forget_processes(directory: RunDir) -> bool:
    """Remove traces of processes elsewhere, and set their final evaluation aside.

    Returns whether there was one. Only what was evaluated here is judged here: nobody vouches for a
    report from elsewhere.
    """
    for name in LEFT_OUT:
        if not (directory.path / name).is_dir():
            (directory.path / name).unlink(missing_ok=True)
    final = directory.report_file(FINAL)
    if not os.path.lexists(final):
        return False
    final.replace(directory.report_file(ELSEWHERE))
    return True


def forget_modules(directory: RunDir) -> None:
    """Search no folder for modules that a run from elsewhere names: nobody vouches for them."""
    if directory.manifest().get("module_path"):
        directory.write_manifest(directory.manifest() | {"module_path": []})


def run_in(directory: RunDir) -> Run:
    """The run as its files tell of it, up to where its last attempt ended."""
    spec, facts = directory.spec(), directory.manifest()
    attempt = newest_attempt(directory.events)
    run_id, made_at, group = _run_id(directory, facts), facts.get("created_at"), facts.get("group")
    if not isinstance(made_at, int | float) or not 0 <= made_at < LATEST:
        raise Damaged(f"{str(directory.manifest_file)!r} has no created_at: {made_at!r} is none")
    if spec.config_hash != directory.noted_hash():
        raise Damaged(
            f"{str(directory.spec_file)!r} is not the spec that the run was trained by: its config "
            "hash is not that of the manifest"
        )
    if attempt == 0 and catalog.newest(directory.checkpoints).path is not None:
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
        group_size=_group_size(facts) if group else None,
        tags=directory.tags(),
        note=directory.note(),
        total_timesteps=directory.spec_before().train.total_timesteps,
        **_relation(facts),
        clock=facts["clock"] if facts.get("clock") in CLOCK_UNITS else "env_steps",
    )


def attempts_in(directory: RunDir) -> list[Attempt]:
    """The attempts that the event file tells of."""
    attempts: dict[int, dict[str, Any]] = {}
    for event in read(directory.events):
        if event.kind is not EventKind.STATE or event.key not in ("started", "ended"):
            continue
        fields = attempts.setdefault(event.attempt, {"started_at": event.ts})
        if event.key == "ended":
            fields |= {"ended_at": event.ts, "reason": str(event.tags.get("reason", ""))}
    run_id = directory.path.name
    return [Attempt(run_id=run_id, number=n, **fields) for n, fields in sorted(attempts.items())]


def models_in(directory: RunDir) -> dict[str, EvalReport]:
    """The reports on what was registered where the run comes from, by name: its intact artefacts,
    or else the best of its intact checkpoints. Reads every byte."""
    if not directory.spec().registry.enable:
        return {}
    sealed: set[str] = set()
    for path in artefacts.listing(directory.models):
        with suppress(Damaged):
            artefacts.verify(path)
            sealed.add(path.name)
    if sealed and (reports := _reports(directory, sealed)):
        return reports
    listed = catalog.listing(directory.checkpoints)
    reports = _reports(directory, {entry.path.name for entry in listed if entry.intact})
    best = max(reports, key=lambda name: (reports[name].summary.mean, name), default=None)
    return {} if best is None else {best: reports[best]}


def _reports(directory: RunDir, names: Collection[str]) -> dict[str, EvalReport]:
    """The reports on those checkpoints that were evaluated, by name."""
    reports = {}
    for name in sorted(names):
        with suppress(Damaged):
            report = directory.read_report(name)
            if report is not None:
                reports[name] = report
    return reports


def register_models(
    registry: Registry, run: Run, models: Mapping[str, EvalReport], *, lease: str
) -> None:
    """Enter checkpoints of a run, by name, with the reports on them."""
    directory = RunDir.of(run)
    spec = directory.spec()
    for name, report in models.items():
        path = directory.checkpoints / name
        register(registry, run, spec, path, report, lease=lease, anew=True)


def _run_id(directory: RunDir, facts: Mapping[str, Any]) -> str:
    run_id = facts.get("run_id")
    if not isinstance(run_id, str) or not RUN_ID.fullmatch(run_id):
        raise Damaged(f"{str(directory.manifest_file)!r} has no run_id: {run_id!r} is none")
    return run_id


def _relation(facts: Mapping[str, Any]) -> dict[str, str]:
    """Parent and role of a run, as far as the manifest names any in earnest."""
    noted = {name: facts.get(name) for name in ("parent", "role")}
    return {k: v for k, v in noted.items() if isinstance(v, str) and RUN_ID.fullmatch(v)}


def _group_size(facts: Mapping[str, Any]) -> int | None:
    """Number of runs a group was to have, if the manifest says so in earnest."""
    size = facts.get("group_size")
    return size if isinstance(size, int) and 0 < size <= MOST_SEEDS else None


def _brought(
    source: RunDir, target: RunDir, stack: ExitStack, *, move: bool, watch: ProgressCallback
) -> IncomingRun:
    """The directory where it can be published from; a copy is in a workspace of the stack."""
    if target.path.exists() and source.path.samefile(target.path):
        return IncomingRun(source, target, run_in(target), target.path)
    if os.path.lexists(target.path):
        raise Conflict(
            f"there is a directory {str(target.path)!r} already",
            hint=f"If that is the run: rlctl import-run {str(target.path)!r}",
        )
    watch("measuring", 0.0)
    tree = trees.survey(source.path, _is_left_out)
    if not (move and _is_on_same_disk(source.path, target.path)):
        _refuse_without_room(tree, tree.data, target)  # Before its events are read.
    run = run_in(source).model_copy(update={"path": str(target.path)})
    if move and _renamed(source.path, target.path):
        return IncomingRun(source, target, run, target.path, renamed=True)
    space = stack.enter_context(workspaces.workspace(target.path.parent))
    holes = tree.filled == tree.data or trees.keeps_holes(space)
    _refuse_without_room(tree, tree.data if holes else tree.filled, target)
    trees.copy(tree, space / target.path.name, lambda done: watch("copying", done))
    return IncomingRun(source, target, run, space / target.path.name, workspace=space)


def _refuse_without_room(tree: trees.Tree, needed: int, target: RunDir) -> None:
    room.refuse_without(
        target.path.parent,
        f"run {target.path.name}",
        needed,
        files=len(tree.entries),
        hint="Free space on that disk, or name a home on another one with --home. Nothing was "
        "copied.",
    )


def _is_on_same_disk(source: Path, target: Path) -> bool:
    return source.stat().st_dev == nearest(target).stat().st_dev


def _renamed(source: Path, target: Path) -> bool:
    """Whether a directory now has another name; not where that is on another disk."""
    private.own_folder(target.parent)
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def _let_append(root: Path) -> None:
    """Let a run go on whose files were made read-only, as in a backup."""
    for path in root.iterdir():
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            path.chmod(stat.S_IMODE(mode) | stat.S_IRUSR | stat.S_IWUSR)


def _is_left_out(parts: tuple[str, ...], mode: int) -> bool:
    """Whether something in a run directory is of a process, or half-written, and stays behind."""
    name, depth = parts[-1], len(parts)
    if name.startswith(".tmp-"):
        return depth <= 2 and (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    if depth > 1 or name not in LEFT_OUT:
        return False
    return stat.S_ISREG(mode) or (name == command_socket.SOCKET and stat.S_ISSOCK(mode))
