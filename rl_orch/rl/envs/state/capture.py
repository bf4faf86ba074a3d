"""`capture` and `restore`: the states of all copies of a vector environment as plain data.

Nothing here can run code that the data brings along: only what a new environment has is filled.
"""

import logging
from typing import Any

import numpy as np

from rl_orch.rl.data.state import StateTree
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.native.envs import NativeEnvs
from rl_orch.rl.envs.state.graph import generators
from rl_orch.rl.envs.state.graph.errors import Uncapturable
from rl_orch.rl.envs.state.graph.flatten import FlatGraph, flatten
from rl_orch.rl.envs.state.graph.refill import refill
from rl_orch.rl.envs.state.methods import EnvSnapshot
from rl_orch.rl.envs.state.methods import Method as Method
from rl_orch.rl.envs.vector import Envs
from rl_orch.rl.streams import derive

LOG = logging.getLogger(__name__)


def capture(envs: Envs) -> StateTree:
    """The present states, by the method that the environments were made with; copies.

    "captured": what the objects of each copy hold, or the arrays of native ones. "redriven": the
    seed and the actions of each copy's present episode. "restarted": which episodes follow.
    The document says the `method`, the `memories` (of each copy, or one of the whole) and `why`, a
    part of a sentence, if the method became "restarted" because a state could not be captured.
    """
    kept = vector.upkeep(envs)
    memories = _memories(envs, kept)
    why = next((m.document["why"] for m in memories if m.document["state"] is None), None)
    return StateTree(
        tensors={f"{i}/arrays": memory.data for i, memory in enumerate(memories)},
        document={
            "method": kept.method if why is None else "restarted",
            "memories": [memory.document for memory in memories],
            "why": why,
        },
    )


def restore(envs: Envs, states: StateTree) -> vector.First | None:
    """Let environments that were made alike go on from these states.

    None where every copy goes on exactly where it was; else the first observations (N, ...) of
    episodes that had to begin anew, the ones that follow those which were cut short.
    The process-wide generators of this process are left as they are.
    """
    why = go_on(envs, states)
    if why is None:
        return None
    LOG.warning("the environments begin new episodes: %s", why)
    kept = vector.upkeep(envs)
    kept.restarts += 1
    seed = None
    if kept.seed is not None and not vector.numbers_episodes(envs):
        seed = vector.undivided(derive(kept.seed, kept.restarts))
    with generators.process_wide_kept():
        return vector.shown(envs, *envs.reset(seed=seed))


def go_on(envs: Envs, states: StateTree) -> str | None:
    """None if every copy goes on exactly where it was; else, as a part of a sentence, why not.

    Then the environments know which episodes follow, and must be reset.
    """
    method, kept = states.document["method"], vector.upkeep(envs)
    documents = states.document["memories"]
    if method not in (kept.method, "restarted"):
        why = f"the state is one to be {method}, and these environments are {kept.method}"
        documents = [{**document, "state": None, "why": why} for document in documents]
    memories = [
        EnvSnapshot(document, np.asarray(states.tensors[f"{i}/arrays"]))
        for i, document in enumerate(documents)
    ]
    with generators.process_wide_kept():
        inner: Any = envs.unwrapped
        if isinstance(inner, NativeEnvs):
            return inner.recall(memories[0])
        if not kept.by_copy:
            return _go_on_whole(envs, memories[0])
        inner.set_attr("remembered", memories)
        return next((why for why in inner.call("recall") if why is not None), None)


def _memories(envs: Envs, kept: vector.Upkeep) -> list[EnvSnapshot]:
    """The memory of each copy, or one of the whole."""
    inner: Any = envs.unwrapped
    if isinstance(inner, NativeEnvs):
        return [inner.remember(captured=kept.method == "captured")]
    return [*inner.call("remember")] if kept.by_copy else [_whole(envs, kept)]


def _whole(envs: Envs, kept: vector.Upkeep) -> EnvSnapshot:
    """The state of a vector environment that is not made of copies that we know."""
    document = {"seed": kept.seed, "restarts": kept.restarts, "state": None}
    if kept.method != "captured":
        return EnvSnapshot({**document, "why": "the state of an episode is not remembered"})
    try:
        flat = flatten(envs, name="envs")
    except Uncapturable as error:
        return EnvSnapshot({**document, "why": str(error)})
    return EnvSnapshot({**document, "state": flat.document, "why": None}, flat.data)


def _go_on_whole(envs: Envs, memory: EnvSnapshot) -> str | None:
    kept, document = vector.upkeep(envs), memory.document
    kept.seed, kept.restarts = document["seed"], document["restarts"]
    if document["state"] is None:
        return str(document["why"])
    # A reset makes what the first step needs; what it puts there is then replaced.
    envs.reset(seed=None if kept.seed is None else vector.undivided(kept.seed))
    try:
        refill(FlatGraph(document["state"], memory.data), envs, name="envs")
    except Uncapturable as error:
        return str(error)
    return None
