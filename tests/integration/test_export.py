"""A trained policy, carried away: exported by the command, and at work where nothing of ours is."""

import importlib.metadata
import json
import re
import shutil
import subprocess
import venv
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from packaging.requirements import Requirement

from rl_orch.io.checkpoints import checkpoint_files
from rl_orch.io.policies import bundles
from rl_orch.io.policies.bundles import Bundle
from rl_orch.io.run import manifest
from rl_orch.io.run.directory import RunDir
from rl_orch.rl.train import Training
from rl_orch.spec import tuned
from rl_orch.spec.reader import read_spec
from rl_orch.spec.resolve import resolve
from tests.integration.conftest import Shell
from tests.learning.recorder import MemoryOutlet

SOLVED = 475.0
EPISODES = 20
EPISODES_JUDGED = 10

ABSENT = ("torch", "gymnasium", "onnx", "rl_orch")
SERVING = f"""
import importlib.util, json, sys
print(json.dumps([name for name in {ABSENT} if importlib.util.find_spec(name)]), flush=True)
for line in sys.stdin:
    print(json.dumps(act(json.loads(line)).item()), flush=True)
"""
"""Says first which of the absent can be imported in the very process that acts."""


def trained(folder: Path) -> Path:
    """The last checkpoint of a training that solves CartPole, in a run directory."""
    torch.set_num_threads(1)
    document = read_spec(tuned.CONFIGS / "ppo-CartPole-v1.yaml")
    judged = f"eval.final_episodes={EPISODES_JUDGED}"
    spec, recorder = resolve(document, overrides=("obs.normalize=running", judged)), MemoryOutlet()
    with closing(Training(spec, recorder)) as training:
        training.run()
    snapshot, directory = recorder.saved[-1][0], RunDir(folder / "cartpole-1")
    made = manifest.describe(spec, run_id="cartpole-1", group=None, created_at=0.0)
    directory.create(spec, made)
    return checkpoint_files.save(
        directory.checkpoints,
        step=snapshot.step,
        tensors=snapshot.tensors,
        document={},
        meta={"run_id": "cartpole-1", "attempt": 1},
    )


def elsewhere(folder: Path) -> Path:
    """The Python of a virtual environment with NumPy and onnxruntime, and what these need."""
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    needed, known = ["numpy", "onnxruntime"], set()
    while needed:
        distribution = importlib.metadata.distribution(needed.pop())
        if distribution.name in known:
            continue
        known.add(distribution.name)
        asked = map(Requirement, distribution.requires or ())
        needed += [each.name for each in asked if each.marker is None or each.marker.evaluate()]
        for top in {Path(file).parts[0] for file in distribution.files or ()} - {
            "..",
            "__pycache__",
        }:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution.locate_file(top))).absolute())
    return folder / "bin" / "python"


def play(program: subprocess.Popen[str], episodes: int) -> list[float]:
    """Returns of a process that is told observations and answers with actions."""
    assert program.stdin is not None
    assert program.stdout is not None
    returns = []
    with closing(gymnasium.make("CartPole-v1")) as env:
        for seed in range(episodes):
            observation, _ = env.reset(seed=seed)
            total, over = 0.0, False
            while not over:
                program.stdin.write(json.dumps(observation.tolist()) + "\n")
                program.stdin.flush()
                action = json.loads(program.stdout.readline())
                observation, reward, terminated, truncated, _ = env.step(action)
                total, over = total + float(reward), terminated or truncated
            returns.append(total)
    return returns


# One test: to train and to export take longer than all that is asked of what comes of them.
def test_a_trained_policy_is_carried_away(shell: Shell, tmp_path: Path) -> None:
    checkpoint = trained(tmp_path / "ein Lauf, exportiert")
    exported = shell.json("export", str(checkpoint), "--int8")
    bundle = bundles.read(Path(exported["path"]), digest=exported["digest"])
    assert bundle.path.parent == checkpoint.parent.parent / "exports"
    the_export_says_how_near_each_graph_comes(exported, bundle)
    it_plays_where_only_numpy_and_onnxruntime_are(bundle, tmp_path)
    actions_for_a_file_are_the_same_by_torch_and_by_onnx(bundle, checkpoint, shell)
    a_copy_that_was_changed_is_refused(bundle, shell)


def the_export_says_how_near_each_graph_comes(exported: dict[str, Any], bundle: Bundle) -> None:
    assert {*exported["parity"]} == {"onnx", "torchscript", "pt2"}
    for parity in exported["parity"].values():
        assert parity["rows"] == 10_000
        assert parity["differing"] == 0
        assert parity["largest_difference"] <= 1e-5
    assert exported["eval"]["mean"] >= SOLVED
    assert exported["eval"]["n"] == EPISODES_JUDGED
    assert exported["int8"]["bytes_after"] < exported["int8"]["bytes_before"]
    assert exported["int8"]["mean_after"] >= SOLVED
    assert bundle.document.lineage["run"] == "cartpole-1"
    assert bundle.policy.normalizer is not None


def it_plays_where_only_numpy_and_onnxruntime_are(bundle: Bundle, folder: Path) -> None:
    card = bundle.files[bundles.CARD].decode()
    found = re.search(r"^```python\n(.*?)^```$", card, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert len(found[1].splitlines()) <= 5
    python = elsewhere(folder / "empty")
    carried = folder / "carried"
    shutil.copytree(bundle.path, carried)
    (carried / "play.py").write_text(found[1] + SERVING)
    with subprocess.Popen(
        [python, "-I", "play.py"],
        cwd=carried,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert json.loads(program.stdout.readline()) == []
        returns = play(program, EPISODES)
    assert np.mean(returns) >= SOLVED


def actions_for_a_file_are_the_same_by_torch_and_by_onnx(
    bundle: Bundle, checkpoint: Path, shell: Shell
) -> None:
    observations = np.random.default_rng(0).normal(0.0, 0.1, (3_000, 4)).astype(np.float32)
    np.save(shell.folder / "in.npy", observations)
    for using, policy in (("torch", checkpoint), ("onnx", bundle.path)):
        answer = shell.json(
            *("infer", str(policy), "--using", using),
            *("--input", "in.npy", "--output", f"{using}.npy"),
        )
        assert answer["rows"] == 3_000
    by_torch, by_onnx = (np.load(shell.folder / f"{using}.npy") for using in ("torch", "onnx"))
    assert 0.1 < by_torch.mean() < 0.9
    assert (by_torch == by_onnx).mean() > 0.999


def a_copy_that_was_changed_is_refused(bundle: Bundle, shell: Shell) -> None:
    copy = shell.folder / "changed"
    shutil.copytree(bundle.path, copy)
    (copy / bundles.CARD).write_text("Return 1000\n")
    refused = shell.json("infer", str(copy), "--observation", "[0, 0, 0, 0]", code=1)
    assert refused["error"]["code"] == "damaged"
    assert "README.md" in refused["error"]["message"]
