"""Policies written out, asked for actions, and looked at, by children that load torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_orch.io.policies import requests
from rl_orch.io.processes.task_child import ProgressCallback, TaskChild


def export(question: Mapping[str, Any], watch: ProgressCallback) -> dict[str, Any]:
    """Let a child write a policy out; `worker/tasks/export.py` says what it may be asked."""
    requests.refuse_export(question)
    return TaskChild(("export",), doing="the export").answer(question, watch)


def infer(question: Mapping[str, Any], watch: ProgressCallback) -> dict[str, Any]:
    """Let a child act on observations; `worker/tasks/infer.py` says what it may be asked."""
    requests.refuse_inference(question)
    return TaskChild(("infer",), doing="the inference").answer(question, watch)


def show(question: Mapping[str, Any], watch: ProgressCallback) -> dict[str, Any]:
    """Let a child drive an episode again; `worker/tasks/play.py` says what it may be asked."""
    hint = "Without a display, film it: --video episode.mp4."
    return TaskChild(("play",), doing="the episode", hint=hint).answer(question, watch)


def default_out(source: Path, form: str) -> Path:
    """Path of an export if nobody says: in the folder `exports` of the run that a checkpoint is in,
    or in the current folder."""
    run = source.parent.parent
    folder = run / "exports" if (run / "spec.yaml").is_file() else Path.cwd()
    suffix = Path(requests.FILES[form]).suffix if form in requests.FILES else ".bundle"
    return folder / f"{source.name}{suffix}"
