"""Jobs without processes: carried out by an orchestrator in this very one, such as a fake's."""

from dataclasses import dataclass
from pathlib import Path

from rl_orch.core.jobs.kinds import Workplace, carry_out
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.io.processes.task_worker import ProgressCallback
from rl_orch.records.jobs import JOBS, JobDone, JobTask


@dataclass(slots=True)
class InlineJob:
    """Execution of a job by an orchestrator in this process; it cannot be ended from outside."""

    here: Orchestrator

    def answer(self, request: JobTask, watch: ProgressCallback) -> JobDone:
        """What came of it."""
        at = Workplace(self.here, watch, Path(request.folder), request.who)
        answer = carry_out(at, JOBS[request.kind].model_validate(request.arguments))
        return JobDone(answer=answer.model_dump(mode="json"))

    def ask_to_end(self) -> None:
        """Do nothing: it ends by itself."""
