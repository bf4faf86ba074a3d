"""`probe`: how a spec's environment can go on after an interruption, and whether exactly. Proven.

An environment is driven; its state is taken through the round trip of a checkpoint into a new
copy, and both must go on alike, bit for bit. What is not proven is called approximate.
"""

import json
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from rl_orch.errors import RlctlError
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.actions import choices_of
from rl_orch.rl.envs.failures import CopyError
from rl_orch.rl.envs.masks import allowed_action, masks_in
from rl_orch.rl.envs.state import capture
from rl_orch.rl.envs.state.class_state import class_state
from rl_orch.rl.envs.state.graph import generators
from rl_orch.rl.envs.state.methods import Method
from rl_orch.rl.streams import derive
from rl_orch.spec.model import Spec

BUDGET_S = 2.0
"""Time that a probe should take; a slow environment is driven for fewer steps, not for none."""

HEAD = (12, 14)
"""Steps in the first episode, and in the second until its state is captured."""

TAIL = (24, 8)
"""Steps in the second episode from then on, and in the third."""

_STREAM = 1_000_000
"""Apart from every `Stream`: a probe must not show what training will see."""

Move: TypeAlias = Any
"""The actions of a step, or None for a reset."""

ProbeRecord: TypeAlias = list[Any]
"""What each move showed, as bytes."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The way an environment goes on, and how well that is known.

    `reason` says, as a part of a sentence, why the level is approximate. `pure_reset` is whether a
    reset with a seed was seen to make a used environment the same as a new one.
    """

    method: Method
    level: Literal["bitwise", "approximate"]
    reason: str | None
    pure_reset: bool


def probe(spec: Spec) -> Proof:
    """Try the spec's environment out; leaves the process-wide generators as they were."""
    with generators.process_wide_kept(), warnings.catch_warnings():
        # Gymnasium warns of what `describe` says in sentences.
        warnings.simplefilter("ignore")
        try:
            return _Probe(spec).proof()
        except RlctlError:
            raise
        # An environment is somebody else's code: making and driving it may raise anything.
        except Exception as error:
            reason = f"{spec.env.id} failed when it was tried out: {_told(error)}"
            return Proof("restarted", "approximate", reason, pure_reset=False)


@dataclass(frozen=True, slots=True)
class _Drive:
    """A drive that was interrupted: what it showed before and after, and its state there.

    `changed` names what changed on a class or in a module. `pure` is None if it was not tried.
    """

    head: ProbeRecord
    tail: ProbeRecord
    states: StateTree
    process: list[generators.GeneratorState]
    changed: str | None
    pure: bool | None


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The result of going on in a new copy; `why` is None if it was exact."""

    works: bool
    why: str | None


class _Probe:
    """Drives of copies that are all alike: from one seed, with the same actions."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._name = spec.env.id
        self._seed = derive(spec.env.seed, _STREAM)
        self._masked = spec.agent.action_masks
        self._shown: dict[str, Any] = {}
        self._head: list[Move] = []
        self._tail: list[Move] = []

    def proof(self) -> Proof:
        """The proof: captured if that is exact, else re-driven if that is, else the better of the
        two."""
        first = self._drive("captured")
        captured = self._attempt(first, "captured")
        second = self._drive("redriven")
        if captured.why is None:
            return self._judged("captured", first, self._doubt(first, second))
        redriven, doubt = self._attempt(second, "redriven"), self._doubt(first, second)
        if redriven.why is None:
            return self._judged("redriven", first, doubt or self._impurity(first, captured))
        method: Method = "redriven" if redriven.works else "restarted"
        reason = f"its state cannot be restored ({captured.why}), nor can its episode be driven "
        return self._judged(
            "captured" if captured.works else method,
            first,
            doubt or f"{reason}again ({redriven.why})",
        )

    def _judged(self, method: Method, first: _Drive, reason: str | None) -> Proof:
        level: Literal["bitwise", "approximate"] = "bitwise" if reason is None else "approximate"
        return Proof(method, level, reason, pure_reset=first.pure is True)

    def _doubt(self, first: _Drive, second: _Drive) -> str | None:
        """The reason why an exact continuation here proves nothing elsewhere."""
        changed = first.changed or second.changed
        if changed is not None:
            return f"{changed} changes while {self._name} is stepped, and is not part of its state"
        if (first.head, first.tail) != (second.head, second.tail):
            return (
                f"two copies of {self._name} differ in spite of one seed and the same actions: "
                "no seed reaches all that it draws from"
            )
        return None

    def _impurity(self, first: _Drive, captured: _Attempt) -> str | None:
        if first.pure is not False:
            return None
        return (
            f"a used {self._name} does not begin an episode as a new one does, and its state "
            f"cannot be restored ({captured.why})"
        )

    def _drive(self, method: Method) -> _Drive:
        """Drive a new copy; the first drive decides on the moves of all."""
        generators.seed_process_wide(self._seed)
        with closing(vector.make(self._spec, num_envs=1, method=method)) as envs:
            made = generators.process_wide()
            head = self._played_head(envs)
            states, process, before = capture.capture(envs), generators.process_wide(), _held(envs)
            began = time.monotonic()
            tail = self._played(envs, self._tail, TAIL)
            took_s, after = time.monotonic() - began, _held(envs)
            pure = None
            # The head would take about as long; what was made or compiled before is paid for.
            if method == "captured" and took_s < BUDGET_S / 2:
                generators.set_process_wide(made)
                pure = self._played_head(envs) == head
        changed = next((name for name in after if after[name] != before.get(name)), None)
        return _Drive(head, tail, states, process, changed, pure)

    def _played_head(self, envs: vector.Envs) -> ProbeRecord:
        first = vector.reset(envs, self._seed)
        self._shown = first.infos
        return [_bytes(first.observations), *self._played(envs, self._head, HEAD)]

    def _attempt(self, drive: _Drive, method: Method) -> _Attempt:
        """Let a new copy go on from the state of a drive, and compare."""
        if drive.states.document["method"] != method:
            return _Attempt(False, str(drive.states.document["why"]))
        with closing(vector.make(self._spec, num_envs=1, method=method)) as envs:
            try:
                why = capture.go_on(envs, _round_trip(drive.states))
                if why is not None:
                    return _Attempt(False, why)
                generators.set_process_wide(drive.process)
                tail = self._played(envs, self._tail, TAIL)
            # It has been driven without an error before, but perhaps not from such a state.
            except Exception as error:
                return _Attempt(False, f"a restored copy fails: {_told(error)}")
        differing = [n for n, seen in enumerate(tail) if seen != drive.tail[n]]
        if not differing:
            return _Attempt(True, None)
        return _Attempt(True, f"a restored copy differs {differing[0] + 1} steps later")

    def _played(self, envs: vector.Envs, moves: list[Move], steps: tuple[int, int]) -> ProbeRecord:
        """The observations that moves lead to; without moves, some are made up and noted."""
        record: ProbeRecord = []
        for move in [*moves] or self._invented(envs, moves, steps):
            if move is None:
                observations, self._shown = envs.reset()
                record.append(_bytes(observations))
            else:
                observations, rewards, terminated, truncated, self._shown = envs.step(move)
                final = self._shown.get("final_obs")
                record.append(_bytes([observations, rewards, terminated, truncated, final]))
        return record

    def _invented(
        self, envs: vector.Envs, moves: list[Move], steps: tuple[int, int]
    ) -> Iterator[Move]:
        """Steps with random actions, a reset, and again such steps; fewer where they take long."""
        space = deepcopy(envs.action_space)
        space.seed(derive(self._seed, *steps))
        for part, count in enumerate(steps):
            if part:
                moves.append(None)
                yield None
            end = time.monotonic() + BUDGET_S / 16
            for step in range(count):
                if step and time.monotonic() > end:
                    break
                moves.append(self._allowed(envs) if self._masked else space.sample())
                yield moves[-1]

    def _allowed(self, envs: vector.Envs) -> Move:
        single = envs.single_action_space
        masks = masks_in(self._shown, envs.num_envs, sum(choices_of(single)))
        return allowed_action(single, masks[0])


def _round_trip(states: StateTree) -> StateTree:
    """The states as a checkpoint gives them back: through JSON, and through bytes."""
    tensors = {
        name: np.frombuffer(tensor.tobytes(), tensor.dtype).reshape(tensor.shape)
        for name, tensor in states.tensors.items()
    }
    return StateTree(tensors, json.loads(json.dumps(states.document)))


def _held(envs: vector.Envs) -> dict[str, int]:
    """The state on the environment's classes, in the process where it lives."""
    if not vector.upkeep(envs).by_copy:
        return class_state(envs)
    inner: Any = envs.unwrapped
    answer: dict[str, int] = inner.call("class_state")[0]
    return answer


def _bytes(value: Any) -> Any:
    """A value such that two are equal only if they are so in every bit."""
    if isinstance(value, dict):
        return {key: _bytes(item) for key, item in value.items()}
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
        return [_bytes(item) for item in value]
    return None if value is None else np.asarray(value).tobytes()


def _told(error: Exception) -> str:
    own_process = isinstance(error, CopyError)
    return str(error) if own_process else f"{type(error).__name__}: {error}"
