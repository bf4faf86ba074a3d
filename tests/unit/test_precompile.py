"""Kernels that a child compiles: what all updates call, while torch is loaded; those of a run's
updates, while the run process compiles those of its rollouts."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from rl_orch.rl import jit
from rl_orch.rl.kernels import policy_gradient, q_learning, quantile_critics, twin_critics
from rl_orch.rl.kernels.dense import backward, forward
from rl_orch.rl.kernels.optimizers import descend
from rl_orch.rl.kernels.precompile import compile_layers
from rl_orch.rl.measure.precompile import compile_updates
from rl_orch.rl.train import Training
from rl_orch.rl.training_recorder import NullRecorder
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.worker.warm import precompile
from rl_orch.worker.warm.precompile import begin_layers, precompiling
from tests.integration.conftest import until

LAYERS: tuple[Any, ...] = (forward, backward, descend)
UPDATES: dict[str, tuple[Any, ...]] = {
    "ppo": (policy_gradient.policy_pass, policy_gradient.assess),
    "a2c": (policy_gradient.policy_pass, policy_gradient.assess),
    "dqn": (q_learning.improve_values,),
    "qrdqn": (q_learning.improve_values,),
    "sac": (twin_critics.soft_critics, twin_critics.soft_actor),
    "td3": (twin_critics.delayed_critics,),
    "tqc": (quantile_critics.truncated_critics, quantile_critics.truncated_actor),
}


def spec(algorithm: str, *overrides: str) -> Spec:
    env = "Pendulum-v1" if algorithm in ("sac", "td3", "tqc") else "CartPole-v1"
    settled = ("train.engine=kernels", "env.backend=native", *overrides)
    return resolve({"env": {"id": env}, "agent": {"algorithm": algorithm}}, overrides=settled)


@pytest.mark.parametrize("algorithm", UPDATES)
def test_a_training_needs_no_kernel_of_updates_beyond_those_that_were_compiled_ahead(
    algorithm: str,
) -> None:
    wanted = spec(algorithm, *([] if algorithm in ("ppo", "a2c") else ["train.learning_starts=64"]))
    compile_updates(wanted)
    compiled = [set(kernel.signatures) for kernel in UPDATES[algorithm]]
    assert all(compiled)
    with closing(Training(wanted, NullRecorder())) as training:
        while not training.train_step():
            pass
    assert [set(kernel.signatures) for kernel in UPDATES[algorithm]] == compiled


def test_what_all_updates_call_is_compiled_for_each_of_them() -> None:
    compile_layers()
    for algorithm in UPDATES:
        compile_updates(spec(algorithm))
    for kernel in LAYERS:
        kept = [key[0] for key in kernel._cache._cache_file._load_index()]
        assert in_float32(kept) == in_float32(kernel.signatures)
        assert len(in_float32(kept)) == 1


def in_float32(signatures: list[Any]) -> list[Any]:
    """Without those of arrays of float64, in which only tests calculate."""
    return [signature for signature in signatures if "float64, 1" not in str(signature)]


def test_what_all_updates_call_is_compiled_without_torch() -> None:
    program = (
        "import sys\n"
        "from rl_orch.worker.warm.precompile import compile_layers\n"
        "compile_layers()\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_standby_has_it_compiled_before_it_loads_torch() -> None:
    program = (
        "import sys\n"
        "from rl_orch.worker.warm import precompile, standby\n"
        "precompile.begin_layers = lambda: sys.exit('torch' in sys.modules)\n"
        "standby.prepare()\n"
        "sys.exit('nothing was compiled')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_nobody_compiles_what_cannot_be_kept(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    may_fork(monkeypatch)
    monkeypatch.setattr("os.fork", lambda: pytest.fail("a child was started"))
    monkeypatch.setattr(jit.product, "_cache", None)
    begin_layers()
    with precompiling(spec("ppo"), nothing):
        assert not list(cache.iterdir())


def test_a_machine_without_room_for_another_process_compiles_by_itself(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    def refused() -> int:
        raise BlockingIOError("no more processes")

    may_fork(monkeypatch)
    monkeypatch.setattr("os.fork", refused)
    begin_layers()
    with precompiling(spec("ppo"), nothing):
        assert not list(cache.iterdir())


def test_what_all_updates_call_is_compiled_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_fork(monkeypatch)
    monkeypatch.setattr(precompile, "compile_layers", lambda: None)
    begin_layers()
    while not list(cache.glob("*.complete")):
        pass
    monkeypatch.setattr("os.fork", lambda: pytest.fail("a child was started"))
    begin_layers()


def nothing(_spec: Spec) -> None:
    """Compiles nothing."""


def may_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a child be started, on whatever machine the tests run."""
    monkeypatch.setattr("rl_orch.io.machine.hardware.cores", lambda: 2)
    monkeypatch.setattr("threading.active_count", lambda: 1)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(jit, "_folder", lambda: str(tmp_path))
    return tmp_path


def test_what_was_compiled_is_not_compiled_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, tells = os.pipe()
    may_fork(monkeypatch)
    with precompiling(spec("ppo"), nothing):
        while not list(cache.glob("*.complete")):
            pass

    def again(_spec: Spec) -> None:
        os.write(tells, b"again")

    with precompiling(spec("ppo"), again):
        pass
    os.close(tells)
    assert os.read(told, 5) == b""
    os.close(told)


def test_the_child_ends_with_the_training_and_leaves_no_note(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, tells = os.pipe()

    def endless(_spec: Spec) -> None:
        os.write(tells, str(os.getpid()).encode())
        while True:
            os.read(told, 0)

    may_fork(monkeypatch)
    with precompiling(spec("ppo"), endless):
        child = int(os.read(told, 20))
        os.kill(child, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert not list(cache.iterdir())
    os.close(told)
    os.close(tells)


@pytest.mark.parametrize(("cores", "engine"), [(1, "kernels"), (2, "torch")])
def test_nobody_is_started_without_a_core_or_a_kernel_for_it(
    cores: int, engine: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_fork(monkeypatch)
    monkeypatch.setattr("rl_orch.io.machine.hardware.cores", lambda: cores)
    monkeypatch.setattr("os.fork", lambda: pytest.fail("a child was started"))
    backend = "native" if engine == "kernels" else "sync"
    with precompiling(spec("ppo", f"train.engine={engine}", f"env.backend={backend}"), nothing):
        assert not list(cache.iterdir())


def test_a_child_that_has_compiled_is_waited_for_while_the_training_goes_on(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_fork(monkeypatch)
    before = children()
    monkeypatch.setattr(precompile, "compile_layers", lambda: None)
    begin_layers()
    with precompiling(spec("ppo"), nothing):
        until(lambda: len(list(cache.glob("*.complete"))) == 2)
        until(lambda: children() <= before)
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL


def test_the_children_of_others_are_left_to_them(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_fork(monkeypatch)
    before = children()
    with subprocess.Popen([sys.executable, "-c", "exit(7)"]) as other:
        with precompiling(spec("ppo"), nothing):
            until(lambda: list(cache.glob("*.complete")))
            until(lambda: children() - before == {other.pid})
        assert other.wait() == 7


def children() -> set[int]:
    """The children of this process, which has some of other tests too; ended ones that nobody has
    waited for among them."""
    return {child.pid for child in psutil.Process().children()}
