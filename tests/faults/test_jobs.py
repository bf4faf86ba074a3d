"""A job of a real service: it outlives who asked for it, and the death of its service is told."""

import os
import subprocess
import sys
from typing import Any

import psutil

from rl_orch.client import Client
from rl_orch.io import service_note
from rl_orch.io.run.directory import RunDir
from rl_orch.records import State
from rl_orch.records.jobs import JobState, ProfileJob, VerifyResumeJob
from rl_orch.records.queries import Query
from rl_orch.testing import a_spec
from tests.integration.conftest import Shell, until

ASKS = """
import sys
from rl_orch.client import Client
from rl_orch.records.jobs import ProfileJob
with Client.of_home(sys.argv[1]) as client:
    spec = ProfileJob.model_validate_json(sys.argv[2])
    print(client.jobs.submit(spec).id)
"""


def test_a_job_outlives_its_client_and_the_death_of_its_service_is_told(shell: Shell) -> None:
    assert shell.run("up", "--detach", "--port", "0", "--spares", "0").returncode == 0
    spec = a_spec("train.engine=torch", "env.backend=sync").model_dump(mode="json")
    asked = ProfileJob(spec=spec, seconds=86400.0).model_dump_json()
    words = [sys.executable, "-c", ASKS, str(shell.home), asked]
    job_id = subprocess.check_output(words, env=os.environ, text=True).strip()
    with Client.of_home(shell.home) as client:
        until(lambda: client.jobs.get(job_id).doing == "measuring")
        _refuse_leftovers(client, spec)
    endpoint = service_note.living(shell.home)
    assert endpoint is not None
    service = psutil.Process(endpoint.pid)
    below = service.children(recursive=True)
    service.kill()
    until(lambda: not any(map(works, [service, *below])))
    assert shell.run("up", "--detach", "--port", "0", "--spares", "0").returncode == 0
    with Client.of_home(shell.home) as client:
        lost = client.jobs.get(job_id)
        assert lost.state is JobState.LOST
        assert lost.reason
        client.jobs.retry(job_id)
        until(lambda: client.jobs.get(job_id).doing == "measuring")
        client.jobs.cancel(job_id)
        until(lambda: client.jobs.get(job_id).state is JobState.CANCELLED)
    shell.run("down")


def _refuse_leftovers(client: Client, spec: dict[str, Any]) -> None:
    """Cancel a job that trains, and fail if what it has launched goes on."""
    long = {**spec, "train": {**spec["train"], "total_timesteps": 10**7}}
    job_id = client.jobs.submit(VerifyResumeJob(spec=long, kills=1)).id
    of_job = Query(tags=(f"job={job_id}",))
    until(lambda: not (job := client.jobs.get(job_id)).active or "running" in job.doing)
    assert client.jobs.get(job_id).active, client.jobs.get(job_id).reason
    (run,) = client.ls(of_job).runs
    assert RunDir.of(run).lock_holder() is not None
    client.jobs.cancel(job_id)
    until(lambda: client.jobs.get(job_id).state is JobState.CANCELLED)
    until(lambda: client.get(run.id).state is State.STOPPED)
    assert RunDir.of(run).lock_holder() is None


def works(process: psutil.Process) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
