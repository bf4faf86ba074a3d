"""`python -m rl_orch.worker.checks.served_policy < spec.json`: can a policy that is served act
there?

Importing somebody's environment may do anything, so it happens here and not in the command that
asks. Which algorithm learned the policy is not our business: only what goes over its standard
input and output is.
"""

import sys

from rl_orch.errors import Problem, SpecInvalid
from rl_orch.io.processes import import_path
from rl_orch.records.tasks import CheckAnswer, CheckTask
from rl_orch.rl.envs.describe import EnvDescription, describe, named
from rl_orch.rl.envs.trial import EnvTrial, try_out
from rl_orch.worker.task import Tell, answer_one

ARRAYS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
"""The spaces whose elements are arrays of numbers, which a line of JSON can hold."""


def check(task: CheckTask, _tell: Tell) -> CheckAnswer:
    """The problems that only the environment itself can tell of."""
    import_path.search(task.module_path)
    try:
        env = describe(task.spec)
    except SpecInvalid as error:
        return CheckAnswer(problems=tuple(error.problems))
    spec, warnings = named(task.spec, env)
    found = problems(env)
    trial = EnvTrial() if found else try_out(spec)
    return CheckAnswer(
        problems=(*found, *trial.problems),
        warnings=(*warnings, *trial.warnings),
        settled={"env.id": env.id},
    )


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
    sys.exit(answer_one(CheckTask, check))
