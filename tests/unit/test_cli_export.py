"""`export` and `infer`: what is refused before anything loads torch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_orch.core.policies import export
from rl_orch.core.store.runs import Store
from rl_orch.io.checkpoints import external
from rl_orch.io.files import sealed
from rl_orch.io.policies import bundles
from rl_orch.records.tasks import ExportAnswer, ExportTask, InferAnswer, InferTask
from tests.conftest import Ran
from tests.models import Shop

Rlctl = Callable[..., Ran]


class Answering:
    """A child that takes every question."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def answer(self, task: ExportTask | InferTask, _watch: object) -> ExportAnswer | InferAnswer:
        """Something that can be told of."""
        self.asked.append(task)
        if isinstance(task, InferTask):
            return InferAnswer(path=task.output, rows=1)
        empty: Any = {"inputs": (), "outputs": (), "parity": {}}
        return ExportAnswer(path=task.out, format=task.format, bytes=0, **empty)


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Answering:
    """Whoever would load torch, beside a home with one model."""
    home = tmp_path / "rlruns"
    Shop(home, Store(home / "rlctl.db")).a_model("r-1")
    made = Answering()
    monkeypatch.setattr(export, "TaskWorker", lambda *_, **__: made)
    return made


def test_an_export_replaces_an_earlier_one_only_if_told_to(
    rlctl: Rlctl, child: Answering, tmp_path: Path
) -> None:
    sealed.write(tmp_path / "b", {bundles.DOCUMENT: b"{}"}, noun=bundles.NOUN)
    (tmp_path / "p.onnx").write_bytes(b"")
    for out, form in (("b", "bundle"), ("p.onnx", "onnx")):
        command = ("export", "1", "--format", form, "--out", out)
        ran = rlctl(*command)
        assert (ran.code, child.asked) == (2, [])
        assert f"{str(tmp_path / out)!r} already" in ran.err
        assert "--force" in ran.err
        assert rlctl(*command, "--force").code == 0
        assert child.asked.pop().replace
    ran = rlctl("export", "1", "--format", "onnx", "--out", "b", "--force")
    assert "something other than a file" in ran.err


def test_what_cannot_be_done_is_refused_before_torch_is_loaded(
    rlctl: Rlctl, child: Answering, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text("[0, 0, 0, 0]\n")
    one = ("--observation", "[0, 0, 0, 0]")
    refused = {
        ("export", "1", "--format", "pt2", "--int8"): "must be onnx or bundle",
        ("export", "9"): "no model 9",
        ("export", "1", "--format", "pickle"): "pickle",
        ("infer", "1", "--input", "none.npy"): "there is no file",
        ("infer", "1", "--input", "in.csv"): "must be one of .npy",
        ("infer", "1", "--input", "in.jsonl", "--output", "out.csv"): "must be one of .npy",
        ("infer", "1", *one, "--using", "onnx"): "is no bundle",
        ("infer", "1", *one, "--using", "onnx", "--sample"): "only torch can sample",
    }
    for command, problem in refused.items():
        ran = rlctl(*command)
        assert (ran.code, child.asked) == (2, []), command
        assert problem in ran.err
    assert rlctl("infer", "1", "--input", "in.jsonl", "--output", "out.npy").code == 0


def test_what_an_external_program_saved_is_refused_before_torch_is_loaded(
    rlctl: Rlctl, child: Answering, tmp_path: Path
) -> None:
    (checkpoint,) = (tmp_path / "rlruns" / "runs" / "r-1" / "models").iterdir()
    (checkpoint / external.DEPOSIT).write_text("{}")
    for command in (("export", "1"), ("infer", "1", "--observation", "[0]")):
        assert "only that program can read it" in rlctl(*command).err
    assert child.asked == []
