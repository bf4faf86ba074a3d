"""`python -m rl_orch.worker.tasks.profile < question.json`: train for a while, and say where it
went."""

import sys

from rl_orch.records.profile import Profile
from rl_orch.records.tasks import ProfileTask
from rl_orch.rl.measure.profile import ProfileLimits, Tell, profile
from rl_orch.worker.task import answer_one


def answer(task: ProfileTask, tell: Tell) -> Profile:
    """Profile of the training that is asked for."""
    return profile(task.spec, ProfileLimits(task.seconds, task.steps), tell)


if __name__ == "__main__":
    sys.exit(answer_one(ProfileTask, answer))
