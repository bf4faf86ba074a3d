"""Beginning of an attempt: at nothing, or at the newest checkpoint that is intact; and how exactly
what follows repeats what an attempt without interruption would have done.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from rl_orch.errors import RlctlError
from rl_orch.io.checkpoints import catalog, checkpoint_files, replay_files
from rl_orch.io.checkpoints import replay_segments as segments
from rl_orch.io.checkpoints.checkpoint_files import CheckpointContents
from rl_orch.io.checkpoints.checkpoint_retention import CheckpointRetention
from rl_orch.io.checkpoints.resumable import newest_checkpoint
from rl_orch.io.run import manifest
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import first_gap, fold, read
from rl_orch.io.run.sources import Sources
from rl_orch.records import EvalReport
from rl_orch.rl.envs.state.probe import Proof, probe
from rl_orch.rl.snapshot import Resumption, TrainingSnapshot
from rl_orch.spec.model import Spec


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The checkpoint that an attempt goes on from, if any.

    `passed_over` is what it passed over to get there, `doubts` why what follows is not what a
    larger budget from the start would have led to. With `past_end` it goes on from an end that a
    callback or the gate had brought about.
    """

    checkpoint: CheckpointContents | None = None
    report: EvalReport | None = None
    passed_over: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    without_replay: bool = False
    past_end: bool = False

    @property
    def step(self) -> int:
        """The step at which the attempt begins."""
        return 0 if self.checkpoint is None else self.checkpoint.step

    @property
    def env_steps(self) -> int:
        """Environment steps that were taken before the attempt begins."""
        if self.checkpoint is None:
            return 0
        collector = self.checkpoint.document["trainer_state"]["collector"]
        return int(collector.get("env_steps", self.step))

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """The fingerprint of the attempt that saved the checkpoint, if any."""
        return {} if self.checkpoint is None else self.checkpoint.document["meta"]["fingerprint"]

    @property
    def tags(self) -> dict[str, Any]:
        """Tags of the attempt's first event: which events still count, and why these."""
        if self.checkpoint is None:
            return {"after": None}
        meta = self.checkpoint.document["meta"]
        return {
            "after": {"attempt": meta["attempt"], "seq": meta["seq"]},
            "checkpoint": self.checkpoint.path.name,
            "passed_over": list(self.passed_over),
        }

    @property
    def kept(self) -> CheckpointRetention:
        """The checkpoints that are kept as the attempt begins."""
        return (
            CheckpointRetention()
            if self.checkpoint is None
            else CheckpointRetention.of(self.checkpoint.document["meta"])
        )

    def kept_on(self, directory: RunDir, proof: Proof) -> CheckpointRetention:
        """The same; but where what follows is not what was, a best one that has gone is none."""
        return self.kept.in_folder(directory.checkpoints) if proof.reason else self.kept

    @property
    def segments(self) -> tuple[replay_files.SegmentEntry, ...]:
        """The replay segments that the attempt goes on with."""
        if self.checkpoint is None or self.without_replay:
            return ()
        return replay_files.entries(self.checkpoint.document["replay_meta"])

    @property
    def resumption(self) -> Resumption | None:
        """Resumption as the training loop needs it."""
        if self.checkpoint is None:
            return None
        checkpoint, listed = self.checkpoint, self.segments
        document = {part: checkpoint.document[part] for part in checkpoint_files.GIVEN}
        meta, names = document["replay_meta"], [entry.name for entry in listed]
        document["replay_meta"] = meta | {"segments": names} if names else meta
        snapshot = TrainingSnapshot(
            checkpoint.tensors, document, step=checkpoint.step, segments=tuple(names)
        )
        read = segments.reader(catalog.replay_of(checkpoint.path), listed)
        return Resumption(
            snapshot, self.report, read, replay=not self.without_replay, past_end=self.past_end
        )


def find(directory: RunDir, attempt: int) -> ResumePoint:
    """Beginning of that attempt, once what dead writers left is swept away.

    Where there never was a checkpoint it begins anew. Segments of a checkpoint that is passed over
    stay until the attempt has begun (`FileRecorder.announce`): somebody may still mend it.
    """
    catalog.sweep(directory.checkpoints)
    replay_files.sweep(directory.replay)
    extended = [note for note in directory.changes() if note.get("approximate")]
    newest = (
        catalog.Newest(None)
        if attempt == 1
        else newest_checkpoint(directory, deep=True, without_replay=bool(extended))
    )
    if newest.path is None:
        replay_files.retain(directory.replay, ())
        return ResumePoint()
    checkpoint = checkpoint_files.load(newest.path)
    _refuse_old_format(checkpoint)
    sealed = checkpoint.document["meta"]["report"]
    report = None if sealed is None else EvalReport.model_validate(sealed)
    ended = [note for note in extended if checkpoint.step <= note["at_step"]]
    doubts = tuple(str(why) for note in ended for why in note["approximate"])
    gone = catalog.replay_let_go(newest.path)
    past_end = any(note.get("past_end") for note in ended)
    return ResumePoint(
        checkpoint, report, newest.passed_over, doubts, without_replay=gone, past_end=past_end
    )


def runtime_fingerprint(spec: Spec, sources: Sources) -> dict[str, Any]:
    """Facts that exact repetition depends on besides the spec, in this process."""
    process = {"hash of a string": hash("rl_orch")}
    return manifest.fingerprint(spec) | process | sources.digests()


def exactness(
    directory: RunDir, spec: Spec, beginning: ResumePoint, fingerprint: Mapping[str, Any]
) -> Proof:
    """Exactness of the run from here on: what a probe finds out, or what the checkpoint says,
    unless the machine or the software is another one now, or events were lost."""
    if beginning.checkpoint is None:
        return _compiled(spec, probe(spec))
    meta = beginning.checkpoint.document["meta"]
    proof = Proof(**meta["resume"])
    doubts = manifest.differences(meta["fingerprint"], fingerprint)
    # The attempt has told of its start, so that what it goes on from can be folded.
    gap = first_gap(fold(read(directory.events)))
    doubts += beginning.doubts
    doubts += [] if gap is None else [f"the event file is not whole ({gap})"]
    if not doubts:
        return proof
    reason = f"resumed at step {beginning.step:,} on another footing: {'; '.join(doubts)}"
    return Proof(proof.method, "approximate", reason, proof.pure_reset)


def _compiled(spec: Spec, proof: Proof) -> Proof:
    """The proof, unless the networks are compiled: torch may compile them otherwise next time."""
    if not spec.train.compile or proof.level == "approximate":
        return proof
    return replace(proof, level="approximate", reason="train.compile may round differently")


def meta_of(
    directory: RunDir, attempt: int, proof: Proof, fingerprint: Mapping[str, Any]
) -> dict[str, Any]:
    """Metadata of every checkpoint of the attempt: where it comes from."""
    return {
        "run_id": directory.path.name,
        "attempt": attempt,
        "resume": asdict(proof),
        "fingerprint": dict(fingerprint),
    }


def _refuse_old_format(checkpoint: CheckpointContents) -> None:
    if "resume" not in checkpoint.document["meta"]:
        raise RlctlError(
            f"checkpoint {checkpoint.path.name} was written by an rlctl that saved no environment "
            "state, and cannot be resumed from",
            path=str(checkpoint.path),
            hint="Its policy is whole and can be evaluated; launch the spec anew to train it.",
        )
