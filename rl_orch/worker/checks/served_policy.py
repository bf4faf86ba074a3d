"""`python -m rl_orch.worker.checks.served_policy < spec.json`: can a policy that is served act
there?

Importing somebody's environment may do anything, so it happens here and not in the command that
asks. The answer is the last line of standard output. Which algorithm learned the policy is not
our business: only what goes over its standard input and output is.
"""

import contextlib
import sys
from dataclasses import asdict
from typing import Any

from rl_orch.errors import Problem, RlctlError, SpecInvalid
from rl_orch.io.processes.one_shot import asked_spec
from rl_orch.rl.envs.describe import EnvDescription, describe, try_out
from rl_orch.spec.model import Spec
from rl_orch.worker.task import write

ARRAYS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
"""The spaces whose elements are arrays of numbers, which a line of JSON can hold."""


def answer(spec: Spec) -> dict[str, Any]:
    """The problems that only the environment itself can tell of."""
    try:
        found = problems(describe(spec)) or try_out(spec)
    except SpecInvalid as error:
        found = list(error.problems)
    except RlctlError as error:
        return error.document()
    return {"problems": [asdict(problem) for problem in found]}


def problems(env: EnvDescription) -> list[Problem]:
    """Reasons why a served policy cannot act there; empty if it can."""
    seen = {"observations": env.observation, "actions": env.action}
    return [
        Problem(
            "env.id",
            env.id,
            f"env.id is {env.id!r}, which has {space.kind} {what}; a policy can be served for "
            f"{', '.join(ARRAYS)}",
            "Leave runner.policy out, or flatten them in an environment of your own.",
        )
        for what, space in seen.items()
        if space.kind not in ARRAYS
    ]


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        reply = answer(asked_spec(sys.stdin.read()))
    write(sys.stdout, reply)
