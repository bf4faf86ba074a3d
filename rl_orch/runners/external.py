"""Training by any program, as child processes of this machine that outlive their starter.

The run process is one of ours that starts the program and watches over it, so that the run looks
like every other.
"""

from collections.abc import Sequence

from rl_orch.errors import SpecInvalid
from rl_orch.io.processes.one_shot import OneShotWorker, check_question, checked, problems_in
from rl_orch.runners.process_runner import ProcessRunner
from rl_orch.spec.model import Spec
from rl_orch.spec.runner_traits import BUILT_IN
from rl_orch.worker.external import program

CHECK = ("check served policy",)


class ExternalRunner(ProcessRunner):
    """Starts the program of a spec under a run process of ours."""

    traits = BUILT_IN["external"]
    trainer = "train external"

    def check(self, spec: Spec, module_path: Sequence[str] = ()) -> Spec:
        """See whether the programs are there, and whether a policy could act where it will."""
        problems = program.problems(spec)
        if not problems and spec.runner.policy:
            question, child = check_question(spec, module_path), OneShotWorker(CHECK)
            reply = checked(child, question, doing=f"making {spec.env.id}")
            problems = problems_in(reply, spec.env.id)
        if problems:
            raise SpecInvalid(problems)
        return spec
