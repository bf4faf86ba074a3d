"""Training by this package, as child processes of this machine that outlive their starter."""

import subprocess
import sys

from rl_orch.core.roots import Roots
from rl_orch.errors import BadInput, Problem, SpecInvalid
from rl_orch.io.asking import ask, problems_in
from rl_orch.spec.model import Spec

CHECK_TIMEOUT_S = 120.0


class LocalRunner(Roots):
    """Trains with this package, in this interpreter."""

    trainer = "rl_orch.worker.train"

    def check(self, spec: Spec) -> None:
        """Ask a child whether the environment exists and suits the algorithm."""
        reply = self._ask("check", input=spec.model_dump_json())
        found = problems_in(reply, spec.env.id)
        found += self._device_problems(spec.resources.device)
        if found:
            raise SpecInvalid(found)

    def _device_problems(self, device: str) -> list[Problem]:
        if device == "cpu":
            return []
        reply = self._ask("device", device)
        if reply.returncode == 0:
            return []
        hint = "Use cpu, or install a torch build for your device (see the README)."
        return [Problem("resources.device", device, reply.stderr.strip(), hint)]

    def _ask(
        self, program: str, *arguments: str, input: str = ""
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", f"rl_orch.worker.{program}", *arguments]
        try:
            return ask(command, input, timeout_s=CHECK_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise BadInput(
                f"the {program} of the spec took longer than {CHECK_TIMEOUT_S:.0f} s",
                hint="Make the environment by hand to see what it waits for.",
            ) from None
