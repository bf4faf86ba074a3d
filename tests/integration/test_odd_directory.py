"""A run directory with FIFOs, sockets and devices in place of its files: every command that reads
it answers with a sentence. None waits, and none shows a traceback.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rl_orch.io.run.directory import RunDir
from tests.integration.conftest import Shell
from tests.odd_files import KINDS, in_place

ROOT = Path(__file__).parents[2]
RUN, MODEL = "RUN", "MODEL"
"""Stand for the run and for the checkpoint of its model."""

ACT = ("infer", RUN, "--observation", "[0, 0, 0, 0]")
EXPORT = ("export", RUN, "--format", "onnx", "--out", "policy.onnx", "--rows", "10")
EVAL = ("eval", RUN, "--episodes", "2")
PLAY = ("play", RUN, "--episode", "0", "--video", "episode.mp4")
SHOW, COMPARE, RESUME = ("show", RUN), ("compare", RUN, RUN), ("resume", RUN)
LOG, EVENTS, VERIFY = ("logs", RUN), ("logs", RUN, "--events"), ("registry", "verify")
REMOVE = ("rm", RUN, "--yes")

REFUSED: dict[str, tuple[tuple[str, ...], ...]] = {
    "spec.yaml": (SHOW, COMPARE, RESUME),
    "manifest.json": (SHOW, COMPARE, RESUME),
    "events.jsonl": (SHOW, EVENTS, COMPARE, RESUME),
    "log.txt": (LOG, RESUME),
    "lock": (RESUME, REMOVE),
    "certificate.json": (SHOW,),
    "evals/final.json": (SHOW, COMPARE),
    f"{MODEL}/policy-default.safetensors": (EXPORT, ACT, EVAL),
    f"{MODEL}/model.json": (ACT,),
    f"{MODEL}/MANIFEST.json": (ACT,),
}
"""What is no file → the commands that cannot do without it."""


@pytest.fixture
def imported(shell: Shell, whole: RunDir) -> RunDir:
    """A run of another home, which has yet to be evaluated here."""
    return RunDir(Path(shell.json("import-run", str(whole.path))["path"]))


def answers(shell: Shell, lines: list[list[str]]) -> list[tuple[int, str]]:
    """Exit codes and errors of some commands, from a process that must come to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.odd_directory"],
        input="".join(json.dumps(words) + "\n" for words in lines),
        env=shell.environment | {"PYTHONPATH": str(ROOT)},
        cwd=shell.folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", REFUSED)
def test_every_command_that_needs_it_says_that_it_is_a_fifo(
    shell: Shell, imported: RunDir, name: str
) -> None:
    model = shell.json("registry", "list", "--top-n", "1")["models"][0]
    names = {RUN: imported.path.name, MODEL: f"models/{Path(model['model_path']).name}"}
    path = in_place(imported.path / name.replace(MODEL, names[MODEL]), "a FIFO")
    asked = [[names.get(word, word) for word in words] for words in REFUSED[name]]
    spoken = {"it is a FIFO, not a file", "has something other than a file"}
    for words, (code, said) in zip(asked, answers(shell, asked), strict=True):
        assert code == 1, (words, said)
        assert path.name in said, words
        assert any(sentence in said for sentence in spoken), (words, said)
        assert "Traceback" not in said


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_with_odd_files_all_over_is_listed_shown_refused_elsewhere_and_removed(
    shell: Shell, imported: RunDir, tmp_path: Path, kind: str
) -> None:
    for name in ("attempt", "gpus", "pinned", "stop", "heartbeat", "control.sock", "metrics.db"):
        in_place(imported.path / name, kind)
    for name in ("metrics.db-journal", "sinks/tensorboard.json", "tensorboard/x", "evals/odd.json"):
        in_place(imported.path / name, kind)
    run = imported.path.name
    elsewhere = ["import-run", str(imported.path), "--home", str(tmp_path / "elsewhere")]
    looking = [["ls"], ["show", run], ["logs", run], ["compare", run, run], [*VERIFY]]
    found = answers(shell, [*looking, elsewhere, ["rm", run, "--yes"]])
    *looked, (refused, said), (removed, _) = found
    assert [code for code, _ in looked] == [0] * len(looking), looked
    assert refused == 2
    assert f"is {kind}; only files and folders can be copied" in said
    assert not (tmp_path / "elsewhere" / "runs").exists()
    assert removed == 0
    assert not imported.path.exists()
    assert not any("Traceback" in said for _, said in found)
