"""Recorder of what the training loop tells, in the run directory."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rl_orch.io.checkpoints import catalog, checkpoint_files
from rl_orch.io.checkpoints.checkpoint_retention import CheckpointRetention
from rl_orch.io.checkpoints.replay_segments import SegmentStore
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.io.run.heartbeat import Pulse
from rl_orch.io.run.sources import Sources
from rl_orch.records import EvalReport, EventKind
from rl_orch.rl.replay.buffer import LogSegment
from rl_orch.rl.snapshot import TrainingSnapshot
from rl_orch.rl.training_recorder import LiveChange, TrainingCommand
from rl_orch.spec.model import Spec
from rl_orch.worker.attempt.commands import PendingCommands
from rl_orch.worker.attempt.live_changes import LiveChanges


class FileRecorder:
    """The loop's recorder over files: events, checkpoints, reports; `orders` are passed on.

    `meta` is written into every checkpoint, with the `sources` that the run has come to by then in
    its fingerprint. `store` knows the replay segments that training goes on with.
    """

    def __init__(
        self,
        directory: RunDir,
        spec: Spec,
        writer: EventWriter,
        orders: PendingCommands,
        *,
        meta: Mapping[str, Any],
        kept: CheckpointRetention,
        store: SegmentStore | None = None,
        changes: LiveChanges | None = None,
        sources: Sources | None = None,
        pulse: Pulse | None = None,
    ) -> None:
        self._directory = directory
        self._keep_last = spec.checkpoint.keep_last
        self._writer = writer
        self._meta = dict(meta)
        self._kept = kept
        self._store = store or SegmentStore(directory.replay)
        self._segments: dict[str, tuple[str, ...]] = {}
        self._orders = orders
        self._changes = changes
        self._sources = sources
        self._pulse = pulse
        self.step = 0

    def emit(
        self,
        kind: EventKind,
        key: str,
        value: Any,
        *,
        step: int,
        tags: dict[str, Any] | None = None,
    ) -> None:
        """Append an event; it reaches the disk's cache when the loop next asks for a command."""
        self._writer.emit(kind, key, value, step=step, tags=tags)
        self.step = step

    def add_segment(self, segment: LogSegment) -> None:
        """Have a part of the replay buffer written, in the background."""
        self._store.add_segment(segment)

    def save(self, snapshot: TrainingSnapshot, report: EvalReport | None) -> None:
        """Keep a checkpoint, and the report on it; the newest and the best outlive the others.

        Whatever cuts this short, the run can go on: events and replay segments are on the disk
        before the checkpoint, the report is in it, and all that comes after it is done again by
        `announce`.
        """
        name = catalog.name_of(snapshot.step)
        mean, before = None if report is None else report.summary.mean, self._kept
        self._kept = before.after_evaluation(name, mean, last=self._keep_last)
        tags = {
            "best": self._kept.best == name,
            "evaluated": report is not None,
            "removed": [old for old in before.names if old not in self._kept.names],
        }
        self._writer.sync()
        meta = self._meta | self._depends_on()
        meta |= {
            "seq": self._writer.seq,
            "kept": self._kept.document(),
            "saved": tags,
            "report": None if report is None else _document(report, name),
        }
        checkpoint_files.save(
            self._directory.checkpoints,
            step=snapshot.step,
            tensors=snapshot.tensors,
            document=self._with_segments(snapshot),
            meta=meta,
        )
        self._segments[name] = snapshot.segments
        self.announce(name, snapshot.step, meta)

    def announce(self, name: str, step: int, meta: Mapping[str, Any]) -> None:
        """Write a checkpoint's report, remove what is no longer kept, and tell.

        A checkpoint's `seq` is that of the event before this one: an attempt that goes on from it
        does all this again, whether the attempt before still came to it or not.
        """
        if meta["report"] is not None:
            self._directory.write_report(name, EvalReport.model_validate(meta["report"]))
        catalog.retain(self._directory.checkpoints, self._staying())
        self._let_go_of_segments()
        self._writer.emit(EventKind.CHECKPOINT, "saved", name, step=step, tags=meta["saved"])
        self._writer.flush()
        self.step = step

    def close(self) -> None:
        """Wait until nothing is being written any more."""
        self._store.close()

    def mark_inexact(self, reason: str, *, step: int) -> None:
        """Say so, once, and in every checkpoint from here on."""
        resume = self._meta["resume"]
        if resume["level"] == "bitwise":
            self._meta["resume"] = resume | {"level": "approximate", "reason": reason}
            self.tell_exactness(step=step)

    def tell_exactness(self, *, step: int) -> None:
        """Say how exactly the run can be resumed, and why no better."""
        resume = self._meta["resume"]
        tags = {"method": resume["method"], "reason": resume["reason"]}
        self.emit(EventKind.STATE, "resume", resume["level"], step=step, tags=tags)

    def change(self, step: int, env_steps: int) -> LiveChange | None:
        """The change that counts from this step on, if any; asked once an iteration."""
        if self._pulse is not None:
            self._pulse.reached(step)
        return None if self._changes is None else self._changes.due(step, env_steps)

    def end_changes(self) -> None:
        """Have whoever wants a change from here on told that there is no more training."""
        if self._changes is not None:
            self._changes.end()

    def command(self) -> TrainingCommand | None:
        """What was ordered, once all that was emitted is with the operating system."""
        self._writer.flush()
        return self._orders.next()

    def _depends_on(self) -> dict[str, Any]:
        """The fingerprint, with the sources that the run has loaded by now."""
        if self._sources is None:
            return {}
        self._sources.take_in_loaded()
        return {"fingerprint": self._meta["fingerprint"] | self._sources.digests()}

    def _with_segments(self, snapshot: TrainingSnapshot) -> dict[str, Any]:
        """The snapshot's document, with what is on the disk of each segment that it names."""
        entries = self._store.flush()
        listed = [asdict(entries[name]) for name in snapshot.segments]
        meta = snapshot.document["replay_meta"]
        return snapshot.document | {"replay_meta": meta | {"segments": listed} if listed else meta}

    def _let_go_of_segments(self) -> None:
        """Remove the segments that no kept checkpoint names; after those that did have gone."""
        self._segments = {name: self._segments_of(name) for name in self._staying()}
        self._store.retain({name for names in self._segments.values() for name in names})

    def _staying(self) -> list[str]:
        """The checkpoints that training keeps, and those that the registry needs."""
        return sorted({*self._kept.names, *self._directory.pinned()})

    def _segments_of(self, checkpoint: str) -> tuple[str, ...]:
        if checkpoint in self._segments:
            return self._segments[checkpoint]
        listed = catalog.segments_of(self._directory.checkpoints / checkpoint)
        return tuple(entry.name for entry in listed)


def _document(report: EvalReport, checkpoint: str) -> dict[str, Any]:
    """The report as a checkpoint holds it."""
    named = report.model_copy(update={"checkpoint": checkpoint})
    document: dict[str, Any] = json.loads(named.model_dump_json())
    return document
