"""Policies written out, asked for actions, and looked at, by children that load torch."""

from pathlib import Path

from rl_orch.io.policies import requests
from rl_orch.io.processes.task_worker import DOCTOR, ProgressCallback, TaskWorker
from rl_orch.records.tasks import (
    ExportAnswer,
    ExportTask,
    FilmAnswer,
    FilmTask,
    InferAnswer,
    InferTask,
)


def export(task: ExportTask, watch: ProgressCallback) -> ExportAnswer:
    """Let a child write a policy out."""
    requests.refuse_export(task)
    return TaskWorker(ExportAnswer, ("export",), doing="the export").answer(task, watch)


def infer(task: InferTask, watch: ProgressCallback) -> InferAnswer:
    """Let a child act on observations."""
    requests.refuse_inference(task)
    return TaskWorker(InferAnswer, ("infer",), doing="the inference").answer(task, watch)


def show(task: FilmTask, watch: ProgressCallback) -> FilmAnswer:
    """Let a child drive an episode again."""
    hint = "Film it instead: --video episode.mp4." if task.film is None else DOCTOR
    return TaskWorker(FilmAnswer, ("play",), doing="the episode", hint=hint).answer(task, watch)


def default_out(source: Path, form: str, elsewhere: Path | None = None) -> Path:
    """Path of an export if nobody says: in the folder `exports` of the run that a checkpoint is in,
    or elsewhere, by default in the current folder."""
    run = source.parent.parent
    folder = run / "exports" if (run / "spec.yaml").is_file() else elsewhere or Path.cwd()
    suffix = Path(requests.FILES[form]).suffix if form in requests.FILES else ".bundle"
    return folder / f"{source.name}{suffix}"
