"""`WarmStart`: weights, and more, that a training takes over from another one.

What is taken and what does not fit is worked out first, so that a misfit changes nothing. Tensors
have the names that checkpoints give them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from rl_orch.errors import BadInput
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.learn.learner import Learner
from rl_orch.rl.learn.off_policy import ReplayLearner
from rl_orch.rl.policies.policy import (
    SPOILED,
    TENSOR_PREFIX,
    load_module,
    module_state,
    not_finite,
)
from rl_orch.rl.replay.buffer import ReplayBuffer, segments_in
from rl_orch.rl.snapshot import parts_of
from rl_orch.spec.checks import value_at
from rl_orch.spec.model import Spec

BESIDE_POLICY = ("learner/", "rewards/")
"""Tensors of a learner that belong to the policy: critics, slow copies, the scale of rewards."""

OWN = "rewards/sums"
"""Of the episodes that are under way, which are never another training's."""

PARTIAL = "start.partial=true takes what fits and says what."
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


@dataclass(slots=True)
class WarmStartFit:
    """The tensors of a snapshot that a learner takes over, the names of its own that it keeps, and
    the misfits, a sentence each."""

    taken: dict[str, NDArray[Any]] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    misfits: list[str] = field(default_factory=list)
    replay: StateTree | None = None

    def refuse(self, start: WarmStart, hint: str = PARTIAL) -> None:
        """Raise if something does not fit, or nothing at all does; the hint is for the first."""
        if not self.misfits or (start.partial and self.taken):
            return
        raise BadInput(
            f"the source, a {start.spec.algo} policy of {start.spec.env.id}, does not fit: "
            f"{_shown(self.misfits)}",
            path="start.from",
            hint=hint if self.taken else None,
        )


def fit(learner: Learner, start: WarmStart, spec: Spec) -> WarmStartFit:
    """What the learner can take over of a snapshot; nothing changes. Numbers that are not finite
    are a BadInput whatever is allowed."""
    theirs, fitted = start.snapshot.tensors, WarmStartFit()
    own = _policy(learner).tensors | learner.state().tensors
    _compare(
        fitted,
        own,
        theirs,
        dict.fromkeys(n for n in (*own, *theirs) if n.startswith(TENSOR_PREFIX)),
    )
    whole = not fitted.misfits
    _compare_beside(fitted, own, theirs)
    if "optimizer" in start.wanted:
        moments = [name for name in own if name.startswith("optimizer/")]
        if whole and _agree(fitted, start, spec, "optimizer"):
            _compare(fitted, own, theirs, moments)
        else:
            fitted.kept += moments
    if "replay" in start.wanted and learner.replay is not None:
        buffer = parts_of(start.snapshot)["replay"]
        if not buffer.document.get("segments"):
            fitted.misfits.append("replay: the source has no replay buffer")
        elif _agree(fitted, start, spec, "replay") and _rows_fit(fitted, learner.replay, start):
            fitted.replay = buffer | StateTree({}, {"rng": learner.replay.state().document["rng"]})
        if fitted.replay is None:
            fitted.kept.append("replay")
    if names := not_finite(fitted.taken):
        raise BadInput(
            f"the source cannot be trained on: {SPOILED}: {_shown(names, ', ')}",
            path="start.from",
            hint="Name an earlier checkpoint of it, or another one.",
        )
    return fitted


def take(learner: Learner, start: WarmStart, spec: Spec) -> WarmStartFit:
    """Make the learner go on with what fits; a BadInput with all that does not, unless that is
    allowed. Its counters and generators stay its own."""
    fitted = fit(learner, start, spec)
    fitted.refuse(start)
    # First, since files may be damaged, and then nothing has changed that acts.
    if fitted.replay is not None and learner.replay is not None and start.segments is not None:
        learner.replay.load(fitted.replay, start.segments)
    policy = StateTree(_policy(learner).tensors | fitted.taken).under(TENSOR_PREFIX[:-1])
    load_module(learner.policy, policy, what="policy")
    _take_beside(learner, fitted.taken)
    if isinstance(learner, ReplayLearner):
        # Slow copies begin as copies, but for what of them was taken over.
        learner.sync_targets()
        _take_beside(learner, fitted.taken)
    return fitted


def _take_beside(learner: Learner, taken: Mapping[str, NDArray[Any]]) -> None:
    state = learner.state()
    beside = {name: taken.get(name, tensor) for name, tensor in state.tensors.items()}
    learner.load_state(StateTree(beside, state.document))


def _policy(learner: Learner) -> StateTree:
    return StateTree.joined({TENSOR_PREFIX[:-1]: module_state(learner.policy)})


def _compare(
    fitted: WarmStartFit,
    own: Mapping[str, NDArray[Any]],
    theirs: Mapping[str, NDArray[Any]],
    names: Iterable[str],
) -> None:
    """Sort tensors into those that are taken over, and those that do not fit."""
    for name in names:
        here, there = _form(own.get(name)), _form(theirs.get(name))
        if here == there:
            fitted.taken[name] = theirs[name]
            continue
        fitted.misfits.append(f"{name} is {here} here and {there} in the source")
        fitted.kept += [name] if name in own else []


def _compare_beside(
    fitted: WarmStartFit, own: Mapping[str, NDArray[Any]], theirs: Mapping[str, NDArray[Any]]
) -> None:
    """Sort what belongs to the policy: of a network that both have, all that either has."""
    beside = [n for n in (*own, *theirs) if n.startswith(BESIDE_POLICY) and n != OWN]
    both = {_network(name) for name in own} & {_network(name) for name in theirs}
    _compare(fitted, own, theirs, dict.fromkeys(n for n in beside if _network(n) in both))
    fitted.kept += [name for name in beside if name in own and _network(name) not in both]


def _network(name: str) -> str:
    """The network of a learner that a tensor is part of, as `learner/critics/first`."""
    return name.partition(".")[0]


def _rows_fit(fitted: WarmStartFit, replay: ReplayBuffer, start: WarmStart) -> bool:
    """Whether the source's experience has the columns of the buffer; those that differ are
    misfits."""
    if start.segments is None:
        return True
    theirs = start.segments(segments_in(parts_of(start.snapshot)["replay"])[-1])
    forms = {
        name: (_form(row), _form(theirs[name][0] if name in theirs else None))
        for name, row in replay.row.items()
    }
    differing = {name: pair for name, pair in forms.items() if pair[0] != pair[1]}
    for name, (here, there) in differing.items():
        fitted.misfits.append(f"replay: {name} is {here} here and {there} in the source")
    return not differing


def _agree(fitted: WarmStartFit, start: WarmStart, spec: Spec, part: str) -> bool:
    """Whether the options agree that a part depends on; those that do not are misfits."""
    pairs = {path: (value_at(spec, path), value_at(start.spec, path)) for path in ALIKE[part]}
    differing = {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}
    for path, (here, there) in differing.items():
        fitted.misfits.append(f"{part}: {path} is {here!r} here and {there!r} in the source")
    return not differing


def _shown(parts: Sequence[str], between: str = "; ") -> str:
    more = len(parts) - MOST_SHOWN
    return between.join([*parts[:MOST_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def _form(tensor: NDArray[Any] | None) -> str:
    return "not there" if tensor is None else f"{tensor.dtype}{list(tensor.shape)}"
