"""The graph of a policy does what the policy does, from raw observations to actions."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_orch.errors import BadInput
from rl_orch.export import parity
from rl_orch.export.acting import SampledActing, greedy, stacked
from rl_orch.export.graph import ACTION, FIRST, PolicyGraph, blank_state
from rl_orch.export.heads import head_of
from rl_orch.rl.envs import space_json
from rl_orch.rl.policies.policy import PolicyInput
from tests.exported import CASES, NORMALIZED, STACKED, VARIANTS, case, made

EVERY = VARIANTS | {
    "clipped, not normalised": case("CartPole-v1", "ppo", obs={"clip_range": [-0.01, 0.01]}),
    "a2c, a box off centre": case("BanditBox", "a2c"),
    "gru": case("Recall", "ppo", feature={"encoder": "gru"}),
    "transformer": case("IdentityBox", "ppo", feature={"encoder": "transformer"}),
    "quantiles": case("Acrobot-v1", "qrdqn"),
    "dueling": case("Acrobot-v1", "dqn", agent={"network": {"dueling": True}}),
    "td3": case("BanditBox", "td3", obs=NORMALIZED),
    "tqc": case("BanditBox", "tqc", obs=NORMALIZED),
    "crossq": case("BanditBox", "crossq", obs=NORMALIZED),
    "gsde": case("Pendulum-v1", "sac", train={"use_sde": True}),
    "choices that do not start at 0": case("Bandit", "dqn"),
    "discrete observations": case("Identity", "ppo"),
    "several choices": case("IdentityMultiDiscrete", "ppo"),
    "coins": case("IdentityMultiBinary", "ppo"),
    "masks": case("Masked", "ppo", agent={"action_masks": True}),
    "masked values": case("Masked", "dqn", agent={"action_masks": True}),
    "several masks": case("MaskedPair", "ppo", agent={"action_masks": True}),
    "images": case("IdentityImage", "ppo"),
    "stacked images": case("IdentityImage", "dqn", obs=STACKED),
    "parts": case("IdentityDict", "ppo", obs=NORMALIZED),
    "stacked parts": case("TwoBoxes", "ppo", obs=STACKED),
    "float64": case("Ladder", "ppo", obs=NORMALIZED),
}


ROUNDING, OF_IMAGES = 1e-5, 1e-4
"""How far a batch and its rows may lie apart: processors differ in how they add up, most of all
the many large terms of images that are not scaled."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in exports."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", EVERY)
def test_a_graph_decides_as_its_policy_does(name: str) -> None:
    policy = made(EVERY[name])
    rows = policy.rows(96)
    found = policy.parity(parity.in_torch(policy.graph), rows)
    assert (found.rows, found.differing, found.excused) == (96, 0, 0)
    assert found.largest_difference <= (OF_IMAGES if "images" in name else ROUNDING)


@pytest.mark.parametrize("name", ["ppo", "recurrent ppo", "stacked parts"])
def test_rows_that_are_played_hold_more_than_one_episode(name: str) -> None:
    policy = made(EVERY[name])
    rows = policy.rows(400)
    assert np.unique(rows.expected[ACTION]).size > 1
    if FIRST in rows.inputs:
        assert rows.inputs[FIRST].sum() > parity.LANES


@pytest.mark.parametrize("name", ["masks", "masked values"])
def test_a_choice_that_is_forbidden_is_never_made(name: str) -> None:
    policy = made(EVERY[name])
    rows = policy.rows(64)
    best = rows.expected[ACTION][0]
    allowed = np.ones_like(rows.inputs["mask"])
    allowed[:, best] = False
    outputs = parity.in_torch(policy.graph)(rows.inputs | {"mask": allowed})
    assert best not in outputs[ACTION]


def test_the_ports_of_a_graph_are_named_and_shaped_as_documented() -> None:
    graph = made(CASES["recurrent ppo"]).graph
    inputs = {port.name: (port.dtype, port.shape) for port in graph.inputs}
    assert inputs == {
        "observation": ("float32", (4,)),
        "first": ("bool", ()),
        "state.frames": ("float32", (3, 4)),
        "state.memory": ("float32", (64,)),
    }
    outputs = [port.name for port in graph.outputs]
    assert outputs == ["action", "scores", "state.frames.next", "state.memory.next"]


def test_parts_of_an_observation_are_inputs_of_their_own() -> None:
    graph = made(EVERY["parts"]).graph
    parts = made(EVERY["parts"]).policy.observation_space
    assert isinstance(parts, spaces.Dict)
    assert [port.name for port in graph.inputs] == [f"observation.{name}" for name in parts]


def test_what_was_remembered_does_not_count_where_an_episode_begins() -> None:
    policy = made(CASES["recurrent ppo"])
    run, rows = parity.in_torch(policy.graph), policy.rows(16)
    again = rows.inputs | {FIRST: np.ones(16, np.bool_)}
    blank = again | blank_state(policy.graph.inputs, 16)
    for name, output in run(again).items():
        np.testing.assert_array_equal(output, run(blank)[name])


def test_a_graph_does_not_move_when_its_policy_does() -> None:
    policy = made(CASES["ppo"])
    rows = policy.rows(64)
    with torch.no_grad():
        for parameter in policy.policy.parameters():
            parameter.add_(1.0)
    assert policy.parity(parity.in_torch(policy.graph), rows).passed


def test_a_graph_that_differs_is_refused_with_the_difference() -> None:
    policy, rows = made(CASES["sac"]), made(CASES["sac"]).rows(32)
    run = parity.in_torch(policy.graph)
    off = policy.parity(lambda inputs: {ACTION: run(inputs)[ACTION] + 1e-3}, rows)
    assert not off.passed
    assert off.largest_absolute == pytest.approx(1e-3, abs=3 * ROUNDING)
    with pytest.raises(Exception, match=r"as onnx differs .* nothing was written"):
        parity.refuse_unless_equal("onnx", off)


def test_other_choices_are_excused_only_where_the_best_two_are_as_good_as_equal() -> None:
    policy = made(CASES["ppo"])
    rows, run = policy.rows(32), parity.in_torch(policy.graph)
    rows.expected["scores"][:] = [0.5, 0.5 + 0.5 * parity.GAP]
    rows.expected["scores"][0] = [0.0, 1.0]
    given = run(rows.inputs) | {"scores": rows.expected["scores"]}
    found = policy.parity(lambda _: given | {ACTION: 1 - rows.expected[ACTION]}, rows)
    assert (found.differing, found.excused) == (1, 31)


def test_a_number_that_is_none_is_a_difference_without_end() -> None:
    policy, rows = made(CASES["sac"]), made(CASES["sac"]).rows(8)
    found = policy.parity(lambda _: {ACTION: np.full((8, 1), np.nan)}, rows)
    assert found.largest_difference == np.inf


def test_a_policy_of_an_unknown_kind_is_refused_by_its_name() -> None:
    class Strange:
        pass

    with pytest.raises(BadInput, match="Strange cannot be exported"):
        head_of(Strange())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["recurrent ppo", "dqn"])
def test_acting_step_by_step_plays_what_the_policy_plays(name: str) -> None:
    """The raw environment and the graph's own stack, against wrapper and policy."""
    policy = made(EVERY[name])
    frames = policy.spec.obs.stack_frames
    raw = gymnasium.make("CartPole-v1")
    wrapped = gymnasium.wrappers.FrameStackObservation(gymnasium.make("CartPole-v1"), frames or 1)
    acting, played = greedy(policy.policy, policy.spec), []
    for episode in range(3):
        observation, _ = raw.reset(seed=episode)
        stack, _ = wrapped.reset(seed=episode)
        first, over = np.ones(1, np.bool_), False
        while not over:
            action = acting.act(observation[None], first)[0]
            played.append((action, stack.copy(), first[0]))
            observation, _, terminated, truncated, _ = raw.step(action)
            stack = wrapped.step(action)[0]
            first, over = np.zeros(1, np.bool_), terminated or truncated
    assert _replayed(policy.policy, played) == [int(action) for action, *_ in played]


def _replayed(policy: Any, played: list[Any]) -> list[int]:
    memory, actions = None, []
    for _, stack, first in played:
        seen = PolicyInput(stack[None], np.array([first]), memory)
        decision = policy.decide(seen, None)
        memory = decision.memory
        actions.append(int(decision.actions[0]))
    return actions


def test_frames_begin_as_copies_of_the_first_and_move_on() -> None:
    first, later = np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]])
    before = stacked(None, first, np.ones(2, np.bool_), 3)
    after = stacked(before, later, np.array([False, True]), 3)
    assert before[:, :, 0].tolist() == [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    assert after[:, :, 0].tolist() == [[1.0, 1.0, 3.0], [4.0, 4.0, 4.0]]


def test_sampled_actions_follow_from_the_seed() -> None:
    policy = made(CASES["recurrent ppo"])
    rows = policy.rows(64).inputs["observation"]

    def drawn(seed: int) -> list[int]:
        acting = SampledActing(policy.policy, policy.spec, seed)
        first = np.zeros(1, np.bool_)
        return [int(acting.act(row[None], first)[0]) for row in rows]

    assert drawn(1) == drawn(1) != drawn(2)


SPACES = [
    spaces.Box(-1.0, np.array([2.0, np.inf], np.float32)),
    spaces.Box(0, 255, (4, 3, 3), np.uint8),
    spaces.Box(-np.inf, np.inf, (2,), np.float64),
    spaces.Box(np.array([-(2**62)]), np.array([2**62 + 1]), dtype=np.int64),
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([3, 2], start=[1, 0]),
    spaces.MultiBinary(3),
    spaces.MultiBinary((2, 2)),
    spaces.Dict({"b": spaces.Discrete(2), "a/0": spaces.Box(0.0, 1.0, ())}),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_spaces_come_back_from_json_as_they_were(space: Any) -> None:
    document = space_json.to_json(space)
    again = space_json.from_json(document)
    assert again == space
    assert space_json.to_json(again) == document
    if isinstance(space, spaces.Dict):
        assert list(space_json.from_json(document)) == list(space)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "document",
    [
        *(None, [], {}, {"kind": "Box"}, {"kind": "Graph"}),
        *({"kind": "Discrete", "n": n, "start": 0} for n in (0, 10**30)),
        {"kind": "Box", "dtype": "float32", "shape": [10**6, 10**5], "low": 0, "high": 1},
        {"kind": "MultiBinary", "shape": [10**6, 10**5]},
        {"kind": "MultiDiscrete", "nvec": [10**12, 2], "start": [0, 0]},
    ],
    ids=str,
)
def test_what_is_no_space_is_refused(document: Any) -> None:
    with pytest.raises(BadInput, match="not a space"):
        space_json.from_json(document)


def test_the_graph_is_on_the_cpu_and_learns_nothing() -> None:
    graph = made(CASES["ppo"]).graph
    assert isinstance(graph, PolicyGraph)
    assert not any(parameter.requires_grad for parameter in graph.parameters())
    assert {tensor.device.type for tensor in graph.buffers()} == {"cpu"}
