"""`python -m rl_orch.worker.tasks.play < question.json`: drives an episode again, to be looked at.

The question names a policy and either a recorded episode (`episode`), or the seed and the number
of one that the policy is to play first. With `film` the frames go into that file; else a window
opens. The answer is the last line of standard output.
"""

import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from rl_orch.errors import BadInput
from rl_orch.io.policies.episode_records import Recorded
from rl_orch.rl.collect.replay_episode import ReplayedEpisode
from rl_orch.rl.evaluate import Evaluator, extras_of
from rl_orch.worker.policies.recording import notable
from rl_orch.worker.policies.sources import playable, spec_of
from rl_orch.worker.policies.video import show
from rl_orch.worker.task import Tell, answer_one

ALIKE = 1e-6
"""How far, relatively, the return may be from the recorded one: native environments agree with
Gymnasium's own only to rounding."""


def answer(question: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Drive the episode again, and return what came of it."""
    torch.set_num_threads(1)
    tell("playing", 0.0)
    spec = spec_of(question["policy"])
    episode = (
        Recorded.model_validate(question["episode"])
        if question.get("episode") is not None
        else _played(question)
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


def alike(driven: ReplayedEpisode, episode: Recorded) -> bool:
    """Whether what was driven is what had been recorded."""
    near = abs(driven.ret - episode.ret) <= ALIKE * max(1.0, abs(episode.ret))
    return near and driven.length == episode.length and driven.ended


def _played(question: Mapping[str, Any]) -> Recorded:
    with playable(question["policy"]) as found, closing(Evaluator(found.spec)) as evaluator:
        spec = found.spec
        played = evaluator.play(
            found.policy,
            episodes=1,
            seed=int(question["seed"]),
            first=int(question["number"]),
            deterministic=bool(question["deterministic"]),
            extras=extras_of((), actions=True),
        )
    kept = notable(played)
    if not kept:
        raise BadInput(
            f"episodes of env.backend {spec.env.backend!r} cannot be driven again one by one",
            path="env.backend",
            hint="Its copies share one seed; train with env.backend=sync to look at episodes.",
        )
    return kept["best"]


if __name__ == "__main__":
    sys.exit(answer_one(answer))
