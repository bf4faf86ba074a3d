"""For tests of the orchestrator and of plugins: a contract suite per protocol, and small fakes.

A plugin's test subclasses the suite of its protocol and says how one is made; pytest does the rest.
"""

from rl_orch.testing.fakes import (
    FakeClock,
    FakeRunner,
    Script,
    a_report,
    a_run,
    a_spec,
    seal_checkpoint,
    trains_to,
)
from rl_orch.testing.jobs import JobProcessContract, JobsContract
from rl_orch.testing.models import ModelsContract
from rl_orch.testing.runners import LONG, BackgroundRunnerContract, RunnerContract
from rl_orch.testing.sinks import SinkContract, TrackerContract
from rl_orch.testing.suite import holds
from rl_orch.testing.verbs import OrchestratorContract

__all__ = [
    "LONG",
    "BackgroundRunnerContract",
    "FakeClock",
    "FakeRunner",
    "JobProcessContract",
    "JobsContract",
    "ModelsContract",
    "OrchestratorContract",
    "RunnerContract",
    "Script",
    "SinkContract",
    "TrackerContract",
    "a_report",
    "a_run",
    "a_spec",
    "holds",
    "seal_checkpoint",
    "trains_to",
]
