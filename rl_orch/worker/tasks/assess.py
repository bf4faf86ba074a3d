"""`python -m rl_orch.worker.tasks.assess`: plays policies from their files, as it is asked to.

Each line of standard input is a question in JSON, `{"challenger", "champion", "episodes"}` and, if
they matter, `first`, `seed`, `deterministic`, `metrics` and `actions`. A policy is named by the
directory of its run, its checkpoint and the model that it is; or as a `bundle`. Standard output
has lines of progress, `{"doing", "done"}`, and for each question one with `report` and `baseline`,
or an error.

Policies stay loaded from one question to the next.
"""

import contextlib
import json
import secrets
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.files import sealed
from rl_orch.io.processes import import_path
from rl_orch.io.run.directory import RunDir
from rl_orch.rl.evaluate import Evaluator, extras_of, report
from rl_orch.spec.model import Spec
from rl_orch.worker.policies.load import refuse_unless_alike
from rl_orch.worker.policies.recording import notable
from rl_orch.worker.policies.sources import Playable, playable
from rl_orch.worker.task import Tell, teller, write

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


class EvalTask:
    """Plays the policies that it is asked about."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._known: dict[str, LoadedSubject] = {}

    def answer(self, question: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """The reports that a question asks for, over episodes of the very same seeds."""
        named = [question["challenger"], question.get("champion")]
        subjects = [self._subject(each) for each in named if each is not None]
        if len(subjects) > 1:
            refuse_unless_alike(*(subject.spec for subject in subjects))
        given = question.get("seed")
        seed = secrets.randbits(SEED_BITS) if given is None else int(given)
        given = question.get("deterministic")
        deterministic = subjects[0].spec.eval.deterministic if given is None else bool(given)
        reports, kept = [], []
        for number, subject in enumerate(subjects):

            def heard(done: int, number: int = number) -> None:
                part = done / max(int(question["episodes"]), 1)
                tell("playing", (number + part) / len(subjects))

            extras = extras_of(question.get("metrics", ()), actions=bool(question.get("actions")))
            played = subject.evaluator.play(
                subject.loaded.policy,
                episodes=int(question["episodes"]),
                seed=seed,
                deterministic=deterministic,
                first=int(question.get("first", 0)),
                extras=extras,
                tell=heard,
            )
            found = report(played, subject.spec, seed=seed, deterministic=deterministic)
            told = found.model_copy(update=subject.names)
            reports.append(told.model_dump(mode="json"))
            kept.append([each.model_dump() for each in notable(played).values()])
        return {
            "report": reports[0],
            "baseline": reports[1] if len(reports) > 1 else None,
            "episodes": kept,
        }

    def _subject(self, named: Mapping[str, Any]) -> LoadedSubject:
        place = json.dumps(dict(named), sort_keys=True)
        if place not in self._known:
            digest = _digest(named)  # Before it is loaded, which verifies that very manifest.
            found = self._stack.enter_context(playable(named))
            evaluator = Evaluator(found.spec, lanes=found.lanes)
            self._stack.callback(evaluator.close)
            model = named.get("model")
            names = {
                "step": found.step,
                "checkpoint": found.name,
                "model": None if model is None else str(model),
                "digest": digest,
            }
            self._known[place] = LoadedSubject(found, names, evaluator)
        return self._known[place]


def _digest(named: Mapping[str, Any]) -> str | None:
    """The digest of a checkpoint's files; None of a bundle, whose report says where it is from."""
    if named.get("bundle") is not None:
        return None
    directory = RunDir(Path(named["directory"]))
    return sealed.manifest_digest(directory.policy(named["checkpoint"]))


def main() -> None:
    """Answer questions until there are no more."""
    torch.set_num_threads(1)
    import_path.search()
    real = sys.stdout
    with contextlib.redirect_stdout(sys.stderr), ExitStack() as stack:
        assessor = EvalTask(stack)
        for line in sys.stdin:
            try:
                reply = assessor.answer(json.loads(line), teller(real))
            except RlctlError as error:
                reply = error.document() | {"bad_input": isinstance(error, BadInput)}
            write(real, reply)


if __name__ == "__main__":
    main()
