"""Jobs over HTTP: queued, followed, cancelled, kept and asked for again; and what is refused."""

import errno
import io
import json
import os
import re
import socket
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from rl_orch.api.app import create_app
from rl_orch.cli import connection, rlctl
from rl_orch.client import Client
from rl_orch.client.jobs import RemoteJobs
from rl_orch.core import uploads
from rl_orch.core.jobs.kinds import Workplace, carry_out, spec_of
from rl_orch.core.jobs.queue import MOST_WAITING, JobQueue
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.store.jobs import Jobs
from rl_orch.core.store.tables import JOBS
from rl_orch.core.store.tokens import Tokens
from rl_orch.errors import Conflict, GateRefused, Problem, SpecInvalid, Unavailable, error_of
from rl_orch.io import service_note
from rl_orch.io.files import trees
from rl_orch.io.machine import room
from rl_orch.io.processes import import_path, pids
from rl_orch.io.processes.task_worker import ProgressCallback, unwatched
from rl_orch.io.run.directory import RunDir
from rl_orch.io.service_note import ServiceEndpoint
from rl_orch.records import State
from rl_orch.records.jobs import DoctorJob, InferJob, Job, JobDone, JobState, JobTask, ProfileJob
from rl_orch.spec.model import Spec
from rl_orch.testing import FakeRunner, a_spec, trains_to
from tests.api.conftest import GENEROUS, OWN, OWNER, OWNER_LINE, Api, InProcess
from tests.integration.conftest import until
from tests.waiting import PATIENCE_S

DOCTOR = {"kind": "doctor", "arguments": {}}


class Steered:
    """A process of a job that does what its test says."""

    def __init__(self) -> None:
        self.begun, self.told = threading.Event(), threading.Event()
        self.ended = False
        self.error: Exception | None = None

    def answer(self, request: JobTask, watch: ProgressCallback) -> JobDone:
        watch("working", 0.5)
        with (Path(request.folder) / "made.txt").open("x") as file:  # Nothing is in its way.
            file.write("made")
        self.begun.set()
        assert self.told.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        if self.ended:
            raise GateRefused("it was ended")
        return JobDone(answer={"findings": []})

    def ask_to_end(self) -> None:
        self.ended = True
        self.told.set()


@pytest.fixture
def here(tmp_path: Path) -> Orchestrator:
    return Orchestrator(tmp_path / "home", FakeRunner(trains_to([4.0, 5.0] * 6)))


@contextmanager
def serving(here: Orchestrator, process: Steered) -> Iterator[httpx.Client]:
    jobs = JobQueue(here, lambda: process, at_once=1)
    app = create_app(here, settings=GENEROUS, queue=jobs)
    transport = InProcess(app, "127.0.0.1")
    with httpx.Client(transport=transport, base_url="http://localhost:7311", headers=OWNER) as http:
        yield http
    process.told.set()
    jobs.close()


def test_a_job_is_carried_out_whoever_waits_for_it_and_its_answer_is_kept(
    here: Orchestrator,
) -> None:
    process = Steered()
    with serving(here, process) as client:
        answer = client.post("/jobs", json=DOCTOR, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 202
        job = answer.json()["id"]
        assert process.begun.wait(PATIENCE_S)
        seen = client.get(f"/jobs/{job}").json()
        assert (seen["state"], seen["doing"], seen["done"]) == ("running", "working", 0.5)
        again = client.post("/jobs", json=DOCTOR, headers={"Idempotency-Key": "k"})
        assert (again.status_code, again.json()["id"]) == (200, job)
        other = {"kind": "doctor", "arguments": {"database": "x"}}
        refused = client.post("/jobs", json=other, headers={"Idempotency-Key": "k"})
        assert refused.status_code == 409
        process.told.set()
        told = client.get(f"/jobs/{job}/events").text
        assert "event: end" in told
        assert client.get(f"/jobs/{job}").json()["answer"] == {"findings": []}
        (artifact,) = client.get(f"/jobs/{job}/artifacts").json()["artifacts"]
        assert client.get(f"/jobs/{job}/artifacts/{artifact['path']}").text == "made"
        part = client.get(f"/jobs/{job}/artifacts/made.txt", headers={"Range": "bytes=1-2"})
        assert (part.status_code, part.text) == (206, "ad")
        assert [each["id"] for each in client.get("/jobs").json()["jobs"]] == [job]
        assert client.delete(f"/jobs/{job}").status_code == 200
        assert client.get(f"/jobs/{job}").status_code == 404


def test_a_job_that_fails_tells_the_error_and_can_be_asked_for_again(here: Orchestrator) -> None:
    process = Steered()
    process.error = GateRefused("no", hint="try")
    process.told.set()
    with serving(here, process) as client:
        job = client.post("/jobs", json=DOCTOR).json()["id"]
        ended = client.get(f"/jobs/{job}/events").text
        assert '"code":"gate_refused"' in ended
        process.error = None
        assert client.post(f"/jobs/{job}/retry").status_code == 202
        assert '"state":"succeeded"' in client.get(f"/jobs/{job}/events").text
        assert client.post(f"/jobs/{job}/retry").status_code == 409


def test_a_spec_that_is_refused_in_a_job_is_refused_with_every_problem(here: Orchestrator) -> None:
    wrong = [Problem("train.lr", -1.0, "too small", "More."), Problem("env.id", None, "none")]
    process = Steered()
    process.error = SpecInvalid(wrong)
    process.told.set()
    with serving(here, process) as client:
        job = client.post("/jobs", json=DOCTOR).json()["id"]
        assert '"state":"failed"' in client.get(f"/jobs/{job}/events").text
        error = error_of(**client.get(f"/jobs/{job}").json()["error"])
    assert isinstance(error, SpecInvalid)
    assert list(error.problems) == wrong


def test_jobs_at_work_and_jobs_that_wait_can_be_cancelled(here: Orchestrator) -> None:
    process = Steered()
    with serving(here, process) as client:
        first, second = (client.post("/jobs", json=DOCTOR).json()["id"] for _ in range(2))
        assert process.begun.wait(PATIENCE_S)
        assert client.post(f"/jobs/{second}/cancel").json()["state"] == "cancelled"
        client.post(f"/jobs/{first}/cancel")
        assert '"state":"cancelled"' in client.get(f"/jobs/{first}/events").text
        assert process.ended


def test_a_listing_of_jobs_loads_no_answers(here: Orchestrator) -> None:
    queue = JobQueue(here, Steered, at_once=0)
    job, _ = queue.submit(DoctorJob(), who="ann", key="a")
    news = {"state": JobState.SUCCEEDED, "answer": {"findings": []}}
    done, jobs = job.model_copy(update=news), Jobs(here.store)
    assert jobs.save(done, lease=queue.lease, was=JobState.QUEUED)
    assert queue.submit(DoctorJob(), who="ann", key="a") == (done, True)
    assert jobs.newest(1) == [done.model_copy(update={"answer": None})]
    (row,) = here.store.read(sa.select(JOBS.c.document))
    assert "findings" not in row.document


def test_a_stream_that_has_news_all_the_time_ends_when_its_token_is_revoked(
    here: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, tokens = JobQueue(here, Steered, at_once=0), Tokens(here.store)
    job, _ = queue.submit(DoctorJob(), who="ann")
    token, text = tokens.create("watcher", "read")
    asked: list[float] = []

    def further(_queue: JobQueue, _job: str) -> Job:
        asked.append(len(asked) / 100)
        if len(asked) == 2:
            tokens.revoke(token.id)
        state = JobState.RUNNING if len(asked) < 100 else JobState.CANCELLED
        return job.model_copy(update={"done": asked[-1], "state": state})

    monkeypatch.setattr(JobQueue, "get", further)
    client = Api(here).client(text, queue=queue, keep_alive_s=0.05, poll_s=0.01)
    told = client.get(f"/jobs/{job.id}/events").text
    assert ("event: progress" in told, "event: end" in told) == (True, False)


def test_no_more_than_so_many_jobs_wait(here: Orchestrator) -> None:
    process = Steered()
    with serving(here, process) as client:
        for number in range(MOST_WAITING + 1):
            key = {"Idempotency-Key": str(number)}
            last = client.post("/jobs", json=DOCTOR, headers=key)
            process.begun.wait(PATIENCE_S)
        assert last.status_code == 202
        assert client.post("/jobs", json=DOCTOR).status_code == 429
        again = client.post("/jobs", json=DOCTOR, headers={"Idempotency-Key": "0"})
        assert again.status_code == 200


def test_a_job_is_taken_once_however_many_ask_for_it_again(here: Orchestrator) -> None:
    queue = JobQueue(here, Steered, at_once=0)
    job, _ = queue.submit(DoctorJob(), who="ann")
    jobs = Jobs(here.store)
    lost = job.model_copy(update={"state": JobState.LOST})
    assert jobs.save(lost, lease=queue.lease, was=JobState.QUEUED)
    stored = jobs.get(job.id)
    assert jobs.take(job, was=stored, lease=queue.lease, home=stored.home)
    assert not jobs.take(job, was=stored, lease=queue.lease, home=stored.home)
    queue.close()
    assert pids.holds(queue.lease)


def test_who_asks_again_is_who_it_is_for_and_names_no_code_that_they_may_not(
    here: Orchestrator,
) -> None:
    process = Steered()
    process.error = GateRefused("no")
    process.told.set()
    code = a_spec(env_id="mine:Env-v0").model_dump(mode="json")
    asked = [DOCTOR, {"kind": "profile", "arguments": {"spec": code}}]
    other = {"Authorization": f"Bearer {Api(here).token('operate')}"}
    with serving(here, process) as client:
        plain, named = (client.post("/jobs", json=body).json()["id"] for body in asked)
        for job in (plain, named):
            assert '"state":"failed"' in client.get(f"/jobs/{job}/events").text
        assert client.post(f"/jobs/{named}/retry", headers=other).status_code == 403
        before = client.get(f"/jobs/{plain}").json()["who"]
        assert client.post(f"/jobs/{plain}/retry", headers=other).json()["who"] != before


def test_uploads_that_a_job_has_yet_to_read_are_not_swept(here: Orchestrator) -> None:
    queue = JobQueue(here, Steered, at_once=0)
    kept, old = (here.home / "uploads" / (24 * letter) for letter in "ab")
    word = f"upload:{kept.name}"
    queue.submit(InferJob(policy="last", input=word), who="ann")
    for folder in (kept, old):
        folder.mkdir(parents=True)
        os.utime(folder, (0, 0))
    queue.tend()
    assert (kept.is_dir(), old.is_dir()) == (True, False)


def test_uploads_that_a_run_has_yet_to_begin_with_are_not_swept(here: Orchestrator) -> None:
    queue = JobQueue(here, Steered, at_once=0)
    kept, damaged = (here.home / "uploads" / (24 * letter) for letter in "ab")
    for folder in (kept, damaged):
        folder.mkdir(parents=True)
        os.utime(folder, (0, 0))
        directory = RunDir.of(here.submit(a_spec()).runs[0])
        begun = {"start": {"kind": "bundle", "path": f"{folder}/content/it"}}
        directory.write_manifest(directory.manifest() | begun)
    directory.manifest_file.write_text("{")
    queue.sweep()
    assert (kept.is_dir(), damaged.is_dir()) == (True, False)


def test_nothing_is_made_where_somebody_only_asks_what_a_job_made(here: Orchestrator) -> None:
    job, _ = JobQueue(here, Steered, at_once=0).submit(DoctorJob(), who="ann")
    client = Api(here).client()
    assert client.get(f"/jobs/{job.id}/artifacts").json()["artifacts"] == []
    assert client.get(f"/jobs/{job.id}/artifacts/x").status_code == 404
    assert not (here.home / "jobs").exists()


def test_the_password_of_a_database_that_no_service_looks_at_is_not_kept(
    here: Orchestrator,
) -> None:
    asked = DoctorJob(database="postgresql://ann:secret@db/rl")
    job, _ = JobQueue(here, Steered, at_once=0).submit(asked, who="ann")
    assert "secret" not in Api(here).client().get(f"/jobs/{job.id}").text


def test_runs_that_a_lost_job_has_launched_end_with_it(here: Orchestrator) -> None:
    dead = JobQueue(here, Steered, at_once=0)
    job, _ = dead.submit(DoctorJob(), who="ann")
    running = job.model_copy(update={"state": JobState.RUNNING})
    assert Jobs(here.store).save(running, lease=dead.lease, was=JobState.QUEUED)
    theirs, others = (here.create(a_spec(f"tags={{job: {word}}}")) for word in (job.id, "none"))
    pids.let_go(dead.lease)
    JobQueue(here, Steered, at_once=0).tend()
    assert Jobs(here.store).get(job.id).job.state is JobState.LOST
    assert (here.get(theirs.id).state, here.get(others.id).active) == (State.STOPPED, True)


def test_a_job_that_was_asked_for_again_meanwhile_keeps_its_files(
    here: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, queue = a_dead_one(here), JobQueue(here, Steered, at_once=0)
    queue.look()
    lost = queue.get(job.id)
    queue.retry(job.id, who="ann")
    queue.folder(job.id).mkdir(parents=True)
    monkeypatch.setattr(JobQueue, "get", lambda *_: lost)
    with pytest.raises(Conflict):
        queue.remove(job.id)
    assert queue.folder(job.id).is_dir()


def test_a_job_is_of_the_home_whose_service_repeats_it(here: Orchestrator, tmp_path: Path) -> None:
    job = a_dead_one(here)
    other = Orchestrator(tmp_path / "other", FakeRunner(trains_to([])), database=here.location)
    queue = JobQueue(other, Steered, at_once=0)
    queue.look()
    assert Jobs(here.store).get(job.id).home == str(here.home)
    queue.retry(job.id, who="ann")
    assert Jobs(here.store).get(job.id).home == str(other.home)


def a_dead_one(here: Orchestrator) -> Job:
    """A job that is carried out by a service that has died."""
    dead = JobQueue(here, Steered, at_once=0)
    job, _ = dead.submit(DoctorJob(), who="ann")
    running = job.model_copy(update={"state": JobState.RUNNING})
    assert Jobs(here.store).save(running, lease=dead.lease, was=JobState.QUEUED)
    pids.let_go(dead.lease)
    return running


def test_runs_of_a_dead_services_job_end_before_it_is_lost(
    here: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, stop = a_dead_one(here), here.ask_to_stop
    run = here.create(a_spec(f"tags={{job: {job.id}}}"))
    seen: list[JobState] = []

    def stops(run_id: str, *, force: bool) -> object:
        seen.append(Jobs(here.store).get(job.id).job.state)
        if len(seen) == 1:
            raise KeyboardInterrupt  # The death of who looks.
        return stop(run_id, force=force)

    monkeypatch.setattr(here, "ask_to_stop", stops)
    first = JobQueue(here, Steered, at_once=0)
    with pytest.raises(KeyboardInterrupt):
        first.tend()
    pids.let_go(first.lease)
    JobQueue(here, Steered, at_once=0).tend()
    assert seen == [JobState.RUNNING] * 2
    assert (here.get(run.id).state, Jobs(here.store).get(job.id).job.state) == (
        State.STOPPED,
        JobState.LOST,
    )


def test_a_service_that_failed_to_tell_that_a_job_is_lost_does_so_later(
    here: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, looks = a_dead_one(here), JobQueue(here, Steered, at_once=0)

    def away(*_: object, **__: object) -> bool:
        raise Unavailable("the database does not answer")

    monkeypatch.setattr(Jobs, "save", away)
    with pytest.raises(Unavailable):
        looks.tend()
    monkeypatch.undo()
    looks.tend()
    assert looks.get(job.id).state is JobState.LOST


def test_a_look_that_comes_too_late_ends_no_runs(
    here: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = a_dead_one(here)
    late, stale = JobQueue(here, Steered, at_once=0), Jobs(here.store).active()
    first = JobQueue(here, Steered, at_once=0)
    first.tend()
    first.retry(job.id, who="ann")
    run = here.create(a_spec(f"tags={{job: {job.id}}}"))
    monkeypatch.setattr(Jobs, "active", lambda _self: stale)
    late.look()
    assert here.get(run.id).active


def test_a_job_ends_though_a_run_of_it_cannot_be_ended(
    here: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def breaks(run_id: str, **_: object) -> None:
        asked.append(run_id)
        raise PermissionError("its directory is somebody else's")

    process = Steered()
    process.error = GateRefused("no")
    monkeypatch.setattr(here, "ask_to_stop", breaks)
    with serving(here, process) as client:
        job = client.post("/jobs", json=DOCTOR).json()["id"]
        for _ in range(2):
            here.create(a_spec(f"tags={{job: {job}}}"))
        process.told.set()
        assert ended(client, job)["state"] == "failed"
        assert len(set(asked)) == 2


def test_a_job_whose_answer_cannot_be_kept_has_failed(
    here: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Jobs.save

    def refuses(self: Jobs, job: Job, *, lease: str, was: JobState) -> bool:
        if job.answer is not None:
            raise ValueError("no row can hold it")
        return save(self, job, lease=lease, was=was)

    monkeypatch.setattr(Jobs, "save", refuses)
    monkeypatch.setattr("rl_orch.core.jobs.queue.SAVE_EVERY_S", 0.0)
    process = Steered()
    process.told.set()
    with serving(here, process) as client:
        found = ended(client, client.post("/jobs", json=DOCTOR).json()["id"])
        assert (found["state"], found["answer"]) == ("failed", None)
        assert "ValueError" in found["error"]["message"]


def ended(client: httpx.Client, job: str) -> Any:
    """A job once it has ended, if it ever does."""
    until(lambda: client.get(f"/jobs/{job}").json()["state"] not in ("queued", "running"))
    return client.get(f"/jobs/{job}").json()


def test_a_command_says_which_job_it_waits_for_and_that_an_interrupt_has_cancelled_it(
    here: Orchestrator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    process = Steered()
    queue = JobQueue(here, lambda: process, at_once=1)
    monkeypatch.setenv("RLCTL_TOKEN", OWN)
    with Api(here).served(queue=queue) as server:
        monkeypatch.setenv("RLCTL_SERVER", server.url)
        monkeypatch.setattr(RemoteJobs, "follow", interrupted)
        with pytest.raises(KeyboardInterrupt):
            connection.ConnectionOptions(None, None, server.url).workplace().carry_out(DoctorJob())
        monkeypatch.undo()
        said = capsys.readouterr().err
        (job_id,) = set(re.findall("job-[0-9a-f]{12}", said))
        assert f"rlctl jobs wait {job_id}" in said
        assert f"{job_id} was cancelled" in said
        monkeypatch.setenv("RLCTL_TOKEN", OWN)
        monkeypatch.setenv("RLCTL_SERVER", server.url)
        assert rlctl.run(["jobs", "wait", job_id]) == 1
        process.ended = False
        process.told.set()  # The interrupt may have come before it began.
        assert rlctl.run(["jobs", "retry", job_id, "--json"]) == 0
        assert rlctl.run(["jobs", "wait", job_id]) == 0
        capsys.readouterr()
        assert rlctl.run(["jobs", "ls", "--state", "succeeded", "--json"]) == 0
        assert [job["id"] for job in json.loads(capsys.readouterr().out)["jobs"]] == [job_id]
        assert rlctl.run(["jobs", "ls", "--state", "lost", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["jobs"] == []
        assert rlctl.run(["jobs", "ls"]) == rlctl.run(["jobs", "cancel", job_id]) == 0
        assert rlctl.run(["jobs", "show", job_id, "--out", str(here.home / "made")]) == 0
        assert (here.home / "made" / "made.txt").read_text() == "made"
        assert rlctl.run(["jobs", "show", "job-000000000000"]) == 2
    monkeypatch.delenv("RLCTL_SERVER")
    assert rlctl.run(["jobs", "ls", "--home", str(here.home)]) == 2
    queue.close()


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_what_a_dead_service_had_is_lost_and_what_waited_goes_on(here: Orchestrator) -> None:
    dead = JobQueue(here, Steered, at_once=0)
    held, waiting = (dead.submit(DoctorJob(), who="ann", key=key)[0] for key in ("a", "b"))
    running = held.model_copy(update={"state": JobState.RUNNING})
    assert Jobs(here.store).save(running, lease=dead.lease, was=JobState.QUEUED)
    pids.let_go(dead.lease)
    process = Steered()
    process.told.set()
    with serving(here, process) as client:
        lost = client.get(f"/jobs/{held.id}").json()
        assert (lost["state"], "ask for it again" in lost["reason"]) == ("lost", True)
        assert '"state":"succeeded"' in client.get(f"/jobs/{waiting.id}/events").text
        body = {"kind": "doctor", "arguments": DoctorJob().model_dump(exclude_none=True)}
        again = client.post("/jobs", json=body, headers={"Idempotency-Key": "a"}).json()
        assert again["id"] == held.id
        assert '"state":"succeeded"' in client.get(f"/jobs/{held.id}/events").text


def test_jobs_that_wait_follow_a_home_that_was_moved(here: Orchestrator) -> None:
    dead = JobQueue(here, Steered, at_once=0)
    job, _ = dead.submit(DoctorJob(), who="ann")
    pids.let_go(dead.lease)
    moved = here.home.rename(here.home.with_name("moved"))
    there = Orchestrator(moved, FakeRunner(trains_to([])))
    queue = JobQueue(there, Steered, at_once=0)
    queue.look()
    stored = Jobs(there.store).get(job.id)
    assert (stored.home, stored.lease) == (str(moved), queue.lease)


def test_a_job_that_waits_for_a_dead_service_of_another_home_can_be_cancelled(
    here: Orchestrator, tmp_path: Path
) -> None:
    first = JobQueue(here, Steered, at_once=0)
    job, _ = first.submit(DoctorJob(), who="ann")
    other = Orchestrator(tmp_path / "other", FakeRunner(trains_to([])), database=here.location)
    queue = JobQueue(other, Steered, at_once=0)
    with pytest.raises(Conflict):
        queue.cancel(job.id)
    pids.let_go(first.lease)
    assert queue.cancel(job.id).state is JobState.CANCELLED
    assert Jobs(here.store).get(job.id).home == str(here.home)
    JobQueue(here, Steered, at_once=0).remove(job.id)


def test_what_a_job_made_is_given_out_and_removed_by_its_own_home_alone(
    here: Orchestrator, tmp_path: Path
) -> None:
    """Where homes share a database, the others say which home that is, and where to ask."""
    other = Orchestrator(tmp_path / "other", FakeRunner(trains_to([])), database=here.location)
    process = Steered()
    process.told.set()
    with serving(here, process) as own, serving(other, Steered()) as stranger:
        job = own.post("/jobs", json=DOCTOR).json()["id"]
        assert '"state":"succeeded"' in own.get(f"/jobs/{job}/events").text
        made = f"/jobs/{job}/artifacts/made.txt"
        asks = [("GET", f"/jobs/{job}/artifacts"), ("GET", made), ("DELETE", f"/jobs/{job}")]
        for url in (None, "http://localhost:7311"):
            if url is not None:
                note = ServiceEndpoint(url, str(pids.identity(os.getpid())), pids.host(), "token")
                service_note.write(here.home, note)
            for method, path in asks:
                refused = stranger.request(method, path)
                assert refused.status_code == 409
                assert repr(str(here.home)) in refused.json()["detail"]
                assert (url or f"--home {here.home}") in refused.json()["hint"]
        assert stranger.get(f"/jobs/{job}").json()["id"] == job
        assert own.get(made).text == "made"
        assert own.delete(f"/jobs/{job}").status_code == 200
        assert own.get(f"/jobs/{job}").status_code == 404
    assert [*(here.home / "jobs").iterdir()] == []


def test_a_job_is_of_its_home_by_another_path_and_after_a_move(
    here: Orchestrator, tmp_path: Path
) -> None:
    here = Orchestrator(here.home, FakeRunner(trains_to([])), database=tmp_path / "shared.db")
    jobs = [a_finished_one(here) for _ in range(2)]
    link = tmp_path / "link"
    link.symlink_to(here.home)
    linked, moved = (
        JobQueue(Orchestrator(path, FakeRunner(trains_to([])), database=here.location), Steered)
        for path in (link, tmp_path / "moved")
    )
    linked.remove(jobs[0].id)
    here.home.rename(tmp_path / "moved")
    moved.remove(jobs[1].id)
    assert [*(tmp_path / "moved" / "jobs").iterdir()] == []


def test_a_job_of_another_machine_is_not_of_the_home_that_has_its_path_here(
    here: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless both see the same disk."""
    gone, there = a_finished_one(here), a_finished_one(here)
    queue = JobQueue(here, Steered, at_once=0)
    queue.folder(gone.id).rename(here.home / "elsewhere")
    monkeypatch.setattr(pids, "host", lambda: "another-boot-space")
    with pytest.raises(Conflict):
        queue.remove(gone.id)
    queue.remove(there.id)
    assert not queue.folder(there.id).exists()


def test_what_jobs_made_that_nobody_knows_any_more_is_swept(
    here: Orchestrator, tmp_path: Path
) -> None:
    """In the own home, and once it is as old as jobs become."""
    other = Orchestrator(tmp_path / "other", FakeRunner(trains_to([])), database=here.location)
    queues = [JobQueue(each, Steered, at_once=0) for each in (here, other)]
    known = queues[0].submit(DoctorJob(), who="ann")[0].id
    old = [queue.folder(name) for queue in queues for name in (known, "job-00000000000a")]
    new = queues[0].folder("job-00000000000b")
    for folder in (*old, new):
        folder.mkdir(parents=True)
    for folder in old:
        os.utime(folder, (0, 0))
    queues[0].tend()
    assert [folder.is_dir() for folder in (*old, new)] == [True, False, True, True, True]
    queues[1].tend()
    assert [folder.is_dir() for folder in old] == [True, False, True, False]


def a_finished_one(here: Orchestrator) -> Job:
    """A job that has been carried out, and made something."""
    process = Steered()
    process.told.set()
    queue = JobQueue(here, lambda: process)
    job, _ = queue.submit(DoctorJob(), who="ann")
    until(lambda: not queue.get(job.id).active)
    queue.close()
    return queue.get(job.id)


OF_SPECS = ("profile", "verify_resume", "doctor")
BEGUN = [
    {"env": {"id": "CartPole-v1"}, "start": {"from": word}} for word in ("/home/x", "../x", "~x")
]
HOSTILE: list[dict[str, Any]] = [
    {"kind": "rm", "arguments": {}},
    {"kind": "evaluate", "arguments": {"policy": "/etc"}},
    {"kind": "evaluate", "arguments": {"policy": "../../x"}},
    {"kind": "evaluate", "arguments": {"policy": "~root"}},
    {"kind": "evaluate", "arguments": {"policy": "x\n"}},
    {"kind": "evaluate", "arguments": {"policy": "x" * 1000}},
    {"kind": "evaluate", "arguments": {"policy": "last", "against": "/tmp"}},
    {"kind": "evaluate", "arguments": {"policy": "last", "episodes": 10**9}},
    {"kind": "export", "arguments": {"policy": "last", "rows": 10**12}},
    {"kind": "evaluate", "arguments": {"policy": "last", "episodes": "many"}},
    {"kind": "validate", "arguments": {"model": "1", "episodes": -5}},
    {"kind": "promote", "arguments": {"model": "1", "to": "production", "margin": -3.5}},
    {"kind": "promote", "arguments": {"model": "1", "to": "production", "episodes": 0}},
    {"kind": "evaluate", "arguments": {"policy": "last", "shell": "rm"}},
    {"kind": "evaluate", "arguments": {"policy": "last", "out": "../x"}},
    {"kind": "export", "arguments": {"policy": "last", "out": "/tmp/x"}},
    {"kind": "export", "arguments": {"policy": "last", "out": ".hidden"}},
    {"kind": "export", "arguments": {"policy": "upload:../../../etc"}},
    {"kind": "infer", "arguments": {"policy": "last", "input": "/etc/passwd"}},
    {"kind": "infer", "arguments": {"policy": "last", "input": "upload:../x"}},
    {"kind": "film", "arguments": {"policy": "last", "records": "/etc/passwd"}},
    {"kind": "import_run", "arguments": {"directory": "/root"}},
    {"kind": "import_policy", "arguments": {"file": "/etc/passwd"}},
    {"kind": "profile", "arguments": {"spec": {"env": {"id": 3}}}},
    {"kind": "profile", "arguments": []},
    *({"kind": kind, "arguments": {"spec": spec}} for kind in OF_SPECS for spec in BEGUN),
]


@pytest.mark.parametrize("body", HOSTILE, ids=lambda body: str(body)[:60])
def test_what_no_service_does_is_refused_and_no_job_is_made(api: Api, body: Any) -> None:
    client = api.client()
    assert client.post("/jobs", json=body).status_code in (400, 404)
    assert client.get("/jobs").json()["jobs"] == []


def test_huge_arguments_are_refused(api: Api) -> None:
    body = {"kind": "profile", "arguments": {"spec": {"name": "x" * (2 << 20)}}}
    assert api.client().post("/jobs", json=body).status_code == 413


def test_imports_and_code_of_the_callers_own_need_an_admin(api: Api) -> None:
    client = api.client(api.token("operate"))
    upload = client.post("/uploads", content=packed({"a": b"x"})).json()["upload"]
    body = {"kind": "import_run", "arguments": {"directory": upload}}
    assert client.post("/jobs", json=body).status_code == 403
    spec = a_spec(env_id="mine:Env-v0").model_dump(mode="json")
    body = {"kind": "profile", "arguments": {"spec": spec}}
    assert client.post("/jobs", json=body).status_code == 403
    program = {"env": {"id": "CartPole-v1"}, "runner": {"name": "external", "command": ["x"]}}
    body = {"kind": "verify_resume", "arguments": {"spec": program}}
    assert api.client().post("/jobs", json=body).status_code == 409


SPECS = ("profile", "verify_resume", "doctor")


@pytest.mark.parametrize("kind", SPECS)
def test_folders_of_modules_are_named_by_the_services_own_user_alone(
    here: Orchestrator, tmp_path: Path, kind: str
) -> None:
    spec = a_spec(env_id="mine:Env-v0").model_dump(mode="json")
    body = {"kind": kind, "arguments": {"spec": spec, "module_path": [str(tmp_path)]}}
    other = {"Authorization": f"Bearer {Api(here).token('admin')}"}
    process = Steered()
    process.told.set()
    with serving(here, process) as client:
        assert client.post("/jobs", json=body, headers=other).status_code == 403
        job = client.post("/jobs", json=body).json()
        assert job["arguments"]["module_path"] == [str(tmp_path)]
        ended(client, job["id"])
        body["arguments"]["module_path"] = ["relative"]  # type: ignore[index]
        assert client.post("/jobs", json=body).status_code == 400


def test_a_client_sends_its_folders_with_specs_that_name_modules(
    here: Orchestrator, tmp_path: Path
) -> None:
    transport = InProcess(Api(here).app(queue=JobQueue(here, Steered, at_once=0)), "127.0.0.1")
    folders = [str(tmp_path)]
    with Client("http://localhost:7311", OWN, transport=transport, module_path=folders) as client:
        for env, sent in (("mine:Env-v0", folders), ("CartPole-v1", [])):
            asked = ProfileJob(spec=a_spec(env_id=env).model_dump(mode="json"))
            assert client.jobs.submit(asked).arguments["module_path"] == sent


def test_a_job_finds_modules_in_the_folders_that_it_was_given(
    here: Orchestrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(import_path.VARIABLE, "[]")
    at = Workplace(here, unwatched, tmp_path / "job", "ann")
    carry_out(at, DoctorJob(module_path=(str(tmp_path),)))
    assert import_path.searched() == [str(tmp_path)]
    assert sys.path[0] == str(tmp_path)


def test_a_spec_is_resolved_once_and_not_on_the_event_loop(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def resolved(request: Any) -> Spec:
        threads.append(threading.current_thread())
        return spec_of(request)

    monkeypatch.setattr("rl_orch.api.routes.jobs.spec_of", resolved)
    monkeypatch.setattr("rl_orch.core.jobs.kinds.spec_of", resolved)
    program = {"env": {"id": "CartPole-v1"}, "runner": {"name": "external", "command": ["x"]}}
    body = {"kind": "verify_resume", "arguments": {"spec": program}}
    assert api.client().post("/jobs", json=body).status_code == 409
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


def test_a_run_may_begin_with_an_upload_if_that_is_a_bundle(api: Api) -> None:
    client = api.client(api.token("operate"))
    junk = client.post("/uploads", content=packed({"a": b"x"})).json()["upload"]
    for word, sentence in ((junk, "is no bundle"), (f"upload:{'0' * 24}", "no upload")):
        spec = {"env": {"id": "CartPole-v1"}, "start": {"from": word}}
        answer = client.post("/experiments/check", json={"spec": spec})
        assert answer.status_code == 200
        assert sentence in answer.json()["errors"][0]["message"]


def packed(files: dict[str, bytes], change: Callable[[tarfile.TarInfo], object] = id) -> bytes:
    """An archive of files by name; `change` may make a member something else."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            change(member)
            archive.addfile(member, io.BytesIO(content))
    return data.getvalue()


def kind(letter: bytes) -> Callable[[tarfile.TarInfo], object]:
    def change(member: tarfile.TarInfo) -> None:
        member.type, member.linkname, member.size = letter, "/etc/passwd", 0

    return change


ARCHIVES = {
    "leads out": packed({"../../evil": b"x"}),
    "is absolute": packed({"/evil": b"x"}),
    "climbs": packed({"a/../../evil": b"x"}),
    "link": packed({"a": b""}, kind(tarfile.SYMTYPE)),
    "hard link": packed({"a": b""}, kind(tarfile.LNKTYPE)),
    "device": packed({"a": b""}, kind(tarfile.CHRTYPE)),
    "pipe": packed({"a": b""}, kind(tarfile.FIFOTYPE)),
    "extended head": packed({"a": b""}, kind(tarfile.XHDTYPE)),
    "twice": packed({"a/b": b"x"})[:1024] * 2 + bytes(1024),
    "file as folder": packed({"a": b"x", "a/b": b"y"}),
    "two entries": packed({"a": b"x", "b": b"y"}),
    "cut short": packed({"a": b"x" * 5000})[:2000],
    "no archive": b"PK\x03\x04" + bytes(600),
    "deep": packed({"/".join(["d"] * 40): b"x"}),
    "nothing": b"",
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_that_lead_out_or_hold_more_than_files_leave_nothing(
    api: Api, tmp_path: Path, name: str
) -> None:
    assert api.client().post("/uploads", content=ARCHIVES[name]).status_code == 400
    assert not list((tmp_path / "home" / "uploads").glob("*"))
    assert not list(tmp_path.rglob("evil"))


def test_folders_that_names_imply_count_as_entries(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "MOST_ENTRIES", 10)
    for name, status in (("a/b/c/d/e/f/g/h", 201), ("a/b/c/d/e/f/g/h/i/j/k", 400)):
        answer = api.client().post("/uploads", content=packed({name: b"x"}))
        assert answer.status_code == status


def test_an_upload_that_is_too_large_is_refused_before_a_byte_is_written(
    api: Api, tmp_path: Path
) -> None:
    client = api.client(max_upload_bytes=100)
    assert client.post("/uploads", content=bytes(101)).status_code == 413
    assert not (tmp_path / "home" / "uploads").exists()
    lying = {"Content-Length": "50"}
    assert client.post("/uploads", content=bytes(60), headers=lying).status_code == 400
    assert not list((tmp_path / "home" / "uploads").glob("*"))


def test_an_upload_that_finds_no_room_is_refused_and_leaves_nothing(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = packed({"a": b"x"})
    free = uploads.COPIES * 2 * len(archive) + room.SPARE_BYTES - 1
    monkeypatch.setattr(room, "left", lambda _path: room.Room(free, None))
    app = api.app()
    client = httpx.Client(
        transport=InProcess(app, "127.0.0.1"), base_url="http://localhost:7311", headers=OWNER
    )
    under_way, _ = app.state.parts.upload_room.reserve(len(archive))
    answer = client.post("/uploads", content=archive)
    assert answer.status_code == 503
    assert (answer.json()["code"], answer.json()["path"]) == ("unavailable", str(tmp_path / "home"))
    assert "of them for others under way" in answer.json()["detail"]
    assert "Free space" in answer.json()["hint"]
    assert [path.name for path in (tmp_path / "home" / "uploads").iterdir()] == [under_way]
    app.state.parts.upload_room.give_back(under_way)
    sent = [client.post("/uploads", content=each).status_code for each in (b"junk", archive)]
    assert sent == [400, 201]
    assert app.state.parts.upload_room.promised_bytes == 0


def test_a_disk_that_fills_up_under_an_upload_is_told_and_has_nothing_left(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_given: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rl_orch.core.uploads.archives.unpack", full)
    answer = api.client().post("/uploads", content=packed({"a": b"x"}))
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert not list((tmp_path / "home" / "uploads").glob("*"))


def test_the_room_of_an_upload_is_given_back_when_its_client_leaves(
    api: Api, tmp_path: Path
) -> None:
    with api.served() as server:
        upload_room = server.app.state.parts.upload_room
        with socket.create_connection(server.address) as connection:
            host = f"Host: localhost:{server.address[1]}"
            lines = ("POST /uploads HTTP/1.1", host, OWNER_LINE.strip(), "Content-Length: 1000")
            connection.sendall("\r\n".join([*lines, "", "a part"]).encode())
            until(lambda: upload_room.promised_bytes > 0)
        until(lambda: upload_room.promised_bytes == 0)
    assert not list((tmp_path / "home" / "uploads").glob("*"))


def test_a_folder_that_is_sent_arrives_as_it_was(api: Api, tmp_path: Path) -> None:
    files = {"run/a.txt": b"a" * 1000, "run/sub/b.bin": bytes(512)}
    word = api.client().post("/uploads", content=packed(files)).json()["upload"]
    there = tmp_path / "home" / "uploads" / word.removeprefix("upload:") / "content"
    found = {str(p.relative_to(there)): p.read_bytes() for p in there.rglob("*") if p.is_file()}
    assert found == files
