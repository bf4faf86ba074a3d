"""Kernels that a child compiles: what all updates call, while torch is loaded; those of a run's
updates, while the root compiles those of its rollouts."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rl_orch.rl.kernels import compile, compile_common, policy_gradient, q_learning, twin_critics
from rl_orch.rl.kernels.dense import backward, forward
from rl_orch.rl.kernels.descent import descend
from rl_orch.rl.rehearsal import rehearse
from rl_orch.rl.train import Nowhere, Training
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.worker import rehearsal
from rl_orch.worker.rehearsal import begin_common, rehearsed

COMMON: tuple[Any, ...] = (forward, backward, descend)
UPDATES: dict[str, tuple[Any, ...]] = {
    "ppo": (policy_gradient.policy_pass, policy_gradient.assess),
    "a2c": (policy_gradient.policy_pass, policy_gradient.assess),
    "dqn": (q_learning.improve_values,),
    "qrdqn": (q_learning.improve_values,),
    "sac": (twin_critics.soft_critics, twin_critics.soft_actor),
    "td3": (twin_critics.delayed_critics,),
}


def spec(algorithm: str, *overrides: str) -> Spec:
    env = "Pendulum-v1" if algorithm in ("sac", "td3") else "CartPole-v1"
    settled = ("train.engine=kernels", "env.backend=native", *overrides)
    return resolve({"env": {"id": env}, "agent": {"algorithm": algorithm}}, overrides=settled)


@pytest.mark.parametrize("algorithm", UPDATES)
def test_a_training_needs_no_kernel_of_updates_beyond_those_of_its_rehearsal(
    algorithm: str,
) -> None:
    wanted = spec(algorithm, *([] if algorithm in ("ppo", "a2c") else ["train.learning_starts=64"]))
    rehearse(wanted)
    compiled = [set(kernel.signatures) for kernel in UPDATES[algorithm]]
    assert all(compiled)
    with closing(Training(wanted, Nowhere())) as training:
        while not training.train_step():
            pass
    assert [set(kernel.signatures) for kernel in UPDATES[algorithm]] == compiled


@pytest.mark.parametrize("algorithm", UPDATES)
def test_what_all_updates_call_is_compiled_for_each_of_them(algorithm: str) -> None:
    compile_common()
    compiled = [set(kernel.signatures) for kernel in COMMON]
    rehearse(spec(algorithm))
    assert [set(kernel.signatures) for kernel in COMMON] == compiled


def test_what_all_updates_call_is_compiled_without_torch() -> None:
    program = (
        "import sys\n"
        "from rl_orch.rl.kernels import compile_common\n"
        "from rl_orch.worker.rehearsal import begin_common\n"
        "compile_common()\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_all_updates_call_is_compiled_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsing(monkeypatch, lambda _spec: None)
    monkeypatch.setattr(rehearsal, "compile_common", lambda: None)
    begin_common()
    while not list(cache.glob("*.complete")):
        pass
    monkeypatch.setattr("os.fork", lambda: pytest.fail("a child was started"))
    begin_common()


def rehearsing(monkeypatch: pytest.MonkeyPatch, what: Callable[[Spec], None]) -> None:
    monkeypatch.setattr(rehearsal, "_rehearse", what)
    monkeypatch.setattr("rl_orch.io.machine.cores", lambda: 2)
    monkeypatch.setattr("threading.active_count", lambda: 1)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compile, "_folder", lambda: str(tmp_path))
    return tmp_path


def test_what_was_rehearsed_is_not_rehearsed_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, tells = os.pipe()
    rehearsing(monkeypatch, lambda _spec: None)
    with rehearsed(spec("ppo")):
        while not list(cache.glob("*.complete")):
            pass

    def again(_spec: Spec) -> None:
        os.write(tells, b"again")

    rehearsing(monkeypatch, again)
    with rehearsed(spec("ppo")):
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

    rehearsing(monkeypatch, endless)
    with rehearsed(spec("ppo")):
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
    rehearsing(monkeypatch, lambda _spec: None)
    monkeypatch.setattr("rl_orch.io.machine.cores", lambda: cores)
    monkeypatch.setattr("os.fork", lambda: pytest.fail("a child was started"))
    backend = "native" if engine == "kernels" else "sync"
    with rehearsed(spec("ppo", f"train.engine={engine}", f"env.backend={backend}")):
        assert not list(cache.iterdir())
