"""Bundles: whole and readable without torch, and refused by name where anything was changed."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from rl_orch.errors import Damaged, NotFound
from rl_orch.export.bundle import ExportSubject, assembled, described
from rl_orch.io.files import sealed
from rl_orch.io.files.tensors import decode
from rl_orch.io.policies import bundles, onnx_files
from rl_orch.io.policies.bundles import NEEDED, NOUN, WEIGHTS, GraphParity
from rl_orch.io.policies.requests import FILES
from rl_orch.rl.evaluate import evaluate
from rl_orch.rl.policies.policy import policy_tensors
from rl_orch.spec.model import Spec
from rl_orch.worker.policies import sources
from tests.exported import CASES, Case, made
from tests.odd_files import HUGE, KINDS, a_hole, in_place

Tamper = Callable[[Path], None]


NEAR = GraphParity(
    rows=64, largest_difference=1e-7, largest_absolute=1e-7, tolerance=1e-5, gap=1e-4
)


@pytest.fixture(scope="module")
def sealed_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a recurrent policy that stacks and normalises. Its graphs are stand-ins: what
    is asked here is asked of bytes. Real ones are made in tests/integration."""
    case = made(CASES["recurrent ppo"])
    report = evaluate(case.policy, case.spec, episodes=4, seed=2, deterministic=True, step=7)
    subject = ExportSubject(case.policy, case.spec, report, {"run": "r-1", "config_hash": "abc"})
    tensors = policy_tensors(case.policy) | {"learner/optimizer/m": np.zeros(3, np.float32)}
    document = described(subject, case.graph, dict.fromkeys(FILES, NEAR))
    graphs = {FILES[form]: field(8, 2, form.encode()) + bytes(100 * [0x40, 1]) for form in FILES}
    path = tmp_path_factory.mktemp("bundles") / "carried away"
    sealed.write(path, assembled(subject, tensors, document, graphs), noun=bundles.NOUN)
    return path


@pytest.fixture
def bundle(sealed_bundle: Path, tmp_path: Path) -> Path:
    """A copy to be tampered with."""
    path = tmp_path / "a bundle"
    shutil.copytree(sealed_bundle, path)
    return path


def reseal(path: Path) -> None:
    """A manifest that agrees with the files, as a forger would write it."""
    names = [name for name in os.listdir(path) if name != sealed.MANIFEST]
    files = {}
    for name in names:
        data = (path / name).read_bytes()
        files[name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    (path / sealed.MANIFEST).write_bytes(sealed._manifest(files))


def test_a_bundle_says_what_is_in_it(sealed_bundle: Path) -> None:
    read = bundles.read(sealed_bundle)
    policy = read.policy
    assert {*NEEDED} == {*read.files}
    assert (policy.algorithm, policy.env_id, policy.stack_frames) == ("ppo", "CartPole-v1", 4)
    assert policy.state == ("state.frames", "state.memory")
    assert policy.parity == dict.fromkeys(FILES, NEAR)
    assert policy.normalizer is not None
    assert policy.normalizer["clip_range"] == [-5.0, 5.0]
    assert read.report.summary.n == 4
    assert read.document.lineage["run"] == "r-1"
    weights = decode(read.files[WEIGHTS], read.path, WEIGHTS, noun=NOUN)
    assert all(name.startswith("policies/default/") for name in weights)


def test_a_bundle_is_verified_without_torch(sealed_bundle: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from rl_orch.io.policies import bundles; "
        "bundles.verify(Path(sys.argv[1])); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(sealed_bundle)], check=True)


def test_the_policy_in_a_bundle_is_the_one_that_went_in(sealed_bundle: Path) -> None:
    loaded = sources.load(sealed_bundle)
    went_in = made(CASES["recurrent ppo"])
    for name, tensor in policy_tensors(went_in.policy).items():
        np.testing.assert_array_equal(loaded.tensors[name], tensor)
    assert loaded.policy.observation_space == went_in.policy.observation_space


ADDRESS = "postgresql://ann:hunter2@db/rl"
TRACKERS = ["tensorboard", {"name": "mine", "key": "hunter2"}]


def test_a_bundle_has_no_password_of_its_maker() -> None:
    """Neither in the address of a database, nor in options of trackers."""
    given = {"registry": {"db_path": ADDRESS}, "store": {"trackers": TRACKERS}}
    case = made(CASES["ppo"] | given)
    files = of_spec(case, case.spec)
    assert not [name for name, data in files.items() if b"hunter2" in data]
    assert yaml.safe_load(files[bundles.SPEC])["store"]["trackers"] == ["tensorboard", "mine"]


def test_a_bundle_of_an_earlier_version_is_read_and_made_again_without_them(bundle: Path) -> None:
    document = yaml.safe_load((bundle / bundles.SPEC).read_text())
    document["registry"]["db_path"], document["store"]["trackers"] = ADDRESS, TRACKERS
    (bundle / bundles.SPEC).write_text(yaml.safe_dump(document))
    told = json.loads((bundle / bundles.DOCUMENT).read_text())
    told["digests"][bundles.SPEC] = digest_of(bundle / bundles.SPEC)
    (bundle / bundles.DOCUMENT).write_text(json.dumps(told))
    reseal(bundle)
    for spec in (bundles.read(bundle).spec, bundles.read_spec(bundle)):
        assert spec.registry.db_path is None
    again = of_spec(made(CASES["recurrent ppo"]), sources.load(bundle).spec)
    assert not [name for name, data in again.items() if b"hunter2" in data]


def of_spec(case: Case, spec: Spec) -> dict[str, bytes]:
    """The files of a bundle of that spec, without graphs."""
    report = evaluate(case.policy, case.spec, episodes=1, seed=2, deterministic=True, step=7)
    subject = ExportSubject(case.policy, spec, report, {"run": "r-1"})
    document = described(subject, case.graph, dict.fromkeys(FILES, NEAR))
    return assembled(subject, policy_tensors(case.policy), document, {})


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def flip(name: str, at: int = -100) -> Tamper:
    """Changes one byte of a file."""

    def tamper(path: Path) -> None:
        data = bytearray((path / name).read_bytes())
        data[at] ^= 1
        (path / name).write_bytes(bytes(data))

    return tamper


def link(path: Path) -> None:
    (path / bundles.WEIGHTS).rename(path.parent / "elsewhere")
    (path / bundles.WEIGHTS).symlink_to(path.parent / "elsewhere")


def traverse(path: Path) -> None:
    manifest = json.loads((path / sealed.MANIFEST).read_text())
    manifest["files"]["../elsewhere"] = manifest["files"][bundles.WEIGHTS]
    (path / sealed.MANIFEST).write_bytes(sealed._manifest(manifest["files"]))


def another_card(path: Path) -> None:
    (path / bundles.CARD).write_text("Return 500 (n = 1000)\n")
    reseal(path)


def external_data(path: Path) -> None:
    (path / bundles.ONNX).write_bytes(outside("../../etc/passwd"))
    document = json.loads((path / bundles.DOCUMENT).read_text())
    digest = hashlib.sha256((path / bundles.ONNX).read_bytes()).hexdigest()
    document["digests"][bundles.ONNX] = digest
    (path / bundles.DOCUMENT).write_text(json.dumps(document))
    reseal(path)


def empty_manifest(path: Path) -> None:
    (path / sealed.MANIFEST).write_text("{}")


def foreign_file(path: Path) -> None:
    (path / "evil.pkl").write_bytes(b"cos\nsystem\n")


def foreign_file_that_is_listed(path: Path) -> None:
    foreign_file(path)
    reseal(path)


def weights_gone(path: Path) -> None:
    (path / bundles.WEIGHTS).unlink()


def huge(path: Path) -> None:
    """A hole of 500 GB, of which a manifest by a forger tells."""
    manifest = json.loads((path / sealed.MANIFEST).read_text())
    manifest["files"][bundles.WEIGHTS]["size"] = HUGE
    (path / sealed.MANIFEST).write_bytes(sealed._manifest(manifest["files"]))
    a_hole(path / bundles.WEIGHTS)


def long_spec(path: Path) -> None:
    with (path / bundles.SPEC).open("a") as file:
        file.write("# more\n" * 20_000)
    reseal(path)


def odd(kind: str) -> Tamper:
    """Puts something else in place of a file."""

    def tamper(path: Path) -> None:
        in_place(path / bundles.ONNX, kind)

    return tamper


def nonsense(path: Path) -> None:
    (path / bundles.DOCUMENT).write_text('{"format_version": 9}')
    reseal(path)


TAMPERED: dict[str, tuple[Tamper, str]] = {
    "weights": (flip(bundles.WEIGHTS), r"fails its digest: policy\.safetensors"),
    "onnx": (flip(bundles.ONNX), r"fails its digest: policy\.onnx"),
    "torchscript": (flip(bundles.TORCHSCRIPT), r"fails its digest: policy\.ts"),
    "card": (flip(bundles.CARD), r"fails its digest: README\.md"),
    "spec": (flip(bundles.SPEC), r"fails its digest: spec\.yaml"),
    "manifest": (flip(sealed.MANIFEST, at=60), r"MANIFEST\.json|wrong size|fails its digest"),
    "no manifest": (empty_manifest, r"fails its digest: MANIFEST\.json"),
    "a card with a new manifest": (another_card, r"another file than bundle\.json .*README\.md"),
    "external data": (external_data, r"outside itself: policy\.onnx: '\.\./\.\./etc/passwd'"),
    "symlink": (link, r"other than a file: policy\.safetensors"),
    "traversal": (traverse, r"outside itself: '\.\./elsewhere'"),
    "extra file": (foreign_file, r"does not belong to it: evil\.pkl"),
    "extra file, listed": (foreign_file_that_is_listed, r"does not belong to it: evil\.pkl"),
    "missing file": (weights_gone, r"lacks policy\.safetensors"),
    "500 GB": (huge, r"has 500,[0-9,]+ bytes; at most 4,294,967,296 are read"),
    "a long spec": (long_spec, r"cannot be read: spec\.yaml: it has .* at most 100,000 are read"),
    **{kind: (odd(kind), r"policy\.onnx") for kind in KINDS},
    "another version": (nonsense, r"cannot be read: bundle\.json"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_bundle_that_was_tampered_with_is_refused_by_name(name: str, bundle: Path) -> None:
    tamper, problem = TAMPERED[name]
    bundles.verify(bundle)
    tamper(bundle)
    with pytest.raises(Damaged, match=problem):
        bundles.verify(bundle)


def test_a_bundle_that_is_a_link_is_refused(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(bundle)
    with pytest.raises(Damaged, match="is a link; name the bundle itself"):
        bundles.verify(tmp_path / "link")
    with pytest.raises(NotFound):
        bundles.verify(tmp_path / "nowhere")


def test_another_bundle_than_the_one_meant_is_refused(bundle: Path) -> None:
    digest = bundles.read(bundle).digest
    bundles.verify(bundle, digest=digest)
    with pytest.raises(Damaged, match="not the one that was meant"):
        bundles.verify(bundle, digest="0" * 64)


def field(number: int, wire: int, value: bytes | int) -> bytes:
    """One field in the wire format of protocol buffers."""
    tag = number << 3 | wire
    head = bytes([tag]) if tag < 128 else bytes([tag & 0x7F | 0x80, tag >> 7])
    if isinstance(value, int):
        return head + bytes([value])
    assert len(value) < 128
    return head + bytes([len(value)]) + value


def outside(location: str) -> bytes:
    """An ONNX file, written by hand, with one tensor in another file."""
    entry = field(1, 2, b"location") + field(2, 2, location.encode())
    tensor = field(13, 2, entry) + field(14, 0, 1)
    return field(7, 2, field(5, 2, tensor))


def test_data_outside_is_found_wherever_a_tensor_can_be() -> None:
    entry = field(1, 2, b"location") + field(2, 2, b"data.bin")
    tensor = field(13, 2, entry)
    node = field(1, 2, field(5, 2, field(5, 2, tensor)))
    inner = field(1, 2, field(5, 2, field(6, 2, field(5, 2, tensor))))
    sparse = field(15, 2, field(1, 2, tensor))
    places = {
        "initializer": field(7, 2, field(5, 2, tensor)),
        "sparse initializer": field(7, 2, sparse),
        "attribute": field(7, 2, node),
        "graph in an attribute": field(7, 2, inner),
        "function": field(25, 2, field(7, 2, field(5, 2, field(5, 2, tensor)))),
        "training": field(20, 2, field(1, 2, field(5, 2, tensor))),
    }
    for name, data in places.items():
        assert onnx_files.external_data(data) == ["data.bin"], name
    assert onnx_files.external_data(field(7, 2, field(5, 2, field(14, 0, 1)))) == ["?"]


@pytest.mark.parametrize("data", [b"\xff" * 12, b"\x3a\x7f", b"\x0b", b"\x3a\x04\x2a\x7f\x00\x00"])
def test_what_is_no_onnx_file_is_refused(data: bytes) -> None:
    with pytest.raises(onnx_files.Unreadable):
        onnx_files.external_data(data)


@pytest.mark.parametrize("bits", [32, 35, 60])
def test_a_tag_that_loaders_would_cut_short_hides_no_data_outside(bits: int) -> None:
    whole = outside("data.bin")
    overlong = varint(7 << 3 | 2 | 1 << bits) + whole[1:]
    with pytest.raises(onnx_files.Unreadable, match="no field has the tag"):
        onnx_files.external_data(overlong)


def test_a_field_without_a_number_is_refused() -> None:
    with pytest.raises(onnx_files.Unreadable, match="no field has the tag 0x2"):
        onnx_files.external_data(field(0, 2, b"it"))


def test_a_place_of_data_that_loaders_would_cut_short_is_outside_all_the_same() -> None:
    tensor = varint(14 << 3) + varint(1 << 32 | 1)
    assert onnx_files.external_data(field(7, 2, field(5, 2, tensor))) == ["?"]


def varint(value: int) -> bytes:
    """A whole number in the wire format of protocol buffers."""
    parts = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes(part | 0x80 for part in parts[:-1]) + bytes(parts[-1:])


def test_the_card_has_what_the_hub_reads(sealed_bundle: Path) -> None:
    card = bundles.read(sealed_bundle).files[bundles.CARD].decode()
    front = yaml.safe_load(card.split("---")[1])
    result = front["model-index"][0]["results"][0]
    assert front["library_name"] == "rl-orch"
    assert result["task"]["type"] == "reinforcement-learning"
    assert result["dataset"] == {"name": "CartPole-v1", "type": "CartPole-v1"}
    assert result["metrics"][0]["type"] == "mean_reward"
    mean = float(result["metrics"][0]["value"].split(" +/- ")[0])
    assert mean == pytest.approx(bundles.read(sealed_bundle).report.summary.mean, abs=0.01)
    assert "over 4 episodes" in card
    assert "`r-1`" in card
