"""Gates that compare with a champion and ask for a bundle, as a user meets them: real trainings."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_orch.io.policies import bundles
from tests.integration.conftest import SMALL, Shell

LAUNCH = ("--env", "CartPole-v1", *SMALL)
BETTER = (
    *("--env", "CartPole-v1", "train.total_timesteps=30000", "eval.final_episodes=20"),
    *("gates.improvement=production", "gates.max_latency_ms=60000", "gates.max_bundle_mb=5"),
    "gates.export_parity=true",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A home in which a weak model is production."""
    folder = tmp_path_factory.mktemp("evidence")
    made = Shell(folder / "home", folder)
    first = made.train(
        *(*LAUNCH, "train.total_timesteps=4096", "gates.improvement=production", "--name", "first"),
    )
    assert first["verdict"] == "passed"
    made.json("promote", "first", "--to", "production")
    yield made
    made.close()


@pytest.fixture(scope="module")
def better(home: Shell) -> dict[str, Any]:
    return home.train(*BETTER, "--name", "better")


def checks_of(home: Shell, run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    (newest, *_) = home.json("registry", "show", str(run["model_id"]))["verdicts"]
    return {check["rule"]: check for check in newest["verdict"]["checks"]}


def test_a_run_that_is_shown_to_be_better_than_production_passes(
    home: Shell, better: dict[str, Any]
) -> None:
    assert (better["state"], better["verdict"]) == ("succeeded", "passed")
    found = checks_of(home, better)
    said = found["improvement"]["sentence"]
    assert "minus that of 'production' (model 1) over 20 pairs of episodes with the same" in said
    assert "with 95 % confidence between" in said
    assert found["improvement"]["observed"] > 0
    assert "onnx, torchscript, pt2 act as the policy does" in found["export_parity"]["sentence"]
    assert 0.0 < found["max_latency_ms"]["observed"] < 60_000.0
    (bundle,) = (Path(better["path"]) / "exports").iterdir()
    assert bundles.read(bundle).size == pytest.approx(1e6 * found["max_bundle_mb"]["observed"])


def test_a_run_that_is_worse_is_rejected_and_says_by_how_much(home: Shell) -> None:
    gates = ("gates.no_regression=production", "gates.margin=1")
    worse = home.train(*LAUNCH, "train.total_timesteps=256", *gates, "--name", "worse", code=3)
    assert worse["state"] == "rejected"
    assert "minus that of 'production' (model 1) over 10 pairs" in worse["reason"]
    assert "a loss of at most 1 is allowed" in worse["reason"]


def test_the_same_verdict_is_reached_later_and_anew_and_is_fixed_by_its_digest(
    home: Shell, better: dict[str, Any]
) -> None:
    name = str(better["model_id"])
    (before,) = home.json("registry", "show", name)["verdicts"]
    assert home.json("registry", "validate", name)["id"] == before["id"]
    home.json("promote", name, "--to", "production", "--force", "--reason", "it was compared")
    later = home.json("registry", "validate", name)
    sentences = [check["sentence"] for check in later["verdict"]["checks"]]
    assert sentences[0] == "not judged: the model is 'production' itself"
    assert home.run("registry", "verify").returncode == 0
    file = Path(later["report_path"])
    kept = json.loads(file.read_text())
    kept["@gathered"]["bundle"]["bytes"] = 1
    file.write_text(json.dumps(kept))
    broken = home.run("registry", "verify")
    assert broken.returncode == 1
    assert f"model {name}: verdict {later['id']} read another report" in broken.stdout
