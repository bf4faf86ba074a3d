"""Graphs as ONNX, TorchScript and pt2: as near to torch as was promised, and with its returns."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import rl_orch
from rl_orch.errors import MissingExtra, RlctlError
from rl_orch.export import parity
from rl_orch.export.acting import GraphActor
from rl_orch.export.formats import Written, session_run
from rl_orch.export.graph import ACTION
from rl_orch.export.quantizing import quantized
from rl_orch.io.policies import onnx_files, requests
from rl_orch.io.policies.requests import FILES
from rl_orch.rl.evaluate import evaluate
from rl_orch.rl.policies.policy import Actor
from tests.exported import CASES, Case, made

ROWS = 1_000
EPISODES = 6


HERE = ("dqn", "sac", "recurrent ppo")
"""PPO takes the whole way, from training to an empty environment, in tests/integration."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in exports."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def returns(case: Case, actor: Actor) -> tuple[float, ...]:
    """What an actor gets on episodes that are the same for all."""
    report = evaluate(actor, case.spec, episodes=EPISODES, seed=11, deterministic=True, step=0)
    return report.returns


# All of one policy in one test: to write a graph takes longer than all that is asked of it.
@pytest.mark.parametrize("name", HERE)
def test_graphs_of_a_policy_do_what_it_does_in_every_format(name: str) -> None:
    case = made(CASES[name])
    rows, writer = case.rows(ROWS), case.writer()
    written = {form: writer.write(form) for form in FILES}
    for form, graph in written.items():
        found = case.parity(graph.run, rows)
        assert (form, found.rows, found.differing) == (form, ROWS, 0)
        assert found.largest_difference <= 1e-5
        batches_of_any_size(graph, rows)
    returns_are_those_of_the_policy(case, written["onnx"])
    the_file_is_whole_and_tells_nothing_of_where_it_was_made(written["onnx"].data)
    weights_of_8_bits_take_less_room_and_still_act(case, written["onnx"].data, rows)


def batches_of_any_size(graph: Written, rows: parity.ParityRows) -> None:
    whole = graph.run(rows.inputs)
    for size in (1, 2, 17):
        part = graph.run({name: values[:size] for name, values in rows.inputs.items()})
        for name, output in part.items():
            np.testing.assert_allclose(output, whole[name][:size], rtol=1e-5, atol=1e-5)


def returns_are_those_of_the_policy(case: Case, onnx: Written) -> None:
    ours = returns(case, GraphActor(onnx.run, case.graph.inputs, case.spec))
    theirs = returns(case, case.policy)
    if case.graph.discrete:
        assert ours == theirs
    else:
        apart = np.abs(np.subtract(ours, theirs))
        assert np.mean(apart) <= 0.01 * abs(np.mean(theirs))


def the_file_is_whole_and_tells_nothing_of_where_it_was_made(data: bytes) -> None:
    assert onnx_files.external_data(data) == []
    assert str(Path(rl_orch.__file__).parent).encode() not in data
    assert b"batch" in data


def weights_of_8_bits_take_less_room_and_still_act(
    case: Case, data: bytes, rows: parity.ParityRows
) -> None:
    small = quantized(data)
    assert len(small) < len(data)
    assert layers_in_float(small) > 0
    actions, expected = session_run(small)(rows.inputs)[ACTION], rows.expected[ACTION]
    if case.graph.discrete:
        assert (actions == expected).mean() > 0.8
    else:
        assert np.abs(actions - expected).mean() < 0.2


def layers_in_float(data: bytes) -> int:
    """How many layers read weights that were left as they are."""
    graph = onnx.load_from_string(data).graph
    whole = {each.name for each in graph.initializer if each.data_type == onnx.TensorProto.FLOAT}
    return sum(node.op_type == "MatMul" and node.input[1] in whole for node in graph.node)


def test_without_the_extra_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "ONNX_PACKAGES", ("onnx", "onnx_that_nobody_has"))
    with pytest.raises(MissingExtra, match="onnx_that_nobody_has") as refusal:
        made(CASES["ppo"]).writer().write("onnx")
    assert refusal.value.hint == "Install it with `pip install 'rl-orch[export]'`."


def test_a_network_that_cannot_be_exported_is_refused_in_a_sentence() -> None:
    case = made(CASES["ppo"])

    class Fickle(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2.0 if x.sum().item() > 0 else x

    case.graph.views[0] = Fickle()
    with pytest.raises(RlctlError, match="cannot be written as pt2"):
        case.writer().write("pt2")
