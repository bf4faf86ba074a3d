"""`python -m rl_orch.worker.tasks.export < question.json`: write a policy out, as a graph or a
bundle.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

import rl_orch
from rl_orch.errors import RlctlError
from rl_orch.export.bundle import ROWS, Export, ExportSubject, Tell, bundle_files
from rl_orch.io.files import private, sealed
from rl_orch.io.machine import room
from rl_orch.io.policies import artefacts, bundles, requests
from rl_orch.io.policies.requests import BUNDLE
from rl_orch.io.run.directory import RunDir
from rl_orch.records import EvalReport
from rl_orch.records.tasks import ExportAnswer, ExportTask
from rl_orch.rl.evaluate import evaluate, final_evaluation_seed
from rl_orch.worker.policies import sources
from rl_orch.worker.policies.load import LoadedPolicy
from rl_orch.worker.task import answer_one

AGAIN = "export it again"


def export(task: ExportTask, tell: Tell) -> ExportAnswer:
    """Export a policy, and return what was written and how near it is to torch."""
    torch.set_num_threads(1)
    requests.refuse_export(task)
    loaded = sources.load(Path(task.source), task.module_path)
    return (_bundle if task.format == BUNDLE else _graph)(loaded, task, tell)


def _graph(loaded: LoadedPolicy, task: ExportTask, tell: Tell) -> ExportAnswer:
    form, out = task.format, Path(task.out)
    exported = Export(loaded.policy, loaded.spec, rows=task.rows or ROWS, tell=tell)
    checked = exported.write(form)
    data, told = checked.written.data, None
    if task.int8:
        episodes = loaded.spec.eval.final_episodes
        data, told = exported.quantize(checked.written, episodes=episodes)
    _refuse_without_room(out, len(data))
    _write_file(out, data)
    return ExportAnswer(
        path=str(out),
        format=form,
        bytes=len(data),
        inputs=tuple(port.model_dump(mode="json") for port in exported.graph.inputs),
        outputs=tuple(port.model_dump(mode="json") for port in exported.graph.outputs),
        parity={form: checked.parity.model_dump(mode="json")},
        int8=None if told is None else told.model_dump(mode="json"),
    )


def _bundle(loaded: LoadedPolicy, task: ExportTask, tell: Tell) -> ExportAnswer:
    source, out = Path(task.source), Path(task.out)
    report = task.report or _report(loaded, source, tell)
    lineage = _lineage(loaded, source) | task.lineage
    subject = ExportSubject(loaded.policy, loaded.spec, report, lineage)
    rows = task.rows or ROWS
    files = bundle_files(subject, loaded.tensors, int8=task.int8, rows=rows, tell=tell)
    tell("sealing", 0.95)
    _refuse_without_room(out, sum(map(len, files.values())))
    sealed.write(out, files, noun=bundles.NOUN, then=AGAIN, most=bundles.MOST_BYTES)
    bundle = bundles.read(out)
    policy = bundle.policy.model_dump(mode="json")
    return ExportAnswer(
        path=str(out),
        format=BUNDLE,
        bytes=bundle.size,
        digest=bundle.digest,
        eval=report.summary,
        **{key: policy[key] for key in ("inputs", "outputs", "parity", "int8")},
    )


def _report(loaded: LoadedPolicy, source: Path, tell: Tell) -> EvalReport:
    """The final evaluation of this very policy: the one there is, or a new one."""
    if loaded.bundle is not None:
        return loaded.bundle.report
    known = _run_of(source).read_report("final")
    name, digest = sealed.original_name(source), sealed.manifest_digest(source)
    same = (None, digest, artefacts.checkpoint_digest(source))
    if known is not None and known.checkpoint == name and known.digest in same:
        return known
    tell("evaluating", 0.0)
    spec = loaded.spec
    return evaluate(
        loaded.policy,
        spec,
        episodes=spec.eval.final_episodes,
        seed=final_evaluation_seed(spec),
        deterministic=spec.eval.deterministic,
        step=loaded.step,
        checkpoint=sealed.original_name(source),
    )


def _lineage(loaded: LoadedPolicy, source: Path) -> dict[str, Any]:
    """Lineage of a policy, as far as its files tell."""
    if loaded.bundle is not None:
        return dict(loaded.bundle.document.lineage)
    manifest = _manifest(_run_of(source))
    return {
        "run": manifest.get("run_id"),
        "group": manifest.get("group"),
        "checkpoint": sealed.original_name(source),
        "checkpoint_digest": artefacts.checkpoint_digest(source),
        "config_hash": loaded.spec.config_hash,
        "git_commit": manifest.get("git_commit"),
        "rl_orch": rl_orch.__version__,
    }


def _run_of(source: Path) -> RunDir:
    """The run directory that a policy is in; an artefact may also be in none."""
    return RunDir(source.absolute().parents[1])


def _manifest(directory: RunDir) -> dict[str, Any]:
    with suppress(RlctlError):
        return directory.manifest()
    return {}


def _refuse_without_room(out: Path, size: int) -> None:
    hint = f"Free space on that disk, then {AGAIN}; nothing was written."
    room.refuse_without(out.parent, f"the export {out.name}", size, spare=0, hint=hint)


def _write_file(path: Path, data: bytes) -> None:
    """Write a whole file or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        private.inner_folder(path.parent)
        with open(temporary, "wb", opener=private.inner_file) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise sealed.unwritable(str(path), path, error, then=AGAIN) from error


if __name__ == "__main__":
    sys.exit(answer_one(ExportTask, export))
