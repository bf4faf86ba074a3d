"""Files of strangers, read: what is in them, and what is refused."""

import base64
import io
import json
import os
import pickle
import re
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors.numpy import save as encode_tensors

from rl_orch.errors import BadInput, Damaged, RlctlError
from rl_orch.foreign import reading, torch_files
from rl_orch.io.files import zips
from rl_orch.io.files.zips import Archive
from rl_orch.rl.learn.learner import algorithm
from rl_orch.rl.policies.policy import Setup, policy_tensors
from rl_orch.spec.resolve import resolve
from tests.foreign import FOLDER, entries, reported, saved, torch_file, zipped

LAYERS = {
    "0.weight": np.ones((8, 4), np.float32),
    "0.bias": np.zeros(8, np.float32),
    "2.weight": np.ones((2, 8), np.float32),
    "2.bias": np.zeros(2, np.float32),
}


class Hostile:
    """Unpickled, it touches a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def in_torch(layers: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(tensor) for name, tensor in layers.items()}


def refusal(data: bytes, algorithm: str | None = "dqn") -> RlctlError:
    with pytest.raises(RlctlError) as caught:
        reading.policy(data, algorithm, "it.zip")
    return caught.value


@pytest.mark.parametrize("file", reported())
def test_a_real_file_says_which_algorithm_its_policy_is_of(file: str) -> None:
    told = reported()[file]
    found = reading.policy((FOLDER / file).read_bytes(), None, file)
    assert found.placed.algorithm == told["algorithm"]
    assert found.step == told.get("steps", 0)


def test_the_activation_is_read_from_the_text_beside_a_pickle() -> None:
    a2c = reading.policy((FOLDER / "sb3-a2c.zip").read_bytes(), None, "it")
    assert a2c.placed.options["agent.network.activation"] == "relu"
    ppo = reading.policy((FOLDER / "sb3-ppo.zip").read_bytes(), None, "it")
    assert ppo.placed.options["agent.network.activation"] == "tanh"


def test_what_torch_saves_is_read_to_the_bit_in_every_type() -> None:
    state = {
        "0.weight": torch.randn(8, 4).T.contiguous().T,  # Strides that are not those of rows.
        "0.bias": torch.randn(8).to(torch.float16),
        "2.weight": torch.randn(2, 8).to(torch.bfloat16),
        "2.bias": torch.nn.Parameter(torch.randn(2, dtype=torch.float64)),
    }
    found = reading.policy(saved(state), "dqn", "it").placed.tensors
    for ours, theirs in zip(found.values(), state.values(), strict=True):
        np.testing.assert_array_equal(ours, theirs.detach().to(torch.float32).numpy())


def test_rows_of_quantiles_are_put_in_our_order() -> None:
    layer = {
        "quantile_net.quantile_net.0.weight": torch.arange(6.0)[:, None].repeat(1, 4),
        "quantile_net.quantile_net.0.bias": torch.arange(6.0),
    }
    data = json.dumps({"policy_kwargs": {"n_quantiles": 3}}).encode()
    file = zipped({"data": data, "policy.pth": saved(layer)})
    bias = reading.policy(file, None, "it").placed.tensors["network.head.layers.0.bias"]
    assert bias.tolist() == [0, 2, 4, 1, 3, 5]  # The quantiles of one action, then of the other.


def an_sb3_file(state: dict[str, torch.Tensor], **arguments: Any) -> bytes:
    data = json.dumps({"policy_kwargs": arguments}).encode()
    return zipped({"data": data, "policy.pth": saved(state)})


def weights(file: str) -> dict[str, torch.Tensor]:
    policy = entries(FOLDER / file)["policy.pth"]
    found: dict[str, torch.Tensor] = torch.load(io.BytesIO(policy), weights_only=True)
    return found


def test_an_actor_without_critics_is_of_sac_unless_tqc_is_said() -> None:
    state = {name: each for name, each in weights("sb3-tqc.zip").items() if "critic" not in name}
    assert reading.policy(an_sb3_file(state), None, "it").placed.algorithm == "sac"
    assert reading.policy(an_sb3_file(state), "tqc", "it").placed.algorithm == "tqc"


def test_what_the_layers_say_goes_before_another_algorithm_that_is_said() -> None:
    for name in ("tqc", "crossq"):
        message = refusal((FOLDER / f"sb3-{name}.zip").read_bytes(), "sac").message
        assert f"the tensors are those of {name}" in message


def test_a_policy_that_normalises_otherwise_is_refused() -> None:
    state = weights("sb3-crossq.zip")
    assert "batch_norm_eps 0.1" in refusal(an_sb3_file(state, batch_norm_eps=0.1), None).message
    lost = {name: each for name, each in state.items() if "actor.latent_pi.6." not in name}
    assert "2 of the layers" in refusal(an_sb3_file(lost), None).message
    del state["actor.latent_pi.0.ra_var"]
    assert "no actor.latent_pi.0.ra_var" in refusal(an_sb3_file(state), None).message


def test_layers_that_are_only_numbered_need_an_algorithm() -> None:
    assert "must be one of ppo" in refusal(saved(in_torch(LAYERS)), None).message


@pytest.mark.parametrize(
    "overrides",
    [
        ("agent.algorithm=ppo", "agent.network.shared=true"),
        ("agent.algorithm=a2c", "obs.normalize=running"),
        ("agent.algorithm=dqn", "agent.network.dueling=true"),
        ("agent.algorithm=sac", "train.use_sde=true"),
        ("agent.algorithm=tqc",),
        ("agent.algorithm=crossq",),
        ("agent.algorithm=td3",),
    ],
)
def test_options_are_worked_back_from_tensors_of_ours(overrides: tuple[str, ...]) -> None:
    sizes = "agent.network.hidden_sizes=[16,8]"
    spec = resolve({"env": {"id": "It-v0"}}, overrides=(sizes, *overrides))
    actions = spaces.Discrete(2) if spec.agent.algorithm == "dqn" else spaces.Box(-1.0, 1.0, (2,))
    setup = Setup(spec, spaces.Box(-1.0, 1.0, (3,)), actions)
    tensors = policy_tensors(algorithm(spec.agent.algorithm).build_policy(setup))
    found = reading.policy(encode_tensors(tensors), spec.agent.algorithm, "it").placed
    assert found.options.pop("agent.network.hidden_sizes") == [16, 8]
    told = dict(override.split("=") for override in overrides[1:])
    assert {path: str(value).lower() for path, value in found.options.items()} == told
    assert {f"policies/default/{name}" for name in found.tensors} == set(tensors)


def test_deviations_and_a_note_come_with_a_gaussian_policy_of_cleanrl() -> None:
    net = {"0.weight": torch.ones(8, 3), "0.bias": torch.ones(8)}
    last = {"2.weight": torch.ones(1, 8), "2.bias": torch.ones(1)}
    state = {f"{part}.{n}": t for part in ("actor_mean", "critic") for n, t in (net | last).items()}
    found = reading.policy(saved(state | {"actor_logstd": torch.ones(1, 1)}), None, "it")
    assert found.placed.algorithm == "ppo"
    assert found.placed.tensors["log_std"].shape == (1,)
    assert "saves no statistics" in found.placed.notes[0]


def test_the_first_of_several_state_dicts_is_the_actor_of_cleanrl() -> None:
    actor = torch.load(FOLDER / "cleanrl-td3.cleanrl_model", weights_only=True)
    critic = {"fc1.weight": torch.zeros(3, 3), "fc1.bias": torch.zeros(3)}
    found = reading.policy(saved((actor, critic, critic)), None, "it")
    assert found.placed.algorithm == "td3"


def test_a_hostile_pickle_is_named_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    hostile = torch_file(pickle.dumps({"0.weight": Hostile(marker)}, protocol=2))
    for file in (hostile, zipped({"data": b"{}", "policy.pth": hostile})):
        error = refusal(file)
        assert isinstance(error, BadInput)
        assert "posix.system" in error.message
        assert "nothing of it was run" in error.message
    assert not marker.exists()
    pickle.loads(pickle.dumps(Hostile(marker)))  # noqa: S301
    assert marker.exists()  # It would have been, had anybody unpickled it.


@pytest.mark.parametrize("protocol", range(5))
def test_a_hostile_pickle_of_any_age_is_refused(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "marker"
    data = pickle.dumps(Hostile(marker), protocol=protocol)
    assert isinstance(refusal(torch_file(data)), BadInput)
    assert isinstance(refusal(data), BadInput)
    assert not marker.exists()


def test_what_is_pickled_in_the_data_of_sb3_is_never_looked_at(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    parts = entries(FOLDER / "sb3-ppo.zip")
    data = json.loads(parts["data"])
    hostile = base64.b64encode(pickle.dumps(Hostile(marker))).decode()
    for value in data.values():
        if isinstance(value, dict) and ":serialized:" in value:
            value[":serialized:"] = hostile
    data["policy_kwargs"] = {":type:": "<class 'dict'>", ":serialized:": hostile}
    parts["data"] = json.dumps(data).encode()
    found = reading.policy(zipped(parts), None, "it")
    assert found.placed.algorithm == "ppo"
    assert not marker.exists()


def test_a_features_extractor_of_its_own_is_refused_by_name() -> None:
    parts = entries(FOLDER / "sb3-ppo.zip")
    data = json.loads(parts["data"])
    data["policy_kwargs"] = {"features_extractor_class": "<class 'mine.Scaled'>"}
    parts["data"] = json.dumps(data).encode()
    assert "features extractor of its own, Scaled" in refusal(zipped(parts), None).message


def test_pickled_arrays_of_numpy_are_refused() -> None:
    data = pickle.dumps({"0.weight": np.ones(3)}, protocol=2)
    assert "numpy" in refusal(torch_file(data)).message


@pytest.mark.parametrize("name", ["../../etc/cron.d/x", "/etc/passwd", "a/../../b", "..\\x", "C:x"])
def test_an_archive_whose_names_lead_outside_is_refused(name: str) -> None:
    assert "leads outside" in refusal(zipped({"policy.pth": b"", name: b"x"})).message


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = zipped({"policy.pth": bytes(64 << 20)}, compression=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 1 << 20
    assert re.search(r"67,108,864 bytes unpacked; at most \d,", refusal(bomb).message)


def test_an_entry_that_holds_more_than_it_says_is_not_unpacked_beyond_that() -> None:
    bomb = zipped({"policy.pth": bytes(64 << 20)}, compression=zipfile.ZIP_DEFLATED)
    at = bomb.index(b"PK\x01\x02") + 24
    lying = bomb[:at] + struct.pack("<I", 1000) + bomb[at + 4 :]
    tracemalloc.start()
    try:
        assert isinstance(refusal(lying), Damaged)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_an_entry_that_holds_less_than_it_says_is_refused() -> None:
    entry = zipped({"policy.pth": b"x" * 10}, compression=zipfile.ZIP_DEFLATED)
    at = entry.index(b"PK\x01\x02") + 24
    lying = entry[:at] + struct.pack("<I", 11) + entry[at + 4 :]
    assert "has 10 bytes in policy.pth, and says 11" in refusal(lying).message


def test_an_archive_that_says_it_holds_more_than_any_policy_is_refused() -> None:
    entry = zipped({"policy.pth": b"x"})
    at = entry.index(b"PK\x01\x02") + 20
    lying = entry[:at] + struct.pack("<II", 2**31, 2**31) + entry[at + 8 :]
    assert "bytes unpacked; at most" in refusal(lying).message


def test_an_archive_with_too_many_entries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zips, "MOST_ENTRIES", 3)
    assert "4 entries" in refusal(zipped({str(n): b"" for n in range(4)})).message


def test_a_link_in_an_archive_is_refused() -> None:
    info = zipfile.ZipInfo("policy.pth")
    info.external_attr = 0o120777 << 16
    data = zipped({info: b"/etc/passwd"})  # type: ignore[dict-item]
    assert "is a link" in refusal(data).message


def test_a_file_cut_anywhere_is_an_error_of_ours() -> None:
    whole = saved(in_torch(LAYERS))
    for size in range(0, len(whole), 97):
        assert isinstance(refusal(whole[:size]), BadInput | Damaged)


def test_a_file_with_any_byte_changed_is_read_or_refused() -> None:
    whole = bytearray(saved(in_torch(LAYERS)))
    for at in range(0, len(whole), 11):
        changed = bytes(whole[:at]) + bytes([whole[at] ^ 0xFF]) + bytes(whole[at + 1 :])
        try:
            reading.policy(changed, "dqn", "it")
        except (BadInput, Damaged):
            continue


def test_numbers_that_are_not_finite_are_refused_by_name() -> None:
    broken = LAYERS | {"2.bias": np.array([0.0, np.nan], np.float32)}
    error = refusal(saved(in_torch(broken)))
    assert "not finite: network.head.layers.1.bias" in error.message


def test_a_shape_larger_than_its_data_is_refused() -> None:
    huge = torch.zeros(1).expand(10**12)
    error = refusal(saved({"0.weight": huge, "0.bias": torch.zeros(8)}))
    assert "but it has 1 numbers for it" in error.message


def a_tensor(offset: Any, shape: Any, strides: Any) -> bytes:
    """A file with one tensor, 0.weight, at such a place among four numbers."""

    class Numbers(torch.FloatStorage):
        """Pickled by its place in the archive."""

    class Tensor:
        def __reduce__(self) -> tuple[Any, ...]:
            return torch._utils._rebuild_tensor_v2, (Numbers, offset, shape, strides, False, {})

    class Pickler(pickle._Pickler):
        def persistent_id(self, value: Any) -> Any:
            return ("storage", torch.FloatStorage, "0", "cpu", 4) if value is Numbers else None

    buffer = io.BytesIO()
    Pickler(buffer, 2).dump({"0.weight": Tensor()})
    return torch_file(buffer.getvalue(), **{"0": bytes(16)})


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [
        (-1, (4, 1), (1, 1)),
        (-(2**20), (2, 2), (2, 1)),
        (True, (2, 1), (1, 1)),
        (1, (4, 1), (1, 1)),
        (0, (2, 2), (-2, 1)),
        (0, (2, 2), (2**61, 1)),
        (0, (4, 1), (1, 2**70)),
        (0, (2**70, 0), (1, 1)),
        (2**70, (0,), (1,)),
    ],
)
def test_a_tensor_never_reaches_outside_its_numbers(offset: Any, shape: Any, strides: Any) -> None:
    assert torch_files.tensors(Archive(a_tensor(0, (2, 2), (2, 1)), "it"))["0.weight"].size == 4
    with pytest.raises((Damaged, BadInput)):
        torch_files.tensors(Archive(a_tensor(offset, shape, strides), "it"))


@pytest.mark.parametrize(
    "header",
    [
        {"0.weight": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}},
        {"0.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 2**60]}},
        {"0.weight": {"dtype": "Q99", "shape": [1], "data_offsets": [0, 4]}},
        {"0.weight": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"0.weight": 3},
    ],
)
def test_malformed_safetensors_are_an_error_of_ours(header: dict[str, Any]) -> None:
    text = json.dumps(header).encode()
    assert isinstance(refusal(struct.pack("<Q", len(text)) + text + bytes(4)), Damaged)


def test_safetensors_with_a_header_of_any_length_are_refused_at_once() -> None:
    assert "header would take" in refusal(struct.pack("<Q", 2**62) + b"{" + bytes(100)).message


def test_a_tensor_that_no_perceptron_has_is_refused_by_name() -> None:
    more = LAYERS | {"norm.weight": np.ones(8, np.float32)}
    assert "norm.weight" in refusal(encode_tensors(more)).message


def test_convolutions_are_refused() -> None:
    shapes = {"network.0.weight": (4, 3, 2, 2), "network.0.bias": (4,)}
    images: dict[str, np.ndarray] = {name: np.ones(shape) for name, shape in shapes.items()}
    assert "convolutions" in str(refusal(encode_tensors(images), None).hint)


def test_the_pickle_of_vecnormalize_is_refused_with_the_way_to_export_it() -> None:
    found = reading.policy(saved(in_torch(LAYERS)), "dqn", "it")
    with pytest.raises(BadInput) as caught:
        reading.normalized(found, pickle.dumps({"mean": 1}), "vecnormalize.pkl")
    assert "np.savez" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("mean", "var"),
    [
        ([0.0] * 4, [np.inf] * 4),
        ([np.nan] * 4, [1.0] * 4),
        ([0.0] * 4, [-1.0] * 4),
        ([0.0], [1, 1]),
    ],
)
def test_statistics_that_no_observations_have_are_refused(mean: Any, var: Any) -> None:
    found = reading.policy(saved(in_torch(LAYERS)), "dqn", "it")
    buffer = io.BytesIO()
    np.savez(buffer, mean=np.array(mean), var=np.array(var))
    with pytest.raises(BadInput, match=r"not finite|below 0|must be alike"):
        reading.normalized(found, buffer.getvalue(), "stats.npz")


def test_an_algorithm_that_tensors_cannot_be_of_is_refused() -> None:
    data = (FOLDER / "sb3-ppo.zip").read_bytes()
    assert "the tensors are those of ppo or a2c" in refusal(data, "sac").message
