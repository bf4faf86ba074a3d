"""Training by any program, as child processes of this machine that outlive their starter.

The run process is one of ours that starts the program and watches over it, so that the run looks
like every other.
"""

from collections.abc import Sequence

from rl_orch.errors import Warn, unheard
from rl_orch.io.processes.task_worker import TaskEnded
from rl_orch.records.tasks import CheckAnswer
from rl_orch.runners.process_runner import ProcessRunner
from rl_orch.runners.spec_check import check_task, checked, checker, deadly, heed
from rl_orch.spec.engine import assign
from rl_orch.spec.model import Spec
from rl_orch.spec.runner_traits import BUILT_IN
from rl_orch.worker.external import program

CHECK = "check served policy"


class ExternalRunner(ProcessRunner):
    """Starts the program of a spec under a run process of ours."""

    traits = BUILT_IN["external"]
    trainer = "train external"

    def check(self, spec: Spec, module_path: Sequence[str] = (), warn: Warn = unheard) -> Spec:
        """See whether the programs are there, and whether a policy could act where it will."""
        answer = CheckAnswer(problems=tuple(program.problems(spec)))
        if not answer.problems and spec.runner.policy:
            task, doing = check_task(spec, module_path), f"making {spec.env.id}"
            try:
                answer = checked(checker(CHECK), task, doing=doing)
            except TaskEnded as error:
                answer = deadly(spec.env.id, error)
        heed(answer.problems, answer.warnings, warn)
        return assign(spec, answer.settled)
