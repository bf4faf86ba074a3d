"""Going on with a run that has ended: whether it may be, under which options, and who does it.

One that has come to a final end goes on with a larger budget: exactly, where that would have led to
the same state from the start, or else by consent.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from rl_orch.core.runs.creation import asked_of, names_module
from rl_orch.core.runs.state import FINAL, RESUMABLE, advance, asks_for_more
from rl_orch.core.store.runs import Store
from rl_orch.core.store.services import Services
from rl_orch.core.store.tables import VERDICTS
from rl_orch.errors import BadInput, Conflict, Damaged, NotFound, RlctlError, RunLocked
from rl_orch.io.checkpoints import catalog
from rl_orch.io.checkpoints.early_end import EarlyEnd, early_end, unscheduled
from rl_orch.io.checkpoints.resumable import newest_checkpoint, trained
from rl_orch.io.files import regular
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir, write_text
from rl_orch.records import Group, Run, State
from rl_orch.spec.algorithms import BUILT_IN
from rl_orch.spec.aliases import PRODUCT
from rl_orch.spec.checks import refuse_pending, value_at
from rl_orch.spec.difference import differences
from rl_orch.spec.model import Spec
from rl_orch.spec.operations import RunnerGroup
from rl_orch.spec.options import table
from rl_orch.spec.resolve import resolve

FOLLOW_PROGRESS = {
    "train.lr_schedule": "constant",
    "train.clip_schedule": "constant",
    "train.exploration_schedule": "constant",
    "buffer.prioritized": False,
}
"""Options that go by the share of the budget that is used, and the values that do not."""

CHANGEABLE = (
    *("name", "train.total_timesteps", "eval", "gates", "checkpoint", "resources", "store"),
    *("schedule.priority", "schedule.queue", "schedule.max_running", "schedule.retries"),
    *("schedule.backoff_s", "schedule.time_limit_s", "runner.stop_grace_s", "runner.silence_s"),
)
"""Options, and groups of them, that a run may go on with otherwise. Any other would make it another
experiment under the same name."""


Reopened = TypeVar("Reopened")


def claim(store: Store, services: Services, run: Run, lease: str) -> None:
    """Take a lease that nobody alive holds, or say who does."""
    held_by = store.lease_of(run.id)
    free = held_by is None or not services.alive(held_by, run)
    if free and store.take_lease(run.id, held_by=held_by, lease=lease):
        return
    holder = (store.lease_of(run.id) if free else held_by) or "another"
    _, process = pids.holder_of(holder)
    raise RunLocked(
        f"run {run.id} is being carried out by process {process.partition(':')[0]} now",
        hint=f"rlctl wait {run.id}",
    )


@contextmanager
def claimed(store: Store, services: Services, run: Run) -> Iterator[str]:
    """A lease on a run that nobody alive holds, for as long as this lasts."""
    lease = pids.lease()
    try:
        claim(store, services, run, lease)
        try:
            yield lease
        finally:
            store.release(run.id, lease=lease)
    finally:
        pids.let_go(lease)


def refuse_gone(run: Run) -> None:
    """Raise if the run's directory is not where it was."""
    if not Path(run.path).is_dir():
        raise NotFound(
            f"the directory of run {run.id} is gone: {run.path!r}",
            hint=f"If it was moved: rlctl import-run NEW_PATH. To forget it: rlctl rm {run.id}",
        )


def spec_of(run: Run) -> Spec:
    """The run's spec; where it is gone or damaged, the error says what can still be done."""
    refuse_gone(run)
    act = "stop" if run.active else "rm"
    hint = f"Put it back as it was, from a copy. Without it: rlctl {act} {run.id}"
    try:
        return RunDir.of(run).spec()
    except NotFound:
        file = str(RunDir.of(run).spec_file)
        raise NotFound(f"spec.yaml of run {run.id} is gone: {file!r}", hint=hint) from None
    except Damaged as error:
        raise Damaged(f"run {run.id}: {error.message}", hint=hint) from None


def stop_grace_s(run: Run) -> float:
    """Seconds that a run may take to end; the usual ones, where its spec cannot be read."""
    try:
        return spec_of(run).runner.stop_grace_s
    except (NotFound, Damaged):
        return RunnerGroup().stop_grace_s


def resumable(store: Store, group: Group, overrides: Sequence[str]) -> list[Run]:
    """Runs of a group that can be resumed, under options that none refuses."""
    runs = [store.get(run_id) for run_id in group.runs]
    more = asks_for_more(overrides)
    open_runs = [run for run in runs if more or run.active or run.state in RESUMABLE]
    if not open_runs:
        raise Conflict(f"every run of group {group.id} has come to a final end")
    if len(open_runs) < len(runs):
        for run in open_runs:
            refuse_another_experiment(run, overrides)
    for run in open_runs:
        changed_spec(run, overrides)
    return open_runs


def refuse_changes(run: Run, overrides: Sequence[str]) -> None:
    """Raise if options are to change under a run that goes on."""
    if overrides:
        raise Conflict(
            f"run {run.id} is {run.state}; its options cannot change while it goes on",
            hint=f"rlctl stop {run.id}, then resume it.",
        )


@dataclass(frozen=True, slots=True)
class RunResumption:
    """How runs of a home go on: under which options, and whether they may do so approximately.

    `check` raises if a changed spec could not be carried out.
    """

    store: Store
    services: Services
    check: Callable[[Spec, Sequence[str]], object]
    overrides: Sequence[str] = ()
    approximate: bool = False

    def reopened(
        self, run: Run, lease: str, write: Callable[[Run], Run | None]
    ) -> tuple[Run, Spec]:
        """A run under that lease, queued again and written by `write`; or at work as it is, if
        nobody alive supervises it. If it is refused, the lease is given back."""
        refuse_final(run, self.overrides)
        claim(self.store, self.services, run, lease)
        try:
            run = self.store.get(run.id)
            refuse_final(run, self.overrides)
            if run.active:
                refuse_changes(run, self.overrides)
                return run, spec_of(run)
            how = (self.overrides, self.check)
            run, spec = requeued(self.store, run, *how, approximate=self.approximate)
            return write(run) or run, spec
        except BaseException:
            self.store.release(run.id, lease=lease)
            raise

    def of_group(
        self, group: Group, go_on: Callable[[Run], Reopened]
    ) -> tuple[list[Reopened], tuple[str, ...]]:
        """What came of going on with each run of a group that can be resumed, at least with one;
        and for each that refused, a sentence why."""
        reopened, refusals = [], {}
        for run in resumable(self.store, group, self.overrides):
            try:
                reopened.append(go_on(run))
            except RlctlError as error:
                refusals[run.id] = error
        if not reopened:
            raise next(iter(refusals.values()))
        return reopened, tuple(f"not resumed: {name}: {e}" for name, e in refusals.items())


def requeued(
    store: Store,
    run: Run,
    overrides: Sequence[str],
    check: Callable[[Spec, Sequence[str]], object],
    *,
    approximate: bool = False,
) -> tuple[Run, Spec]:
    """An ended run, queued for a further attempt, and its spec from then on.

    Its directory says what has changed. `check` raises if a changed spec could not be carried out,
    or if that of a run from elsewhere names a module that is not here.
    One that had come to a final end goes on exactly, or, where that is accepted, approximately.
    """
    directory = RunDir.of(run)
    refuse_gone(run)
    with directory.locked(note=False):
        pass  # Nobody is at work there, or `RunLocked` says who is.
    spec, changes = changed_spec(run, overrides)
    heard = unscheduled(run, spec) if PRODUCT in changes else None
    ended = heard is not None or trained(directory)
    final = run.state in FINAL or (PRODUCT in changes and ended)
    early = early_end(run, spec) if final else None
    reasons = refuse_inexact(run, spec, early, heard, approximate=approximate) if final else []
    begun = False
    if spec.runner.goes_on:
        # There is one to go on from, or the error says why not.
        newest = newest_checkpoint(directory, without_replay=final and approximate)
        begun = newest.path is not None
    homeless = names_module(spec) and not directory.module_path()
    if changes or reasons or homeless:
        # A run that has begun needs what it began with no more, which may be gone.
        there = spec.changed({"start.from": None}) if begun else spec
        check(there, directory.module_path())
    if changes or reasons:
        note: dict[str, Any] = {"approximate": reasons, "at_step": run.env_steps} if reasons else {}
        note |= {} if early is None else {"past_end": True}
        _note(directory, spec, changes, attempt=run.attempt + 1, more=note)
    if final:
        keep_final_report(store, run)
        run = run.model_copy(update={"eval": None, "verdict": None, "model_id": None})
    directory.forget_stop()
    queued = advance(run, State.QUEUED, "to be trained further" if final else "to be resumed")
    asked = asked_of(spec, run.group)
    asked["total_timesteps"] = directory.spec_before().train.total_timesteps
    return queued.model_copy(update=asked | {"retries": 0}), spec


def changed_spec(run: Run, overrides: Sequence[str]) -> tuple[Spec, dict[str, Any]]:
    """The run's spec after overrides, and what they change: path → [before, after]."""
    directory = RunDir.of(run)
    spec = spec_of(run)
    # A process that died between the files and the row has noted the hash, and changed no more.
    if spec.config_hash not in (run.config_hash, directory.noted_hash()):
        raise Conflict(
            f"spec.yaml of run {run.id} is not the one that it was trained by: it gives the config "
            f"hash {spec.config_hash[:12]}, the run has {run.config_hash[:12]}",
            hint="Put it back as it was; to change what may change, use --set.",
        )
    if not overrides:
        return spec, {}
    changed = resolve(spec.model_dump(mode="json"), overrides=overrides)
    refuse_pending(changed)
    set_before = directory.spec_before()
    asked_for = resolve(set_before.model_dump(mode="json"), overrides=overrides)
    changes = differences([set_before, asked_for])
    for path, (before, after) in changes.items():
        if not any(path == word or path.startswith(f"{word}.") for word in CHANGEABLE):
            live = f"Resume it, then: rlctl set {run.id} {path}={after}"
            raise BadInput(
                f"{path} is {before!r} and cannot become {after!r}; a resumed run may only change "
                f"{', '.join(CHANGEABLE)}",
                path=path,
                hint=live if table()[path].live else "Launch another run with that option instead.",
            )
    if "train.total_timesteps" in changes and changed.train.total_timesteps <= run.env_steps:
        raise BadInput(
            f"train.total_timesteps is {changed.train.total_timesteps}; "
            f"run {run.id} is at step {run.env_steps} already",
            path="train.total_timesteps",
        )
    return changed, changes


def refuse_another_experiment(run: Run, overrides: Sequence[str]) -> None:
    """Raise if a run of a group would get another spec than the others."""
    if run.group is None or not overrides:
        return
    spec, _ = changed_spec(run, overrides)
    if spec.config_hash != run.config_hash:
        raise BadInput(
            f"run {run.id} is of group {run.group}, whose runs learn by one spec; "
            f"{', '.join(overrides)} would make it another one",
            hint=f"Before any run of the group is final: rlctl resume {run.group} --set …",
        )


def _note(
    directory: RunDir, spec: Spec, changes: dict[str, Any], *, attempt: int, more: dict[str, Any]
) -> None:
    """Write the spec from that attempt on, and its changes into the manifest."""
    note = {"attempt": attempt, "at": time.time(), "set": changes, "config_hash": spec.config_hash}
    directory.note_changes([*directory.changes(), note | more])
    directory.write_spec(spec)


def refuse_final(run: Run, overrides: Sequence[str] = ()) -> None:
    """Raise if the run has come to an end that is final, and no larger budget is asked for, or if
    it stands for a policy from elsewhere; one whose directory is gone has nothing to go on from."""
    if run.active:
        return
    refuse_gone(run)
    if "imported" in RunDir.of(run).manifest():
        raise Conflict(
            f"run {run.id} stands for a policy that was imported without what training needs",
            hint=f"To train that policy further: rlctl launch --from {run.id} --total-timesteps "
            "STEPS",
        )
    if run.state not in FINAL or asks_for_more(overrides):
        return
    raise Conflict(
        f"run {run.id} is {run.state}, which is final unless it is given a larger budget",
        hint=f"To train it further: rlctl resume {run.id} --extend STEPS; in a run of its own: "
        f"rlctl launch --from {run.id} --total-timesteps STEPS",
    )


def obstacles(run: Run, spec: Spec, heard: Sequence[str] | None) -> list[str]:
    """Reasons for which the run cannot go on exactly as with that spec's budget from the start.

    `heard` are the observers that heard of an evaluation at its end that was not due, if any was.
    """
    traits = BUILT_IN.get(spec.agent.algorithm)
    found = [
        f"{path} is {value_at(spec, path)!r}: it follows the share of the budget that is used"
        for path, steady in FOLLOW_PROGRESS.items()
        if spec.runner.traits.trains_here
        and (traits is None or path in traits.reads)
        and value_at(spec, path) != steady
    ]
    newest = catalog.newest(RunDir.of(run).checkpoints).path
    if newest is not None and catalog.replay_let_go(newest):
        found.append("its replay buffer was let go of (checkpoint.keep_training_state)")
    if spec.gates.patience is not None and heard is not None:
        found.append("gates.patience counts the evaluation at its end, which was not due")
    if heard:
        names = ", ".join(heard)
        found.append(f"train.observers: {names} heard of the end, where no evaluation was due")
    return found


def refuse_inexact(
    run: Run,
    spec: Spec,
    early: EarlyEnd | None,
    heard: Sequence[str] | None,
    *,
    approximate: bool,
) -> list[str]:
    """What stands in the way of going on exactly, if that is accepted; raises if it is not."""
    if run.verdict == "passed" and spec.gates.stop_when_solved:
        raise BadInput(
            f"run {run.id} ended because its gate was met, and would do so at once again",
            path="gates.stop_when_solved",
            hint="Add gates.stop_when_solved=false.",
        )
    if early is not None and not approximate:
        raise early.refusal
    reasons = [*([] if early is None else [early.reason]), *obstacles(run, spec, heard)]
    if reasons and not approximate:
        raise Conflict(
            f"run {run.id} cannot be extended exactly: {'; '.join(reasons)}",
            hint="--approximate goes on all the same, and the run says so.",
        )
    return reasons


def keep_final_report(store: Store, run: Run) -> None:
    """Keep the report that verdicts on this end have read: the next end writes another there."""
    directory = RunDir.of(run)
    report = directory.report_file("final")
    if not report.exists():
        return
    kept = _free_name(report, run.attempt)
    write_text(kept, regular.read_text(report))
    here = VERDICTS.c.report_path == str(report)
    with store.writing() as connection:
        connection.execute(sa.update(VERDICTS).where(here).values(report_path=str(kept)))


def _free_name(report: Path, attempt: int) -> Path:
    return report.with_name(f"{report.stem}-attempt-{attempt}{report.suffix}")
