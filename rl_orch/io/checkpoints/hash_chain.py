"""Whether two runs did the same, bit for bit: hash chains over checkpoints, and folded events.

Everything is worked out anew from the files; nothing that a run says about itself is believed.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rl_orch.io.checkpoints import catalog, replay_files
from rl_orch.io.checkpoints import checkpoint_files as checkpoints
from rl_orch.io.checkpoints.checkpoint_files import CheckpointContents
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import first_gap, fold, read
from rl_orch.records import Event, EventKind, FirstDifference

PARTS = (
    *("parameters", "normalisers", "optimiser", "generators"),
    *("environments", "replay", "accounting"),
)
"""What a checkpoint remembers, part by part: each has a digest of its own."""

COMPARED = frozenset(EventKind) - {EventKind.LOG, EventKind.STATE}
"""Readings of the clock, and the starts and ends of attempts, differ by their nature."""


Digest: TypeAlias = Callable[[str], str | None]
"""Works out the digest of a replay segment's file by its name; None if there is no such file."""


@dataclass(frozen=True, slots=True)
class ChainComparison:
    """The result of a comparison: what it has looked at, the end of the hash chain, and the first
    difference."""

    checkpoints: int
    events: int
    chain: str
    difference: FirstDifference | None


def compare(one: RunDir, other: RunDir) -> ChainComparison:
    """Hold every checkpoint and every event of two runs against each other, in their order."""
    events = [fold(read(run.events)) for run in (one, other)]
    links = [list(chain(run)) for run in (one, other)]
    difference = _first_in_checkpoints(one, other, links) or _first_in_events(*events)
    return ChainComparison(
        checkpoints=min(map(len, links)),
        events=len(_compared(events[0])),
        chain=links[0][-1].digest if links[0] else "",
        difference=difference or _in_final_evaluation(one, other),
    )


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A checkpoint in the chain: its parts' digests, and one over them and all links before."""

    name: str
    parts: Mapping[str, str]
    digest: str


def chain(run: RunDir) -> Iterator[ChainLink]:
    """The hash chain over a run's checkpoints, oldest first."""
    before, digest = "", _digest_in(run.replay)
    for name in catalog.all_names(run.checkpoints):
        parts = digests(checkpoints.load(run.checkpoints / name), digest)
        text = json.dumps([before, name, parts], sort_keys=True)
        before = hashlib.sha256(text.encode()).hexdigest()
        yield ChainLink(name, parts, before)


def digests(checkpoint: CheckpointContents, digest: Digest | None = None) -> dict[str, str]:
    """A digest of each part of a checkpoint, its replay segments included.

    `digest` may remember segments that other checkpoints need too.
    """
    digest = digest or _digest_in(catalog.replay_of(checkpoint.path))
    hashes = {part: hashlib.sha256() for part in PARTS}
    for name in sorted(checkpoint.tensors):
        tensor = np.ascontiguousarray(checkpoint.tensors[name])
        head = f"{name} {tensor.dtype} {tensor.shape}\n"
        hashes[part_of(name)].update(head.encode() + tensor.tobytes())
    for part, document in _documents(checkpoint, digest).items():
        hashes[part].update(json.dumps(document, sort_keys=True).encode())
    return {part: made.hexdigest() for part, made in hashes.items()}


def part_of(tensor: str) -> str:
    """The part of a checkpoint that a tensor belongs to, by its name."""
    group = tensor.partition("/")[0]
    if group == "policies":
        return "normalisers" if ".normalizer." in f".{tensor}." else "parameters"
    parts = {
        "optimizer": "optimiser",
        "rng": "generators",
        "envs": "environments",
        "replay": "replay",
    }
    return parts.get(group, "accounting")


def _digest_in(folder: Path) -> Digest:
    """Reads every segment of the folder at most once: checkpoints share most of them."""

    @cache
    def digest(name: str) -> str | None:
        try:
            with replay_files.opened(folder, name) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return None

    return digest


def _replay(checkpoint: CheckpointContents, digest: Digest) -> dict[str, Any]:
    """The replay document of a checkpoint, with the digests that its segments really have.

    A run that was killed has the same segments as one that was not: every checkpoint ends one, and
    whoever goes on from it begins the next.
    """
    meta = dict(checkpoint.document["replay_meta"])
    listed = replay_files.entries(meta)
    if listed:
        meta["segments"] = [[entry.name, digest(entry.name)] for entry in listed]
    return meta


def _documents(checkpoint: CheckpointContents, digest: Digest) -> dict[str, Any]:
    """The parts of a checkpoint besides its tensors, by name."""
    trainer = dict(checkpoint.document["trainer_state"])
    collector = dict(trainer.pop("collector", {}))
    return {
        "generators": checkpoint.document["rng_state"],
        "environments": collector.pop("envs", {}),
        "replay": _replay(checkpoint, digest),
        "accounting": [trainer, collector],
    }


def _first_in_checkpoints(
    one: RunDir, other: RunDir, links: list[list[ChainLink]]
) -> FirstDifference | None:
    if links[0][-1:] == links[1][-1:]:
        return None
    for left, right in zip_longest(*links):
        if left is None or right is None or left.name != right.name:
            names = [None if link is None else link.name for link in (left, right)]
            detail = f"one run has {names[0] or 'none'}, the other {names[1] or 'none'}"
            return _difference(f"checkpoint {names[0] or names[1]}", "presence", detail)
        part = next((part for part in PARTS if left.parts[part] != right.parts[part]), None)
        if part is not None:
            pair = [checkpoints.load(run.checkpoints / left.name) for run in (one, other)]
            return _difference(f"checkpoint {left.name}", part, _detail(part, *pair))
    return None


def _detail(part: str, left: CheckpointContents, right: CheckpointContents) -> str:
    """The tensor or entry of a part that differs, and where in it."""
    names = sorted({*left.tensors, *right.tensors})
    for name in (name for name in names if part_of(name) == part):
        pair = (left.tensors.get(name), right.tensors.get(name))
        if (said := _in_tensor(name, *pair)) is not None:
            return said
    documents = [
        _documents(checkpoint, _digest_in(catalog.replay_of(checkpoint.path)))[part]
        for checkpoint in (left, right)
    ]
    return _in_document(part, *documents) or f"{part} differ"


def _in_tensor(name: str, left: NDArray[Any] | None, right: NDArray[Any] | None) -> str | None:
    if left is None or right is None:
        return f"{name} is in one of them only"
    if left.dtype != right.dtype or left.shape != right.shape:
        return f"{name} is {left.dtype}{left.shape} in one, {right.dtype}{right.shape} in the other"
    if left.tobytes() == right.tobytes():
        return None
    flat = [np.frombuffer(t.tobytes(), np.uint8).reshape(-1, t.itemsize) for t in (left, right)]
    at = int(np.flatnonzero((flat[0] != flat[1]).any(axis=1))[0])
    return f"{name}[{at}] is {left.reshape(-1)[at]} in one, {right.reshape(-1)[at]} in the other"


def _in_document(where: str, left: Any, right: Any) -> str | None:
    if left == right:
        return None
    if isinstance(left, dict) and isinstance(right, dict):
        parts: Iterable[tuple[str, Any, Any]] = (
            (f"{where}.{key}", left.get(key), right.get(key)) for key in sorted({*left, *right})
        )
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        parts = ((f"{where}[{i}]", *pair) for i, pair in enumerate(zip(left, right, strict=True)))
    else:
        return f"{where} is {_short(left)} in one, {_short(right)} in the other"
    return next(filter(None, (_in_document(*part) for part in parts)), None)


def _first_in_events(left: list[Event], right: list[Event]) -> FirstDifference | None:
    for events in (left, right):
        if (gap := first_gap(events)) is not None:
            return _difference("the event file", "events", gap)
    pairs = zip_longest(_compared(left), _compared(right))
    for number, (one, other) in enumerate(pairs, 1):
        if one is None or other is None or _content(one) != _content(other):
            step = (one or other or left[0]).step
            detail = f"{_said(one)} in one, {_said(other)} in the other"
            return _difference(f"event {number} at step {step}", "events", detail)
    return None


def _in_final_evaluation(one: RunDir, other: RunDir) -> FirstDifference | None:
    reports = [run.read_report("final") for run in (one, other)]
    # Files that hold the same have other digests: their manifests name the run and the time.
    same = [report and report.model_copy(update={"digest": None}) for report in reports]
    if same[0] == same[1]:
        return None
    means = ["none" if report is None else report.summary.mean for report in reports]
    detail = f"mean return {means[0]} in one, {means[1]} in the other"
    return _difference("final evaluation", "evaluation", detail)


def _compared(events: list[Event]) -> list[Event]:
    return [event for event in events if event.kind in COMPARED]


def _content(event: Event) -> tuple[Any, ...]:
    return event.kind, event.key, event.step, event.value, event.tags


def _said(event: Event | None) -> str:
    return "nothing" if event is None else f"{event.key} = {_short(event.value)} {event.tags or ''}"


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _difference(at: str, part: str, detail: str) -> FirstDifference:
    return FirstDifference(at=at, part=part, detail=detail)
