"""Encoders and the networks behind them: sizes, weights, gradients, and what cells remember."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rl_orch import plugins
from rl_orch.errors import BadInput, RlctlError
from rl_orch.rl.envs.observations import flat_space
from rl_orch.rl.policies.encoders import Unchanged, build_encoder, build_memory
from rl_orch.rl.policies.nets import (
    MLP,
    Gru,
    ImpalaCNN,
    Lstm,
    NatureCNN,
    Net,
    RecurrentCell,
    Transformer,
    initialize,
)
from rl_orch.rl.policies.observations import ObservationPipeline
from rl_orch.spec.groups import FeatureGroup, NetworkGroup, ObsGroup

ARM = spaces.Box(-9.0, 9.0, (6,))


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tensors this small gain nothing from threads, which wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pixels(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


MIXED = spaces.Dict({"arm": ARM, "camera": pixels(36, 40, 3), "mode": spaces.Discrete(3)})
SMALL = spaces.Dict({"arm": ARM, "map": pixels(7, 7)})


def feature(encoder: str, embed_dim: int | None = None) -> FeatureGroup:
    return FeatureGroup.model_construct(encoder=encoder, embed_dim=embed_dim)


def a_pipeline(space: Space[Any], stack_frames: int | None = None) -> ObservationPipeline:
    return ObservationPipeline(flat_space(space), ObsGroup(stack_frames=stack_frames))


def an_encoder(
    space: Space[Any],
    encoder: str = "auto",
    embed_dim: int | None = None,
    *,
    seed: int = 0,
    stack_frames: int | None = None,
    **network: Any,
) -> Net:
    return build_encoder(
        a_pipeline(space, stack_frames),
        feature(encoder, embed_dim),
        NetworkGroup.model_validate(network),
        torch.Generator().manual_seed(seed),
    )


def inputs(space: Space[Any], rows: int = 5, stack_frames: int | None = None) -> Any:
    space.seed(0)
    drawn = [space.sample() for _ in range(rows)]
    if not isinstance(space, spaces.Dict):
        return torch.from_numpy(a_pipeline(space, stack_frames).process(np.stack(drawn)))
    columns = {name: np.stack([row[name] for row in drawn]) for name in space.spaces}
    processed = a_pipeline(space).process(columns)
    assert isinstance(processed, dict)
    return {name: torch.from_numpy(array) for name, array in processed.items()}


def rows_of(batch: Any, rows: Any) -> Any:
    if isinstance(batch, dict):
        return {name: part[rows] for name, part in batch.items()}
    return batch[rows]


EVERY = [
    (ARM, "auto", None, 6),
    (ARM, "auto", 5, 5),
    (ARM, "mlp", None, 6),
    (ARM, "mlp", 5, 5),
    (ARM, "transformer", None, 64),
    (ARM, "transformer", 6, 6),
    (spaces.Box(-1.0, 1.0, (4, 3)), "transformer", 9, 9),
    (spaces.Box(-1.0, 1.0, (2, 4, 3)), "transformer", 8, 8),
    (spaces.Box(-1.0, 1.0, (4, 3)), "auto", None, 12),
    (spaces.Box(-1.0, 1.0, ()), "auto", None, 1),
    (spaces.Discrete(4), "transformer", None, 64),
    (spaces.Discrete(4), "auto", None, 4),
    (spaces.MultiDiscrete([2, 3]), "mlp", None, 5),
    (spaces.MultiBinary(3), "auto", 7, 7),
    (pixels(36, 36), "auto", None, 512),
    (pixels(36, 36), "cnn", 7, 7),
    (pixels(44, 40, 3), "cnn", None, 512),
    (pixels(7, 8, 3), "auto", None, 256),
    (pixels(1, 1), "impala", 9, 9),
    (pixels(40, 40, 3), "impala", None, 256),
    (pixels(7, 8, 3), "mlp", None, 168),
    (pixels(7, 8, 3), "mlp", 10, 10),
    (MIXED, "auto", None, 6 + 256 + 3),
    (MIXED, "auto", 8, 24),
    (MIXED, "cnn", None, 6 + 256 + 3),
    (MIXED, "impala", 8, 24),
    (MIXED, "mlp", None, 6 + 36 * 40 * 3 + 3),
    (MIXED, "mlp", 16, 16),
    (MIXED, "transformer", None, 64 + 256 + 64),
    (SMALL, "auto", None, 6 + 256),
    (SMALL, "gru", 32, 6 + 256),
    (SMALL, "lstm", None, 6 + 256),
    (ARM, "gru", 32, 6),
    (pixels(36, 36), "lstm", 32, 512),
]


@pytest.mark.parametrize(("space", "encoder", "embed_dim", "size"), EVERY)
def test_an_encoder_makes_as_many_features_as_it_says(
    space: Space[Any], encoder: str, embed_dim: int | None, size: int
) -> None:
    net = an_encoder(space, encoder, embed_dim)
    features = net(inputs(space))
    assert net.size == size
    assert features.shape == (5, size)
    assert features.dtype == torch.float32
    assert torch.isfinite(features).all()


@pytest.mark.parametrize(("space", "encoder", "embed_dim", "size"), EVERY)
@pytest.mark.parametrize("orthogonal", [True, False])
def test_weights_follow_from_the_generator_alone(
    space: Space[Any], encoder: str, embed_dim: int | None, size: int, orthogonal: bool
) -> None:
    before = torch.get_rng_state()
    first, same, other = (
        an_encoder(space, encoder, embed_dim, seed=seed, ortho_init=orthogonal).state_dict()
        for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], same[name]) for name in first)
    drawn = [name for name in first if "bias" not in name and "norm" not in name]
    assert all(not torch.equal(first[name], other[name]) for name in drawn)


@pytest.mark.parametrize(("space", "encoder", "embed_dim", "size"), EVERY)
def test_gradients_reach_every_parameter(
    space: Space[Any], encoder: str, embed_dim: int | None, size: int
) -> None:
    net = an_encoder(space, encoder, embed_dim)
    features = net(inputs(space, rows=8))
    if not [*net.parameters()]:
        assert not features.requires_grad
        return
    weights = torch.randn(features.shape, generator=torch.Generator().manual_seed(3))
    (features * weights).sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.abs().max() > 0.0
        for parameter in net.parameters()
    )


@pytest.mark.parametrize(("space", "encoder", "embed_dim", "size"), EVERY)
def test_every_row_is_encoded_for_itself(
    space: Space[Any], encoder: str, embed_dim: int | None, size: int
) -> None:
    net, batch = an_encoder(space, encoder, embed_dim), inputs(space)
    order = torch.tensor([3, 0, 4, 1, 2])
    with torch.no_grad():
        features = net(batch)
        assert torch.allclose(net(rows_of(batch, order)), features[order], atol=1e-5)
        assert torch.allclose(net(rows_of(batch, slice(1, 2))), features[1:2], atol=1e-5)


def test_vectors_need_no_encoder() -> None:
    for space in (ARM, spaces.Discrete(3), spaces.MultiBinary(2)):
        for name in ("auto", "mlp", "gru"):
            net, batch = an_encoder(space, name), inputs(space)
            assert isinstance(net, Unchanged)
            assert net(batch) is batch
            assert net.forward(batch) is batch
            assert net.state_dict() == {}


def test_an_encoder_without_weights_draws_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    build_encoder(a_pipeline(ARM), feature("mlp"), NetworkGroup(), generator)
    assert torch.equal(generator.get_state(), before)


def test_flat_images_are_scaled_to_one() -> None:
    net, batch = an_encoder(SMALL, "mlp"), inputs(SMALL)
    expected = torch.cat((batch["arm"], batch["map"].flatten(1).float() / 255.0), -1)
    assert torch.equal(net(batch), expected)


def test_a_board_is_scaled_by_its_own_greatest_value() -> None:
    board = spaces.Box(0, 2, (3, 3), np.uint8)
    assert an_encoder(board, "mlp")(torch.full((1, 1, 3, 3), 2, dtype=torch.uint8)).max() == 1.0


def test_parts_of_a_dict_are_found_by_name_not_by_order() -> None:
    net, batch = an_encoder(MIXED), inputs(MIXED)
    assert torch.equal(net(dict(reversed(batch.items()))), net(batch))


def test_stacked_frames_are_channels_of_one_image() -> None:
    net = an_encoder(pixels(4, 36, 36, 3), "cnn", stack_frames=4)
    assert net.get_parameter("layers.0.weight").shape == (32, 12, 8, 8)
    assert net(inputs(pixels(4, 36, 36, 3), stack_frames=4)).shape == (5, 512)


@pytest.mark.parametrize(
    ("space", "encoder", "sentence"),
    [
        (ARM, "cnn", "takes images"),
        (ARM, "impala", "takes images"),
        (pixels(35, 84), "cnn", "at least 36 by 36 pixels, but the observation has 35 by 84"),
        (pixels(84, 84), "transformer", "there are only images"),
    ],
)
def test_wrong_pairings_are_refused(space: Space[Any], encoder: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        an_encoder(space, encoder)


def test_the_nature_cnn_is_the_one_of_the_paper() -> None:
    net = an_encoder(pixels(4, 84, 84), "cnn", stack_frames=4)
    shapes = {name: tuple(weight.shape) for name, weight in net.state_dict().items()}
    assert shapes == {
        "layers.0.weight": (32, 4, 8, 8),
        "layers.0.bias": (32,),
        "layers.1.weight": (64, 32, 4, 4),
        "layers.1.bias": (64,),
        "layers.2.weight": (64, 64, 3, 3),
        "layers.2.bias": (64,),
        "last.weight": (512, 3136),
        "last.bias": (512,),
    }
    x = inputs(pixels(4, 84, 84), stack_frames=4) / 255.0
    for index, stride in enumerate((4, 2, 1)):
        layer = {name: net.get_parameter(f"layers.{index}.{name}") for name in ("weight", "bias")}
        x = torch.conv2d(x, layer["weight"], layer["bias"], stride=stride).relu()
    expected = (x.flatten(1) @ net.get_parameter("last.weight").T).relu()
    assert torch.allclose(net(inputs(pixels(4, 84, 84), stack_frames=4)), expected, atol=1e-5)


def test_the_impala_network_has_fifteen_convolutions() -> None:
    net = an_encoder(pixels(64, 64, 3), "impala")
    assert sum(isinstance(module, nn.Conv2d) for module in net.modules()) == 15
    assert net.get_parameter("last.weight").shape == (256, 32 * 8 * 8)


@pytest.mark.parametrize("shape", [(36, 36), (37, 61), (84, 84), (96, 72), (5, 1), (2, 3), (17, 9)])
def test_convolutions_fit_images_of_any_sides(shape: tuple[int, int]) -> None:
    images = torch.zeros((2, 3, *shape), dtype=torch.uint8)
    nets: list[type[NatureCNN] | type[ImpalaCNN]] = [ImpalaCNN]
    if min(shape) >= 36:
        nets.append(NatureCNN)
    for kind in nets:
        net = kind((3, *shape), 4)
        initialize(net, torch.Generator(), orthogonal=False)
        assert net(images).shape == (2, 4)


def test_features_start_on_the_scale_of_their_inputs() -> None:
    images = inputs(pixels(64, 64, 3), rows=16)
    for name in ("cnn", "impala"):
        deviation = an_encoder(pixels(64, 64, 3), name)(images).std()
        assert 0.05 < deviation < 5.0
    deviation = an_encoder(ARM, "transformer")(inputs(ARM)).std()
    assert 0.1 < deviation < 3.0


def test_orthogonal_layers_have_the_gain_of_their_network() -> None:
    cnn = an_encoder(pixels(36, 36), "cnn").get_parameter("layers.1.weight").flatten(1)
    impala = an_encoder(pixels(8, 8), "impala").get_parameter("stages.1.blocks.0.first.weight")
    for weight, gain in ((cnn, 2.0), (impala.flatten(1), 1.0)):
        product = (weight @ weight.T).detach()
        assert torch.allclose(product, gain * torch.eye(len(weight)), atol=1e-4)


def test_other_layers_start_as_torchs_own_do() -> None:
    net = an_encoder(pixels(36, 36), "cnn", ortho_init=False)
    for name, fan_in in (("layers.0", 64), ("layers.1", 512), ("last", 64)):
        for kind in ("weight", "bias"):
            values = net.get_parameter(f"{name}.{kind}").detach()
            assert 0.8 * fan_in**-0.5 < values.abs().max() <= fan_in**-0.5


def test_the_weights_of_a_perceptron_are_those_they_always_were() -> None:
    net = MLP([3, 4, 2], "tanh", activate_last=False)
    initialize(net, torch.Generator().manual_seed(5), orthogonal=True, last_gain=0.01)
    generator = torch.Generator().manual_seed(5)
    for layer, shape, gain in ((0, (4, 3), 2.0**0.5), (1, (2, 4), 0.01)):
        expected = nn.init.orthogonal_(torch.empty(shape), gain, generator=generator)
        assert torch.equal(net.get_parameter(f"layers.{layer}.weight"), expected)
    assert list(net.state_dict()) == [
        f"layers.{layer}.{kind}" for layer in (0, 1) for kind in ("weight", "bias")
    ]


@pytest.mark.parametrize(("size", "heads"), [(3, 1), (6, 2), (8, 4)])
def test_attention_is_that_of_the_formula(size: int, heads: int) -> None:
    rows = 3
    net = Transformer(rows, 2, size, blocks=1).double()
    initialize(net, torch.Generator().manual_seed(0), orthogonal=True, gain=1.0)
    x = torch.randn((4, rows * 2), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    p = dict(net.named_parameters())

    def linear(name: str, value: Tensor) -> Tensor:
        return value @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    def normed(name: str, value: Tensor) -> Tensor:
        centred = value - value.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * p[f"{name}.weight"] + p[f"{name}.bias"]

    tokens = linear("embed", x.reshape(4, rows, 2)) + p["positions"]
    split = linear("blocks.0.attention", normed("blocks.0.attention_norm", tokens))
    queries, keys, values = split.reshape(4, rows, 3, heads, size // heads).unbind(2)
    scores = torch.einsum("bihd,bjhd->bhij", queries, keys) / (size // heads) ** 0.5
    mixed = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), values).reshape(4, rows, size)
    tokens = tokens + linear("blocks.0.mix", mixed)
    hidden = nn.functional.gelu(linear("blocks.0.hidden", normed("blocks.0.hidden_norm", tokens)))
    tokens = tokens + linear("blocks.0.out", hidden)
    assert torch.allclose(net(x), normed("norm", tokens).mean(1), atol=1e-10, rtol=0.0)


def test_without_positions_a_transformer_does_not_know_the_order_of_its_rows() -> None:
    net = Transformer(5, 3, 8)
    initialize(net, torch.Generator().manual_seed(0), orthogonal=True, gain=1.0)
    x = torch.randn((2, 5, 3), generator=torch.Generator().manual_seed(1))
    shuffled = x[:, torch.tensor([4, 2, 0, 1, 3])]
    assert not torch.allclose(net(x.flatten(1)), net(shuffled.flatten(1)), atol=1e-5)
    nn.init.zeros_(net.positions)
    assert torch.allclose(net(x.flatten(1)), net(shuffled.flatten(1)), atol=1e-5)


CELLS: list[type[Gru] | type[Lstm]] = [Gru, Lstm]


def a_cell(
    kind: type[Gru] | type[Lstm], features: int = 3, size: int = 4, seed: int = 0
) -> RecurrentCell:
    cell = kind(features, size).double()
    initialize(cell, torch.Generator().manual_seed(seed), orthogonal=False)
    return cell


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_a_gru_follows_its_formula() -> None:
    cell, x, h = a_cell(Gru), numbers(5, 3), numbers(5, 4, seed=1)
    w, u, b, c = (each.detach() for each in cell.parameters())
    xr, xz, xn = (x @ w.T + b).chunk(3, -1)
    hr, hz, hn = (h @ u.T + c).chunk(3, -1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    expected = (1 - z) * torch.tanh(xn + r * hn) + z * h
    output, memory = cell.step(x, h)
    assert torch.allclose(output, expected, atol=1e-10, rtol=0.0)
    assert torch.equal(memory, output)


def test_an_lstm_follows_its_formula() -> None:
    cell, x, h, c = a_cell(Lstm), numbers(5, 3), numbers(5, 4, seed=1), numbers(5, 4, seed=2)
    w, u, b, d = (each.detach() for each in cell.parameters())
    i, f, g, o = (x @ w.T + b + h @ u.T + d).chunk(4, -1)
    state = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    expected = torch.sigmoid(o) * torch.tanh(state)
    output, memory = cell.step(x, torch.cat((h, c), -1))
    assert torch.allclose(output, expected, atol=1e-10, rtol=0.0)
    assert torch.allclose(memory, torch.cat((expected, state), -1), atol=1e-10, rtol=0.0)


def test_cells_take_the_weights_of_torchs_own() -> None:
    x, h, c = numbers(5, 3), numbers(5, 4, seed=1), numbers(5, 4, seed=2)
    gru, lstm = a_cell(Gru), a_cell(Lstm)
    with torch.random.fork_rng():
        their_gru, their_lstm = nn.GRUCell(3, 4).double(), nn.LSTMCell(3, 4).double()
    their_gru.load_state_dict(gru.state_dict())
    their_lstm.load_state_dict(lstm.state_dict())
    assert torch.allclose(gru.step(x, h)[0], their_gru(x, h), atol=1e-10, rtol=0.0)
    expected = torch.cat(their_lstm(x, (h, c)), -1)
    assert torch.allclose(lstm.step(x, torch.cat((h, c), -1))[1], expected, atol=1e-10, rtol=0.0)


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(CELLS),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(0, 99),
)
def test_unrolling_is_going_step_by_step(
    kind: type[Gru] | type[Lstm], length: int, rows: int, seed: int
) -> None:
    cell = a_cell(kind)
    features, memory = numbers(length, rows, 3, seed=seed), numbers(rows, cell.width, seed=seed + 1)
    first = torch.from_numpy(np.random.default_rng(seed).random((length, rows)) < 0.3)
    unrolled = cell.unroll(features, memory, first)
    assert unrolled.shape == (length, rows, cell.size)
    for t in range(length):
        begun = torch.where(first[t, :, None], torch.zeros_like(memory), memory)
        output, memory = cell.step(features[t], begun)
        assert torch.allclose(unrolled[t], output, atol=1e-12, rtol=0.0)


@pytest.mark.parametrize("kind", CELLS)
def test_an_episode_that_begins_in_the_middle_knows_nothing_of_the_one_before(
    kind: type[Gru] | type[Lstm],
) -> None:
    cell, features = a_cell(kind), numbers(6, 2, 3)
    memory = numbers(2, cell.width, seed=1)
    first = torch.zeros((6, 2), dtype=torch.bool)
    first[3, 0] = True
    outputs = cell.unroll(features, memory, first)
    fresh = cell.unroll(features[3:], torch.zeros_like(memory), first[:3])
    assert torch.allclose(outputs[3:, 0], fresh[:, 0], atol=1e-12, rtol=0.0)
    assert not torch.allclose(outputs[3:, 1], fresh[:, 1], atol=1e-3)
    whole = cell.unroll(features, memory, torch.zeros_like(first))
    assert torch.equal(outputs[:, 1], whole[:, 1])
    features.requires_grad_()
    cell.unroll(features, memory, first)[3:, 0].sum().backward()  # type: ignore[no-untyped-call]
    assert features.grad is not None
    assert features.grad[:3].abs().max() == 0.0
    assert features.grad[3:, 0].abs().min() > 0.0


@pytest.mark.parametrize("kind", CELLS)
def test_a_memory_that_is_not_a_number_is_forgotten_too(kind: type[Gru] | type[Lstm]) -> None:
    cell = a_cell(kind)
    broken = torch.full((1, cell.width), torch.nan, dtype=torch.float64)
    outputs = cell.unroll(numbers(2, 1, 3), broken, torch.tensor([[True], [False]]))
    assert torch.isfinite(outputs).all()


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("orthogonal", [True, False])
def test_gradients_reach_every_weight_of_a_cell(
    kind: type[Gru] | type[Lstm], orthogonal: bool
) -> None:
    cell = kind(3, 4)
    initialize(cell, torch.Generator().manual_seed(0), orthogonal=orthogonal)
    first = torch.zeros((4, 2), dtype=torch.bool)
    cell.unroll(numbers(4, 2, 3).float(), torch.zeros(2, cell.width), first).sum().backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and (p.grad != 0.0).all() for p in cell.parameters())


def test_an_orthogonal_cell_is_orthogonal_without_biases() -> None:
    cell = build_memory(6, feature("lstm", 8), torch.Generator().manual_seed(0))
    assert cell is not None
    for name in ("weight_ih", "weight_hh"):
        weight = cell.get_parameter(name).detach()
        assert torch.allclose(weight.T @ weight, torch.eye(weight.shape[1]), atol=1e-5)
    assert not cell.get_parameter("bias_ih").any()
    assert not cell.get_parameter("bias_hh").any()


@pytest.mark.parametrize(("encoder", "width"), [("gru", 1), ("lstm", 2)])
def test_a_spec_that_names_a_cell_gets_one(encoder: str, width: int) -> None:
    before = torch.get_rng_state()
    cells = [
        build_memory(6, feature(encoder, size), torch.Generator().manual_seed(seed))
        for size, seed in ((None, 1), (5, 1), (5, 1), (5, 2))
    ]
    assert torch.equal(torch.get_rng_state(), before)
    usual, first, same, other = cells
    assert usual is not None
    assert first is not None
    assert same is not None
    assert other is not None
    assert (usual.size, usual.width) == (128, 128 * width)
    assert (first.size, first.width) == (5, 5 * width)
    assert torch.equal(first.get_parameter("weight_hh"), same.get_parameter("weight_hh"))
    assert not torch.equal(first.get_parameter("weight_hh"), other.get_parameter("weight_hh"))


@pytest.mark.parametrize("encoder", ["auto", "mlp", "cnn", "impala", "transformer", "somebodys"])
def test_other_encoders_remember_nothing(encoder: str) -> None:
    assert build_memory(6, feature(encoder, 5), torch.Generator()) is None


class Halved(nn.Module):
    """A plugin's encoder, made as anyone would make one."""

    def __init__(
        self, pipeline: ObservationPipeline, options: FeatureGroup, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.size = pipeline.size // 2
        self.layer = nn.Linear(pipeline.size, self.size)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.layer(inputs)
        return out


def a_plugin(monkeypatch: pytest.MonkeyPatch, made: Callable[..., Any]) -> None:
    known = {("encoders", "halved"): made}
    monkeypatch.setattr(plugins, "load", lambda kind, name: known[kind, name])


def test_an_encoder_may_be_a_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    a_plugin(monkeypatch, Halved)
    before = torch.get_rng_state()
    first, same, other = (an_encoder(ARM, "halved", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert first(inputs(ARM)).shape == (5, first.size) == (5, 3)
    weights = [net.get_parameter("layer.weight") for net in (first, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_plugin_must_say_how_many_features_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    a_plugin(monkeypatch, lambda *_: nn.Identity())
    with pytest.raises(BadInput, match="the encoder plugin 'halved' made a Identity; must be"):
        an_encoder(ARM, "halved")


def test_a_plugin_that_cannot_be_made_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    a_plugin(monkeypatch, lambda: nn.Identity())
    with pytest.raises(RlctlError, match="the encoder plugin 'halved' could not be made") as failed:
        an_encoder(ARM, "halved")
    assert failed.value.path == "feature.encoder"
