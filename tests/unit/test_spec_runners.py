"""The traits of runners: ours by name, those of plugins by what their class declares."""

from pathlib import Path

import pytest

from rl_orch import plugins
from rl_orch.errors import BadInput, SpecInvalid
from rl_orch.spec import code, consent, runner_traits
from rl_orch.spec.resolve import resolve
from rl_orch.spec.runner_traits import BUILT_IN, RunnerTraits
from rl_orch.testing import FakeRunner


class ElsewhereRunner(FakeRunner):
    """A runner of another package, whose trainer is its own."""

    traits = RunnerTraits(trains_here=False, resumes="never", needs_gpu=True, services=("xmpp",))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It, installed."""
    metadata = tmp_path / "more_runners-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: more-runners\nVersion: 1.0\n")
    points = "[rl_orch.runners]\nafar = tests.unit.test_spec_runners:ElsewhereRunner\n"
    (metadata / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_is_known_of_a_runner_is_what_its_class_declares(name: str) -> None:
    assert plugins.load("runners", name).traits == runner_traits.of(name)


def test_a_runner_that_is_not_installed_has_the_usual_traits() -> None:
    assert runner_traits.of("nowhere") == RunnerTraits()
    with pytest.raises(BadInput):
        plugins.load("runners", "nowhere")


@pytest.mark.usefixtures("elsewhere")
def test_a_plugin_declares_its_own_and_the_spec_is_checked_by_them() -> None:
    given = {"env.id": "CartPole-v1", "runner.name": "afar"}
    with pytest.raises(SpecInvalid) as caught:
        resolve(given)
    assert [problem.path for problem in caught.value.problems] == ["resources.gpus"]
    spec = resolve(given | {"resources.gpus": 1, "train.batch_size": 7})
    assert spec.algo == "afar"
    assert not spec.runner.goes_on
    assert not consent.is_needed(spec)
    assert [named.path for named in code.named_by(spec)] == ["runner.name"]


@pytest.mark.parametrize(
    ("runner", "goes_on"),
    [
        ({"name": "local"}, True),
        ({"name": "external", "command": ["x"]}, False),
        ({"name": "external", "command": ["x"], "resume": "bitwise"}, True),
    ],
)
def test_a_further_attempt_goes_on_by_trait_or_by_what_the_program_promises(
    runner: dict[str, object], goes_on: bool
) -> None:
    assert resolve({"env": {"id": "X-v0"}, "runner": runner}).runner.goes_on is goes_on
