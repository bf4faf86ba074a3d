"""Policies of bundles at play: by their weights, by their graphs, and beside checkpoints."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces

from rl_orch.errors import BadInput, Damaged
from rl_orch.export.quantizing import quantized
from rl_orch.io.policies import bundles
from rl_orch.records import EvalReport
from rl_orch.records.tasks import EvaluateTask, FilmTask, PolicyFiles
from rl_orch.rl.evaluate import LANES
from rl_orch.worker.policies import sources
from rl_orch.worker.policies.load import refuse_other_spaces, setup_of
from rl_orch.worker.tasks.assess import EvalPlayer
from rl_orch.worker.tasks.play import answer
from tests.exported import CASES, bundled, in_run, made

EPISODES = 9


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A policy that stacks frames: in a run, and carried away."""
    folder, policy = tmp_path_factory.mktemp("carried"), made(CASES["dqn"])
    onnx = policy.writer().write("onnx").data
    bundle = bundled(policy, folder / "b.bundle", onnx=onnx, int8=quantized(onnx))
    return {"checkpoint": in_run(policy, folder / "run"), "bundle": bundle}


@pytest.fixture
def assessor() -> Iterator[EvalPlayer]:
    with ExitStack() as stack:
        yield EvalPlayer(stack)


def at(places: dict[str, Path], using: str | None = None) -> PolicyFiles:
    """A policy as it is named to children."""
    if using is not None:
        return PolicyFiles(bundle=str(places["bundle"]), using=using)
    path = places["checkpoint"]
    return PolicyFiles(directory=str(path.parents[1]), checkpoint=path.name)


def silent(_doing: str, _done: float) -> None:
    """Hears everything and says nothing."""


def reports(assessor: EvalPlayer, **asked: Any) -> list[EvalReport]:
    told = assessor.answer(EvaluateTask(**{"episodes": EPISODES, "seed": 3, **asked}), silent)
    return [each for each in (told.report, told.baseline) if each is not None]


@pytest.mark.parametrize("using", ["torch", "onnx"])
def test_a_bundle_plays_what_its_checkpoint_plays(
    places: dict[str, Path], assessor: EvalPlayer, using: str
) -> None:
    ours, theirs = reports(assessor, challenger=at(places, using), champion=at(places))
    assert ours.returns == theirs.returns
    assert len(set(ours.returns)) > 1
    assert (ours.checkpoint, ours.step) == ("b.bundle", 7)
    assert (theirs.checkpoint, theirs.step) == ("step_000000000005", 5)


def test_a_graph_of_8_bits_plays_one_episode_at_a_time(
    places: dict[str, Path], assessor: EvalPlayer
) -> None:
    with (
        sources.playable(at(places, "int8")) as small,
        sources.playable(at(places, "onnx")) as large,
    ):
        assert (small.lanes, large.lanes) == (1, LANES)
    (whole,) = reports(assessor, challenger=at(places, "int8"), episodes=4)
    parts = [
        reports(assessor, challenger=at(places, "int8"), first=first, episodes=2)[0]
        for first in (0, 2)
    ]
    assert whole.returns == parts[0].returns + parts[1].returns


def test_a_bundle_is_refused_where_its_environment_has_changed(places: dict[str, Path]) -> None:
    bundle = bundles.read(places["bundle"])
    learned = setup_of(bundle.spec)
    there = replace(learned, action_space=spaces.Discrete(3))
    with pytest.raises(BadInput, match=r"action_space Discrete\(2\); here it is Discrete\(3\)"):
        refuse_other_spaces("bundle", learned, there)


def test_damage_is_told_by_name_before_anything_is_played(tmp_path: Path) -> None:
    checkpoint = in_run(made(CASES["ppo"]), tmp_path / "run")
    tensors = checkpoint / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"!")
    with ExitStack() as stack, pytest.raises(Damaged, match="step_000000000005"):
        reports(EvalPlayer(stack), challenger=at({"checkpoint": checkpoint}))


def test_an_episode_of_a_bundle_is_played_and_filmed(
    places: dict[str, Path], tmp_path: Path
) -> None:
    film = tmp_path / "x.mp4"
    task = FilmTask(policy=at(places, "torch"), number=1, seed=3, film=str(film))
    found = answer(task, silent)
    assert found.same
    assert film.stat().st_size > 0
    with ExitStack() as stack:
        (report,) = reports(EvalPlayer(stack), challenger=at(places, "torch"))
    assert found.ret == report.returns[1]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in children."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
