"""`export` and `infer`: what is refused before anything loads torch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_orch.core import exporting
from rl_orch.core.store import Store
from rl_orch.io import bundles, sealed
from tests.conftest import Ran
from tests.models import Shop

Rlctl = Callable[..., Ran]


class Answering:
    """A child that takes every question."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def answer(self, question: dict[str, Any], _watch: object) -> dict[str, Any]:
        """Something that can be told of."""
        self.asked.append(question)
        return {"path": question.get("out"), "bytes": 0, "parity": {}, "action": 0}


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Answering:
    """Whoever would load torch, beside a home with one model."""
    home = tmp_path / "rlruns"
    Shop(home, Store(home / "rlctl.db")).a_model("r-1")
    made = Answering()
    monkeypatch.setattr(exporting, "_child", lambda *_: made)
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
        assert child.asked.pop()["replace"]
    ran = rlctl("export", "1", "--format", "onnx", "--out", "b", "--force")
    assert "something other than a file" in ran.err
