"""`python -m rl_orch.runners.job`: one job of a service, carried out in a process of its own.

It ends with the service, and so does all that it starts.
"""

import sys
from pathlib import Path

from rl_orch import plugins
from rl_orch.core.jobs.kinds import Workplace, carry_out
from rl_orch.errors import BadInput
from rl_orch.records.jobs import JOBS, JobDone, JobTask
from rl_orch.worker.task import Tell, answer_one

MOST_BYTES = 8 << 20
"""Of an answer, which is kept in the database; what is larger goes into a file."""


def job(task: JobTask, tell: Tell) -> JobDone:
    """What came of a job."""
    connect = plugins.part("orchestrator").connect
    here = connect(task.home, database=task.database, confined=True)
    at = Workplace(here, tell, Path(task.folder), task.who)
    answer = carry_out(at, JOBS[task.kind].model_validate(task.arguments))
    if len(answer.model_dump_json()) > MOST_BYTES:
        raise BadInput(
            f"the answer has more than {MOST_BYTES:,} bytes", path="out", hint="Name an output."
        )
    return JobDone(answer=answer.model_dump(mode="json"))


if __name__ == "__main__":
    sys.exit(answer_one(JobTask, job))
