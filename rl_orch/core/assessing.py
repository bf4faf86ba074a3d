"""Models played anew by a child: one question in, reports out. It has torch, we do not."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_orch.errors import RlctlError
from rl_orch.io import asking
from rl_orch.records import EvalReport, ModelVersion

COMMAND = (sys.executable, "-m", "rl_orch.worker.assess")
TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class ChildAssess:
    """`Assess` by a child process.

    It is asked `{"challenger", "champion", "episodes"}`, each model by the directory of its run,
    its checkpoint and its policy, and answers `{"report", "baseline"}` or `{"error"}`.
    """

    command: Sequence[str] = COMMAND
    timeout_s: float = TIMEOUT_S

    def assess(
        self, challenger: ModelVersion, champion: ModelVersion | None, episodes: int
    ) -> tuple[EvalReport, EvalReport | None]:
        """The report on a model, and on another one over episodes of the very same seeds."""
        question = {
            "challenger": _named(challenger),
            "champion": None if champion is None else _named(champion),
            "episodes": episodes,
        }
        try:
            reply = asking.ask(self.command, json.dumps(question), timeout_s=self.timeout_s)
        except subprocess.TimeoutExpired:
            raise RlctlError(
                f"model {challenger.id} was not played to the end within {self.timeout_s:g} s",
                hint="Ask for fewer episodes.",
            ) from None
        return _reports(reply, challenger, champion)


def _named(model: ModelVersion) -> dict[str, Any]:
    path = Path(model.model_path)
    return {
        "directory": str(path.parents[1]),
        "checkpoint": path.name,
        "policy": model.policy,
        "model": model.id,
    }


def _reports(
    reply: subprocess.CompletedProcess[str], challenger: ModelVersion, champion: ModelVersion | None
) -> tuple[EvalReport, EvalReport | None]:
    try:
        document = asking.answer_in(reply)
        if "error" in document:
            raise RlctlError(document["error"]["message"], hint=document["error"].get("hint"))
        report = EvalReport.model_validate(document["report"])
        baseline = None if champion is None else EvalReport.model_validate(document["baseline"])
    except (IndexError, KeyError, TypeError, ValueError):
        last = (reply.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise RlctlError(
            f"model {challenger.id} could not be played: its process ended with exit code "
            f"{reply.returncode}: {last}"
        ) from None
    return report, baseline
