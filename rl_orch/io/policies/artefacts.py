"""Artefacts: what acts of a registered policy, sealed in `models/` beside its run's checkpoints.

One holds the tensors by policy name, the resolved spec and the spaces; of an external program, a
copy of what it saved. Critics, optimiser, replay, generators and environment state are not in it.
"""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from rl_orch.errors import Damaged, NotFound
from rl_orch.io.checkpoints import catalog, external
from rl_orch.io.files import regular, sealed
from rl_orch.io.run.directory import MODEL, RunDir
from rl_orch.records import Record
from rl_orch.spec.model import Spec
from rl_orch.spec.upgrade import upgraded

NOUN = catalog.ARTEFACT
AGAIN = "try again"


class SealedPolicy(Record):
    """One policy of an artefact: the file of its tensors, and its spaces where they are known."""

    file: str
    observation_space: dict[str, Any] | None = None
    action_space: dict[str, Any] | None = None


class ArtefactDocument(Record):
    """`model.json`: policies by name, the spec they act by, and the checkpoint they are from."""

    format_version: Literal[1] = 1
    checkpoint: str
    checkpoint_digest: str
    step: int
    policies: dict[str, SealedPolicy] = Field(default_factory=dict)
    spec: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Artefact:
    """An artefact whose every byte was verified, with its files by name."""

    document: ArtefactDocument
    files: dict[str, bytes]

    @property
    def spec(self) -> Spec:
        """The spec that its policies act by."""
        return _spec(self.document)


def is_artefact(path: Path) -> bool:
    """Whether a policy's files are an artefact."""
    return os.path.lexists(path / MODEL)


def places_of(path: Path) -> tuple[Path, Path]:
    """The artefact and the checkpoint of a policy, by the path of either."""
    directory, name = RunDir(path.parents[1]), sealed.original_name(path)
    return directory.models / name, directory.checkpoints / name


def listing(root: Path) -> list[Path]:
    """The artefacts in a folder, oldest step first, whether intact or not."""
    return [path for path in sealed.present(root) if is_artefact(path)]


def seal(checkpoint: Path, spec: Spec, *, anew: bool = False) -> Path:
    """The artefact of a checkpoint, on the disk once this returns. The same one is sealed once,
    unless that is to be done anew.

    Where the checkpoint is gone, what was sealed of it is the artefact.
    """
    (path, _), digest = places_of(checkpoint), sealed.manifest_digest(checkpoint)
    with suppress(NotFound, Damaged):
        if digest in (None, verify(path)) and not (anew and digest):
            return path
    catalog.sweep(path.parent)
    if external.is_deposit(checkpoint):
        files = {external.DEPOSIT: external.copied(checkpoint, path)}
        policies: dict[str, SealedPolicy] = {}
    else:
        files, policies = _policies(checkpoint)
    document = ArtefactDocument(
        checkpoint=path.name,
        checkpoint_digest=str(digest),
        step=catalog.step_of(path) or 0,
        policies=policies,
        spec=spec.model_dump(mode="json"),
    )
    if sealed.manifest_digest(checkpoint) != digest:  # Its run has saved another one meanwhile.
        return seal(checkpoint, spec, anew=anew)
    replaced = external.folder_of(path)
    sealed.write(path, files | {MODEL: document.model_dump_json().encode()}, noun=NOUN, then=AGAIN)
    if replaced not in (None, external.folder_of(path)):
        shutil.rmtree(str(replaced), ignore_errors=True)
    return path


def read(path: Path) -> Artefact:
    """The artefact at a path; or `Damaged` with what is at fault."""
    files = sealed.read(path, sealed.listed(path, noun=NOUN), noun=NOUN)
    return Artefact(_document(path, files.get(MODEL, b"")), files)


def spec_of(path: Path) -> Spec:
    """The spec that a policy acts by: the one that an artefact was sealed with, whatever its run's
    says by now; else its run's."""
    if is_artefact(path):
        return _spec(_document(path, sealed.read_one(path, MODEL, noun=NOUN)))
    return RunDir(path.absolute().parents[1]).spec()


def verify(path: Path) -> str | None:
    """Raise `Damaged` unless the files that a policy is loaded from are intact; returns the digest
    of the checkpoint that an artefact is from. Of a checkpoint that is not sealed, no replay is
    read."""
    if path == places_of(path)[1] and not is_artefact(path):
        catalog.verify_policy(path)
        return None
    document = _verified(path)
    if external.is_deposit(path):
        external.load(path)
    return document.checkpoint_digest


def checkpoint_digest(path: Path) -> str | None:
    """The digest of the checkpoint that a policy's files are, or were sealed from."""
    if not is_artefact(path):
        return sealed.manifest_digest(path)
    with suppress(OSError, Damaged):
        return _document(path, regular.read(path / MODEL)).checkpoint_digest
    return None


def remove(path: Path) -> None:
    """Delete the files of a model for good. Those of an artefact are no checkpoint's, which all
    stay; a model that was never sealed is a checkpoint itself."""
    if path == places_of(path)[1]:
        catalog.remove(path)
        return
    folder = external.folder_of(path)
    sealed.sweep(path.parent)
    with suppress(FileNotFoundError):  # Somebody else may be deleting it as well.
        sealed.discard(path)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _policies(checkpoint: Path) -> tuple[dict[str, bytes], dict[str, SealedPolicy]]:
    """The tensors of each policy of a checkpoint as a file, and what is known of each."""
    read = sealed.read(checkpoint, catalog.FILES, noun=catalog.NOUN)
    try:
        parts = _selected(read[catalog.TENSORS])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        problem = f"is not in the safetensors format: {catalog.TENSORS}: {error}"
        raise sealed.damaged(checkpoint, problem, noun=catalog.NOUN) from error
    if not parts:
        raise sealed.damaged(checkpoint, "holds no policy", noun=catalog.NOUN)
    files = {f"policy-{name}.safetensors": data for name, data in parts.items()}
    state = read[catalog.STATE]
    return files, {
        name: _described(state, name, file) for name, file in zip(parts, files, strict=True)
    }


def _described(state: bytes, name: str, file: str) -> SealedPolicy:
    """A policy with its spaces, if its checkpoint's document tells them in their form."""
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        spaces = json.loads(state)["trainer_state"]["spaces"].get(name, {})
        return SealedPolicy(file=file, **spaces)
    return SealedPolicy(file=file)


def _selected(data: bytes) -> dict[str, bytes]:
    """The tensors `policies/<policy>/...` of a safetensors file, as one such file for each policy.

    By hand: the library needs NumPy, which the control plane does without.
    """
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), memoryview(data)[8 + size :]
    policies: dict[str, dict[str, Any]] = {}
    for name in sorted(header):
        if name.startswith("policies/") and name.count("/") > 1:
            policies.setdefault(name.split("/")[1], {})[name] = header[name]
    return {policy: _assembled(tensors, body) for policy, tensors in policies.items()}


def _assembled(tensors: Mapping[str, Mapping[str, Any]], body: memoryview) -> bytes:
    header, parts, at = {}, [], 0
    # The format asks for no gaps; wide numbers first keeps every one of them aligned.
    for name in sorted(tensors, key=lambda each: (-_width(tensors[each]), each)):
        first, last = tensors[name]["data_offsets"]
        parts.append(body[first:last])
        header[name] = {**tensors[name], "data_offsets": [at, at := at + last - first]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def _width(tensor: Mapping[str, Any]) -> int:
    """Bits of one number of a tensor."""
    return int("".join(filter(str.isdigit, tensor["dtype"].partition("_")[0])) or 8)


def _verified(path: Path) -> ArtefactDocument:
    """The document of an artefact whose every byte was verified."""
    names = sealed.listed(path, noun=NOUN)
    data = sealed.verify(path, names, noun=NOUN, keep=names & {MODEL})
    return _document(path, data.get(MODEL, b""))


def _spec(document: ArtefactDocument) -> Spec:
    return Spec.model_validate(upgraded(document.spec))


def _document(path: Path, data: bytes) -> ArtefactDocument:
    try:
        return ArtefactDocument.model_validate_json(data)
    except ValueError:
        raise sealed.damaged(path, f"is not in its format: {MODEL}", noun=NOUN) from None
