"""`registry`, `promote`, `rollback` and the other names of commands: words, JSON and exit codes."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_orch.cli import scripts
from rl_orch.core.jobs import kinds, recorded
from rl_orch.core.policies import evaluation
from rl_orch.core.store.runs import Store
from rl_orch.io.checkpoints import catalog
from rl_orch.io.policies.episode_records import write_records
from rl_orch.io.run.directory import RunDir
from rl_orch.records import ModelVersion
from rl_orch.records.tasks import FilmAnswer, FilmTask, Recorded
from tests.conftest import Ran
from tests.models import EPISODES, Shop, a_report

Rlctl = Callable[..., Ran]
SEED_3 = {
    "id", "model_path", "algorithm", "env_id", "timestamp", "total_timesteps", "mean_reward",
    "std_reward", "mean_episode_length", "hyperparams", "git_commit", "validated",
}  # fmt: skip


@pytest.fixture
def models(tmp_path: Path) -> list[ModelVersion]:
    """Two models that a gate has passed, and one that it has not."""
    home = tmp_path / "rlruns"
    shop = Shop(home, Store(home / "rlctl.db"))
    return [shop.a_model(f"r-{n}", mean) for n, mean in enumerate((500.0, 400.0, 50.0))]


def test_models_are_listed_in_rows_and_as_a_document(
    rlctl: Rlctl, models: list[ModelVersion]
) -> None:
    first, second, _ = models
    ran = rlctl("registry", "list", "--validated", "--top-n", "5")
    assert (ran.code, ran.err) == (0, "")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["model", "#1", "#2"]
    head, best, _ = (line.split() for line in ran.out.splitlines())
    assert best[head.index("n") + 2] == str(EPISODES)  # The return takes three words.
    document = json.loads(rlctl("registry", "list", "--validated", "--top-n", "1", "--json").out)
    (row,) = document["models"]
    assert set(row) >= SEED_3 | {"aliases", "run_id", "config_hash", "digest", "lineage"}
    assert (row["id"], row["aliases"]) == (first.id, [])
    assert row["hyperparams"]["env"]["id"] == "CartPole-v1"
    assert row["episodes"] == first.episodes == EPISODES
    newest = json.loads(rlctl("registry", "list", "--limit", "2", "--json").out)["models"]
    assert [row["id"] for row in newest] == [3, second.id]


def test_a_home_without_models_says_so_and_stays_as_it_is(rlctl: Rlctl, tmp_path: Path) -> None:
    assert "no such models" in rlctl("registry", "list").out
    assert json.loads(rlctl("registry", "list", "--json").out) == {"models": []}
    assert "no alias was ever given" in rlctl("registry", "history").out
    assert rlctl("registry", "verify").out == "0 models, all of them whole\n"
    assert rlctl("promote", "1", "--to", "production").code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_promotion_is_told_and_kept(rlctl: Rlctl, models: list[ModelVersion]) -> None:
    ran = rlctl("promote", "1", "--to", "production", "--reason", "the first")
    assert (ran.code, ran.out) == (0, "production@CartPole-v1 is model 1 now\n")
    change = json.loads(
        rlctl("promote", "2", "--to", "production", "--force", "--reason", "a demo", "--json").out
    )
    assert (change["model_id"], change["previous_id"], change["forced"]) == (2, 1, True)
    told = rlctl("registry", "history", "production").out
    assert "promote, forced" in told
    assert "a demo" in told
    assert rlctl("rollback", "production").out == (
        "production@CartPole-v1 is model 1 now, instead of model 2\n"
    )
    shown = rlctl("registry", "show", "production").out
    assert "aliases   production@CartPole-v1" in shown
    assert "verdict 1" in shown
    view = json.loads(rlctl("registry", "show", "production", "--json").out)
    assert view["model"]["id"] == 1
    assert len(view["history"]) == 3
    assert "is nobody's now; it was model 1" in rlctl("registry", "unalias", "production").out


def test_a_rollback_to_a_forced_model_says_why_it_was_forced(
    rlctl: Rlctl, models: list[ModelVersion]
) -> None:
    for model in ("3", "2"):
        rlctl("promote", model, "--to", "production", "--force", "--reason", "a demo")
    assert rlctl("rollback", "production").out == (
        "production@CartPole-v1 is model 3 now, instead of model 2 (forced before: a demo)\n"
    )


def test_a_gate_that_refuses_is_exit_code_3(rlctl: Rlctl, models: list[ModelVersion]) -> None:
    ran = rlctl("promote", "3", "--to", "production")
    assert (ran.code, ran.out) == (3, "")
    assert "model 3 has not passed its gate" in ran.err
    error = json.loads(rlctl("promote", "3", "--to", "production", "--json").out)["error"]
    assert error["code"] == "gate_refused"
    judged = rlctl("registry", "validate", "3")
    assert judged.code == 3
    assert judged.out.startswith("model 3: failed\n  failed  min_return: lower bound")
    assert rlctl("registry", "validate", "3", "--min-reward", "40", "--json").code == 0
    assert rlctl("promote", "3", "--to", "production").code == 0


def test_models_are_pruned_and_verified(rlctl: Rlctl, models: list[ModelVersion]) -> None:
    rlctl("promote", "2", "--to", "production")
    told = rlctl("registry", "prune", "--keep-top-n", "1", "--dry-run").out
    assert told == (
        "would go  #3: it is number 3 of CartPole-v1, and only 1 may stay\n"
        "stays  #2: it is production\n"
    )
    done = json.loads(rlctl("registry", "prune", "--keep-top-n", "1", "--json").out)
    assert [gone["model_id"] for gone in done["removed"]] == [3]
    assert "nothing to remove" in rlctl("registry", "prune", "--max-age", "1000000").out
    assert rlctl("registry", "prune").out == (
        "no limit is set, so only removals that were cut short are finished\n"
        "set one with --keep-top-n or --max-age\n"
    )
    assert rlctl("registry", "verify").code == 0
    (Path(models[0].model_path) / "model.json").write_text("[]")
    ran = rlctl("registry", "verify")
    assert ran.code == 1
    assert "damaged  model 1: model step_000000000100 has a file of the wrong size" in ran.out
    assert not json.loads(rlctl("registry", "verify", "--json").out)["ok"]


def test_a_run_whose_model_has_an_alias_is_not_removed(
    rlctl: Rlctl, models: list[ModelVersion]
) -> None:
    rlctl("promote", "1", "--to", "production")
    ran = rlctl("rm", "-y", "r-0")
    assert ran.code == 2
    assert "its model 1 is production@CartPole-v1" in ran.err
    assert Path(models[0].model_path).is_dir()
    rlctl("registry", "unalias", "production")
    assert rlctl("rm", "-y", "r-0").code == 0
    assert not Path(models[0].model_path).exists()


def test_the_best_model_is_a_path(rlctl: Rlctl, models: list[ModelVersion], tmp_path: Path) -> None:
    assert rlctl("registry", "best").out == f"{models[0].model_path}\n"
    assert json.loads(rlctl("registry", "best", "--env", "CartPole-v1", "--json").out)["id"] == 1
    home = tmp_path / "rlruns"
    Shop(home, Store(home / "rlctl.db")).a_model("swing", env_id="Pendulum-v1")
    ran = rlctl("registry", "best")
    assert ran.code == 2
    assert "models of CartPole-v1, Pendulum-v1" in ran.err
    assert (
        "no validated model of Acrobot-v1" in rlctl("registry", "best", "--env", "Acrobot-v1").err
    )


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        (scripts.registry_list, ["--validated", "--top-n", "5"], "#1"),
        (scripts.registry_validate, ["1"], "model 1: passed"),
        (scripts.load_best, [], "step_000000000100"),
        (scripts.train, ["--help"], "Usage: rlctl launch"),
        (scripts.evaluate, ["--model-id", "1", "--help"], "Usage: rlctl eval"),
        (scripts.infer, ["--load-best", "--help"], "Usage: rlctl infer"),
    ],
)
def test_other_names_are_the_same_verbs(
    rlctl: Rlctl,
    models: list[ModelVersion],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: Callable[[], None],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["script", *arguments])
    with pytest.raises(SystemExit) as caught:
        script()
    assert caught.value.code == 0
    assert said in capsys.readouterr().out


ACT = ("infer", "--observation", "[0, 0, 0, 0]")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("eval",), "name the policy by POLICY or by --model-id; none of them is given"),
        (("eval", "r-0", "--model-id", "1"), "POLICY or by --model-id; more than one is given"),
        (("eval", "--model-id", "9"), "no model 9"),
        ((*ACT, "r-0", "--load-best"), "POLICY or by --load-best; more than one is given"),
        ((*ACT, "--load-best", "--env", "Acrobot-v1"), "no validated model of Acrobot-v1"),
        (("eval", "r-0", "--margin", "1"), "--margin is for --sequential"),
        (("eval", "r-0", "--using", "onnx"), "--using is 'onnx', but model 1 is no bundle"),
        (("eval", "r-0", "--using", "onnx", "--sample"), "only torch can sample"),
        (("eval", "r-0", "--sequential", "--against", "r-1", "-n", "9"), "needs at least 10"),
        (("eval", "x" * 300), "no policy 'xxx"),
        (("play", "x" * 300), "no policy 'xxx"),
        (("eval", f"./{'x' * 300}"), "cannot be looked at as a path: File name too long"),
        (("eval", "~no-such-user/x"), "there is no policy at"),
    ],
)
def test_policies_that_are_not_named_or_cannot_be_played_so_are_refused(
    rlctl: Rlctl, models: list[ModelVersion], words: tuple[str, ...], said: str
) -> None:
    ran = rlctl(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def record(directory: RunDir, name: str, checkpoint: str, number: int) -> None:
    """An evaluation of a checkpoint whose best episode has that number."""
    directory.write_report(name, a_report(5.0, env_id="CartPole-v1", checkpoint=checkpoint))
    best = Recorded(number=number, seed=1, ret=1.0, length=1, actions=[0])
    write_records(directory.records_file(name), {"best": best})


def test_the_episode_that_is_played_is_of_the_very_checkpoint(
    rlctl: Rlctl, models: list[ModelVersion], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def show(task: FilmTask, _watch: Any) -> FilmAnswer:
        assert task.episode is not None
        asked.append(task.episode.number)
        told: Any = {"number": 0, "seed": 0, "ret": 0.0, "length": 0, "film": None}
        return FilmAnswer(**told, recorded_return=0.0, same=True)

    monkeypatch.setattr(kinds, "show", show)
    monkeypatch.setenv("DISPLAY", ":0")
    path = Path(models[0].model_path)
    directory, ours, other = RunDir(path.parents[1]), path.name, catalog.name_of(7)
    refused = rlctl("play", "r-0")
    assert refused.code == 2
    assert "no evaluation in its run has recorded episodes of model 1" in refused.err
    assert "`rlctl eval 1` records its best" in refused.err
    record(directory, "final", other, 10)
    assert rlctl("play", "r-0").code == 2
    for number, checkpoint in ((1, ours), (9, ours), (10, ours), (11, other)):
        record(directory, f"eval-{number}", checkpoint, number)
    assert rlctl("play", "r-0").code == 0
    record(directory, "final", ours, 20)
    assert rlctl("play", "r-0").code == 0
    assert rlctl("play", "r-0", "--of", "eval-9").code == 0
    assert asked == [10, 20, 9]
    for variable in recorded.SCREENS:
        monkeypatch.delenv(variable, raising=False)
    unseen = rlctl("play", "r-0")
    assert (unseen.code, "there is no screen here" in unseen.err) == (2, True)
    assert "--video" in unseen.err


@pytest.mark.parametrize("folder", ["a-file", "a-file/below", "/proc/none"])
def test_a_folder_that_takes_no_report_is_refused_before_an_episode_is_played(
    rlctl: Rlctl,
    models: list[ModelVersion],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
) -> None:
    (tmp_path / "a-file").touch()
    monkeypatch.setattr(evaluation, "playing", lambda _jobs: pytest.fail("somebody plays"))
    ran = rlctl("eval", "r-0", "--out", folder)
    assert (ran.code, ran.out) == (2, "")
    assert f"evaluations cannot be kept in '{tmp_path / folder / 'evals'}': " in ran.err
    assert "--out FOLDER" in ran.err


def test_a_folder_that_nobody_may_write_to_is_refused_before_an_episode_is_played(
    rlctl: Rlctl, models: list[ModelVersion], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "playing", lambda _jobs: pytest.fail("somebody plays"))
    # Root may write anywhere.
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
    ran = rlctl("eval", "r-0")
    assert (ran.code, ran.out) == (2, "")
    assert "runs/r-0/evals': Permission denied" in ran.err


@pytest.mark.parametrize("command", [("eval",), ACT])
@pytest.mark.parametrize("named", ["id", "model_path"])
def test_a_policy_of_another_environment_is_refused_with_both_ways_out(
    rlctl: Rlctl, models: list[ModelVersion], tmp_path: Path, command: tuple[str, ...], named: str
) -> None:
    home = tmp_path / "rlruns"
    swing = Shop(home, Store(home / "rlctl.db")).a_model("swing", env_id="Pendulum-v1")
    word = str(getattr(models[0], named))
    ran = rlctl(*command, word, "--env", "Pendulum-v1")
    assert (ran.code, ran.out) == (2, "")
    assert "has learned CartPole-v1; it cannot act in Pendulum-v1" in ran.err
    assert f"model {swing.id}: `rlctl {command[0]} {swing.id} --env Pendulum-v1`" in ran.err
    assert f"`rlctl {command[0]} {word} --env CartPole-v1`" in ran.err


def test_the_best_of_several_environments_is_nobody(
    rlctl: Rlctl, models: list[ModelVersion], tmp_path: Path
) -> None:
    home = tmp_path / "rlruns"
    Shop(home, Store(home / "rlctl.db")).a_model("swing", env_id="Pendulum-v1")
    for words in (("registry", "best"), (*ACT, "--load-best"), ("eval", "best")):
        ran = rlctl(*words)
        assert ran.code == 2
        assert "there are validated models of CartPole-v1, Pendulum-v1" in ran.err
        assert "--env CartPole-v1" in ran.err
