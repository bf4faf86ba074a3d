"""Options that change while a run goes on: which may, from which step on, and again when it is
resumed."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_orch.errors import BadInput, RlctlError, SpecInvalid
from rl_orch.io.checkpoints import catalog, hash_chain
from rl_orch.io.run.command_socket import Request
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import fold, read
from rl_orch.rl.learn.learner import Learner, build_learner
from rl_orch.rl.policies.policy import module_state
from rl_orch.rl.train import LiveChange, Training
from rl_orch.spec import live
from rl_orch.spec.model import Spec
from rl_orch.spec.options import table
from rl_orch.spec.resolve import resolve
from rl_orch.worker.attempt.commands import PendingCommands
from rl_orch.worker.attempt.live_changes import LiveChanges
from rl_orch.worker.policies.load import setup_of
from rl_orch.worker.train import run_attempt
from tests.waiting import PATIENCE_S

Patch = pytest.MonkeyPatch

ALGORITHMS = {
    "ppo": ("CartPole-v1", ["rollout.steps=32", "train.batch_size=32", "env.num_envs=2"]),
    "a2c": ("CartPole-v1", ["rollout.steps=32", "env.num_envs=2", "train.engine=torch"]),
    "dqn": ("CartPole-v1", ["rollout.steps=32", "train.target_update_interval=32"]),
    "qrdqn": ("CartPole-v1", ["rollout.steps=32", "train.n_quantiles=5", "train.engine=torch"]),
    "sac": ("Pendulum-v1", ["rollout.steps=32", "train.engine=torch"]),
    "td3": ("Pendulum-v1", ["rollout.steps=32", "train.engine=torch"]),
}


def a_spec(algorithm: str, *overrides: str) -> Spec:
    """Two or four iterations an evaluation; a small network, little replay."""
    env_id, own = ALGORITHMS[algorithm]
    common = [
        f"env.id={env_id}",
        f"agent.algorithm={algorithm}",
        "env.max_episode_steps=40",
        "agent.network.hidden_sizes=[8]",
        "train.total_timesteps=256",
        "eval.every=128",
        "eval.episodes=2",
        "checkpoint.every=64",
        "checkpoint.keep_last=100",
    ]
    if algorithm not in ("ppo", "a2c"):
        common += ["buffer.size=300", "train.batch_size=8", "train.learning_starts=40"]
    return resolve(overrides=[*common, *own, *overrides])


def a_run(folder: Path, spec: Spec, *notes: dict[str, Any]) -> RunDir:
    directory = RunDir(folder)
    directory.create(spec, {"run_id": "run", "changes": list(notes)})
    return directory


def a_note(step: int | None, **options: Any) -> dict[str, Any]:
    pairs = {f"train.{name}": [None, value] for name, value in options.items()}
    return {"attempt": 1, "at": 0.0, "step": step, "set": pairs}


def crash_after(monkeypatch: Patch, iterations: int) -> None:
    """Let the next attempt end in the middle, as if it had been killed."""
    step, left = Training.train_step, [iterations]

    def stepped(training: Training) -> dict[str, float]:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("killed")
        return step(training)

    monkeypatch.setattr(Training, "train_step", stepped)


def whole_and_broken(
    tmp_path: Path, spec: Spec, monkeypatch: Patch, *notes: dict[str, Any]
) -> tuple[RunDir, RunDir]:
    """A run without interruption, and one that ended on its way."""
    whole = a_run(tmp_path / "whole", spec, *notes)
    broken = a_run(tmp_path / "broken", spec, *notes)
    assert run_attempt(whole, 1) == 0
    with monkeypatch.context() as patch:
        crash_after(patch, 3)
        assert run_attempt(broken, 1) == 1
    assert run_attempt(broken, 2) == 0
    return whole, broken


def values_told(directory: RunDir) -> list[tuple[int, dict[str, Any]]]:
    events = [event for event in fold(read(directory.events)) if event.key == "set"]
    return [(event.step, {p: new for p, (_, new) in event.tags["set"].items()}) for event in events]


def test_an_option_that_is_not_live_stays() -> None:
    spec = a_spec("ppo")
    assert live.change(spec, ["train.lr=0.1"]) == {"train.lr": [spec.train.lr, 0.1]}
    assert live.change(spec, [f"train.lr={spec.train.lr}"]) == {}
    for override in ("train.gamma=0.5", "env.seed=3", "train.exploration_final_eps=0.3"):
        with pytest.raises(BadInput) as error:
            live.change(spec, [override])
        assert error.value.path == override.partition("=")[0]
        assert "train.lr" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("algorithm", "override"),
    [("dqn", "train.clip_range=0.1"), ("sac", "train.ent_coef=0.1"), ("td3", "train.ent_coef=1")],
)
def test_an_option_that_the_algorithm_does_not_read_is_refused(
    algorithm: str, override: str
) -> None:
    with pytest.raises(BadInput):
        live.change(a_spec(algorithm), [override])


def test_a_value_is_held_to_what_a_spec_is_held_to() -> None:
    for override in ("train.lr=-1", "train.lr=fast", "gates.patience=3", "train.lrr=1"):
        with pytest.raises(SpecInvalid):
            live.change(a_spec("ppo"), [override])


def test_every_live_option_has_a_mark_in_the_table() -> None:
    marked = {path for path, option in table().items() if option.live}
    assert {"train.lr", "train.ent_coef", "train.clip_range", "gates.min_return"} <= marked
    assert {"train.total_timesteps", "eval.every", "checkpoint.every"} <= marked
    assert "env.num_envs" not in marked


def test_the_last_word_on_an_option_counts_from_its_step_on() -> None:
    notes = [a_note(100, lr=1.0), a_note(50, lr=2.0), a_note(None, lr=3.0), a_note(60, gamma=1.0)]
    assert live.in_force(notes, 50) == {}
    assert live.in_force(notes, 51) == {"train.lr": 2.0}
    assert live.in_force(notes) == {"train.lr": 2.0, "train.gamma": 1.0}
    resumed = {"attempt": 2, "set": {"train.lr": [0.1, 0.2]}}
    assert live.in_force([*notes, resumed]) == {"train.gamma": 1.0}


def test_what_is_asked_for_is_durable_and_taken_by_the_next_iteration(tmp_path: Path) -> None:
    directory = a_run(tmp_path / "run", a_spec("ppo"))
    changes = LiveChanges(directory, 1, 0)
    assert changes.due(0) is None
    replies: list[dict[str, Any]] = []
    order = Request("set", {"overrides": ["train.lr=0.1"]})
    asker = threading.Thread(target=lambda: replies.append(PendingCommands(changes).handle(order)))
    asker.start()
    change = wait_for(lambda: changes.due(64))
    asker.join(PATIENCE_S)
    assert replies == [
        {"accepted": "set", "set": {"train.lr": [change.options["train.lr"][0], 0.1]}, "step": 64}
    ]
    assert change.spec.train.lr == 0.1
    assert directory.spec().train.lr != 0.1
    assert directory.spec_before(64).train.lr != 0.1
    assert directory.spec_before().train.lr == directory.spec_before(65).train.lr == 0.1
    assert changes.due(128) is None


def test_a_change_that_no_iteration_saw_waits_for_the_next_attempt(tmp_path: Path) -> None:
    directory = a_run(tmp_path / "run", a_spec("ppo"), a_note(None, lr=0.1))
    later = LiveChanges(directory, 2, 64)
    assert later.spec.train.lr != 0.1
    change = later.due(64)
    assert change is not None
    assert change.spec.train.lr == 0.1
    (note,) = directory.changes()
    assert (note["step"], note["attempt"]) == (64, 2)


def test_a_change_that_cannot_be_kept_is_refused_and_forgotten(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    directory = a_run(tmp_path / "run", a_spec("ppo"))
    changes = LiveChanges(directory, 1, 0)

    def full(*_: Any) -> None:
        raise RlctlError("no space left")

    monkeypatch.setattr(RunDir, "write_manifest", full)
    with pytest.raises(RlctlError):
        changes.ask(["train.lr=0.1"])
    monkeypatch.undo()
    assert changes.due(64) is None
    assert directory.changes() == []


def test_a_budget_that_is_used_up_is_refused(tmp_path: Path) -> None:
    changes = LiveChanges(a_run(tmp_path / "run", a_spec("ppo")), 1, 0)
    changes.due(128)
    with pytest.raises(BadInput) as error:
        changes.ask(["train.total_timesteps=128"])
    assert error.value.path == "train.total_timesteps"


def test_orders_that_cannot_be_understood_are_refused(tmp_path: Path) -> None:
    orders = PendingCommands(LiveChanges(a_run(tmp_path / "run", a_spec("ppo")), 1, 0))
    for request in (Request("set", {}), Request("set", {"overrides": [1]}), Request("load", {})):
        with pytest.raises(BadInput):
            orders.handle(request)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_options_that_were_set_are_set_again_at_the_same_step(
    tmp_path: Path, monkeypatch: Patch, algorithm: str
) -> None:
    notes = [a_note(100, lr=0.01), a_note(64, lr=0.02), a_note(128, total_timesteps=320)]
    whole, broken = whole_and_broken(tmp_path, a_spec(algorithm), monkeypatch, *notes)
    assert values_told(whole) == values_told(broken)
    assert values_told(whole)[0] == (64, {"train.lr": 0.02})
    compared = hash_chain.compare(whole, broken)
    assert compared.difference is None
    assert catalog.step_of(Path(catalog.all_names(whole.checkpoints)[-1])) == 320
    plain = a_run(tmp_path / "plain", a_spec(algorithm))
    assert run_attempt(plain, 1) == 0
    assert hash_chain.compare(whole, plain).difference is not None


def test_a_gate_that_is_set_ends_the_training(tmp_path: Path) -> None:
    gate = {"gates.min_return": [None, -1e6], "gates.stability": [True, False]}
    gate |= {"gates.stop_when_solved": [False, True]}
    note = {"attempt": 1, "at": 0.0, "step": 64, "set": gate}
    directory = a_run(tmp_path / "run", a_spec("ppo"), note)
    assert run_attempt(directory, 1) == 0
    assert list(read(directory.events))[-1].step == 128


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_weights_are_loaded_between_iterations_and_again_by_later_attempts(
    tmp_path: Path, algorithm: str
) -> None:
    spec = a_spec(algorithm)
    source = a_run(tmp_path / "source", spec)
    assert run_attempt(source, 1) == 0
    path = source.checkpoints / catalog.all_names(source.checkpoints)[-1]
    directory = a_run(tmp_path / "run", spec)
    told, first = loaded(directory, path, 1, 64, a_learner(spec))
    assert told["step"] == 64
    assert told["parts"] == ["policy", "optimizer"]
    again = LiveChanges(directory, 2, 64).due(64)
    assert again is not None
    learner = a_learner(spec)
    assert [load(learner) for load in again.loads] != []
    same(first, learner)
    assert LiveChanges(directory, 3, 65).due(128) is None


def test_weights_of_another_network_are_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    source = a_run(tmp_path / "source", a_spec("ppo", "agent.network.hidden_sizes=[4]"))
    assert run_attempt(source, 1) == 0
    path = source.checkpoints / catalog.all_names(source.checkpoints)[-1]
    directory, spec = a_run(tmp_path / "run", a_spec("ppo")), a_spec("ppo")
    learner = a_learner(spec)
    before = module_state(learner.policy).tensors
    with pytest.raises(BadInput, match=r"\[8, 4\].*\[4, 4\]"):
        loaded(directory, path, 1, 64, learner)
    after = module_state(learner.policy).tensors
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert directory.changes() == []


def a_learner(spec: Spec) -> Learner:
    return build_learner(setup_of(spec))


def loaded(
    directory: RunDir, path: Path, attempt: int, step: int, learner: Learner
) -> tuple[dict[str, Any], Learner]:
    """The reply to an order to load, and the learner that obeyed it."""
    changes = LiveChanges(directory, attempt, step)
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(changes.load(path))
        except RlctlError as error:
            answers.append(error)

    asker = threading.Thread(target=ask)
    asker.start()
    for load in wait_for(lambda: changes.due(step)).loads:
        load(learner)
    asker.join(PATIENCE_S)
    if isinstance(answers[0], RlctlError):
        raise answers[0]
    return answers[0], learner


def same(one: Learner, other: Learner) -> None:
    pairs = [(module_state(each.policy).tensors, each.state().tensors) for each in (one, other)]
    for left, right in zip(*pairs, strict=True):
        for name, tensor in left.items():
            assert tensor.tobytes() == right[name].tobytes(), name


def wait_for(look: Callable[[], LiveChange | None]) -> LiveChange:
    """The change that another thread is about to ask for."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if (change := look()) is not None:
            return change
        time.sleep(0.001)
    raise AssertionError("nobody asked for a change")
