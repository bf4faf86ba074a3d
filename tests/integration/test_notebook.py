"""The notebook in `examples/`, executed by a real kernel, as whoever opens it would."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.waiting import PATIENCE_S

READ: Any = nbformat.read  # Without types.
NOTEBOOK = Path(__file__).parents[2] / "examples" / "cartpole.ipynb"


def test_the_notebook_trains_shows_compares_and_acts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = READ(NOTEBOOK, 4)
    NotebookClient(
        notebook, timeout=int(PATIENCE_S), resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = [
        output["data"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "data" in output
    ]
    progress, result, _, again, table, acted = shown
    assert "<progress" in progress["text/html"]
    assert "succeeded" in progress["text/html"]
    assert "<svg" in result["text/html"]
    assert "run first-" in result["text/plain"]
    assert "<progress" in again["text/html"]
    assert "train.lr" in table["text/html"]
    assert "ppo policy for CartPole-v1" in acted["text/plain"]


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = READ(NOTEBOOK, 4).cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
