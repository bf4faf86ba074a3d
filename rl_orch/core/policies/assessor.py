"""Models played by children, so that a gate can read what came of it."""

import hashlib
from pathlib import Path

from rl_orch.core.policies.player_pool import playing, worth
from rl_orch.io.machine import hardware
from rl_orch.io.processes.task_worker import TaskWorker
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.gate_evidence import EvidenceRequest, GateEvidence, GatherTask
from rl_orch.records import EvalReport, ModelVersion
from rl_orch.records.tasks import EvaluateTask, PolicyFiles

SEED_BYTES = 4


class SubprocessEvaluator:
    """`ModelEvaluator` by children, as many as are worth it.

    The seed follows from what the two models are: however often they meet, they meet on the same
    episodes, so that trying again is no second chance.
    """

    def assess(
        self, challenger: ModelVersion, champion: ModelVersion | None, episodes: int
    ) -> tuple[EvalReport, EvalReport | None]:
        """Reports on a model, and on another one over episodes of the same seeds."""
        task = EvaluateTask(
            challenger=_named(challenger),
            champion=None if champion is None else _named(champion),
            seed=seed_of(challenger, champion),
        )
        with playing(worth(episodes, hardware.cores())) as players:
            answer = players.play(task, 0, episodes, _unheard)
        return answer.report, answer.baseline

    def gather(
        self, model: ModelVersion, report: EvalReport, wanted: EvidenceRequest
    ) -> GateEvidence:
        """Evidence on a model besides the report on it: champions play the same seeds."""
        directory = str(Path(model.model_path).parents[1])
        task = GatherTask(directory=directory, report=report, wanted=wanted)
        return TaskWorker(GateEvidence, ("gather",), doing="gathering evidence").answer(task)


def seed_of(challenger: ModelVersion, champion: ModelVersion | None) -> int:
    """The seed of the episodes on which two models meet, or one is judged."""
    met = [
        model.checkpoint_digest or model.digest or model.model_path
        for model in (challenger, champion)
        if model
    ]
    digest = hashlib.sha256("\n".join(met).encode()).digest()
    return int.from_bytes(digest[:SEED_BYTES]) >> 1


def _named(model: ModelVersion) -> PolicyFiles:
    path = Path(model.model_path)
    return PolicyFiles(
        directory=str(path.parents[1]),
        checkpoint=f"{path.parent.name}/{path.name}",
        model=model.id,
        module_path=tuple(RunDir(path.parents[1]).module_path()),
    )


def _unheard(_done: float) -> None:
    """Ignore how far it is: nobody waits to hear it."""
