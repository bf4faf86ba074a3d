"""Evaluating, looking at episodes and promoting, as a user does it, with real trainings."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import psutil
import pyarrow.parquet as pq
import pytest

from rl_orch.cli import rlctl
from tests.exported import CASES, bundled, made
from tests.integration.conftest import SMALL, Shell, until
from tests.waiting import PATIENCE_S

GOOD = (
    "--env",
    "CartPole-v1",
    "train.total_timesteps=60000",
    "eval.final_episodes=20",
    "gates.min_return=300",
    "eval.video=true",
)
WEAK = ("--env", "CartPole-v1", *SMALL, "train.total_timesteps=512", "gates.min_return=1")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("eval")
    made = Shell(folder / "home", folder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def good(home: Shell) -> dict[str, Any]:
    return home.train(*GOOD, "--name", "good")


@pytest.fixture(scope="module")
def weak(home: Shell) -> dict[str, Any]:
    return home.train(*WEAK, "--name", "weak")


def test_a_run_keeps_the_episodes_of_its_final_evaluation(good: dict[str, Any]) -> None:
    path = Path(good["path"])
    rows = pq.read_table(path / "evals" / "final.parquet").to_pydict()
    assert len(rows["return"]) == len(set(rows["seed"])) == 20
    assert sum(rows["return"]) / 20 == pytest.approx(good["eval"]["mean"])
    with av.open(str(path / "videos" / "final-best.mp4")) as film:
        assert sum(1 for _ in film.decode(video=0)) == max(rows["length"]) + 1


def test_a_policy_is_played_on_fresh_episodes_that_its_seed_repeats(
    home: Shell, good: dict[str, Any]
) -> None:
    first = home.json("eval", "good", "-n", "30", "--seed", "5", "--jobs", "2")
    assert first["model_id"] == good["model_id"]
    assert (first["eval"]["n"], first["eval"]["unit"]) == (30, "episodes")
    assert first["aggregates"]["optimality_gap"]["value"] >= 0.0
    again = home.json("eval", str(good["model_id"]), "-n", "30", "--seed", "5", "--jobs", "1")
    assert again["eval"] == first["eval"]
    assert again["files"]["report"] != first["files"]["report"]
    tables = [pq.read_table(each["files"]["episodes"]) for each in (first, again)]
    assert tables[0].equals(tables[1])
    assert Path(first["files"]["curve"]).read_text().startswith("<?xml")


def test_two_policies_meet_on_the_same_episodes_until_it_is_decided(
    home: Shell, good: dict[str, Any], weak: dict[str, Any]
) -> None:
    found = home.json("eval", good["id"], "--against", weak["id"], "--sequential", "-n", "100")
    comparison = found["comparison"]
    assert comparison["decision"] == "superior"
    assert comparison["difference"]["pairs"] < 100
    assert comparison["difference"]["low"] > 0
    assert comparison["difference"]["ci95"] is None
    assert comparison["probability_of_improvement"]["value"] > 0.9
    printed = home.run("eval", "weak", "--against", "good", "-n", "12")
    assert printed.returncode == 0
    assert "minus good: -" in printed.stdout


def test_the_best_episode_is_driven_again_into_a_film(
    home: Shell, good: dict[str, Any], tmp_path: Path
) -> None:
    film = tmp_path / "best.mp4"
    found = home.json("play", "good", "--episode", "best", "--video", str(film))
    assert found["same"]
    assert found["return"] == pytest.approx(found["recorded_return"])
    with av.open(str(film)) as container:
        assert sum(1 for _ in container.decode(video=0)) == found["length"] + 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("eval", "nobody"), "no policy 'nobody'"),
        (("eval", "good", "--env", "Acrobot-v1"), "cannot act in Acrobot-v1"),
        (("eval", "good", "--sequential"), "--sequential is about two policies"),
        (("play", "good", "--episode", "last"), "must be best, worst, or a number"),
        (("play", "good", "--of", "../final"), "must be the name of an evaluation"),
        (("play", "good", "--of", "eval-99"), "has recorded no best episode"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_can(
    words: tuple[str, ...],
    said: str,
    home: Shell,
    good: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RLCTL_HOME", str(home.home))
    assert rlctl.run(words) in (1, 2)
    assert said in capsys.readouterr().err


def test_a_bundle_meets_a_run_and_its_report_goes_where_it_is_told_to(
    home: Shell, good: dict[str, Any], tmp_path: Path
) -> None:
    bundle, folder = bundled(made(CASES["ppo"]), tmp_path / "b.bundle"), tmp_path / "reports"
    asked = ("eval", str(bundle), "--against", "good", "-n", "12", "--out", str(folder))
    found = home.json(*asked)
    assert found["comparison"]["difference"]["ci95"][1] < 0
    assert (found["run_id"], found["against"]["model_id"]) == (None, str(good["model_id"]))
    assert pq.read_table(folder / "evals" / "eval-1.parquet").num_rows == 12
    records = found["files"]["records"]
    film = tmp_path / "best.mp4"
    shown = home.json("play", str(bundle), "--of", records, "--video", str(film))
    assert shown["same"]
    assert film.is_file()


def test_a_damaged_checkpoint_is_named_and_no_mistake_of_the_user(
    home: Shell, good: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(good["path"], tmp_path / "copy")
    checkpoint = sorted((tmp_path / "copy" / "checkpoints").glob("step_*"))[-1]
    (checkpoint / "tensors.safetensors").write_bytes(b"nothing")
    refused = home.json("eval", str(checkpoint), "-n", "2", code=1)
    assert refused["error"]["code"] == "damaged"
    assert checkpoint.name in refused["error"]["message"]


def test_an_interrupted_evaluation_leaves_no_process_and_no_file(
    home: Shell, good: dict[str, Any]
) -> None:
    before = sorted((Path(good["path"]) / "evals").iterdir())
    child = home.start("eval", "good", "-n", "200000", "--jobs", "2")
    players: list[psutil.Process] = until(lambda: at_work(child.pid))
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, said.splitlines()[-1]) == (130, "interrupted")
    assert not any(map(psutil.Process.is_running, players))
    assert sorted((Path(good["path"]) / "evals").iterdir()) == before


def at_work(pid: int) -> list[psutil.Process]:
    """The two children of an evaluation, once both have worked for a while."""
    found = psutil.Process(pid).children(recursive=True)
    ready = [child for child in found if child.cpu_times().user > 2.0]
    return ready if len(ready) == 2 else []


def test_what_children_refuse_is_told_like_any_other_mistake(
    home: Shell, good: dict[str, Any]
) -> None:
    done = home.run("eval", "good", "--metric", "speed", "-n", "2")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no plugin 'speed' of kind metrics" in done.stderr


def test_an_alias_goes_to_who_is_shown_to_be_better_and_back(
    home: Shell, good: dict[str, Any], weak: dict[str, Any]
) -> None:
    assert (
        home.json("promote", str(weak["model_id"]), "--to", "production")["model_id"]
        == (weak["model_id"])
    )
    change = home.json("promote", "good", "--to", "production", "--episodes", "20")
    assert (change["model_id"], change["previous_id"]) == (good["model_id"], weak["model_id"])
    refused = home.run("promote", "weak", "--to", "production", "--episodes", "20")
    assert refused.returncode == 3, refused.stderr
    assert "does not take the place of" in refused.stderr
    assert home.json("rollback", "production")["model_id"] == weak["model_id"]
    kept = home.run("rm", weak["id"], "--yes")
    assert kept.returncode != 0
    assert "production" in kept.stderr
