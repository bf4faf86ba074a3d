"""Episodes of an evaluation that are kept, so that they can be driven again."""

from collections.abc import Sequence

from rl_orch.records.tasks import Recorded
from rl_orch.rl.collect.episodes import PlayedEpisode, extremes


def notable(played: Sequence[PlayedEpisode]) -> dict[str, Recorded]:
    """The best and the worst episode, if their actions and seeds are known."""
    known = [each for each in played if each.actions is not None and each.seed is not None]
    if not known:
        return {}
    best, worst = extremes(known)
    return {"best": _recorded(best), "worst": _recorded(worst)}


def _recorded(played: PlayedEpisode) -> Recorded:
    assert played.actions is not None
    assert played.seed is not None
    return Recorded(
        number=played.number,
        seed=played.seed,
        ret=played.ret,
        length=played.length,
        actions=played.actions.tolist(),
    )
