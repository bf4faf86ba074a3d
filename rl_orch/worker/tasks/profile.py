"""`python -m rl_orch.worker.tasks.profile < question.json`: train for a while, and say where it
went.

The question has a spec with nothing left open, and limits. Standard output has a line of JSON
whenever there is progress to tell of, and a last one with the answer or an error.
"""

import sys
from collections.abc import Mapping
from typing import Any

from rl_orch.rl.measure.profile import ProfileLimits, Tell, profile
from rl_orch.spec.model import Spec
from rl_orch.worker.task import answer_one


def answer(question: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Profile of the training that a question asks for."""
    spec = Spec.model_validate(question["spec"])
    return profile(spec, ProfileLimits(**question["limits"]), tell).model_dump(mode="json")


if __name__ == "__main__":
    sys.exit(answer_one(answer))
