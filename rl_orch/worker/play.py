"""`python -m rl_orch.worker.play < question.json`: drives an episode again, to be looked at.

The question names the directory of a run and either a recorded episode (`episode`), or a
checkpoint, a seed and the number of an episode that its policy is to play first. With `film` the
frames go into that file; else a window opens. The answer is the last line of standard output.
"""

import contextlib
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.episode_tables import Recorded
from rl_orch.io.rundir import RunDir
from rl_orch.rl.evaluate import Evaluator, extras_of
from rl_orch.rl.redriving import Driven
from rl_orch.spec.model import Spec
from rl_orch.worker.answering import write
from rl_orch.worker.films import show
from rl_orch.worker.policies import opened
from rl_orch.worker.recording import notable

ALIKE = 1e-6
"""How far, relatively, the return may be from the recorded one: native environments agree with
Gymnasium's own only to rounding."""


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """What came of driving the episode again."""
    directory = RunDir(Path(question["directory"]))
    spec = directory.spec()
    episode = (
        Recorded.model_validate(question["episode"])
        if question.get("episode") is not None
        else _played(directory, spec, question)
    )
    film = question.get("film")
    driven = show(spec, episode, None if film is None else Path(film))
    return {
        "number": episode.number,
        "seed": episode.seed,
        "return": driven.ret,
        "length": driven.length,
        "recorded_return": episode.ret,
        "same": alike(driven, episode),
        "film": film,
    }


def alike(driven: Driven, episode: Recorded) -> bool:
    """Whether what was driven is what had been recorded."""
    near = abs(driven.ret - episode.ret) <= ALIKE * max(1.0, abs(episode.ret))
    return near and driven.length == episode.length and driven.ended


def _played(directory: RunDir, spec: Spec, question: dict[str, Any]) -> Recorded:
    path = directory.checkpoints / Path(question["checkpoint"]).name
    with opened(spec, directory, path) as (policy, _), closing(Evaluator(spec)) as evaluator:
        played = evaluator.play(
            policy,
            episodes=1,
            seed=int(question["seed"]),
            first=int(question["number"]),
            deterministic=bool(question["deterministic"]),
            extras=extras_of((), actions=True),
        )
    found = notable(played)
    if not found:
        raise BadInput(
            f"episodes of env.backend {spec.env.backend!r} cannot be driven again one by one",
            path="env.backend",
            hint="Its copies share one seed; train with env.backend=sync to look at episodes.",
        )
    return found["best"]


def main() -> None:
    """Answer one question."""
    torch.set_num_threads(1)
    real = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        try:
            reply = answer(json.loads(sys.stdin.read()))
        except RlctlError as error:
            reply = error.document() | {"bad_input": isinstance(error, BadInput)}
    write(real, reply)


if __name__ == "__main__":
    main()
