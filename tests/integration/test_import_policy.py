"""Policies of other libraries, imported: they act as their libraries report, and bring no code."""

import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rl_orch import orchestrator
from rl_orch.core.policy_import import PolicyImportRequest, import_policy
from rl_orch.core.registry.models import Registry
from rl_orch.core.store.runs import Store
from rl_orch.errors import BadInput, Unavailable
from rl_orch.io.machine import room
from rl_orch.io.machine.room import Room
from rl_orch.io.run.directory import RunDir
from tests.conftest import Ran
from tests.foreign import CLOSE, FOLDER, played, reported, taken_in, torch_file, zipped
from tests.odd_files import KINDS, a_hole, in_place
from tests.unit.test_foreign import Hostile
from tests.unit.test_io_trees import holder

CONFINED = """
import signal, socket, sys
from rl_orch.io.processes.sandbox import confine

print(confine(memory=1 << 30, seconds=1, written=1 << 20), flush=True)

def refused(act):
    try:
        act()
    except (OSError, MemoryError) as error:
        return type(error).__name__

def write():
    with open("new", "wb", buffering=0) as file:
        for _ in range(3):
            file.write(bytes(1 << 20))

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
address = ("127.0.0.1", int(sys.argv[1]))
print(refused(lambda: bytearray(2 << 30)), refused(write), flush=True)
print(refused(lambda: socket.socket().connect(address)), flush=True)
while True:
    pass
"""


@pytest.mark.parametrize("file", reported())
def test_an_imported_policy_reaches_the_returns_that_its_library_reports(
    file: str, tmp_path: Path
) -> None:
    told = reported()[file]
    report = played(FOLDER / file, told, tmp_path)
    assert list(report.seeds) == told["seeds"]
    if told["env"] == "CartPole-v1":
        assert list(report.returns) == told["returns"]
    else:
        np.testing.assert_allclose(report.returns, told["returns"], rtol=CLOSE)


def test_an_imported_policy_is_judged_promoted_exported_and_removed_like_any_other(
    rlctl: Callable[..., Ran], tmp_path: Path
) -> None:
    file = FOLDER / "cleanrl-dqn.cleanrl_model"  # It is steady: 154 ± 19 over 2,000 episodes.
    done = rlctl("registry", "import", str(file), "--env", "CartPole-v1", "--json")
    assert done.code == 0, done.err
    model = json.loads(done.out)
    assert (model["source"], model["validated"], model["mean_reward"]) == ("import", False, None)
    assert model["lineage"]["file"] == file.name
    number = str(model["id"])
    directory = RunDir(Path(model["model_path"]).parents[1])
    assert directory.manifest()["imported"]["sha256"] == model["lineage"]["sha256"]

    assert rlctl("promote", number, "--to", "production").code == 3  # Nobody has judged it.
    pruned = json.loads(rlctl("registry", "prune", "--max-age", "0", "--json").out)
    assert (pruned["removed"], pruned["spared"][0]["model_id"]) == ([], model["id"])
    asked = ("--min-return", "20", "--episodes", "20")
    assert rlctl("registry", "validate", number, *asked).code == 0
    assert rlctl("promote", number, "--to", "production").code == 0
    assert rlctl("registry", "verify").code == 0
    seen = rlctl("infer", "production", "--observation", "[0.0, 0.1, 0.0, -0.1]", "--json")
    assert json.loads(seen.out)["action"] in (0, 1)
    out = ("--format", "torchscript", "--out", str(tmp_path / "policy.ts"), "--rows", "100")
    exported = json.loads(rlctl("export", number, *out, "--json").out)
    assert exported["parity"]["torchscript"]["differing"] == 0

    for more in ((), ("--extend", "9e6"), ("--extend", "9e6", "--approximate", "--detach")):
        refused = rlctl("resume", model["run_id"], *more, "--json")
        assert refused.code == 2
        hint = json.loads(refused.out)["error"]["hint"]
        assert f"rlctl launch --from {model['run_id']} " in hint
        assert "resume" not in hint
    assert rlctl("rm", model["run_id"], "--yes").code == 2  # It has an alias.
    assert rlctl("registry", "unalias", "production").code == 0
    assert rlctl("rm", model["run_id"], "--yes").code == 0
    assert not directory.path.exists()
    assert json.loads(rlctl("registry", "list", "--json").out) == {"models": []}


def test_a_bundle_from_another_home_is_imported_and_what_it_reports_is_not_believed(
    rlctl: Callable[..., Ran], tmp_path: Path
) -> None:
    bundle = shutil.copytree(FOLDER / "cartpole.bundle", tmp_path / "cartpole.bundle")
    done = rlctl("registry", "import", str(bundle), "--json")
    assert done.code == 0, done.err
    model = json.loads(done.out)
    assert (model["algorithm"], model["env_id"]) == ("dqn", "CartPole-v1")
    assert (model["validated"], model["mean_reward"]) == (False, None)
    directory = RunDir(Path(model["model_path"]).parents[1])
    assert directory.spec().agent.network.activation == "relu"
    assert directory.read_report("final") is None
    assert directory.read_report("final-elsewhere") is not None
    ours = load_file(Path(model["model_path"]) / "policy-default.safetensors")
    for name, tensor in load_file(bundle / "policy.safetensors").items():
        np.testing.assert_array_equal(ours[name], tensor)

    (bundle / "policy.safetensors").write_bytes(b"changed")
    assert rlctl("registry", "import", str(bundle)).code == 1


def test_a_hostile_zip_runs_nothing_leaves_nothing_and_is_named(
    rlctl: Callable[..., Ran], tmp_path: Path
) -> None:
    marker, file = tmp_path / "marker", tmp_path / "policy.zip"
    hostile = torch_file(pickle.dumps({"action_net.weight": Hostile(marker)}, protocol=2))
    file.write_bytes(zipped({"data": b"{}", "policy.pth": hostile}))
    done = rlctl("registry", "import", str(file), "--env", "CartPole-v1", "--json")
    assert done.code == 2
    assert "posix.system" in json.loads(done.out)["error"]["message"]
    assert not marker.exists()
    assert not (tmp_path / "rlruns").exists()


def test_what_is_not_there_is_not_sent_to_a_service(rlctl: Callable[..., Ran]) -> None:
    for words in (("registry", "import"), ("import-run",), ("import-run", "--move")):
        done = rlctl(*words, "x", "--server", "http://localhost:1")
        assert done.code == 2


def test_a_lease_that_cannot_be_released_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_given: Any, **_options: Any) -> None:
        raise Unavailable("the database is busy")

    here = orchestrator.connect(tmp_path / "home")
    monkeypatch.setattr(Store, "release", busy)
    with pytest.raises(Unavailable):
        import_policy(here, FOLDER / "sb3-ppo.zip", PolicyImportRequest(env="CartPole-v1"))
    (run,) = here.ls().runs
    assert here.registry.of_run(run.id)[0].model_path.startswith(run.path)
    assert (Path(run.path) / "spec.yaml").is_file()


def refusal(path: Path, home: Path, **request: Any) -> BadInput:
    with pytest.raises(BadInput) as caught:
        taken_in(path, PolicyImportRequest(**request), home)
    return caught.value


def test_a_link_and_a_folder_are_refused(tmp_path: Path) -> None:
    link = tmp_path / "link.zip"
    link.symlink_to(FOLDER / "sb3-ppo.zip")
    assert "is a link" in refusal(link, tmp_path / "a", env="CartPole-v1").message
    assert "no bundle" in refusal(FOLDER, tmp_path / "b", env="CartPole-v1").message


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_or_too_large_is_refused_at_once_and_leaves_nothing(
    rlctl: Callable[..., Ran], tmp_path: Path, kind: str
) -> None:
    words = ("registry", "import", "--env", "CartPole-v1", "--json")
    policy, good = in_place(tmp_path / "odd.zip", kind), str(FOLDER / "sb3-ppo.zip")
    large = a_hole(tmp_path / "large.zip")
    for given in ([str(policy)], [good, "--normalizer", str(policy)]):
        done = rlctl(*words, *given)
        assert done.code == 2
        assert f"odd.zip' cannot be read: it is {kind}, not a file" in done.out
    for given in ([str(large)], [good, "--normalizer", str(large)]):
        done = rlctl(*words, *given)
        assert done.code == 2
        assert "large.zip has 500,000,000,000 bytes; at most 1,073,741,824 are read" in done.out
    bundle = shutil.copytree(FOLDER / "cartpole.bundle", tmp_path / "cartpole.bundle")
    a_hole(bundle / "policy.onnx")
    done = rlctl(*words, str(bundle))
    assert done.code == 1
    assert "bytes; at most 4,294,967,296 are read" in done.out
    assert not (tmp_path / "rlruns").exists()


def test_a_policy_that_does_not_fit_on_the_disk_is_refused(
    rlctl: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "left", lambda _path: Room(room.SPARE_BYTES, None))
    done = rlctl("registry", "import", str(FOLDER / "sb3-ppo.zip"), "--env", "CartPole-v1")
    assert done.code == 1
    assert "takes 1 MiB of disk, and 64 MiB stay free; there are 64 MiB left" in done.err
    assert not (tmp_path / "rlruns").exists()


@pytest.mark.parametrize("moment", ["reading", "fitting", "known"])
def test_an_import_that_is_interrupted_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    here = orchestrator.connect(tmp_path / "home")

    def watch(doing: str, _done: float) -> None:
        if doing == moment:
            raise KeyboardInterrupt

    def interrupt(*_given: Any, **_options: Any) -> None:
        raise KeyboardInterrupt

    if moment == "known":
        monkeypatch.setattr(Registry, "enter", interrupt)
    with pytest.raises(KeyboardInterrupt):
        import_policy(
            here, FOLDER / "sb3-ppo.zip", PolicyImportRequest(env="CartPole-v1"), watch=watch
        )
    runs = tmp_path / "home" / "runs"
    assert not runs.exists() or os.listdir(runs) == []
    assert here.ls().runs == ()


def test_what_a_killed_import_left_is_swept_by_the_next(tmp_path: Path) -> None:
    child, left = holder(tmp_path / "home" / "runs")
    child.kill()
    child.communicate()
    assert left.is_dir()
    here = orchestrator.connect(tmp_path / "home")
    with pytest.raises(BadInput, match="does not say which environment"):
        import_policy(here, FOLDER / "sb3-ppo.zip", PolicyImportRequest())
    assert not left.exists()


def test_a_file_needs_its_environment_and_one_that_fits(tmp_path: Path) -> None:
    file = FOLDER / "sb3-ppo.zip"
    assert "does not say which environment" in refusal(file, tmp_path / "a").message
    other = refusal(file, tmp_path / "b", env="Acrobot-v1").message
    assert "actor.layers.0.weight has the shape [64, 4]; must be [64, 6]" in other
    assert (
        "takes actions of Box"
        in refusal(FOLDER / "sb3-dqn.zip", tmp_path / "c", env="Pendulum-v1").message
    )
    assert "unknown" not in refusal(file, tmp_path / "d", env="CartPole-v9").message


def test_actions_that_were_stretched_to_other_bounds_are_refused(tmp_path: Path) -> None:
    error = refusal(FOLDER / "cleanrl-td3.cleanrl_model", tmp_path, env="MountainCarContinuous-v0")
    assert "action_scale is [2.0]" in error.message


def test_what_a_state_dict_lacks_begins_new_and_is_said(tmp_path: Path) -> None:
    file, rng = tmp_path / "mlp.safetensors", np.random.default_rng(0)
    shapes = {"0.weight": (8, 4), "0.bias": (8,), "2.weight": (2, 8), "2.bias": (2,)}
    save_file({n: rng.normal(size=shape).astype(np.float32) for n, shape in shapes.items()}, file)
    request = PolicyImportRequest(
        "CartPole-v1", "ppo", overrides=("agent.network.activation=relu",)
    )
    spec, checkpoint = taken_in(file, request, tmp_path / "home")
    assert spec.agent.network.activation == "relu"
    tensors = load_file(checkpoint / "tensors.safetensors")
    actor = tensors["policies/default/actor.layers.0.weight"]
    np.testing.assert_array_equal(actor, load_file(file)["0.weight"])
    assert "policies/default/critic.layers.0.weight" in tensors
    manifest = RunDir(checkpoint.parents[1]).manifest()
    assert "critic.layers.0.bias" in manifest["imported"]["notes"][-1]


def test_a_checkpoint_of_ours_is_imported_by_its_tensors_alone(tmp_path: Path) -> None:
    _, checkpoint = taken_in(
        FOLDER / "sb3-sac.zip", PolicyImportRequest(env="Pendulum-v1"), tmp_path / "there"
    )
    file = tmp_path / "sac.safetensors"
    shutil.copy(checkpoint / "tensors.safetensors", file)
    spec, again = taken_in(file, PolicyImportRequest(env="Pendulum-v1"), tmp_path / "here")
    assert (spec.agent.algorithm, spec.agent.network.hidden_sizes) == ("sac", (32, 32))
    assert (again / "tensors.safetensors").read_bytes() == file.read_bytes()


def test_who_reads_a_file_has_bounds_of_memory_time_and_bytes_and_no_network(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = subprocess.run(
            [sys.executable, "-P", "-c", CONFINED, str(server.getsockname()[1])],
            cwd=tmp_path,
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
        )
    agreed, bounds, connecting = done.stdout.splitlines()
    assert bounds == "MemoryError OSError"
    assert (tmp_path / "new").stat().st_size == 1 << 20
    assert done.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
    # Where the kernel allows no network of one's own, the answer says so.
    assert connecting == ("OSError" if agreed == "True" else "None")
