"""Contents of a checkpoint: tensors as safetensors, everything else as JSON, a digest of each file.

A checkpoint is seen whole or not at all. What a trainer puts into one is not decided here, and
nothing here can run code that a file brings along. Which checkpoints there are: `catalog.py`.
"""

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from rl_orch.io.checkpoints.catalog import (
    ARTEFACT,
    FILES,
    NOUN,
    STATE,
    TENSORS,
    name_of,
    step_of,
)
from rl_orch.io.files import sealed
from rl_orch.io.files.tensors import decode, encode
from rl_orch.io.run.directory import MODEL

_VERSION = 1
GIVEN = ("trainer_state", "replay_meta", "rng_state")
"""Parts of `state.json` that a training gives and takes back."""

_KEYS = {"version", "module_state", *GIVEN, "meta"}
_STATE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class CheckpointContents:
    """A checkpoint whose every byte was verified. `document` is its `state.json`."""

    step: int
    tensors: dict[str, np.ndarray]
    document: dict[str, Any]
    path: Path


def save(
    root: Path,
    *,
    step: int,
    tensors: Mapping[str, np.ndarray],
    document: Mapping[str, Any],
    meta: Mapping[str, Any],
) -> Path:
    """Write a checkpoint and return its path, once it is whole and on the disk.

    `document` may hold `trainer_state`, `replay_meta` and `rng_state`; `meta` must hold `run_id`
    and `attempt`. A checkpoint of the same step is replaced. What JSON or safetensors cannot hold
    exactly is a ValueError. Replay segments that `replay_meta` lists must be on the disk already.
    """
    path = root / name_of(step)
    files = {
        TENSORS: encode(tensors),
        STATE: _encode_state(step, tensors, document, meta),
    }
    sealed.write(path, files, noun=NOUN)
    return path


def load(path: Path) -> CheckpointContents:
    """The checkpoint in a directory; or `Damaged` with the name of the file that is at fault.

    Replay segments are not looked at: only a training that goes on needs them (`catalog.verify`).
    Of an artefact, the tensors are those of its policies, and the document is its `model.json`.
    """
    if os.path.lexists(path / MODEL):
        return _of_artefact(path)
    files = sealed.read(path, FILES, noun=NOUN)
    document = _decode_state(path, files[STATE])
    tensors = decode(files[TENSORS], path, TENSORS, noun=NOUN)
    step = document["meta"].get("step")
    if step_of(path) not in (None, step) or not isinstance(step, int):
        raise sealed.damaged(path, f"is of step {step}: {STATE}", noun=NOUN)
    if document["module_state"] != _policies(tensors):
        raise sealed.damaged(path, f"has other tensors than it lists: {STATE}", noun=NOUN)
    return CheckpointContents(step, tensors, document, path)


def _of_artefact(path: Path) -> CheckpointContents:
    files = sealed.read(path, sealed.listed(path, noun=ARTEFACT), noun=ARTEFACT)
    document = json.loads(files[MODEL])
    tensors: dict[str, np.ndarray] = {}
    for policy in document["policies"].values():
        tensors |= decode(files[policy["file"]], path, policy["file"], noun=ARTEFACT)
    return CheckpointContents(document["step"], tensors, document, path)


def _encode_state(
    step: int,
    tensors: Mapping[str, np.ndarray],
    document: Mapping[str, Any],
    meta: Mapping[str, Any],
) -> bytes:
    if unknown := sorted(set(document) - set(GIVEN)):
        raise ValueError(f"document has {', '.join(unknown)}; allowed: {', '.join(GIVEN)}")
    if missing := {"run_id", "attempt"} - set(meta):
        raise ValueError(f"meta lacks {', '.join(sorted(missing))}")
    state = {
        "version": _VERSION,
        "module_state": _policies(tensors),
        **{key: document.get(key, {}) for key in GIVEN},
        "meta": {"created_at": datetime.now(UTC).isoformat(), **meta, "step": step},
    }
    data = json.dumps(_exact(state), allow_nan=False, separators=(",", ":")).encode()
    if len(data) > _STATE_BYTES:
        raise ValueError(
            f"{STATE} would take {len(data)} bytes of at most {_STATE_BYTES}; "
            "put arrays among the tensors"
        )
    return data


def _policies(tensors: Mapping[str, np.ndarray]) -> dict[str, list[str]]:
    """Policy name → the names of its tensors, which are `policies/<policy>/...`."""
    policies: dict[str, list[str]] = {}
    for name in sorted(tensors):
        if name.startswith("policies/") and name.count("/") > 1:
            policies.setdefault(name.split("/")[1], []).append(name)
    return policies


class _Unusual(Exception):
    """A value that has to be looked at closely."""


def _exact(value: Any) -> Any:
    """The value in JSON's own types, such that `load` returns it unchanged.

    A number that is not finite is stored as `{"$float": "-Infinity"}`. A state has tens of
    thousands of values, nearly all of them plain: only where one is not are names kept for it.
    """
    try:
        return _plain(value)
    except _Unusual:
        return _named(value, "")


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in (str, int, bool, type(None)) or (kind is float and math.isfinite(value)):
        return value
    if kind is list or kind is tuple:
        return [_plain(item) for item in value]
    if kind is dict and all(type(key) is str for key in value) and "$float" not in value:
        return {key: _plain(item) for key, item in value.items()}
    raise _Unusual


def _named(value: Any, where: str) -> Any:
    """As `_exact`; `where` is the path of the value, for the error that names it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, list | tuple):
        return [_named(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{where[1:]} is a {type(value).__name__}; a state holds numbers, strings, None, lists "
            "and mappings, and arrays go among the tensors"
        )
    for key in value:
        if not isinstance(key, str) or key == "$float":
            raise ValueError(f"{where[1:]} has the key {key!r}; must be a string, and not '$float'")
    return {key: _named(item, f"{where}.{key}") for key, item in value.items()}


def _decode_state(path: Path, data: bytes) -> dict[str, Any]:
    document: Any = None
    with suppress(ValueError, TypeError, RecursionError):
        document = json.loads(data, object_hook=_number) if len(data) <= _STATE_BYTES else None
    match document:
        case {"version": 1, "meta": dict()} if document.keys() == _KEYS:
            return dict(document)
    raise sealed.damaged(path, f"is not in the format of version {_VERSION}: {STATE}", noun=NOUN)


def _number(document: dict[str, Any]) -> Any:
    """The number that is not finite, for what `_exact` stored in its place."""
    return float(document["$float"]) if document.keys() == {"$float"} else document
