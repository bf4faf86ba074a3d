"""`TrainingSnapshot`: everything that a training remembers, named as checkpoints name it.

The one place that knows where each part of a training stands in a checkpoint.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from rl_orch.records import Clock, ClockUnit, EvalReport
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.policies.policy import TENSOR_PREFIX

COLLECTORS = ("envs/", "rng/actions")
"""Tensors of collectors that stand for themselves; all others are below `collector/`."""

PLACES = {"policy": TENSOR_PREFIX, "collector": "collector/", "replay": "replay/"}
"""Where the tensors of each part stand; those of a learner are all others, by their own names."""

TORCH = "rng/torch"
"""The generator of torch, as it stands there; those of others are in their parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSnapshot(StateTree):
    """Everything training remembers at a step, which counts `unit`; and the names of the segments
    that hold its replay buffer."""

    step: int
    segments: tuple[str, ...] = ()
    unit: ClockUnit = "env_steps"


def assemble(
    parts: Mapping[str, StateTree], *, clock: Clock, segments: tuple[str, ...]
) -> TrainingSnapshot:
    """The snapshot of a training from its parts: `policy`, `learner`, `collector`, `replay`,
    `rng` and the loop's own, `loop`."""
    tensors = {
        _placed(part, name): tensor
        for part, state in parts.items()
        for name, tensor in state.tensors.items()
    }
    document = {
        "trainer_state": {
            **parts["loop"].document,
            "learner": parts["learner"].document,
            "collector": parts["collector"].document,
        },
        "replay_meta": parts["replay"].document,
        "rng_state": parts["rng"].document,
    }
    return TrainingSnapshot(tensors, document, step=clock.value, segments=segments, unit=clock.unit)


def parts_of(snapshot: StateTree) -> dict[str, StateTree]:
    """The parts that `assemble` put together."""
    trainer = snapshot.document.get("trainer_state", {})
    documents = {
        "policy": {},
        "learner": trainer.get("learner", {}),
        "collector": trainer.get("collector", {}),
        "replay": snapshot.document.get("replay_meta", {}),
        "rng": snapshot.document.get("rng_state", {}),
        "loop": {k: v for k, v in trainer.items() if k not in ("learner", "collector")},
    }
    parts = {name: StateTree({}, document) for name, document in documents.items()}
    for name, tensor in snapshot.tensors.items():
        part, inner = _found(name)
        parts[part].tensors[inner] = tensor
    return parts


def _placed(part: str, name: str) -> str:
    """The name of a part's tensor in a checkpoint."""
    if part == "rng":
        return TORCH
    own = part == "collector" and name.startswith(COLLECTORS)
    return name if own else PLACES.get(part, "") + name


def _found(name: str) -> tuple[str, str]:
    """The part that a tensor of a checkpoint belongs to, and its name in there."""
    if name == TORCH:
        return "rng", "torch"
    if name.startswith(COLLECTORS):
        return "collector", name
    part = next((part for part, place in PLACES.items() if name.startswith(place)), "learner")
    return part, name.removeprefix(PLACES.get(part, ""))


def _no_segments(name: str) -> Mapping[str, NDArray[Any]]:
    raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Resumption:
    """A point to go on from: a snapshot, its evaluation, if any, and a reader of segments.

    Without `replay` that buffer is gone, and begins empty. One that goes on `past_end` forgets what
    ended it: a callback's word, or evaluations that failed.
    """

    snapshot: TrainingSnapshot
    report: EvalReport | None
    segments: Callable[[str], Mapping[str, NDArray[Any]]] = field(default=_no_segments)
    replay: bool = True
    past_end: bool = False
