"""The verbs: `Client` does over HTTP what `Orchestrator` does here. One contract suite tests both.

It keeps nothing: every answer is the service's, as a record.
"""

import os
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter

from rl_orch import plugins
from rl_orch.client.link import HttpLink, refusal_from
from rl_orch.client.models import RemoteModels
from rl_orch.core.runs import groups
from rl_orch.core.runs.state import resumable_states
from rl_orch.errors import Damaged, NotFound, Problem, RlctlError, Unavailable, Warn, unheard
from rl_orch.io import service_note
from rl_orch.io.metrics.recent import TrainingStep
from rl_orch.io.metrics.series import POINTS, Series
from rl_orch.io.processes import import_path
from rl_orch.io.processes.task_worker import ProgressCallback, unwatched
from rl_orch.io.run.events import Tail
from rl_orch.io.run.logs import LogPart
from rl_orch.records import (
    Episodes,
    EpisodeSummary,
    Evaluation,
    Event,
    Group,
    History,
    Run,
    RunnerCapabilities,
    RunView,
    Submission,
)
from rl_orch.records.queries import LARGEST_PAGE, NEWEST, Page, Query, QueryRows
from rl_orch.spec import code
from rl_orch.spec.engine import assign
from rl_orch.spec.model import Spec, refuse_no_spec
from rl_orch.spec.operations import RunnerGroup

if TYPE_CHECKING:
    from rl_orch.client.jobs import RemoteJobs
    from rl_orch.records.jobs import Job, JobAnswer, JobRequest

TIMEOUT_S = 60.0
CHECK_TIMEOUT_S = 150.0
"""To check a spec, the service may make its environment, which may take two minutes."""

COMMAND_TIMEOUT_S = 90.0
"""A run that is to load weights does so at its next iteration."""

LOOK_EVERY_S = 0.2
LAST_WORDS_S = 5.0
"""Beyond the grace: the service kills a run after it by itself, and then says so."""

KILL_WITHIN_S = 30.0
"""Seconds after its grace in which a run is gone, whatever it does."""

EPISODES = TypeAdapter(tuple[EpisodeSummary, ...])
EVALUATIONS = TypeAdapter(tuple[tuple[int, Evaluation], ...])


class Client:
    """Everything that can be done with the runs of a service."""

    serves: ClassVar[Literal[True]] = True

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = 2.0,
        module_path: Sequence[str] = (),
        tell: "Callable[[Job], None] | None" = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`patience_s` is for how long requests that may be repeated are, when none answers. `tell`
        hears of each job that a verb waits for: queued, or cancelled because it was interrupted.

        `module_path` are folders of the service's machine where modules are found that specs name;
        only the service's own user may name any.
        """
        self._module_path, self._tell = list(module_path), tell
        self._link = HttpLink(
            url, token, timeout_s=timeout_s, patience_s=patience_s, transport=transport
        )
        self.models = RemoteModels(self._link, self, lambda: self.jobs)

    @classmethod
    def of_home(cls, home: str | Path | None = None) -> Self:
        """The client of a home's own service: RLCTL_HOME, or `./rlruns`, unless one is named."""
        folder = Path(home or os.environ.get("RLCTL_HOME") or "rlruns").absolute()
        endpoint = service_note.living(folder)
        if endpoint is None:
            raise Unavailable(f"no service of {str(folder)!r} is up", hint="`rlctl up` starts it.")
        return cls(endpoint.url, endpoint.token, module_path=import_path.typed_in())

    @property
    def location(self) -> str:
        """The address of the service."""
        return self._link.url

    def close(self) -> None:
        """Let go of the connections."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def jobs(self) -> "RemoteJobs":
        """The jobs of the service; who only reads loads nothing of them."""
        remote = plugins.part("client jobs").RemoteJobs
        made: RemoteJobs = remote(self._link, self._tell, self._module_path)
        return made

    def carry_out(
        self, request: "JobRequest[JobAnswer]", watch: ProgressCallback = unwatched
    ) -> "JobAnswer":
        """Evaluate, export, profile, import and more: what a request asks for, as a job there."""
        return self.jobs.carry_out(request, watch)

    def ready(self) -> bool:
        """Whether the service works: its database answers, and its scheduler looks at the queue."""
        try:
            return bool(self._link.get("/ready")["ready"])
        except Unavailable:
            return False

    def create_code(self, scope: str) -> dict[str, Any]:
        """A one-time code that a browser exchanges for a token of that scope."""
        made: dict[str, Any] = self._link.post("/sessions/codes", {"scope": scope})
        return made

    def check(self, spec: Spec, *, warn: Warn = unheard) -> Spec:
        """Raise if the spec could not be carried out there; else what would be."""
        document = self._begun_there(spec).model_dump(mode="json")
        body = {"spec": document, "module_path": self._folders(spec)}
        answer = self._link.post("/experiments/check", body, timeout_s=CHECK_TIMEOUT_S)
        if answer["errors"]:
            raise refusal_from(answer["errors"])
        for warning in answer.get("warnings", ()):
            warn(Problem(**warning))
        return assign(spec, answer["settled"])

    def submit(self, spec: Spec, *, key: str | None = None, consent: bool = False) -> Submission:
        """Queue what a spec asks for, durably. Nobody waits for it.

        The same key twice is one experiment; without one, a key of its own makes it safe to try
        again when the connection breaks. `consent` says that whoever submits has seen the command
        of a spec that runs a program of its own. A bundle that it begins with is sent along.
        """
        body = {
            "spec": self._begun_there(spec).model_dump(mode="json"),
            "consent": consent,
            "module_path": self._folders(spec),
        }
        chosen = key or str(uuid.uuid4())
        answer = self._link.post("/experiments", body, key=chosen, timeout_s=CHECK_TIMEOUT_S)
        return Submission.model_validate(answer)

    def _begun_there(self, spec: Spec) -> Spec:
        """The spec with what it begins with of this machine sent."""
        refuse_no_spec(spec)
        return spec if spec.start.source is None else self.jobs.begun_there(spec)

    def _folders(self, spec: Spec) -> list[str]:
        """The folders that modules are found in, where the spec names any."""
        return self._module_path if any(one.module for one in code.named_by(spec)) else []

    def runners(self) -> tuple[RunnerCapabilities, ...]:
        """The runners that a spec may name there, each with what it can do."""
        rows = self._link.get("/runners")["runners"]
        return tuple(RunnerCapabilities.model_validate(row) for row in rows)

    def ls(self, query: Query | None = None) -> Page:
        """Runs, by default the newest first, each as it really is at this moment."""
        asked = asdict(query or Query())
        asked["state"], asked["tag"] = asked.pop("states"), asked.pop("tags")
        answer = self._link.get("/runs", asked)
        return Page(_runs(answer["runs"]), answer["next"])

    def rows(
        self, *, limit: int = 50, after: str | None = None, where: Query = NEWEST
    ) -> QueryRows:
        """Groups, each with all of its runs, and runs that are in none, newest first; only those
        that `where` asks for."""
        asked = {name: getattr(where, name) for name in ("env", "algo", "name", "since", "until")}
        asked |= {"tag": where.tags, "limit": limit, "after": after}
        answer = self._link.get("/rows", asked)
        rows = tuple(_runs(row["runs"]) for row in answer["rows"])
        single = (
            each.id
            for row, (each, *_) in zip(answer["rows"], rows, strict=True)
            if row["group"] is None and each.group is not None
        )
        return QueryRows(rows, answer["next"], frozenset(single))

    def get(self, reference: str) -> Run:
        """The run meant by an id, a beginning of one, a name, or `last`, as it really is."""
        return Run.model_validate(self._link.get(self._run(reference)))

    def group(self, reference: str) -> Group | None:
        """The group meant by an id, a beginning of one or a name, as it really is, if one is."""
        try:
            return Group.model_validate(self._link.get(self._group(reference))["group"])
        except NotFound:
            return None

    def only(self, reference: str, *, active: bool = False) -> Run:
        """The run meant by a reference, and none by a guess: a name that several runs have is
        refused. Who means an `active` one means none that has ended."""
        run = self.get(reference)
        if run.id == reference:
            return run
        named = self.ls(Query(limit=LARGEST_PAGE, name=reference)).runs
        meant = groups.only(reference, named, active=active)
        return run if meant is None else self.get(meant.id)

    def group_runs(self, group_id: str) -> tuple[Run, ...]:
        """The runs of a group, by seed."""
        try:
            return _runs(self._link.get(self._group(group_id))["runs"])
        except NotFound:
            return ()

    def show(self, reference: str, *, checkpoints: bool = True) -> RunView:
        """A run with its attempts, models and final report; and with its checkpoints, for which
        every byte of them is read."""
        parameters = {"checkpoints": None if checkpoints else False}
        return RunView.model_validate(self._link.get(f"{self._run(reference)}/view", parameters))

    def history(self, reference: str) -> History:
        """The episodes and evaluations of a run."""
        document = self._link.get(f"{self._run(reference)}/history")
        episodes = Episodes.of(EPISODES.validate_python(document["episodes"]))
        return History(episodes, EVALUATIONS.validate_python(document["evaluations"]))

    def stop(self, reference: str, *, force: bool = False) -> Run:
        """End a run and return it ended: kindly at first, by force after the grace, or at once."""
        run = self.ask_to_stop(reference, force=force)
        grace_s = 0.0 if force else self._grace_s(run.id)
        asked_at = time.monotonic()
        while (run := self.get(run.id)).active:
            waited_s = time.monotonic() - asked_at
            if waited_s > grace_s + KILL_WITHIN_S:
                raise RlctlError(f"run {run.id} is still {run.state} after {waited_s:.0f} s")
            if waited_s > grace_s + LAST_WORDS_S and not force:
                force = True
                self.ask_to_stop(run.id, force=True)
            time.sleep(LOOK_EVERY_S)
        return run

    def ask_to_stop(self, reference: str, *, force: bool = False) -> Run:
        """Ask a run to end, and return at once."""
        run = self._run(reference, only="active")
        answer = self._link.post(f"{run}/stop", {"force": force})
        return Run.model_validate(answer)

    def requeue(
        self, reference: str, *, overrides: Sequence[str] = (), approximate: bool = False
    ) -> Submission:
        """Queue a stopped, failed or lost run again, or those of a group; with a larger budget, one
        that has come to a final end."""
        body = {"overrides": list(overrides), "approximate": approximate}
        if "/" in reference:  # Which the service is not told of; else it says which is meant.
            named = groups.rows(self.ls(Query(limit=LARGEST_PAGE, name=reference)).runs)
            states = resumable_states(overrides)
            meant = groups.only(reference, [row.whole for row in named], states=states)
            reference = reference if meant is None else meant.id
        path = f"/runs/{self._segment(reference, or_group=True)}/resume"
        return Submission.model_validate(self._link.post(path, body, timeout_s=CHECK_TIMEOUT_S))

    def command(self, reference: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """What a run process replies to a command; a bundle to load is sent along."""
        if name == "load" and isinstance(source := arguments.get("source"), str):
            arguments = {"source": self.jobs.sent(source)}
        body = {"name": name, "arguments": arguments}
        path = f"{self._run(reference, only='active')}/command"
        answer: dict[str, Any] = self._link.post(path, body, timeout_s=COMMAND_TIMEOUT_S)
        return answer

    def events(self, reference: str, offset: int = 0, count: int | None = None) -> Tail:
        """What the event file holds after a byte offset, as far as one answer goes."""
        parameters = {"offset": offset, "count": count}
        answer = self._link.get(f"{self._run(reference)}/events", parameters)
        events = tuple(Event.model_validate(row) for row in answer["events"])
        return Tail(events, answer["offset"], answer.get("skipped", 0))

    def log(self, reference: str, offset: int = 0) -> LogPart:
        """Whole lines of the log after a byte offset, as far as one answer goes."""
        answer = self._link.get(f"{self._run(reference)}/log", {"offset": offset})
        return LogPart.model_validate(answer)

    def series(
        self,
        reference: str,
        keys: Sequence[str] = (),
        *,
        points: int = POINTS,
        from_step: int | None = None,
        to_step: int | None = None,
    ) -> tuple[Series, ...]:
        """The metrics of a run over its steps, thinned out so that no peak is lost."""
        parameters = {"points": points, "from": from_step, "to": to_step, "key": list(keys)}
        answer = self._link.get(f"{self._run(reference)}/metrics", parameters)
        return tuple(Series.model_validate(row) for row in answer["series"])

    def recent_metrics(
        self, reference: str, count: int = 100, keys: Sequence[str] = ()
    ) -> list[TrainingStep]:
        """The newest numbers of a run, oldest first."""
        parameters = {"count": count, "key": list(keys)}
        answer = self._link.get(f"{self._run(reference)}/metrics/recent", parameters)
        return [TrainingStep.model_validate(row) for row in answer["metrics"]]

    def tag(self, reference: str, tags: Mapping[str, str], *, remove: Collection[str] = ()) -> Run:
        """Set tags of a run and remove others."""
        body = {"set": dict(tags), "remove": list(remove)}
        path = f"{self._run(reference, only='any')}/tags"
        return Run.model_validate(self._link.patch(path, body))

    def note(self, reference: str, text: str) -> Run:
        """Note something on a run; an empty text removes it."""
        path = f"{self._run(reference, only='any')}/note"
        return Run.model_validate(self._link.patch(path, {"text": text}))

    def remove(self, reference: str) -> Run:
        """Delete a run that has ended: its directory, its row and its models."""
        return Run.model_validate(self._link.delete(self._run(reference, only="any")))

    def _grace_s(self, run_id: str) -> float:
        """Seconds that a run may take to end; the usual ones, where its spec cannot be read."""
        try:
            return self.show(run_id, checkpoints=False).spec.runner.stop_grace_s
        except (NotFound, Damaged):
            return RunnerGroup().stop_grace_s

    def _run(self, reference: str, *, only: Literal["any", "active"] | None = None) -> str:
        """The path of a run. The service refuses to change what several could be meant by; a name
        that is no part of a path is held against the others here, where `only` one may have it."""
        if only is not None and "/" in reference:
            reference = self.only(reference, active=only == "active").id
        return f"/runs/{self._segment(reference)}"

    def _group(self, reference: str) -> str:
        return f"/groups/{self._segment(reference, or_group=True)}"

    def _segment(self, reference: str, *, or_group: bool = False) -> str:
        """A reference as a part of a path. Of a name with a slash, which cannot be one, the id: of
        the newest run of that name, or of the group that it is in.
        """
        word: str | None = reference
        if "/" in reference:
            named = self.ls(Query(limit=1, name=reference)).runs
            ids = [(run.group if or_group else None) or run.id for run in named]
            word = next(iter(ids), None)
        if word in (None, "", ".", ".."):
            raise NotFound(f"no run {reference!r}", hint="`rlctl ls` lists the runs.")
        return quote(str(word), safe="")


def _runs(rows: Sequence[Mapping[str, Any]]) -> tuple[Run, ...]:
    return tuple(Run.model_validate(row) for row in rows)
