"""Jobs of many kinds, each carried out by the process that a service starts for it."""

from pathlib import Path

import pytest

from rl_orch.client import Client
from rl_orch.core.jobs.queue import JobQueue
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.errors import BadInput
from rl_orch.io.processes.task_worker import unwatched
from rl_orch.records.jobs import (
    DoctorJob,
    FilmJob,
    ImportPolicyJob,
    ImportRunJob,
    InferJob,
    JobState,
    JobTask,
    PromoteJob,
)
from rl_orch.runners import job as job_process
from rl_orch.testing import FakeRunner, a_spec, trains_to
from tests.api.conftest import OWN, Api, InProcess
from tests.foreign import FOLDER

BUNDLE = str(FOLDER / "cartpole.bundle")


def test_every_kind_is_carried_out_by_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = FakeRunner(trains_to([4.0, 5.0] * 6))
    run = Orchestrator(tmp_path / "elsewhere", runner).launch(a_spec("name=far")).run
    here = Orchestrator(tmp_path / "home", runner)
    queue = JobQueue(here)
    transport = InProcess(Api(here).app(queue=queue), "127.0.0.1")
    film = tmp_path / "film.mp4"
    with Client("http://localhost:7311", OWN, transport=transport) as client:
        infer = InferJob(policy=BUNDLE, observation=[0.0, 0.0, 0.0, 0.0])
        filmed = FilmJob(policy=BUNDLE, episode="0", out=str(film))
        policy, copied = ImportPolicyJob(file=BUNDLE), ImportRunJob(directory=run.path)
        doctor = DoctorJob()
        ids = [client.jobs.submit(each).id for each in (policy, infer, filmed, copied, doctor)]
        model = client.jobs.collect(policy, ids[0])
        assert client.jobs.collect(infer, ids[1]).action in (0, 1)
        assert client.jobs.collect(filmed, ids[2]).film == str(film)
        assert film.stat().st_size > 0
        assert client.jobs.collect(copied, ids[3]).id == run.id
        assert client.jobs.collect(doctor, ids[4]).findings
        asked = PromoteJob(model=str(model.id), to="production", force=True, reason="a test")
        promoted = client.jobs.submit(asked)
        assert client.jobs.collect(asked, promoted.id).who == promoted.who
        assert {job.state for job in client.jobs.ls()} == {JobState.SUCCEEDED}
    queue.close()
    uploaded = {word.name for word in (here.home / "uploads").iterdir()}
    assert len(uploaded) == 2  # What was imported is in the home by now.
    monkeypatch.setattr(job_process, "MOST_BYTES", 1)
    task = JobTask(
        home=str(here.home),
        database=str(here.location),
        folder=str(tmp_path),
        who="ann",
        kind="promote",
        arguments=asked.model_copy(update={"to": "staging"}).model_dump(mode="json"),
    )
    with pytest.raises(BadInput):
        job_process.job(task, unwatched)
