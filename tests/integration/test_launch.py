"""One launch from spec to registered model, looked at from every side."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
    EventAccumulator,
)

from rl_orch import orchestrator
from rl_orch.io.checkpoints import checkpoint_files
from rl_orch.io.run.events import read
from rl_orch.records import EventKind, State
from tests.integration.conftest import SMALL, Shell

BUDGET = ("train.total_timesteps=2048", "eval.every=1024")
RUN_FIELDS = {
    "id", "name", "group", "state", "reason", "attempt", "env", "algo", "env_steps", "sps",
    "config_hash", "eval", "verdict", "model_id", "path", "resume",
}  # fmt: skip
EVAL_FIELDS = {"mean", "std", "iqm", "ci95", "n", "unit"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, dict[str, Any]]]:
    """A home, far down a long path with spaces and letters from elsewhere, with one good run."""
    folder = tmp_path_factory.mktemp("ein Ordner für Läufe " + "x" * 80)
    shell = Shell(folder / "hömé", folder)
    document = shell.json(
        "launch", "--env", "CartPole-v1", "--seed", "7", "--min-reward", "5", *SMALL, *BUDGET
    )
    yield shell, document
    shell.close()


def test_the_run_succeeds_with_every_field_of_the_contract(
    trained: tuple[Shell, dict[str, Any]],
) -> None:
    _, run = trained
    assert set(run) >= RUN_FIELDS
    assert set(run["eval"]) >= EVAL_FIELDS
    assert (run["state"], run["verdict"], run["env_steps"]) == ("succeeded", "passed", 2048)
    assert (run["eval"]["n"], run["eval"]["unit"]) == (10, "episodes")
    assert run["resume"] == "bitwise"


def test_show_and_ls_tell_the_same_run(trained: tuple[Shell, dict[str, Any]]) -> None:
    shell, run = trained
    shown = shell.json("show", "last")
    assert {key: shown[key] for key in RUN_FIELDS} == {key: run[key] for key in RUN_FIELDS}
    listed = shell.json("ls")
    assert listed["next"] is None
    assert [row["id"] for row in listed["runs"]] == [run["id"]]
    assert all(entry["intact"] for entry in shown["checkpoints"])


def test_the_directory_holds_what_a_run_is_understood_from(
    trained: tuple[Shell, dict[str, Any]],
) -> None:
    _, run = trained
    folder = Path(run["path"])
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["config_hash"] == run["config_hash"]
    assert manifest["clock"] == "env_steps"
    assert {"torch", "numpy", "gymnasium"} <= set(manifest["versions"])
    assert {"cpu", "threads", "torch"} <= set(manifest["fingerprint"])
    assert orchestrator.to_spec(folder / "spec.yaml").config_hash == run["config_hash"]
    assert "attempt started" in (folder / "log.txt").read_text()
    assert not (folder / "control.sock").exists()


def test_events_are_numbered_and_named_as_people_know_them(
    trained: tuple[Shell, dict[str, Any]],
) -> None:
    _, run = trained
    events = list(read(Path(run["path"]) / "events.jsonl"))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert {
        "charts/episodic_return", "charts/SPS", "charts/learning_rate", "losses/policy_loss",
        "losses/value_loss", "losses/entropy", "losses/approx_kl", "eval/mean_return",
    } <= {event.key for event in events}  # fmt: skip
    assert events[0].key == "started"
    made = [event.key for event in events if event.kind is EventKind.ARTIFACT]
    assert made == ["report", "episodes"]
    assert [event.key for event in events[-3:]] == ["ended", *made]
    folder = Path(run["path"])
    assert all((folder / event.value).is_file() for event in events[-2:])


def test_tensorboard_shows_the_same_numbers(trained: tuple[Shell, dict[str, Any]]) -> None:
    _, run = trained
    folder = Path(run["path"])
    reader = EventAccumulator(str(folder / "tensorboard"))
    reader.Reload()
    for key in ("losses/policy_loss", "eval/mean_return", "charts/episodic_return"):
        told = [e.value for e in read(folder / "events.jsonl") if e.key == key]
        drawn = [scalar.value for scalar in reader.Scalars(key)]
        assert drawn == pytest.approx(told, rel=1e-6)


def test_the_best_checkpoint_is_registered_judged_and_validated(
    trained: tuple[Shell, dict[str, Any]],
) -> None:
    shell, run = trained
    with sqlite3.connect(shell.home / "rlctl.db") as connection:
        rows = connection.execute(
            "SELECT id, model_path, algorithm, env_id, total_timesteps, mean_reward, std_reward,"
            " mean_episode_length, hyperparams, validated FROM models ORDER BY id"
        ).fetchall()
    (best,) = rows
    assert (best[2], best[3]) == ("ppo", "CartPole-v1")
    assert (best[0], best[9]) == (run["model_id"], 1)
    assert best[5:7] == (run["eval"]["mean"], run["eval"]["std"])
    assert json.loads(best[8])["env"]["seed"] == 7
    query = "SELECT model_path FROM models WHERE validated=1 ORDER BY mean_reward DESC LIMIT 1"
    with sqlite3.connect(shell.home / "rlctl.db") as connection:
        path = Path(connection.execute(query).fetchone()[0])
    assert checkpoint_files.load(path).step == best[4]


def test_logs_print_the_log_and_the_events(trained: tuple[Shell, dict[str, Any]]) -> None:
    shell, run = trained
    log = shell.run("logs", run["id"], "-f").stdout
    assert log == (Path(run["path"]) / "log.txt").read_text()
    lines = shell.run("logs", run["id"], "--events").stdout.splitlines()
    assert json.loads(lines[0])["key"] == "started"


def test_show_draws_the_curve_and_says_what_comes_next(
    trained: tuple[Shell, dict[str, Any]],
) -> None:
    shell, run = trained
    text = shell.run("show", run["id"]).stdout
    for words in ("environment steps", "95 % interval", "n = 10 episodes", "✓ min_return", "next"):
        assert words in text
    assert "\x1b" not in text


def test_the_same_spec_and_seed_give_the_same_bytes_again(
    trained: tuple[Shell, dict[str, Any]],
) -> None:
    shell, first = trained
    again = shell.json("launch", "-f", str(Path(first["path"]) / "spec.yaml"))
    assert again["config_hash"] == first["config_hash"]
    assert _reproducible(first) == _reproducible(again)
    assert again["eval"] == first["eval"]
    for name in (
        "checkpoints/step_000000002048/tensors.safetensors",
        f"models/{Path(shell.json('show', first['id'])['models'][0]['model_path']).name}"
        "/policy-default.safetensors",
    ):
        one, two = ((Path(run["path"]) / name).read_bytes() for run in (first, again))
        assert one == two

    compared = shell.json("compare", first["id"], again["id"])
    assert compared["difference"] == []
    assert "The specs are the same." in shell.run("compare", first["id"], again["id"]).stdout


def test_another_seed_is_another_run_of_the_same_config(
    trained: tuple[Shell, dict[str, Any]],
) -> None:
    shell, first = trained
    document = json.loads(json.dumps(shell.json("show", first["id"])["spec"]))
    document["env"]["seed"] = 8
    result = orchestrator.run(document, home=shell.home, in_process=True)
    assert result.run.config_hash == first["config_hash"]
    assert result.run.state is State.SUCCEEDED
    assert result.report is not None
    assert result.verdict is not None
    assert result.verdict.passed
    compared = shell.json("compare", first["id"], result.run.id)
    assert compared["difference"] == [{"path": "env.seed", "values": [7, 8]}]
    assert _reproducible(first) != _reproducible(result.run.model_dump())

    assert shell.json("rm", result.run.id, "--yes") == {"removed": [result.run.id]}
    assert not Path(result.run.path).exists()


def _reproducible(run: dict[str, Any]) -> list[tuple[int, int, str, str, Any, str]]:
    """What a run told, without the clock: time-stamps, and the `log` events that read it."""
    return [
        (e.seq, e.step, e.kind, e.key, e.value, json.dumps(e.tags, sort_keys=True))
        for e in read(Path(run["path"]) / "events.jsonl")
        if e.kind is not EventKind.LOG
    ]
