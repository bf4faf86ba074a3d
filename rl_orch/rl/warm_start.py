"""`WarmStart`: weights, and more, that a training takes over from another one.

What is taken and what does not fit is worked out first, so that a misfit changes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from rl_orch.errors import BadInput
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.learn.learner import Learner
from rl_orch.rl.learn.off_policy import ReplayLearner
from rl_orch.rl.policies.policy import load_module, module_state
from rl_orch.rl.snapshot import parts_of
from rl_orch.spec.checks import value_at
from rl_orch.spec.model import Spec

BESIDE_POLICY = ("learner/", "rewards/")
"""Tensors of a learner that belong to the policy: critics, slow copies, the scale of rewards."""

OWN = "rewards/sums"
"""Of the episodes that are under way, which are never another training's."""

OPTIMIZERS = "optimizer/"
MOST_SHOWN = 8
"""Misfits that one sentence names."""

ALIKE = {
    "optimizer": ("agent.algorithm", "train.optimizer"),
    "replay": ("env.num_envs", "obs.stack_frames", "agent.action_masks", "buffer.prioritized"),
}
"""Options that two trainings must share for the one to go on with that part of the other."""


@dataclass(frozen=True, slots=True)
class WarmStart:
    """The snapshot of another training, its spec, and which parts of it are `wanted`.

    `segments` reads its replay buffer. If `partial`, what does not fit is left.
    """

    snapshot: StateTree
    spec: Spec
    wanted: tuple[str, ...]
    partial: bool = False
    segments: Callable[[str], Mapping[str, NDArray[Any]]] | None = None


@dataclass(frozen=True, slots=True)
class WarmStartFit:
    """The tensors of a snapshot that a learner takes over, the names of its own that it keeps, and
    the misfits, a sentence each."""

    policy: dict[str, NDArray[Any]] = field(default_factory=dict)
    learner: dict[str, NDArray[Any]] = field(default_factory=dict)
    replay: StateTree | None = None
    kept: list[str] = field(default_factory=list)
    misfits: list[str] = field(default_factory=list)

    @property
    def summary(self) -> dict[str, Any]:
        """What was taken and what not, as an event tells it."""
        taken = [f"policy/{name}" for name in self.policy] + list(self.learner)
        taken += [] if self.replay is None else ["replay"]
        return {"taken": sorted(taken), "kept": sorted(self.kept)}


def fit(learner: Learner, start: WarmStart, spec: Spec) -> WarmStartFit:
    """What the learner can take over; raises nothing, and changes nothing."""
    theirs, fitted = parts_of(start.snapshot), WarmStartFit()
    own, state = module_state(learner.policy).tensors, learner.state().tensors
    _overlay(fitted, fitted.policy, own, theirs["policy"].tensors, "policy/")
    fitted.misfits.extend(
        f"policy/{name} {_form(tensor)} is in the source alone"
        for name, tensor in theirs["policy"].tensors.items()
        if name not in own
    )
    whole = not fitted.misfits
    beside = {n: t for n, t in state.items() if n.startswith(BESIDE_POLICY) and n != OWN}
    present = {name: theirs["learner"].tensors.get(name) for name in beside}
    fitted.kept.extend(name for name, tensor in present.items() if tensor is None)
    shared = {name: tensor for name, tensor in present.items() if tensor is not None}
    _overlay(fitted, fitted.learner, {name: beside[name] for name in shared}, shared, "")
    if "optimizer" in start.wanted:
        moments = {n: t for n, t in state.items() if n.startswith(OPTIMIZERS)}
        if whole and _agree(fitted, start, spec, "optimizer"):
            _overlay(fitted, fitted.learner, moments, theirs["learner"].tensors, "")
        else:
            fitted.kept.extend(moments)
    if "replay" in start.wanted and learner.replay is not None:
        return _with_replay(fitted, start, spec, theirs["replay"], learner)
    return fitted


def take(learner: Learner, start: WarmStart, spec: Spec) -> WarmStartFit:
    """Make the learner go on with what fits; a BadInput with all that does not, unless that is
    allowed. Its counters and generators stay its own."""
    fitted = fit(learner, start, spec)
    refuse_misfits(fitted, start)
    own = module_state(learner.policy).tensors
    load_module(learner.policy, StateTree(own | fitted.policy), what="policy")
    if isinstance(learner, ReplayLearner):
        learner.sync_targets()
    state = learner.state()
    learner.load_state(StateTree(state.tensors | fitted.learner, state.document))
    if fitted.replay is not None and learner.replay is not None and start.segments is not None:
        learner.replay.load(fitted.replay, start.segments)
    return fitted


def refuse_misfits(fitted: WarmStartFit, start: WarmStart) -> None:
    """Raise if something does not fit, or nothing at all does."""
    if not fitted.misfits or (start.partial and fitted.policy):
        return
    shown, more = fitted.misfits[:MOST_SHOWN], len(fitted.misfits) - MOST_SHOWN
    others = f"; and {more} more" if more > 0 else ""
    raise BadInput(
        f"the source, a policy of {start.spec.env.id}, does not fit: {'; '.join(shown)}{others}",
        path="start.from",
        hint="start.partial=true takes what fits and says what." if fitted.policy else None,
    )


def _overlay(
    fitted: WarmStartFit,
    taken: dict[str, NDArray[Any]],
    own: Mapping[str, NDArray[Any]],
    theirs: Mapping[str, NDArray[Any]],
    prefix: str,
) -> None:
    """Sort tensors of our own into those that are taken over, and those that do not fit."""
    for name, tensor in own.items():
        other = theirs.get(name)
        if other is not None and (other.shape, other.dtype) == (tensor.shape, tensor.dtype):
            taken[name] = other
            continue
        there = "not in the source" if other is None else f"{_form(other)} in the source"
        fitted.misfits.append(f"{prefix}{name} is {_form(tensor)} here and {there}")
        fitted.kept.append(f"{prefix}{name}")


def _agree(fitted: WarmStartFit, start: WarmStart, spec: Spec, part: str) -> bool:
    """Whether the options agree that a part depends on; those that do not are misfits."""
    pairs = {path: (value_at(spec, path), value_at(start.spec, path)) for path in ALIKE[part]}
    differing = {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}
    fitted.misfits.extend(
        f"{part}: {path} is {here!r} here and {there!r} in the source"
        for path, (here, there) in differing.items()
    )
    return not differing


def _with_replay(
    fitted: WarmStartFit, start: WarmStart, spec: Spec, theirs: StateTree, learner: Learner
) -> WarmStartFit:
    assert learner.replay is not None
    if not theirs.document.get("segments"):
        fitted.misfits.append("replay: the source has no replay buffer")
    elif _agree(fitted, start, spec, "replay"):
        own = learner.replay.state().document["rng"]
        state = StateTree(theirs.tensors, theirs.document | {"rng": own})
        return WarmStartFit(fitted.policy, fitted.learner, state, fitted.kept, fitted.misfits)
    fitted.kept.append("replay")
    return fitted


def _form(tensor: NDArray[Any]) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}"
