"""Options that change while a run goes on: which may, from which step on, and again when it is
resumed."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_orch import plugins
from rl_orch.core.resume_certificate import planned
from rl_orch.errors import BadInput, Conflict, Damaged, RlctlError, SpecInvalid
from rl_orch.io.checkpoints import catalog, checkpoint_files, hash_chain
from rl_orch.io.run.command_socket import Request
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import fold, read
from rl_orch.rl.algos.a2c import A2C
from rl_orch.rl.learn.learner import Learner, build_learner
from rl_orch.rl.policies.policy import TENSOR_PREFIX, module_state, policy_tensors
from rl_orch.rl.train import Training
from rl_orch.rl.training_recorder import LiveChange
from rl_orch.spec import live
from rl_orch.spec.algorithms import Traits
from rl_orch.spec.model import Spec
from rl_orch.spec.options import table
from rl_orch.spec.resolve import resolve
from rl_orch.worker.attempt.commands import PendingCommands
from rl_orch.worker.attempt.live_changes import LiveChanges
from rl_orch.worker.checks import warm_start
from rl_orch.worker.policies.load import from_checkpoint, setup_of
from rl_orch.worker.train import run_attempt
from tests.integration.conftest import until
from tests.waiting import PATIENCE_S

Patch = pytest.MonkeyPatch

ALGORITHMS = {
    "ppo": ("CartPole-v1", ["rollout.steps=32", "train.batch_size=32", "env.num_envs=2"]),
    "a2c": ("CartPole-v1", ["rollout.steps=32", "env.num_envs=2", "train.engine=torch"]),
    "dqn": ("CartPole-v1", ["rollout.steps=32", "train.target_update_interval=32"]),
    "qrdqn": ("CartPole-v1", ["rollout.steps=32", "train.n_quantiles=5", "train.engine=torch"]),
    "sac": ("Pendulum-v1", ["rollout.steps=32", "train.engine=torch"]),
    "td3": ("Pendulum-v1", ["rollout.steps=32", "train.engine=torch"]),
    "crossq": ("Pendulum-v1", ["rollout.steps=32", "agent.network.critic_hidden_sizes=[8]"]),
    "tqc": ("Pendulum-v1", ["rollout.steps=32", "train.n_quantiles=5", "train.engine=torch"]),
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


def test_an_option_that_is_not_live_is_told_so_whatever_goes_with_its_value() -> None:
    with pytest.raises(BadInput) as error:
        live.change(a_spec("ppo"), ["env.num_envs=3"])
    assert error.value.path == "env.num_envs"
    with pytest.raises(BadInput) as error:
        live.change(a_spec("sac"), ["train.clip_range=0.1"])
    assert "train.clip_range" not in str(error.value.hint)
    assert "train.lr" in str(error.value.hint)


def test_a_budget_is_refused_with_the_step_that_the_run_is_at(tmp_path: Path) -> None:
    changes = LiveChanges(a_run(tmp_path / "run", a_spec("ppo")), 1, 0)
    for step in (64, 128, 192):
        changes.due(step)
    with pytest.raises(BadInput, match="step 192"):
        changes.ask(["train.total_timesteps=192"])


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


def test_a_budget_that_is_set_in_the_last_iteration_counts(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    note = a_note(256, total_timesteps=320)
    whole, broken = whole_and_broken(tmp_path, a_spec("ppo"), monkeypatch, note)
    assert catalog.step_of(Path(catalog.all_names(whole.checkpoints)[-1])) == 320
    assert hash_chain.compare(whole, broken).difference is None


def test_who_comes_after_the_last_iteration_is_told_so(tmp_path: Path) -> None:
    directory = a_run(tmp_path / "run", a_spec("ppo"))
    changes, refusals = LiveChanges(directory, 1, 0), list[RlctlError]()

    def ask() -> None:
        try:
            changes.ask(["train.lr=0.1"])
        except RlctlError as error:
            refusals.append(error)

    asker = threading.Thread(target=ask)
    with changes._turn:  # It asks in time, and no iteration begins.
        asker.start()
    until(directory.changes)
    changes.end()
    asker.join(PATIENCE_S)
    ask()
    assert [type(refusal) for refusal in refusals] == [Conflict, Conflict]
    assert directory.changes() == []


class Readable(A2C):
    """An algorithm of somebody else, which may go on at another learning rate."""

    traits: Any = Traits(False, ("Discrete",), reads=frozenset({"train.lr"}))


class Rigid(Readable):
    """One that may not."""

    reconfigure: Any = None


@pytest.mark.parametrize("kind", [Readable, Rigid])
def test_a_plugin_says_what_may_change_and_what_cannot_is_never_passed_over(
    tmp_path: Path, kind: type[Readable]
) -> None:
    with plugins.provided("algorithms", "mine", kind):
        spec = a_spec("a2c", "agent.algorithm=mine")
        changes = LiveChanges(a_run(tmp_path / "run", spec), 1, 0)
        asked = [["train.gae_lambda=0.5"], ["train.lr=0.1"]]
        for overrides in asked[: 1 if kind is Readable else 2]:
            with pytest.raises(BadInput):
                changes.ask(overrides)
        planned = a_run(tmp_path / "planned", spec, a_note(64, lr=0.01))
        code = run_attempt(planned, 1)
        assert code == (0 if kind is Readable else BadInput.exit_code)
        assert len(values_told(planned)) == (kind is Readable)


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


def test_a_run_that_is_paused_or_just_loads_takes_no_other_weights(tmp_path: Path) -> None:
    source = a_run(tmp_path / "source", a_spec("ppo"))
    assert run_attempt(source, 1) == 0
    path = source.checkpoints / catalog.all_names(source.checkpoints)[-1]
    changes = LiveChanges(a_run(tmp_path / "run", a_spec("ppo")), 1, 0)
    orders, order = PendingCommands(changes), Request("load", {"source": str(path)})
    orders.give("pause")
    with pytest.raises(Conflict):
        orders.handle(order)
    orders.give("unpause")
    answers: list[dict[str, Any]] = []

    def ask() -> None:
        with suppress(NotYet):
            answers.append(orders.handle(order))

    one, other = (threading.Thread(target=ask) for _ in range(2))
    one.start()
    until(lambda: changes._load is not None)
    with pytest.raises(Conflict):
        orders.handle(order)
    taken = changes._load
    assert taken is not None
    changes.due(64)
    other.start()
    until(lambda: changes._load is not None)
    taken.answer.set_exception(NotYet())  # Its time is over, and that of the other is not.
    one.join(PATIENCE_S)
    change = changes.due(128)
    assert change is not None
    for load in change.loads:
        load(a_learner(a_spec("ppo")))
    other.join(PATIENCE_S)
    assert [answer["step"] for answer in answers] == [128]


@pytest.mark.parametrize("step", [-5, 256])
def test_a_step_that_no_training_comes_to_is_not_certified(step: int) -> None:
    assert planned(a_spec("ppo"), [(0, "train.lr=1")])[0]["step"] == 0
    with pytest.raises(BadInput, match=f"step {step}"):
        planned(a_spec("ppo"), [(step, "train.lr=1")])


@pytest.mark.parametrize("number", [np.nan, -np.inf, 3e38])
def test_weights_that_are_not_finite_are_refused_and_nobody_plays_them(
    tmp_path: Path, number: float
) -> None:
    spec = a_spec("ppo")
    source, directory = (a_run(tmp_path / name, spec) for name in ("source", "run"))
    learner = a_learner(spec)
    spoiled = policy_tensors(learner.policy)
    name = next(iter(spoiled))
    spoiled[name].flat[0] = number
    meta = {"run_id": "run", "attempt": 1}
    root = source.checkpoints
    path = checkpoint_files.save(root, step=5, tensors=spoiled, document={}, meta=meta)
    with pytest.raises(BadInput, match=name):
        loaded(directory, path, 1, 64, learner)
    assert directory.changes() == []
    begins = spec.changed({"start.from": str(path)})
    assert [problem.path for problem in warm_start.problems(begins)] == ["start.from"]
    with pytest.raises(Damaged, match=name.removeprefix(TENSOR_PREFIX)):
        from_checkpoint(spec, path)


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
