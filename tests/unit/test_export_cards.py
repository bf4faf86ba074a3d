"""The lines on a bundle's card, executed for every kind of space that can be trained: they take
what the environment gives, and act as the policy does; so does `rlctl infer`."""

import inspect
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from rl_orch.export import parity
from rl_orch.export.acting import greedy
from rl_orch.export.bundle import ExportSubject, described
from rl_orch.export.card import loading
from rl_orch.io.policies.bundles import ONNX
from rl_orch.records.tasks import InferTask
from rl_orch.rl.data.batch import mapped
from rl_orch.rl.envs.masks import KEY
from rl_orch.rl.envs.observations import flatten_observation
from rl_orch.worker.tasks.infer import infer
from tests.exported import LSTM, STACKED, Case, case, in_run, made
from tests.models import a_report

MASKED = {"action_masks": True}
KINDS = {
    "Box": case("CartPole-v1", "ppo"),
    "image": case("IdentityImage", "ppo"),
    "Discrete": case("Identity", "ppo"),
    "Dict": case("IdentityDict", "ppo"),
    "nested Dict": case("Nested", "ppo"),
    "Tuple": case("Several", "ppo"),
    "Box actions": case("BanditBox", "td3"),
    "MultiDiscrete": case("IdentityMultiDiscrete", "ppo"),
    "MultiBinary": case("IdentityMultiBinary", "ppo"),
    "recurrent, stacked Dict": case("TwoBoxes", "ppo", obs=STACKED, feature=LSTM),
    "masks": case("Masked", "ppo", agent=MASKED),
    "masks in parts": case("MaskedInParts", "ppo", agent=MASKED),
}
STEPS = 24
REAL = ("nested Dict",)


def steps(policy: Case) -> Iterator[tuple[Any, bool, Any]]:
    """What the environment itself gives, and whether an episode begins; it is sent random
    actions that are allowed."""
    spec = policy.spec
    with closing(gymnasium.make(spec.env.id, disable_env_checker=True)) as env:
        env.action_space.seed(3)
        observation, info = env.reset(seed=5)
        first = True
        for _ in range(STEPS):
            mask = info.get(KEY)
            yield observation, first, mask
            masks = () if mask is None else (tuple(mask) if isinstance(mask, tuple) else mask,)
            observation, _, terminated, truncated, info = env.step(env.action_space.sample(*masks))
            first = terminated or truncated
            if first:
                observation, info = env.reset()


class InTorch:
    """An onnxruntime whose sessions run the graph as torch does: to write it takes long."""

    def __init__(self, policy: Case) -> None:
        self._run = parity.in_torch(policy.graph)

    def InferenceSession(self, _name: str) -> "InTorch":
        """Itself."""
        return self

    def run(self, names: list[str], inputs: dict[str, Any]) -> list[Any]:
        """The outputs that are asked for."""
        self.inputs = inputs
        outputs = self._run(inputs)
        return [outputs[name] for name in names]


@pytest.mark.parametrize("kind", KINDS)
def test_the_lines_of_a_card_take_what_the_environment_gives(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = made(KINDS[kind])
    runtime = InTorch(policy)
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    for observation in the_card_acts_as_the_policy_does(policy):
        flat_parts = rows_of_one(policy, observation)
        parts = flat_parts if isinstance(flat_parts, dict) else {"": flat_parts}
        for name, part in parts.items():
            given = runtime.inputs[f"observation.{name}".rstrip(".")]
            np.testing.assert_array_equal(given, part)


@pytest.mark.parametrize(
    "kind",
    [each if each in REAL else pytest.param(each, marks=pytest.mark.soak) for each in KINDS],
)
def test_so_do_they_with_the_graph_in_the_bundle(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = made(KINDS[kind])
    monkeypatch.chdir(tmp_path)
    (tmp_path / ONNX).write_bytes(policy.writer().write("onnx").data)
    assert len([*the_card_acts_as_the_policy_does(policy)]) == STEPS


def the_card_acts_as_the_policy_does(policy: Case) -> Iterator[Any]:
    """The observations that it has acted on, right after each."""
    subject = ExportSubject(policy.policy, policy.spec, a_report(0.0, env_id="", checkpoint=""), {})
    lines = loading(described(subject, policy.graph, {}))
    assert len(lines.splitlines()) <= 6
    card: dict[str, Any] = {}
    exec(lines, card)  # noqa: S102
    arguments = inspect.signature(card["act"]).parameters
    session = greedy(policy.policy, policy.spec)
    for observation, first, mask in steps(policy):
        given = {"observation": observation, "mask": mask, "first": first}
        action = card["act"](*(given[name] for name in arguments))
        expected = session.act(rows_of_one(policy, observation), np.array([first]), flat(mask))
        np.testing.assert_allclose(action, expected[0], rtol=1e-5, atol=1e-5)
        yield observation


@pytest.mark.parametrize("kind", KINDS)
def test_infer_takes_what_the_environment_gives(kind: str, tmp_path: Path) -> None:
    policy = made(KINDS[kind])
    observation, _, mask = next(steps(policy))
    plain, file = as_json(observation), tmp_path / "in.jsonl"
    asked = plain if mask is None else {"observation": plain, "mask": as_json(mask)}
    task = InferTask(source=str(in_run(policy, tmp_path / "a run")))
    answer = infer(task.model_copy(update={"observation": asked}), silent)
    session = greedy(policy.policy, policy.spec)
    rows = session.act(rows_of_one(policy, observation), np.ones(1, np.bool_), flat(mask))
    np.testing.assert_array_equal(answer.action, rows[0])
    file.write_text(json.dumps(asked) + "\n")
    assert infer(task.model_copy(update={"input": str(file)}), silent).actions == (answer.action,)


def silent(_doing: str, _done: float) -> None:
    """Hears everything and says nothing."""


def rows_of_one(policy: Case, observation: Any) -> Any:
    """An observation as policies take it, by the space of the environment itself."""
    with closing(gymnasium.make(policy.spec.env.id, disable_env_checker=True)) as env:
        flat_parts = flatten_observation(env.observation_space, observation)
    return mapped(flat_parts, lambda part: part[None])


def flat(mask: Any) -> Any:
    """A mask as policies take it."""
    return None if mask is None else np.hstack(mask)[None].astype(np.bool_)


def as_json(value: Any) -> Any:
    """Observations as JSON has them."""
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [as_json(part) for part in value]
    return np.asarray(value).tolist()
