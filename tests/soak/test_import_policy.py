"""Policies made anew by Stable-Baselines3 and CleanRL, imported, and played on the same seeds."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.foreign import CLOSE, played, reported
from tests.integration.conftest import Shell

ROOT = Path(__file__).parents[2]
SEED = 11
MAKERS = {
    ".venv-peers": "benchmarks.peers.sb3_policies",
    ".venv-peers-cleanrl": "benchmarks.peers.cleanrl_policies",
}
"""The environments that `make peers` sets up, and what they are asked to do."""

Tell = Callable[[str, object], None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of policies that their libraries have just trained, saved and evaluated."""
    folder = tmp_path_factory.mktemp("foreign")
    for environment, module in MAKERS.items():
        python = ROOT / environment / "bin" / "python"
        subprocess.run([python, "-m", module, folder, str(SEED)], cwd=ROOT, check=True)
    return folder


def test_policies_of_today_reach_the_returns_that_their_libraries_report(
    made: Path, tmp_path: Path, record_property: Tell
) -> None:
    figures = {}
    for file, told in reported(made).items():
        report = played(made / file, told, tmp_path)
        assert list(report.seeds) == told["seeds"]
        ours, theirs = np.array(report.returns), np.array(told["returns"])
        figures[file] = f"{ours.mean():.2f}, reported {theirs.mean():.2f}"
        if told["env"] == "CartPole-v1":
            assert ours.tolist() == theirs.tolist(), file
        else:
            np.testing.assert_allclose(ours, theirs, rtol=CLOSE, err_msg=file)
    record_property("figures", figures)


def test_every_command_that_takes_a_policy_takes_one_that_was_imported(
    made: Path, shell: Shell
) -> None:
    for file, told in reported(made).items():
        policy = made / file
        statistics = policy.with_suffix(".npz")
        beside = ("--normalizer", str(statistics)) if statistics.exists() else ()
        found = shell.json("registry", "import", str(policy), "--env", told["env"], *beside)
        model, episodes = str(found["id"]), len(told["returns"])
        answer = shell.json("eval", model, "--episodes", str(episodes), "--seed", str(SEED))
        assert answer["eval"]["mean"] == pytest.approx(np.mean(told["returns"]), rel=CLOSE)
        out = shell.folder / f"{file}.bundle"
        assert shell.run("export", model, "--out", str(out), "--rows", "500").returncode == 0
        again = shell.json("registry", "import", str(out))
        assert again["lineage"]["elsewhere"]["model"] == found["id"]
        film = ("--episode", "0", "--video", str(shell.folder / f"{file}.mp4"))
        assert shell.run("play", model, *film).returncode == 0
        forced = ("--to", "first", "--force", "--reason", "none is better here")
        assert shell.run("promote", model, *forced).returncode == 0
    assert json.loads(shell.run("registry", "verify", "--json").stdout)["ok"]
