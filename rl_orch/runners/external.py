"""Training by any program, as child processes of this machine that outlive their starter.

The run process is one of ours that starts the program and watches over it, so that the run looks
like every other.
"""

import subprocess
from collections.abc import Sequence

from rl_orch.errors import BadInput, Problem, SpecInvalid
from rl_orch.io.processes.one_shot import ask, check_question, problems_in
from rl_orch.runners.process_runner import ProcessRunner
from rl_orch.spec.model import Spec
from rl_orch.worker.external import program

CHECK_TIMEOUT_S = 120.0


class ExternalRunner(ProcessRunner):
    """Starts the program of a spec under a run process of ours."""

    trainer = "train external"

    def check(self, spec: Spec, module_path: Sequence[str] = ()) -> Spec:
        """See whether the programs are there, and whether a policy could act where it will."""
        problems = program.problems(spec)
        if not problems and spec.runner.policy:
            problems = _environment_problems(spec, module_path)
        if problems:
            raise SpecInvalid(problems)
        return spec


def _environment_problems(spec: Spec, module_path: Sequence[str]) -> list[Problem]:
    """The problems that a child has with the environment that it makes."""
    words = ["check served policy"]
    try:
        reply = ask(words, check_question(spec, module_path), timeout_s=CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise BadInput(
            f"making {spec.env.id} took longer than {CHECK_TIMEOUT_S:.0f} s",
            hint="Make the environment by hand to see what it waits for.",
        ) from None
    return problems_in(reply, spec.env.id)
