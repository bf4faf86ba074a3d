"""States of the parts of a training, and where they stand in a checkpoint."""

import numpy as np

from rl_orch.records import Clock
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.snapshot import assemble, parts_of


def a_state(*names: str, **document: object) -> StateTree:
    return StateTree({name: np.array([i]) for i, name in enumerate(names)}, document)


def test_a_part_is_handed_back_under_the_name_it_was_joined_by() -> None:
    inner, other = a_state("mean", "deep/er", steps=3), a_state("first")
    whole = StateTree.joined({"optimizer": inner, "optimizer_2": other})
    assert {*whole.tensors} == {"optimizer/mean", "optimizer/deep/er", "optimizer_2/first"}
    assert whole.document == {"optimizer": {"steps": 3}}
    assert whole.under("optimizer") == inner
    assert whole.under("optimizer").under("deep").tensors == {"er": inner.tensors["deep/er"]}
    assert whole.under("nothing") == StateTree()


def test_of_two_states_the_second_counts() -> None:
    both = a_state("a", "b", x=1, y=1) | StateTree({"b": np.array([9])}, {"y": 2})
    assert {name: int(tensor[0]) for name, tensor in both.tensors.items()} == {"a": 0, "b": 9}
    assert both.document == {"x": 1, "y": 2}


def test_a_snapshot_names_its_parts_as_checkpoints_always_have() -> None:
    parts = {
        "policy": a_state("actor.weight"),
        "learner": a_state("optimizer/mean", "rng/noise", "learner/critics/w", updates=2),
        "collector": a_state("first", "ahead/rewards", "envs/0/arrays", "rng/actions", env_steps=8),
        "replay": a_state("priorities", size=0, segments=[]),
        "rng": a_state("torch", python=[]),
        "loop": StateTree({}, {"failed_evaluations": 0}),
    }
    snapshot = assemble(parts, clock=Clock("env_steps", 8), segments=("one",))
    assert {*snapshot.tensors} == {
        *("policies/default/actor.weight", "optimizer/mean", "rng/noise", "learner/critics/w"),
        *("collector/first", "collector/ahead/rewards", "envs/0/arrays", "rng/actions"),
        *("replay/priorities", "rng/torch"),
    }
    assert {*snapshot.document} == {"trainer_state", "replay_meta", "rng_state"}
    trainer = snapshot.document["trainer_state"]
    assert trainer == {
        "failed_evaluations": 0,
        "learner": {"updates": 2},
        "collector": {"env_steps": 8},
    }
    assert parts_of(snapshot) == parts
