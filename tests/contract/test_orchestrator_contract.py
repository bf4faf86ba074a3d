"""The verbs keep one contract: in the orchestrator itself, and by a client over HTTP."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from queue import Queue

from rl_orch.api.app import create_app
from rl_orch.client import Client
from rl_orch.core.jobs.queue import JobQueue
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.telemetry import Telemetry
from rl_orch.http.serving import serve
from rl_orch.http.settings import Settings
from rl_orch.testing import JobsContract, ModelsContract, OrchestratorContract, a_spec
from rl_orch.testing.jobs import InlineJob
from rl_orch.testing.verbs import VerbsUnderTest
from tests.exported import CASES, bundled, made
from tests.waiting import PATIENCE_S


@contextmanager
def served(local: Orchestrator) -> Iterator[VerbsUnderTest]:
    """A client of the API that serves an orchestrator, until the block is left."""
    until, urls = threading.Event(), Queue[str]()
    local.confined = True
    jobs = JobQueue(local, partial(InlineJob, local))
    app = create_app(local, settings=Settings(port=0, own_token="own"), queue=jobs)
    thread = threading.Thread(
        target=serve, args=(app, "127.0.0.1", 0), kwargs={"until": until, "started": urls.put}
    )
    thread.start()
    try:
        with Client(urls.get(timeout=PATIENCE_S), "own") as client:
            yield client
    finally:
        until.set()
        thread.join()
        jobs.close()


class TestOrchestrator(OrchestratorContract):
    """The orchestrator of this process."""

    def reach(self, local: Orchestrator) -> AbstractContextManager[VerbsUnderTest]:
        return nullcontext(local)


class TestClient(OrchestratorContract):
    """A client of the API that serves the orchestrator of this process."""

    def test_metrics_are_what_the_telemetry_of_the_service_says(self, tmp_path: Path) -> None:
        local = self.make_local(tmp_path)
        run = local.launch(a_spec()).run
        telemetry = Telemetry(local)
        with self.reach(local) as client:
            assert isinstance(client, Client)
            whole = client.series(run.id)
            assert whole == telemetry.series(run.id)
            assert client.series(run.id, [whole[0].key], points=5, from_step=1, to_step=10**6)
            assert client.series(run.id, ["nothing"]) == telemetry.series(run.id, ["nothing"])
            assert client.recent_metrics(run.id, 3) == telemetry.recent_metrics(run.id, 3)

    def reach(self, local: Orchestrator) -> AbstractContextManager[VerbsUnderTest]:
        return served(local)


class TestOrchestratorJobs(JobsContract):
    """What the orchestrator of this process carries out itself."""

    def reach(self, local: Orchestrator) -> AbstractContextManager[VerbsUnderTest]:
        return nullcontext(local)

    def make_bundle(self, folder: Path) -> Path:
        return bundled(made(CASES["ppo"]), folder / "it.bundle")


class TestClientJobs(TestOrchestratorJobs):
    """Jobs of the API that serves it."""

    def reach(self, local: Orchestrator) -> AbstractContextManager[VerbsUnderTest]:
        return served(local)


class TestOrchestratorModels(ModelsContract):
    """The registry of the orchestrator of this process."""

    def reach(self, local: Orchestrator) -> AbstractContextManager[VerbsUnderTest]:
        return nullcontext(local)


class TestClientModels(ModelsContract):
    """The registry by a client of the API that serves it."""

    def reach(self, local: Orchestrator) -> AbstractContextManager[VerbsUnderTest]:
        return served(local)
