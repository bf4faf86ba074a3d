"""Whatever carries out the jobs of a service keeps the same contract."""

from pathlib import Path

from rl_orch.core.jobs.queue import JobProcess, job_process
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.testing import FakeRunner, JobProcessContract, trains_to
from rl_orch.testing.jobs import InlineJob


class TestContainedProcess(JobProcessContract):
    """A process of its own, as services start it."""

    def make_process(self, home: Path) -> JobProcess:
        return job_process()


class TestInlineJob(JobProcessContract):
    """An orchestrator in this process."""

    def make_process(self, home: Path) -> JobProcess:
        return InlineJob(Orchestrator(home, FakeRunner(trains_to([1.0]))))
