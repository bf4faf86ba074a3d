"""Children that act on observations and write policies out, asked in this process."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_orch.core.jobs.kinds import Workplace
from rl_orch.core.policies.export import default_out
from rl_orch.errors import BadInput, RlctlError
from rl_orch.export import parity
from rl_orch.io.machine import room
from rl_orch.io.machine.room import Room
from rl_orch.io.run.directory import RunDir
from rl_orch.records.tasks import ExportTask, InferAnswer, InferTask
from rl_orch.rl.evaluate import evaluate
from rl_orch.worker.policies.sources import load
from rl_orch.worker.tasks import export as exporting
from rl_orch.worker.tasks.export import export
from rl_orch.worker.tasks.infer import infer
from tests.exported import CASES, Case, case, in_run, made


@dataclass
class Kept:
    """A policy, and the checkpoint that holds it."""

    case: Case
    path: Path

    def ask(self, **asked: Any) -> InferAnswer:
        """What the child that acts answers."""
        return infer(InferTask(source=str(self.path), **asked), silent)


def silent(_doing: str, _done: float) -> None:
    """Hears everything and says nothing."""


@pytest.fixture
def kept(tmp_path: Path) -> Callable[..., Kept]:
    """Makes run directories with one checkpoint."""

    def keep(document: dict[str, Any]) -> Kept:
        policy = made(document)
        return Kept(policy, in_run(policy, tmp_path / "a run"))

    return keep


@pytest.mark.parametrize("name", ["ppo", "dqn", "recurrent ppo"])
def test_rows_of_one_episode_get_the_actions_that_were_played(
    name: str, kept: Callable[..., Kept], tmp_path: Path
) -> None:
    policy = kept(CASES[name])
    rows = policy.case.rows(3 * parity.LANES * 40)
    lane = slice(0, None, parity.LANES)
    columns = [column for column in ("observation", "first") if column in rows.inputs]
    inputs: dict[str, Any] = {column: rows.inputs[column][lane] for column in columns}
    np.savez(tmp_path / "in.npz", **inputs)
    answer = policy.ask(input=str(tmp_path / "in.npz"), output=str(tmp_path / "out.jsonl"))
    assert answer == InferAnswer(path=str(tmp_path / "out.jsonl"), rows=120)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["action"] for line in lines] == rows.expected["action"][lane].tolist()


def test_an_observation_with_parts_is_an_object(kept: Callable[..., Kept]) -> None:
    policy = kept(case("IdentityDict", "ppo"))
    observation = {"picture": np.zeros((36, 36), int).tolist(), "side": [1.0, -1.0], "noise": 2}
    assert policy.ask(observation=observation).action in range(4)
    with pytest.raises(BadInput, match=r"lacks the column 'observation\.noise'"):
        policy.ask(observation={name: observation[name] for name in ("picture", "side")})


def test_a_choice_that_there_is_not_is_refused(kept: Callable[..., Kept], tmp_path: Path) -> None:
    policy = kept(case("FrozenLake-v1", "ppo"))
    for sample in (False, True):
        with pytest.raises(BadInput, match=r"^observation = 900; must be in \[0, 15\]"):
            policy.ask(observation=900, sample=sample)
    (tmp_path / "in.jsonl").write_text("1\n" * 1500 + "16\n")
    with pytest.raises(BadInput, match=r"row 1501 of in.jsonl: observation = 16; must be in"):
        policy.ask(input=str(tmp_path / "in.jsonl"))
    assert policy.ask(observation=15).action in range(4)


def test_parts_outside_their_space_are_refused(kept: Callable[..., Kept]) -> None:
    policy = kept(case("Blackjack-v1", "ppo"))
    assert policy.ask(observation=[14, 10, 0]).action in (0, 1)
    with pytest.raises(BadInput, match=r"observation\[0\] = 140; must be in \[0, 31\]"):
        policy.ask(observation=[140, 10, 0])
    with pytest.raises(BadInput, match=r"observation\['3'\] is no part"):
        policy.ask(observation={"0": 14, "1": 10, "2": 0, "3": 0})


def test_masks_are_a_column(kept: Callable[..., Kept]) -> None:
    policy = kept(case("Masked", "ppo", agent={"action_masks": True}))
    port = next(port for port in policy.case.graph.inputs if port.name == "mask")
    for only in range(port.shape[0]):
        mask = [choice == only for choice in range(port.shape[0])]
        answer = policy.ask(observation={"observation": [0.5], "mask": mask})
        assert answer.action == only + int(policy.case.policy.action_space.start)  # type: ignore[attr-defined]


def test_a_mask_that_forbids_every_action_is_refused(kept: Callable[..., Kept]) -> None:
    policy = kept(case("Masked", "ppo", agent={"action_masks": True}))
    port = next(port for port in policy.case.graph.inputs if port.name == "mask")
    with pytest.raises(BadInput, match="mask of row 0 forbids every action"):
        policy.ask(observation={"observation": [0.5], "mask": [False] * port.shape[0]})


def test_drawn_actions_follow_from_the_seed(kept: Callable[..., Kept], tmp_path: Path) -> None:
    policy = kept(CASES["sac"])
    np.save(tmp_path / "in.npy", np.zeros((20, 3), np.float32))
    drawn = {
        seed: policy.ask(input=str(tmp_path / "in.npy"), sample=True, seed=seed).actions
        for seed in (1, 2)
    }
    again = policy.ask(input=str(tmp_path / "in.npy"), sample=True, seed=1).actions
    assert drawn[1] == again != drawn[2]
    best = policy.ask(input=str(tmp_path / "in.npy")).actions
    assert best is not None
    assert best == (best[0],) * 20


def test_a_file_that_breaks_off_leaves_nothing_behind(
    kept: Callable[..., Kept], tmp_path: Path
) -> None:
    lines = ["[0, 0, 0, 0]"] * 2000 + ["[0, 0, 0]"]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    with pytest.raises(BadInput, match="row 2001"):
        kept(CASES["ppo"]).ask(
            input=str(tmp_path / "in.jsonl"), output=str(tmp_path / "out.parquet")
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a run", "in.jsonl"]


def test_graphs_are_asked_for_where_there_are_some(kept: Callable[..., Kept]) -> None:
    policy = kept(CASES["ppo"])
    with pytest.raises(BadInput, match="is no bundle"):
        policy.ask(observation=[0, 0, 0, 0], using="onnx")
    with pytest.raises(BadInput, match="only torch can sample"):
        policy.ask(observation=[0, 0, 0, 0], using="onnx", sample=True)
    with pytest.raises(BadInput, match="must be one of torch, onnx, int8"):
        policy.ask(observation=[0, 0, 0, 0], using="jax")


def test_torchscript_is_written_whole_and_replaces_only_files(
    kept: Callable[..., Kept], tmp_path: Path
) -> None:
    policy, out = kept(CASES["dqn"]), tmp_path / "policy.ts"
    task = ExportTask(source=str(policy.path), format="torchscript", out=str(out), rows=64)
    answer = export(task, silent)
    assert answer.bytes == out.stat().st_size
    assert answer.parity["torchscript"]["rows"] == 64
    with pytest.raises(BadInput, match="already"):
        export(task, silent)
    assert export(task.model_copy(update={"replace": True}), silent).path == str(out)
    with pytest.raises(BadInput, match="something other than a file"):
        export(task.model_copy(update={"out": str(tmp_path)}), silent)


def test_a_place_that_cannot_be_written_to_is_no_reason_to_resume(
    kept: Callable[..., Kept], tmp_path: Path
) -> None:
    policy, file = kept(CASES["dqn"]), tmp_path / "file"
    file.touch()
    (tmp_path / "in.jsonl").write_text("[0, 0, 0, 0]\n")
    out = str(file / "policy.ts")
    task = ExportTask(source=str(policy.path), format="torchscript", rows=8, out=out)
    with pytest.raises(RlctlError) as refusal:
        export(task, silent)
    assert str(refusal.value.hint).endswith("then export it again.")
    with pytest.raises(RlctlError) as refusal:
        policy.ask(input=str(tmp_path / "in.jsonl"), output=str(file / "out.npy"))
    assert str(refusal.value.hint).endswith("then try again.")


@pytest.mark.parametrize("form", ["torchscript", "bundle"])
def test_an_export_that_does_not_fit_is_refused_before_a_byte_is_written(
    kept: Callable[..., Kept], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    policy, out = kept(CASES["dqn"]), tmp_path / "elsewhere" / "policy"
    monkeypatch.setattr(room, "left", lambda _path: Room(1000, None))
    monkeypatch.setattr(exporting, "bundle_files", lambda *_given, **_options: {"a": bytes(2000)})
    task = ExportTask(source=str(policy.path), format=form, rows=8, out=str(out))
    with pytest.raises(RlctlError, match="the export policy takes 1 MiB of disk; there are 0 MiB"):
        export(task, silent)
    assert not out.parent.exists()


def test_a_graph_that_differs_is_not_written(
    kept: Callable[..., Kept], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parity, "TOLERANCE", -1.0)
    policy, out = kept(CASES["sac"]), tmp_path / "policy.ts"
    with pytest.raises(RlctlError, match="differs from the policy in torch"):
        export(
            ExportTask(source=str(policy.path), format="torchscript", out=str(out), rows=8),
            silent,
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a run"]


def test_formats_that_do_not_go_together_are_refused(kept: Callable[..., Kept]) -> None:
    policy = kept(CASES["ppo"])
    for form, problem in (("pt2", "must be onnx or bundle"), ("pickle", "must be one of onnx")):
        task = ExportTask(source=str(policy.path), format=form, out="x", int8=True)
        with pytest.raises(BadInput, match=problem):
            export(task, silent)


def test_only_a_report_on_this_very_checkpoint_is_taken(kept: Callable[..., Kept]) -> None:
    policy = kept(CASES["ppo"])
    directory, loaded = RunDir(policy.path.parent.parent), load(policy.path)
    for checkpoint, taken in (("step_000000000004", False), (policy.path.name, True)):
        report = evaluate(
            policy.case.policy,
            policy.case.spec,
            episodes=2,
            seed=3,
            deterministic=True,
            step=5,
            checkpoint=checkpoint,
        )
        directory.write_report("final", report)
        found = exporting._report(loaded, policy.path, silent)
        assert (found == report) is taken
        assert found.checkpoint == policy.path.name


def test_where_a_path_says_it_all_nobody_is_asked(kept: Callable[..., Kept]) -> None:
    policy = kept(CASES["ppo"])

    nobody: Any = None
    found = Workplace(nobody, silent).source(str(policy.path))
    assert (found.path, found.kind, found.model) == (policy.path, "checkpoint", None)
    assert default_out(policy.path, "onnx").parent == policy.path.parent.parent / "exports"


def test_policies_are_loaded_onto_the_cpu(kept: Callable[..., Kept]) -> None:
    loaded = load(kept(CASES["ppo"]).path)
    assert loaded.policy.device == torch.device("cpu")
    assert loaded.step == 5
