"""Changes of a run while it goes on: asked for over the command socket, noted in the manifest
before anybody is told, and carried out between two iterations; by later attempts, at the same step.
"""

import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from rl_orch.errors import BadInput, Conflict, RlctlError, Unavailable
from rl_orch.io.files import private, sealed
from rl_orch.io.files.tensors import decode, encode
from rl_orch.io.run.directory import RunDir
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.learn.learner import Learner, algorithm
from rl_orch.rl.training_recorder import LiveChange, WeightLoad
from rl_orch.rl.warm_start import WarmStart, fit, take
from rl_orch.spec.difference import differences
from rl_orch.spec.live import change, in_force
from rl_orch.worker.policies.snapshots import weights_at

SET_S = 2.0
"""Seconds in which the next iteration mostly begins; nobody has to wait for a change that is noted.
"""

LOAD_S = 30.0
NOUN = "load"
ENV_STEPS = "env_steps"
WEIGHTS = "weights.safetensors"

Note: TypeAlias = dict[str, Any]
"""A change as the manifest notes it, or what is said of one."""


@dataclass(slots=True)
class PendingLoad:
    """Weights that somebody waits to see loaded, and where they are from."""

    start: WarmStart
    facts: Note
    answer: "Future[Note]" = field(default_factory=Future)


class LiveChanges:
    """The changes of a run, as one attempt hears of them and carries them out.

    The socket's thread asks, the loop's carries out. `begins` is the step of the attempt, and
    `env_steps` what a run of another clock has taken by then: notes are repeated by those.
    """

    def __init__(
        self, directory: RunDir, attempt: int, begins: int, env_steps: int | None = None
    ) -> None:
        self._directory, self._attempt = directory, attempt
        self._base = directory.spec()
        taken = begins if env_steps is None else env_steps
        self._notes = [_placed(note, begins) for note in directory.changes()]
        self._reached, self._taken = begins - 1, taken - 1
        self.spec = self._base.changed(in_force(self._notes, taken, clock=ENV_STEPS))
        self._load: PendingLoad | None = None
        self._turn = threading.Condition()
        self._news, self._ended = True, False

    def ask(self, overrides: Sequence[str]) -> Note:
        """Note options to set from the next iteration on; the reply says at which step that was, if
        it was soon."""
        with self._turn:
            self._refuse_ended()
            seen = [note | {"step": 0} for note in self._waiting()]
            options = change(self.spec.changed(in_force(seen)), overrides, self._reads())
            budget = options.get("train.total_timesteps")
            if budget is not None and budget[1] <= self._reached:
                raise BadInput(
                    f"train.total_timesteps is {budget[1]}; the run is at step {self._reached} "
                    "already",
                    path="train.total_timesteps",
                )
            if not options:
                return {"set": {}, "step": None}
            note = self._note({"step": None, "set": options})
            self._turn.wait_for(lambda: self._ended or note["step"] is not None, timeout=SET_S)
            if self._ended and note["step"] is None:
                self._notes.remove(note)
                self._directory.note_changes(self._notes)
                self._refuse_ended()
            return {"set": options, "step": note["step"]}

    def load(self, path: Path) -> Note:
        """Have the weights at a path loaded by the next iteration, and return where they are from;
        the optimiser's state comes along where there is one that fits."""
        facts = {"from": str(path), "digest": sealed.manifest_digest(path)}
        asked = PendingLoad(weights_at(path, ("policy", "optimizer")), facts)
        with self._turn:
            self._refuse_ended()
            if self._load is not None:
                raise Conflict("other weights are just being loaded")
            self._load, self._news = asked, True
        try:
            return asked.answer.result(LOAD_S)
        except NotYet:
            with self._turn:
                withdrawn = self._load is asked
                self._load = None if withdrawn else self._load
            if not withdrawn:
                return asked.answer.result()
            raise Unavailable(
                f"no iteration began within {LOAD_S:g} s; nothing was loaded"
            ) from None

    def due(self, step: int, env_steps: int | None = None) -> LiveChange | None:
        """The change that counts from this step on, if any, durable before this returns."""
        if not self._news:
            self._reached = step
            return None
        taken = step if env_steps is None else env_steps
        with self._turn:
            self._place(step, taken)
            spec = self._base.changed(in_force(self._notes, taken + 1, clock=ENV_STEPS))
            options = differences([self.spec, spec])
            loads: list[WeightLoad] = [partial(self._repeat, t) for t in self._repeated(taken)]
            if self._load is not None:
                at = {"step": step, ENV_STEPS: taken}
                loads.append(partial(self._carry_out, self._load, at))
                self._load = None
            self.spec, self._reached, self._taken = spec, step, taken
            self._news = any(note.get(ENV_STEPS, taken + 1) > taken for note in self._changes())
            self._turn.notify_all()
        return LiveChange(spec, options, tuple(loads)) if options or loads else None

    def end(self) -> None:
        """Take no more changes: no iteration would see them."""
        with self._turn:
            self._ended = True
            if self._load is not None:
                self._load.answer.set_exception(_ended())
            self._turn.notify_all()

    def _refuse_ended(self) -> None:
        if self._ended:
            raise _ended()

    def _reads(self) -> Collection[str]:
        """The options that the learner reads and may go on with otherwise."""
        chosen = algorithm(self.spec.agent.algorithm)
        is_able = callable(getattr(chosen, "reconfigure", None))
        return chosen.traits.reads if is_able else ()

    def _changes(self) -> list[Note]:
        """The notes of changes under way, without those of resumed attempts."""
        return [note for note in self._notes if "step" in note]

    def _waiting(self) -> list[Note]:
        """The notes that no iteration has seen yet."""
        return [note for note in self._changes() if note["step"] is None]

    def _place(self, step: int, env_steps: int) -> None:
        """Note where changes begin to count that were asked for, or planned for a step by now."""
        planned = [note for note in self._changes() if ENV_STEPS not in note]
        due = [note for note in planned if note["step"] is None or note["step"] <= step]
        for note in due:
            if note["step"] is None:
                note |= {"step": step, "attempt": self._attempt}
            note[ENV_STEPS] = env_steps
        if due:
            self._directory.note_changes(self._notes)

    def _repeated(self, env_steps: int) -> list[Note]:
        """Loads of earlier attempts that are due, unless the run was told otherwise since."""
        loads = [note for note in self._notes if "load" in note]
        return [
            note["load"]
            for index, note in enumerate(loads)
            if self._taken < note[ENV_STEPS] <= env_steps
            and all(other[ENV_STEPS] > note[ENV_STEPS] for other in loads[index + 1 :])
        ]

    def _note(self, note: Note) -> Note:
        """Keep a note durably, or not at all."""
        whole = {"attempt": self._attempt, "at": time.time(), **note}
        self._notes.append(whole)
        try:
            self._directory.note_changes(self._notes)
        except RlctlError:
            self._notes.remove(whole)
            raise
        self._news = True
        return whole

    def _carry_out(self, asked: PendingLoad, at: Note, learner: Learner) -> Note | None:
        """Load weights for the first time: a copy of them and the note come first."""
        try:
            told = self._loaded(asked, at, learner)
        except RlctlError as error:
            asked.answer.set_exception(error)
            return None
        asked.answer.set_result(told)
        return told

    def _loaded(self, asked: PendingLoad, at: Note, learner: Learner) -> Note:
        fitted = fit(learner, asked.start, self.spec)
        if fitted.misfits:
            asked.start = replace(asked.start, wanted=("policy",))
            fitted = fit(learner, asked.start, self.spec)
        fitted.refuse(asked.start, "start.partial=true begins another run with what fits.")
        folder = self._directory.loads / str(asked.facts["digest"])
        private.inner_folder(folder.parent)
        sealed.write(folder, {WEIGHTS: encode(fitted.taken)}, noun=NOUN)
        told = asked.facts | {"parts": list(asked.start.wanted)}
        with self._turn:
            self._note({**at, "set": {}, "load": told})
        take(learner, asked.start, self.spec)
        return told | {"step": at["step"]}

    def _repeat(self, told: Note, learner: Learner) -> Note:
        """Load weights again that an earlier attempt had loaded at the same step."""
        folder = self._directory.loads / str(told["digest"])
        data = sealed.read(folder, (WEIGHTS,), noun=NOUN)[WEIGHTS]
        snapshot = StateTree(decode(data, folder, WEIGHTS, noun=NOUN))
        take(learner, WarmStart(snapshot, self.spec, tuple(told["parts"])), self.spec)
        return told


def _placed(note: Note, begins: int) -> Note:
    """A note as this release keeps it: one that counts by now, or loads, says where it began."""
    step = note.get("step")
    if step is None or ENV_STEPS in note or not ("load" in note or step < begins):
        return note
    return note | {ENV_STEPS: step}


def _ended() -> Conflict:
    return Conflict("training has just ended, and goes on no more; nothing was changed")
