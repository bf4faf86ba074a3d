"""`python -m rl_orch.worker.tasks.play < question.json`: drives an episode again, to be looked at.

With `film` the frames go into that file; else a window opens.
"""

import sys
from contextlib import closing
from pathlib import Path

import torch

from rl_orch.errors import BadInput
from rl_orch.records.tasks import FilmAnswer, FilmTask, Recorded
from rl_orch.rl.collect.replay_episode import ReplayedEpisode
from rl_orch.rl.evaluate import Evaluator, extras_of
from rl_orch.worker.policies.recording import notable
from rl_orch.worker.policies.rendering import prepare
from rl_orch.worker.policies.sources import playable, spec_of
from rl_orch.worker.policies.video import show
from rl_orch.worker.task import Tell, answer_one

ALIKE = 1e-6
"""How far, relatively, the return may be from the recorded one: native environments agree with
Gymnasium's own only to rounding."""


def answer(task: FilmTask, tell: Tell) -> FilmAnswer:
    """Drive the episode again, and return what came of it."""
    torch.set_num_threads(1)
    tell("playing", 0.0)
    spec = spec_of(task.policy)
    if task.film is not None:
        prepare(spec)
    episode = task.episode or _played(task)
    driven = show(spec, episode, None if task.film is None else Path(task.film))
    return FilmAnswer(
        number=episode.number,
        seed=episode.seed,
        ret=driven.ret,
        length=driven.length,
        recorded_return=episode.ret,
        same=alike(driven, episode),
        film=task.film,
    )


def alike(driven: ReplayedEpisode, episode: Recorded) -> bool:
    """Whether what was driven is what had been recorded."""
    near = abs(driven.ret - episode.ret) <= ALIKE * max(1.0, abs(episode.ret))
    return near and driven.length == episode.length and driven.ended


def _played(task: FilmTask) -> Recorded:
    with playable(task.policy) as found, closing(Evaluator(found.spec)) as evaluator:
        spec = found.spec
        played = evaluator.play(
            found.policy,
            episodes=1,
            seed=task.seed,
            first=task.number,
            deterministic=task.deterministic,
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
    sys.exit(answer_one(FilmTask, answer))
