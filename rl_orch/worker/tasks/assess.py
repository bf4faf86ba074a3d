"""`python -m rl_orch.worker.tasks.assess`: plays policies from their files, as it is asked to.

Each line of standard input is an `EvaluateTask`. Policies stay loaded from one to the next.
"""

import secrets
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rl_orch.io.files import sealed
from rl_orch.io.run.directory import RunDir
from rl_orch.records.tasks import EvaluateAnswer, EvaluateTask, PolicyFiles
from rl_orch.rl.evaluate import Evaluator, extras_of, report
from rl_orch.spec.model import Spec
from rl_orch.worker.policies.load import refuse_unless_alike
from rl_orch.worker.policies.recording import notable
from rl_orch.worker.policies.sources import Playable, playable
from rl_orch.worker.task import Tell, answer_lines

SEED_BITS = 31


@dataclass(frozen=True, slots=True)
class LoadedSubject:
    """A policy that is loaded, its names in a report, and what it is evaluated with."""

    loaded: Playable
    names: Mapping[str, Any]
    evaluator: Evaluator

    @property
    def spec(self) -> Spec:
        """The spec of the policy."""
        return self.loaded.spec


class EvalPlayer:
    """Plays the policies that it is asked about."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._known: dict[str, LoadedSubject] = {}

    def answer(self, task: EvaluateTask, tell: Tell) -> EvaluateAnswer:
        """The reports that are asked for, over episodes of the very same seeds."""
        named = [task.challenger, task.champion]
        subjects = [self._subject(each) for each in named if each is not None]
        if len(subjects) > 1:
            refuse_unless_alike(*(subject.spec for subject in subjects))
        seed = secrets.randbits(SEED_BITS) if task.seed is None else task.seed
        deterministic = task.deterministic
        if deterministic is None:
            deterministic = subjects[0].spec.eval.deterministic
        reports, kept = [], []
        for number, subject in enumerate(subjects):

            def heard(done: int, number: int = number) -> None:
                part = done / max(task.episodes, 1)
                tell("playing", (number + part) / len(subjects))

            played = subject.evaluator.play(
                subject.loaded.policy,
                episodes=task.episodes,
                seed=seed,
                deterministic=deterministic,
                first=task.first,
                extras=extras_of(task.metrics, actions=task.actions),
                tell=heard,
            )
            found = report(played, subject.spec, seed=seed, deterministic=deterministic)
            reports.append(found.model_copy(update=subject.names))
            kept.append(tuple(notable(played).values()))
        return EvaluateAnswer(
            report=reports[0],
            baseline=reports[1] if len(reports) > 1 else None,
            episodes=tuple(kept),
        )

    def _subject(self, named: PolicyFiles) -> LoadedSubject:
        place = named.model_dump_json()
        if place not in self._known:
            digest = _digest(named)  # Before it is loaded, which verifies that very manifest.
            found = self._stack.enter_context(playable(named))
            evaluator = Evaluator(found.spec, lanes=found.lanes)
            self._stack.callback(evaluator.close)
            names = {
                "step": found.step,
                "checkpoint": found.name,
                "model": None if named.model is None else str(named.model),
                "digest": digest,
            }
            self._known[place] = LoadedSubject(found, names, evaluator)
        return self._known[place]


def _digest(named: PolicyFiles) -> str | None:
    """The digest of a checkpoint's files; None of a bundle, whose report says where it is from."""
    if named.bundle is not None:
        return None
    return sealed.manifest_digest(RunDir(Path(named.directory)).policy(named.checkpoint))


def main() -> None:
    """Answer requests until there are no more."""
    torch.set_num_threads(1)
    with ExitStack() as stack:
        answer_lines(EvaluateTask, EvalPlayer(stack).answer, sys.stdin)


if __name__ == "__main__":
    main()
