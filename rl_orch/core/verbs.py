"""The verbs that every surface shares: submit, ls, get, show, stop, requeue, remove, and more.
Those of the registry are in `registry/verbs.py`.

`client.Client` has the same ones over HTTP; one contract suite holds the two together.
"""

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_orch import plugins
from rl_orch.core import uploads
from rl_orch.core.home import Home
from rl_orch.core.policies.assessor import SubprocessEvaluator
from rl_orch.core.ports import ModelEvaluator, Runner
from rl_orch.core.queue import scheduler
from rl_orch.core.queue.waiting import QueueSnapshot
from rl_orch.core.registry.references import FORMS, PolicySource, refuse_alias_as_name
from rl_orch.core.registry.verbs import ModelVerbs
from rl_orch.core.run_view import view
from rl_orch.core.runs import ancestry, creation, groups, tracking, unlisted
from rl_orch.core.runs.groups import fold
from rl_orch.core.runs.orphans import Orphans
from rl_orch.core.runs.resumption import (
    RunResumption,
    claimed,
    refuse_another_experiment,
    refuse_final,
    refuse_gone,
    stop_grace_s,
)
from rl_orch.core.runs.state import resumable_states
from rl_orch.core.runs.supervisor import LAST_WORDS_S, Supervisor
from rl_orch.errors import (
    BadInput,
    Conflict,
    Damaged,
    NotFound,
    Problem,
    RlctlError,
    Unavailable,
    Warn,
    error_of,
    unheard,
)
from rl_orch.io.checkpoints import catalog
from rl_orch.io.machine import hardware
from rl_orch.io.metrics import series
from rl_orch.io.processes import pids
from rl_orch.io.run import command_socket, logs
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import Tail, tail
from rl_orch.io.run.logs import LogPart
from rl_orch.records import (
    Group,
    History,
    Run,
    RunnerCapabilities,
    RunView,
    Submission,
)
from rl_orch.records.queries import LARGEST_PAGE, NEWEST, Page, Query, QueryRows
from rl_orch.spec import runner_traits
from rl_orch.spec.checks import refuse_pending
from rl_orch.spec.model import Spec, refuse_no_spec
from rl_orch.spec.tags import validated_note

if TYPE_CHECKING:
    from rl_orch.core.preflight.findings import Finding

TICK_S = 0.1
COMMAND_S = 60.0
"""Seconds that a run may take to answer: a load waits for the next iteration."""

Runners = Callable[[str], Runner]
"""The runner of a name."""


def ready(home: Path, spec: Spec) -> "tuple[Spec, list[Finding]]":
    """The spec as it can be launched here, and warnings. A listing does without what looks."""
    refuse_no_spec(spec)
    looked: tuple[Spec, list[Finding]] = plugins.part("preflight").ready(home, spec)
    return looked


class Verbs(Home):
    """Operations on the runs of one home, wherever they are carried out.

    In a `resident` process a service looks after the runs. Elsewhere, whoever asks for a run whose
    supervisor has died looks at it once, so that what is told is true. For those who ask a service
    it is `confined`: of their words none leads to a path outside of the home.
    """

    def __init__(
        self,
        home: Path,
        runner: Runner | Runners,
        *,
        database: Path | str | None = None,
        resident: bool = False,
        confined: bool = False,
        assess: ModelEvaluator | None = None,
    ) -> None:
        super().__init__(home, database)
        self.resident, self.confined = resident, confined
        self.capacity: scheduler.Capacity | None = None
        self._runner_of: Runners = runner if callable(runner) else lambda _name: runner
        self.models = ModelVerbs(self, assess or SubprocessEvaluator())
        self.orphans = Orphans(self)

    def check(self, spec: Spec, module_path: Sequence[str] = (), warn: Warn = unheard) -> Spec:
        """Raise if the spec could not be carried out here; else what would be."""
        ready(self.home, spec)
        spec, started = self._started(spec)
        folders = ancestry.joined(lambda: self.store, module_path, spec, started)
        return self._checked(spec, folders, warn)

    def submit(
        self, spec: Spec, *, key: str | None = None, module_path: Sequence[str] | None = None
    ) -> Submission:
        """Queue what a spec asks for, durable before this returns.

        The same spec with the same key, however often, makes one submission, though each time a
        bundle was sent along. The folders of `module_path` are searched for modules that it names;
        by default those of this process.
        """
        said = uploads.NAME.sub(uploads.MARK, spec.model_dump_json())
        digest = hashlib.sha256(said.encode()).hexdigest()
        earlier = None if key is None or not self.exists else self.store.submitted(key, digest)
        if earlier is not None:
            return self._submission(earlier, repeated=True)
        refuse_pending(spec)
        spec, found = ready(self.home, spec)
        warnings: list[Finding | Problem] = [*found]
        ids, drafted = self._created(
            spec, key=key, digest=digest, module_path=module_path, warn=warnings.append
        )
        submission = self._submission(ids, repeated=ids != drafted.ids)
        return submission.model_copy(update={"warnings": tuple(map(str, warnings))})

    def runners(self) -> tuple[RunnerCapabilities, ...]:
        """The runners that a spec may name here, each with what it can do."""
        names = plugins.names("runners")
        return tuple(RunnerCapabilities(name=n, traits=runner_traits.of(n)) for n in names)

    def ls(self, query: Query | None = None) -> Page:
        """Runs, each as it really is at this moment."""
        if not self.exists:
            return Page((), None)
        self.orphans.look_after()
        query = query or Query()
        if query.parent is not None:
            with suppress(NotFound):  # What is gone may have had children.
                query = replace(query, parent=self._awaited(query.parent))
        page = self.store.page(query)
        return replace(page, runs=self._explained(page.runs))

    def rows(
        self, *, limit: int = 50, after: str | None = None, where: Query = NEWEST
    ) -> QueryRows:
        """Runs, newest first, those of a group in one row; only those that `where` asks for."""
        if not self.exists:
            return QueryRows((), None)
        self.orphans.look_after()
        page = self.store.rows(limit=limit, after=after, where=where)
        runs = iter(self._explained([run for row in page.rows for run in row]))
        return replace(page, rows=tuple(tuple(next(runs) for _ in row) for row in page.rows))

    def get(self, reference: str) -> Run:
        """The run meant by a reference: an id, a beginning of one, a name, or `last`, as it really
        is."""
        (run,) = self._explained([self._get(reference)])
        return run

    def only(self, reference: str, *, active: bool = False) -> Run:
        """The run meant by a reference, and none by a guess: a name that several runs have is
        refused. Who means an `active` one means none that has ended."""
        named: tuple[Run, ...] = ()
        if self.exists and reference not in self.store:
            named = self.store.page(Query(limit=LARGEST_PAGE, name=reference)).runs
        meant = groups.only(reference, named, active=active)
        return self._get(reference if meant is None else meant.id)

    def resumed_id(self, reference: str, overrides: Sequence[str] = ()) -> str:
        """The id of the only run or group of a name that can go on under these overrides, and none
        by a guess; any other reference as it is."""
        if not self.exists or reference in self.store:
            return reference
        if self.store.find_group(reference) == reference:
            return reference
        named = groups.rows(self.ls(Query(limit=LARGEST_PAGE, name=reference)).runs)
        states = resumable_states(overrides)
        meant = groups.only(reference, [row.whole for row in named], states=states)
        return reference if meant is None else meant.id

    def group(self, reference: str) -> Group | None:
        """The group meant by a reference, if one is: an id, a beginning of one or a name, as it
        really is."""
        if not self.exists:
            return None
        group_id = self.store.find_group(reference)
        if group_id is None:
            return None
        return fold([*map(self.orphans.refreshed, self.store.group_runs(group_id))])

    def group_runs(self, group: str) -> tuple[Run, ...]:
        """The runs of a group, by seed, as they really are."""
        return self._explained([*map(self.orphans.refreshed, self.store.group_runs(group))])

    def show(self, reference: str, *, checkpoints: bool = True) -> RunView:
        """A run with its attempts, models and final report; and with its checkpoints, for which
        every byte of them is read."""
        run, directory = self.there(reference)
        queue = self._queue(run)
        place, run = queue.place(run), queue.explained(run)
        watched = run.active and self.orphans.is_watched(run.id)
        listed = catalog.listing(directory.checkpoints) if checkpoints else ()
        known = view(self.store, self.registry, run, listed)
        forecast = None if place is None else place.sentence
        return known.model_copy(update={"watched": watched, "forecast": forecast})

    def history(self, reference: str) -> History:
        """The episodes and evaluations of a run."""
        return series.history(self.there(reference)[1].path)

    def events(self, reference: str, offset: int = 0, count: int | None = None) -> Tail:
        """Events of a run after a byte offset of its event file."""
        return tail(self.there(reference)[1].events, offset, count=count)

    def log(self, reference: str, offset: int = 0) -> LogPart:
        """Output of a run's processes after a byte offset of their log."""
        run, directory = self.there(reference)
        return logs.part(directory.log, offset, ended=not run.active)

    def stop(self, reference: str, *, force: bool = False) -> Run:
        """End a run and return it ended: kindly at first, by force after the grace, or at once."""
        run = self.ask_to_stop(reference, force=force)
        directory, asked_at = RunDir.of(run), time.monotonic()
        # Whoever supervises it kills it a moment before we would, and says so.
        grace_s = stop_grace_s(run) + 2 * LAST_WORDS_S
        while (run := self._get(run.id)).active or directory.lock_holder() is not None:
            waited_s = time.monotonic() - asked_at
            if waited_s > grace_s and not force:
                force = True
                self.ask_to_stop(run.id, force=True)
            elif waited_s > 2 * grace_s + 10:
                raise RlctlError(f"run {run.id} is still {run.state} after {waited_s:.0f} s")
            time.sleep(TICK_S)
        return run

    def ask_to_stop(self, reference: str, *, force: bool = False) -> Run:
        """Ask a run to end, and return it as it is then."""
        run = self.only(reference, active=True)
        directory = RunDir.of(run)
        if not run.active and directory.lock_holder() is None:
            raise Conflict(f"run {run.id} is {run.state} already; there is nothing to stop")
        if run.active:
            self.orphans.note_stop(run, force=force)
        self._signal(run, force=force)
        (run,) = self._explained([self.orphans.refreshed(self.store.get(run.id))])
        return run

    def requeue(
        self, reference: str, *, overrides: Sequence[str] = (), approximate: bool = False
    ) -> Submission:
        """A run that has stopped, failed or was lost, queued to go on; of a group, all of those.

        With a larger budget, one that has come to a final end, too: exactly, or, where that is
        accepted, approximately.
        """
        reference = self.resumed_id(reference, overrides)
        group = self.group(reference)
        resumption = self.resumption(overrides, approximate=approximate)
        if group is None:
            run = self.get(reference)
            refuse_another_experiment(run, overrides)
            return Submission(runs=self._explained([self._requeued(resumption, run)]))
        _, refusals = resumption.of_group(group, partial(self._requeued, resumption))
        members = self.group_runs(group.id)
        return Submission(runs=members, group=fold(members), warnings=refusals)

    def resumption(
        self, overrides: Sequence[str] = (), *, approximate: bool = False
    ) -> RunResumption:
        """How runs of this home go on under these options."""
        return RunResumption(
            self.store, self.services, self.check, tuple(overrides), approximate=approximate
        )

    def command(self, reference: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """What a run process replies to a command; a refusal is raised."""
        if name not in command_socket.COMMANDS:
            allowed = ", ".join(command_socket.COMMANDS)
            raise BadInput(f"no command {name!r}; there are: {allowed}", path="name")
        run, directory = self.there(self.only(reference, active=True).id)
        if not run.active:
            raise Conflict(f"run {run.id} is {run.state}; nobody would carry out {name!r}")
        word = arguments.get("source")
        if name == "load":
            if not isinstance(word, str) or not word.strip():
                raise BadInput(f"source is {word!r}; must be {FORMS}", path="arguments.source")
            arguments = {"source": str(ancestry.files(self._weights(word), ("policy",)))}
        reply = command_socket.send(directory.path, name, arguments, timeout_s=COMMAND_S)
        if not reply.get("ok"):
            code = str(reply.get("code", BadInput.code))
            is_callers = code == Damaged.code and uploads.MARK in str(word)
            code = BadInput.code if is_callers else code
            message = f"run {run.id} refuses: {reply.get('error')}"
            raise error_of(code, message, path=reply.get("path"), hint=reply.get("hint"))
        return reply

    def tag(self, reference: str, tags: Mapping[str, str], *, remove: Collection[str] = ()) -> Run:
        """Set tags of a run and remove others, in its row and in its directory."""
        run, directory = self.there(self.only(reference).id)
        run = self.store.tag(run.id, tags, remove, write=directory.write_tags)
        (run,) = self._explained([run])
        return run

    def note(self, reference: str, text: str) -> Run:
        """Note something on a run, in its row and in its directory; an empty text removes it."""
        text = validated_note(text)
        run, directory = self.there(self.only(reference).id)
        (run,) = self._explained([self.store.note(run.id, text, write=directory.write_note)])
        return run

    def remove(self, reference: str) -> Run:
        """Delete a run that has ended: its directory, its row and its models."""
        run = self.only(reference)
        if run.active:
            raise Conflict(
                f"run {run.id} is {run.state}; a run must end before it can be removed",
                hint=f"rlctl stop {run.id}",
            )

        def refuse(there: RunDir) -> None:
            self.store.await_arrivals()  # Who comes later finds no weights there.
            ancestry.refuse_wanted(self.store, run, there)

        with claimed(self.store, self.services, run):
            if self.store.get(run.id).active:
                raise Conflict(f"run {run.id} was resumed in this moment")
            ancestry.refuse_wanted(self.store, run, RunDir.of(run))
            self.registry.forget_run(run.id, files=partial(RunDir.of(run).delete, refuse))
            self.store.remove(run.id)
        return run

    def there(self, reference: str) -> tuple[Run, RunDir]:
        """A run and its directory, which must be where it was."""
        run = self._get(reference)
        refuse_gone(run)
        return run, RunDir.of(run)

    def supervisor(self, run: Run, lease: str, **how: Any) -> Supervisor:
        """Supervisor of the run, as the holder of a lease."""
        runner = self._runner_of(run.runner)
        how.setdefault("pin_start", self._started)
        return Supervisor(self.store, self.registry, runner, run, lease, **how)

    def _get(self, reference: str) -> Run:
        """As `get`, without what it waits for."""
        try:
            return self.orphans.refreshed(self._found(reference))
        except NotFound as error:
            known = self.exists and bool(self.store.page(Query(limit=1)).runs)
            raise (None if known else unlisted.not_found(self.home, reference)) or error from None

    def _explained(self, runs: Sequence[Run]) -> tuple[Run, ...]:
        """The runs, those that are queued with what they wait for."""
        active = [run for run in runs if run.active]
        if not active:
            return tuple(runs)
        return tuple(map(self._queue(*active).explained, runs))

    def _queue(self, *runs: Run) -> QueueSnapshot:
        """The queue as it is now, as far as some runs of it need it."""
        room = partial(self._room, gpus=any(run.gpus for run in runs))
        shared_out = self.capacity is not None
        return QueueSnapshot(self.store, self.services, room, is_shared_out=shared_out)

    def _found(self, reference: str) -> Run:
        if not self.exists:
            raise NotFound(
                f"no run {reference!r}: there are no runs in {str(self.home)!r} yet",
                hint="`rlctl launch --env CartPole-v1` makes one; RLCTL_HOME says where to look.",
            )
        return self.store.find(reference)

    def _created(
        self,
        spec: Spec,
        *,
        lease: str | None = None,
        key: str | None = None,
        digest: str = "",
        module_path: Sequence[str] | None = None,
        changes: Sequence[Mapping[str, Any]] = (),
        warn: Warn = unheard,
    ) -> tuple[list[str], creation.Draft]:
        """The runs that a `ready` spec makes, and their ids; or those of then, where it made some
        with that key before. The manifest notes `changes` that are to come."""
        after = [self._awaited(reference) for reference in spec.schedule.after]
        parent = None if spec.parent is None else self._awaited(spec.parent)
        spec, started = self._started(spec)
        kept = creation.kept_folders(spec, module_path)
        folders = ancestry.joined(lambda: self.store, kept, spec, started)
        spec = self._checked(spec, folders, warn)
        facts = {"start": started, "changes": list(changes)}
        drafted = creation.draft(
            self.home, spec, after=after, parent=parent, module_path=folders, facts=facts
        )
        note_children = ancestry.noter(self.store, started)

        def publish() -> None:
            note_children(drafted.ids)  # Before anybody can remove what they are to begin with.
            drafted.publish()

        try:
            ids = self.store.submit(
                drafted.runs, key=key, digest=digest, lease=lease, ready=publish
            )
        except BaseException as error:
            # A server whose answer was lost may know the runs: they keep what they have by then.
            lost = isinstance(error, Unavailable) and isinstance(self.location, str)
            drafted.discard(only_unpublished=lost)
            raise
        if ids != drafted.ids:
            drafted.discard()
        return ids, drafted

    def _started(self, spec: Spec) -> tuple[Spec, dict[str, Any] | None]:
        """The spec with what it begins with pinned, and where that comes from; what it waits for
        is pinned when it begins."""
        if spec.start.source is None:
            return spec, None
        after = [self._awaited(reference) for reference in spec.schedule.after]
        if (run := ancestry.awaited(self.models, self, spec, after)) is not None:
            facts = {"kind": "run", "path": None, "parts": spec.start.parts, "run": run.id}
            return spec.changed({"start.from": run.id, "start.digest": None}), facts
        source = self._weights(ancestry.source_word(spec, self.home))
        spec = ancestry.located(spec, source)
        return spec, ancestry.lineage(spec, source)

    def _weights(self, word: str) -> PolicySource:
        """The source of weights that a word means."""
        home = self.home if self.confined else None
        return ancestry.weights(self.models, self, word, home=home)

    def _awaited(self, reference: str) -> str:
        """The id of the run or group that another one waits for, or belongs to."""
        group = self.group(reference)
        return self.get(reference).id if group is None else group.id

    def _room(self, *, gpus: bool) -> scheduler.Capacity:
        """Capacity that runs may use: of a service what it was given, else of the machine all."""
        return self.capacity or scheduler.Capacity(
            cpus=hardware.cores(),
            memory_mb=hardware.memory_mb(),
            gpus=tuple(gpu.index for gpu in hardware.gpus()) if gpus else (),
        )

    def _checked(self, spec: Spec, module_path: Sequence[str], warn: Warn) -> Spec:
        """As `check`, of a spec that is `ready`."""
        refuse_alias_as_name(self.models, spec.name)
        capacity = self._room(gpus=spec.gpus > 0)
        wanted = creation.record(spec, run_id="it", path=self.home, group=None, made_at=0.0)
        reason = scheduler.never_fits(wanted, capacity)
        if reason is not None:
            raise BadInput(reason, path="resources", hint="Ask for less, or use another machine.")
        plugins.refuse_unknown("observers", spec.train.observers, path="train.observers")
        plugins.refuse_unknown("metrics", spec.eval.metrics, path="eval.metrics")
        tracking.check(spec, module_path)
        return self._runner_of(spec.runner.name).check(spec, module_path, warn)

    def _submission(self, ids: Sequence[str], *, repeated: bool = False) -> Submission:
        runs = self._explained([self.store.get(run_id) for run_id in ids if run_id in self.store])
        grouped = bool(runs) and runs[0].group is not None
        return Submission(runs=runs, group=fold(runs) if grouped else None, repeated=repeated)

    def _requeued(self, resumption: RunResumption, run: Run) -> Run:
        """The run, queued and let go of; one that has yet to end goes on as it is."""
        refuse_final(run, resumption.overrides)
        if run.active and (resumption.overrides or self.orphans.is_watched(run.id)):
            raise Conflict(f"run {run.id} is {run.state} already", hint=f"rlctl wait {run.id}")
        lease = pids.lease()
        try:
            run, _ = resumption.reopened(run, lease, partial(self.store.requeue, lease=lease))
            self.store.release(run.id, lease=lease)
        finally:
            pids.let_go(lease)
        return run

    def _signal(self, run: Run, *, force: bool) -> None:
        runner = self._runner_of(run.runner)
        attempts = self.store.attempts(run.id)
        noted = attempts[-1].handle if attempts else None
        handle = runner.adopt(Path(run.path)) or noted
        if handle is not None:
            runner.stop(handle, force=force)
