"""A group with real processes: side by side, folded, interrupted and resumed."""

import signal
from pathlib import Path

from rl_orch import orchestrator
from rl_orch.records import State
from tests.integration.conftest import SMALL, Shell, until
from tests.waiting import PATIENCE_S

LONG = (*SMALL, "train.total_timesteps=1e7", "eval.every=2048", "checkpoint.every=512")


def test_a_group_runs_side_by_side_and_goes_on_after_an_interruption(shell: Shell) -> None:
    launch = ("launch", "--env", "CartPole-v1", "--name", "walk", "--seeds", "2", *LONG)
    child = shell.start(*launch, "--json")
    watched = orchestrator.connect(shell.home)
    both: set[str] = set()

    def under_way() -> bool:
        both.update(run.id for run in watched.ls().runs if run.state is State.RUNNING)
        saved = list(shell.home.glob("runs/*/checkpoints/step_*"))
        return len(both) == 2 and len(saved) >= 2

    until(under_way)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 4
    assert shell.json("show", "walk")["state"] == "stopped"

    steps = max(run.env_steps for run in watched.ls().runs)
    resumed = shell.json("resume", "walk", "--set", f"train.total_timesteps={steps + 2048}")
    assert [run["state"] for run in resumed["runs"]] == ["succeeded", "succeeded"]
    assert [run["attempt"] for run in resumed["runs"]] == [2, 2]
    assert resumed["eval"]["unit"] == "training runs"
    assert resumed["eval"]["n"] == 2
    seeds = [run["seed"] for run in resumed["runs"]]
    assert seeds[1] == seeds[0] + 1
    means = [run["eval"]["mean"] for run in resumed["runs"]]
    assert resumed["eval"]["mean"] == sum(means) / 2

    listed = shell.run("ls").stdout.splitlines()
    assert len(listed) == 2
    assert resumed["group"] in listed[1]
    picture = shell.folder / "curves.svg"
    compared = shell.run("compare", *(run["id"] for run in resumed["runs"]), "--out", str(picture))
    assert compared.returncode == 0, compared.stderr
    assert Path(picture).read_text().startswith("<?xml")
    each_model_of_the_group_is_played(shell, resumed["group"])
    assert shell.processes() == []


def each_model_of_the_group_is_played(shell: Shell, group: str) -> None:
    found = shell.json("eval", "walk", "-n", "4", "--out", "reports")
    assert (found["eval"]["n"], found["eval"]["unit"]) == (2, "training runs")
    for policy in found["policies"]:
        report = shell.folder / "reports" / policy["run_id"] / "evals" / "eval-1.json"
        assert Path(policy["files"]["report"]) == report
        assert report.is_file()
    refused = shell.json("eval", found["policies"][0]["run_id"], "--against", group, code=2)
    assert "is a group of 2 runs" in refused["error"]["message"]
