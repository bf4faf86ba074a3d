"""Policies from elsewhere: read by a child that can do nothing else, fitted to a spec by another,
put where those of runs are, and registered.
"""

import errno
import hashlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from io import BufferedReader
from pathlib import Path
from typing import Any

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.runs import creation
from rl_orch.core.runs.creation import Draft
from rl_orch.errors import BadInput, NotFound, RlctlError
from rl_orch.io.checkpoints import catalog, checkpoint_files
from rl_orch.io.files import regular, workspaces
from rl_orch.io.files.sealed import advice
from rl_orch.io.files.tensors import decode, encode
from rl_orch.io.files.zips import MOST_BYTES
from rl_orch.io.machine import room
from rl_orch.io.policies import artefacts, bundles
from rl_orch.io.policies.bundles import Bundle
from rl_orch.io.processes import import_path, pids
from rl_orch.io.processes.environment import pinned
from rl_orch.io.processes.pids import somebody
from rl_orch.io.processes.task_worker import ProgressCallback, TaskWorker, unwatched
from rl_orch.io.run.directory import RunDir
from rl_orch.records import EvalReport, ModelVersion, State
from rl_orch.records.tasks import (
    FitForeignAnswer,
    FitForeignTask,
    ReadForeignAnswer,
    ReadForeignTask,
)
from rl_orch.spec.engine import assign
from rl_orch.spec.model import ALIKE, Spec
from rl_orch.spec.operations import RunnerGroup
from rl_orch.spec.resolve import resolve

TENSORS, FITTED = "tensors.safetensors", "fitted.safetensors"
LEARNED = ("env", "obs", "feature", "agent", "train", "eval")
"""The groups of a bundle's spec that say what its policy is; others are of its old home."""

COPIES = 4
"""Of a policy while it is taken in: as it came, under our names, fitted, and as a checkpoint."""

NEW = "these begin as in a new policy"
NOT_BELIEVED = (
    "what was measured elsewhere is kept as evals/final-elsewhere.json; no gate here reads it"
)


@dataclass(frozen=True, slots=True)
class PolicyImportRequest:
    """Facts about a policy that its file does not tell, and overrides of its spec.

    Whoever imports the policy says them.
    """

    env: str | None = None
    algorithm: str | None = None
    name: str | None = None
    normalizer: Path | None = None
    overrides: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Arrival:
    """A policy on its way in: its spec, its tensors in a scratch folder, and where it is from.

    `stretched` is how its actions were, if that is known; `report` what others have measured.
    """

    spec: Spec
    scratch: Path
    lineage: dict[str, Any]
    step: int = 0
    notes: tuple[str, ...] = ()
    stretched: dict[str, tuple[float, ...]] = field(default_factory=dict)
    report: EvalReport | None = None
    spaces: dict[str, Any] = field(default_factory=dict)


def import_policy(
    here: Orchestrator,
    path: Path,
    request: PolicyImportRequest,
    *,
    watch: ProgressCallback = unwatched,
) -> ModelVersion:
    """Take in a policy that another library, or another home, has saved.

    It becomes a checkpoint in a run directory of its own, and a model that nobody has judged. If
    this does not come to its end, nothing stays.
    """
    here.refuse_unwritable()
    size = _size_of(path) + (0 if request.normalizer is None else _size_of_file(request.normalizer))
    spare = "Free space on that disk, or name a home on another one with --home."
    room.refuse_without(here.home / "runs", _called(path), COPIES * size, hint=spare)
    try:
        with workspaces.workspace(here.home / "runs") as scratch:
            arrival = fit(read(path, request, scratch, watch), watch)
            return _registered(here, arrival, draft(here.home, arrival, somebody()))
    except OSError as error:
        raise RlctlError(
            f"{_called(path)} cannot be taken in: {error.strerror or error}",
            path=str(path),
            hint=advice(error, then="import it again"),
        ) from error


def read(
    path: Path, request: PolicyImportRequest, scratch: Path, watch: ProgressCallback
) -> Arrival:
    """The policy at a path: the file of another library, or a bundle of ours."""
    _refuse_other(path)
    if bundles.is_bundle(path):
        return _from_bundle(bundles.read(path), request, scratch)
    return _from_file(path, request, scratch, watch)


def fit(arrival: Arrival, watch: ProgressCallback) -> Arrival:
    """The policy with all tensors that its spec asks for, its spec settled.

    The tensors are in `FITTED`.
    """
    task = FitForeignTask(
        spec=arrival.spec,
        tensors=str(arrival.scratch / TENSORS),
        out=str(arrival.scratch / FITTED),
        stretched=arrival.stretched,
    )
    doing = "fitting the policy to its environment"
    child = TaskWorker(FitForeignAnswer, ("fit foreign",), doing=doing)
    return fitted(arrival, child.answer(task, watch))


def fitted(arrival: Arrival, answer: FitForeignAnswer) -> Arrival:
    """The policy with what was found when it was fitted."""
    notes = arrival.notes
    if answer.missing:
        notes = (*notes, f"the file does not have {', '.join(answer.missing)}; {NEW}")
    spec = assign(arrival.spec, answer.settled)
    return replace(arrival, spec=spec, notes=notes, spaces=answer.spaces)


def draft(home: Path, arrival: Arrival, who: str) -> Draft:
    """Draft of the run that stands for a policy.

    Its directory is whole, under a name that nobody looks at.
    """
    drafted = creation.draft(home, arrival.spec, folder=arrival.scratch)
    (run,) = drafted.runs
    run = run.model_copy(
        update={
            "state": State.SUCCEEDED,
            "reason": f"imported from {arrival.lineage['file']}",
            "env_steps": arrival.step,
            "total_timesteps": max(arrival.step, 1),
        }
    )
    drafted, directory = replace(drafted, runs=(run,)), RunDir(drafted.unfinished(run))
    try:
        tensors = decode(
            (arrival.scratch / FITTED).read_bytes(), arrival.scratch, FITTED, noun="import"
        )
        meta = {"run_id": run.id, "attempt": 0}
        checkpoint_files.save(
            directory.checkpoints,
            step=arrival.step,
            tensors=tensors,
            document={"trainer_state": {"spaces": arrival.spaces}},
            meta=meta,
        )
        origin = arrival.lineage | {"by": who, "at": time.time(), "notes": list(arrival.notes)}
        directory.write_manifest(directory.manifest() | {"imported": origin})
        if arrival.report is not None:
            directory.write_report("final-elsewhere", arrival.report)
    except BaseException:
        drafted.discard()
        raise
    return drafted


def _from_file(
    path: Path, request: PolicyImportRequest, scratch: Path, watch: ProgressCallback
) -> Arrival:
    watch("reading", 0.0)
    digest, size = _taken(path, scratch / "policy")
    normalizer = {}
    if request.normalizer is not None:
        _taken(request.normalizer, scratch / "normalizer")
        called = _called(request.normalizer)
        normalizer = {"normalizer": "normalizer", "normalizer_called": called}
    task = ReadForeignTask(
        file="policy",
        called=_called(path),
        tensors=TENSORS,
        algorithm=request.algorithm,
        **normalizer,
    )
    answer = _reading(scratch).answer(task, watch)
    if request.env is None:
        raise BadInput(
            f"{_called(path)} does not say which environment its policy, {answer.algorithm} of "
            f"{answer.format}, has learned",
            path="env",
            hint="For example: --env CartPole-v1",
        )
    options = answer.options | {"agent.algorithm": answer.algorithm, "env.id": request.env}
    lineage = {"file": _called(path), "format": answer.format, "sha256": digest, "bytes": size}
    return Arrival(
        _spec(options, request),
        scratch,
        lineage | {"confined": answer.confined},
        step=answer.step,
        notes=answer.notes,
        stretched=answer.stretched,
    )


def _from_bundle(bundle: Bundle, request: PolicyImportRequest, scratch: Path) -> Arrival:
    """The policy of a bundle, on its way in.

    A bundle was verified as a whole, and none of its files can run anything when it is read.
    """
    for name, given, own in (
        ("env", request.env, bundle.policy.env_id),
        ("algo", request.algorithm, bundle.policy.algorithm),
    ):
        if given not in (None, own):
            raise BadInput(f"bundle {bundle.path.name} is of {own}; --{name} says {given}")
    if request.normalizer is not None:
        raise BadInput("a bundle brings its own normaliser; --normalizer is for other files")
    prefix = f"policies/{bundles.POLICY}/"
    weights = decode(bundle.files[bundles.WEIGHTS], bundle.path, bundles.WEIGHTS, noun=bundles.NOUN)
    tensors = {name.removeprefix(prefix): each for name, each in weights.items()}
    (scratch / TENSORS).write_bytes(encode(tensors))
    learned = bundle.spec.model_dump(mode="json", include=set(LEARNED))
    learned["train"].pop("engine")  # Settled anew: this is another machine.
    if bundle.spec.env.backend in ALIKE:
        learned["env"].pop("backend")
    origin = bundle.document.lineage
    lineage = {"file": _called(bundle.path), "format": "bundle", "sha256": bundle.digest}
    return Arrival(
        _spec(learned, request),
        scratch,
        lineage | {"bytes": bundle.size, "elsewhere": origin},
        step=bundle.report.step,
        notes=(NOT_BELIEVED,),
        report=bundle.report,
    )


def _spec(document: dict[str, Any], request: PolicyImportRequest) -> Spec:
    """The spec of a policy: what its file says, under what its importer does."""
    name = {} if request.name is None else {"name": request.name}
    spec = resolve(document | name, overrides=request.overrides)
    if spec.seeds is not None or spec.runner != RunnerGroup():
        raise BadInput(
            "seeds and runner are set, but a policy that is imported is not trained here",
            hint="Leave them out.",
        )
    return spec


def _registered(here: Orchestrator, arrival: Arrival, drafted: Draft) -> ModelVersion:
    """The model of a policy whose run was drafted, once both are known."""
    (run,), lease = drafted.runs, pids.lease()
    root, registry = RunDir.of(run).checkpoints, here.registry
    try:
        here.store.submit((run,), key=None, digest="", lease=lease, ready=drafted.publish)
    except BaseException:
        drafted.discard()
        raise
    with here.arriving(run.id, lease, undo=drafted.discard):
        (name,) = catalog.all_names(root)
        path = artefacts.seal(root / name, arrival.spec)
        model_id = registry.enter(run, arrival.spec, path, arrival.lineage, lease=lease)
        run = here.store.get(run.id).model_copy(update={"model_id": model_id})
        here.store.save(run, lease=lease)
        return registry.get(model_id)


def _size_of(path: Path) -> int:
    """The bytes of the policy at a path, before any is read; an error if there can be none, or if
    they are too many."""
    _refuse_other(path)
    if bundles.is_bundle(path):  # One with more bytes is refused when it is read.
        return min(sum(each.lstat().st_size for each in path.iterdir()), bundles.MOST_BYTES)
    return _size_of_file(path)


def _refuse_other(path: Path) -> None:
    """Raise if a path is a link, or a folder that is no bundle."""
    if path.is_symlink():
        raise _link(path)
    if path.is_dir() and not bundles.is_bundle(path):
        raise BadInput(
            f"{str(path)!r} is a folder, and no bundle",
            path=str(path),
            hint="Name a file, or a bundle. A whole run: rlctl import-run DIRECTORY.",
        )


def _size_of_file(path: Path) -> int:
    with _opened(path) as file:
        return os.fstat(file.fileno()).st_size


def _taken(path: Path, copy: Path) -> tuple[str, int]:
    """Copy a file to where a child may read it; returns its digest and its size."""
    digest, size = hashlib.sha256(), 0
    with _opened(path) as source, copy.open("xb") as target:
        while size <= MOST_BYTES and (part := source.read(1 << 20)):
            digest.update(part)
            size += target.write(part)
    return digest.hexdigest(), size


def _opened(path: Path) -> BufferedReader:
    """A file of at most so many bytes as are read, itself and no link."""
    try:
        file = regular.reader(path, follow=False)
    except OSError as error:
        if path.is_symlink():
            raise _link(path) from None
        kind = NotFound if error.errno == errno.ENOENT else BadInput
        raise kind(f"{str(path)!r} cannot be read: {error.strerror}", path=str(path)) from None
    size = os.fstat(file.fileno()).st_size
    if size > MOST_BYTES:
        file.close()
        raise BadInput(f"{_called(path)} has {size:,} bytes; at most {MOST_BYTES:,} are read")
    return file


def _called(path: Path) -> str:
    """The name of a file as it can be shown and stored anywhere."""
    return "".join(letter if letter.isprintable() else "?" for letter in path.name)


def _link(path: Path) -> BadInput:
    return BadInput(
        f"{str(path)!r} is a link; name the file itself", path=str(path), hint=f"readlink -f {path}"
    )


def _reading(scratch: Path) -> TaskWorker[ReadForeignAnswer]:
    """A child with nothing of this environment but what Python needs to find its modules."""
    return TaskWorker(
        ReadForeignAnswer,
        ("read foreign",),
        doing="reading the file",
        hint="It asks for more time or memory than any policy needs, or for what is refused.",
        bare=pinned(1)
        | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), import_path.VARIABLE: "[]"}
        | {"PYTHONDONTWRITEBYTECODE": "1"},
        folder=scratch,
    )
