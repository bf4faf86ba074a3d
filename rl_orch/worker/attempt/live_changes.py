"""Changes of a run while it goes on: asked for over the command socket, noted in the manifest
before anybody is told, and carried out between two iterations; by later attempts, at the same step.
"""

import threading
import time
from collections.abc import Sequence
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
from rl_orch.rl.learn.learner import Learner
from rl_orch.rl.train import LiveChange, WeightLoad
from rl_orch.rl.warm_start import WarmStart, fit, take
from rl_orch.spec.difference import differences
from rl_orch.spec.live import change, in_force
from rl_orch.worker.policies.snapshots import weights_at

SET_S = 2.0
"""Seconds in which the next iteration mostly begins; nobody has to wait for a change that is noted.
"""

LOAD_S = 30.0
NOUN = "load"
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

    The socket's thread asks, the loop's carries out. `begins` is the step of the attempt.
    """

    def __init__(self, directory: RunDir, attempt: int, begins: int) -> None:
        self._directory, self._attempt = directory, attempt
        self._base = directory.spec()
        self._notes: list[Note] = directory.changes()
        self._reached = begins - 1
        self.spec = self._base.changed(in_force(self._notes, begins))
        self._load: PendingLoad | None = None
        self._turn = threading.Condition()
        self._news = True

    def ask(self, overrides: Sequence[str]) -> Note:
        """Note options to set from the next iteration on; the reply says at which step that was, if
        it was soon."""
        with self._turn:
            seen = [note | {"step": 0} for note in self._waiting()]
            options = change(self.spec.changed(in_force(seen)), overrides)
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
            self._turn.wait_for(lambda: note["step"] is not None, timeout=SET_S)
            return {"set": options, "step": note["step"]}

    def load(self, path: Path) -> Note:
        """Have the weights at a path loaded by the next iteration, and return where they are from;
        the optimiser's state comes along where there is one that fits."""
        facts = {"from": str(path), "digest": sealed.manifest_digest(path)}
        asked = PendingLoad(weights_at(path, ("policy", "optimizer")), facts)
        with self._turn:
            if self._load is not None:
                raise Conflict("other weights are just being loaded")
            self._load, self._news = asked, True
        try:
            return asked.answer.result(LOAD_S)
        except NotYet:
            with self._turn:
                withdrawn, self._load = self._load is asked, None
            if not withdrawn:
                return asked.answer.result()
            raise Unavailable(
                f"no iteration began within {LOAD_S:g} s; nothing was loaded"
            ) from None

    def due(self, step: int) -> LiveChange | None:
        """The change that counts from this step on, if any, durable before this returns."""
        if not self._news:
            return None
        with self._turn:
            if waiting := self._waiting():
                for note in waiting:
                    note |= {"step": step, "attempt": self._attempt}
                self._directory.note_changes(self._notes)
            spec = self._base.changed(in_force(self._notes, step + 1))
            options = differences([self.spec, spec])
            loads: list[WeightLoad] = [partial(self._repeat, told) for told in self._repeated(step)]
            if self._load is not None:
                loads.append(partial(self._carry_out, self._load, step))
                self._load = None
            self.spec, self._reached = spec, step
            self._news = any(note.get("step", -1) > step for note in self._notes)
            self._turn.notify_all()
        return LiveChange(spec, options, tuple(loads)) if options or loads else None

    def _waiting(self) -> list[Note]:
        """The notes that no iteration has seen yet."""
        return [note for note in self._notes if note.get("step", 0) is None]

    def _repeated(self, step: int) -> list[Note]:
        """Loads of earlier attempts that are due, unless the run was told otherwise since."""
        loads = [note for note in self._notes if "load" in note]
        return [
            note["load"]
            for index, note in enumerate(loads)
            if self._reached < note["step"] <= step
            and all(other["step"] > note["step"] for other in loads[index + 1 :])
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

    def _carry_out(self, asked: PendingLoad, step: int, learner: Learner) -> Note | None:
        """Load weights for the first time: a copy of them and the note come first."""
        try:
            told = self._loaded(asked, step, learner)
        except RlctlError as error:
            asked.answer.set_exception(error)
            return None
        asked.answer.set_result(told)
        return told

    def _loaded(self, asked: PendingLoad, step: int, learner: Learner) -> Note:
        fitted = fit(learner, asked.start, self.spec)
        if fitted.misfits:
            asked.start = replace(asked.start, wanted=("policy",))
            fitted = fit(learner, asked.start, self.spec)
        fitted.refuse(asked.start)
        folder = self._directory.loads / str(asked.facts["digest"])
        private.inner_folder(folder.parent)
        sealed.write(folder, {WEIGHTS: encode(fitted.taken)}, noun=NOUN)
        told = asked.facts | {"parts": list(asked.start.wanted)}
        with self._turn:
            self._note({"step": step, "set": {}, "load": told})
        take(learner, asked.start, self.spec)
        return told | {"step": step}

    def _repeat(self, told: Note, learner: Learner) -> Note:
        """Load weights again that an earlier attempt had loaded at the same step."""
        folder = self._directory.loads / str(told["digest"])
        data = sealed.read(folder, (WEIGHTS,), noun=NOUN)[WEIGHTS]
        snapshot = StateTree(decode(data, folder, WEIGHTS, noun=NOUN))
        take(learner, WarmStart(snapshot, self.spec, tuple(told["parts"])), self.spec)
        return told
