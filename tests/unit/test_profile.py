"""Where the time of a training goes, and what is advised about it."""

import io
import json
from typing import Any

import numpy as np
import pytest

from rl_orch.core.policies.advice import Advice, advise
from rl_orch.core.policies.profile import profile, refuse_unless_local
from rl_orch.errors import BadInput
from rl_orch.records.profile import Profile
from rl_orch.records.tasks import ProfileTask
from rl_orch.rl.measure import profile as measuring
from rl_orch.rl.measure.profile import BUFFER, ENV, LEARNER, OTHER, POLICY, ProfileLimits, Stopwatch
from rl_orch.rl.policies.policy import policy_tensors
from rl_orch.rl.seeding import seed_all
from rl_orch.rl.train import Training
from rl_orch.spec.kernel_requirements import kernel_requirements
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.worker.task import TELL_EVERY_S, replied, teller
from rl_orch.worker.tasks.profile import answer
from tests.learning.recorder import MemoryOutlet


class Ticks:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def a_spec(*overrides: str) -> Spec:
    """PPO in torch, with small networks and rollouts."""
    document = {
        "env": {"id": "CartPole-v1", "num_envs": 4, "backend": "sync"},
        "agent": {"network": {"hidden_sizes": [8]}},
        "rollout": {"steps": 16},
        "train": {"batch_size": 32, "update_epochs": 2, "engine": "torch"},
    }
    return resolve(document, overrides=overrides)


def replayed(*overrides: str) -> Spec:
    """SAC in torch, an update every step."""
    document = {
        "env": {"id": "Pendulum-v1", "backend": "sync"},
        "agent": {"algorithm": "sac", "network": {"hidden_sizes": [8]}},
        "train": {"batch_size": 8, "learning_starts": 50_000, "engine": "torch"},
    }
    return resolve(document, overrides=overrides)


def silent(_doing: str, _done: float) -> None:
    """Hears everything and says nothing."""


def test_time_is_that_of_one_part_alone() -> None:
    clock = Ticks()
    stopwatch = Stopwatch(clock)
    inner = stopwatch.timed(POLICY, lambda: clock.wait(2.0))

    def outer() -> None:
        clock.wait(3.0)
        inner()
        clock.wait(5.0)

    clock.wait(1.0)
    stopwatch.timed(LEARNER, outer)()
    stopwatch.turn_to(OTHER)
    assert stopwatch.seconds == {OTHER: 1.0, LEARNER: 8.0, POLICY: 2.0}


def test_an_error_gives_the_time_back_to_the_caller() -> None:
    clock = Ticks()
    stopwatch = Stopwatch(clock)

    def fail() -> None:
        clock.wait(2.0)
        raise KeyError

    with pytest.raises(KeyError):
        stopwatch.timed(ENV, fail)()
    clock.wait(3.0)
    stopwatch.turn_to(OTHER)
    assert stopwatch.seconds == {OTHER: 3.0, ENV: 2.0}


def test_what_was_before_a_restart_is_forgotten() -> None:
    clock = Ticks()
    stopwatch = Stopwatch(clock)
    clock.wait(4.0)
    stopwatch.restart()
    clock.wait(1.0)
    stopwatch.turn_to(OTHER)
    assert stopwatch.seconds == {OTHER: 1.0}


@pytest.mark.parametrize(
    ("limits", "seconds", "steps", "done"),
    [
        (ProfileLimits(seconds=10.0), 2.5, 10**6, 0.25),
        (ProfileLimits(steps=100), 10**6, 25, 0.25),
        (ProfileLimits(seconds=10.0, steps=100), 1.0, 50, 0.5),
        (ProfileLimits(seconds=10.0, steps=100), 11.0, 50, 1.0),
    ],
)
def test_the_limit_that_is_reached_first_counts(
    limits: ProfileLimits, seconds: float, steps: int, done: float
) -> None:
    assert limits.progress(seconds, steps) == done


def test_the_parts_of_a_training_add_up_to_all_of_it() -> None:
    said: list[tuple[str, float]] = []
    times = measuring.profile(a_spec(), ProfileLimits(steps=200), lambda *told: said.append(told))
    assert [*times.parts] == [ENV, POLICY, LEARNER, OTHER]
    assert all(seconds > 0.0 for seconds in times.parts.values())
    assert sum(times.parts.values()) == pytest.approx(times.seconds)
    assert times.steps == 256  # Rollouts of 64 are whole.
    assert times.warm_up.steps == 64
    assert times.warm_up.compiling_s == 0.0
    assert not times.apart
    assert [*dict(said)] == ["preparing", "warming up", "measuring"]


def test_of_learners_with_a_buffer_that_is_a_part_and_learning_begins_soon() -> None:
    times = measuring.profile(replayed(), ProfileLimits(steps=50), silent)
    assert [*times.parts] == [ENV, POLICY, BUFFER, LEARNER, OTHER]
    assert times.parts[BUFFER] > 0.0
    assert 1000 < times.warm_up.steps < 1010


def test_a_learner_that_never_says_anything_is_measured_all_the_same() -> None:
    silenced = replayed().changed({"train.gradient_steps": 0})
    times = measuring.profile(silenced, ProfileLimits(steps=20), silent)
    assert times.steps == 20


def test_seconds_limit_the_measurement() -> None:
    times = measuring.profile(a_spec(), ProfileLimits(seconds=0.3), silent)
    assert 0.3 <= times.seconds < 10.0


def test_a_training_that_is_watched_learns_the_same() -> None:
    def learned(*, watched: bool) -> dict[str, Any]:
        spec = a_spec()
        seed_all(spec.env.seed)
        stopwatch = Stopwatch()
        training = measuring._made(spec, stopwatch) if watched else Training(spec, MemoryOutlet())
        for _ in range(3):
            training.train_step()
        training.close()
        return policy_tensors(training.policy)

    plain, watched = learned(watched=False), learned(watched=True)
    assert [*plain] == [*watched]
    for name, tensor in plain.items():
        np.testing.assert_array_equal(tensor, watched[name])


def test_stepping_in_one_call_is_told_apart_from_deciding() -> None:
    parts = {ENV: 1.0, "together": 5.0, OTHER: 1.0}
    measuring._tell_apart(parts, 2.0)
    assert parts == {ENV: 3.0, POLICY: 3.0, OTHER: 1.0}


def test_stepping_alone_never_takes_more_than_both_did() -> None:
    parts = {"together": 5.0}
    measuring._tell_apart(parts, 9.0)
    assert parts == {ENV: 5.0, POLICY: 0.0}


def test_torch_decides_step_by_step_also_where_environments_are_native() -> None:
    times = measuring.profile(a_spec("env.backend=native"), ProfileLimits(steps=64), silent)
    assert times.backend.value == "native"
    assert not times.apart
    assert times.parts[ENV] > 0.0
    assert times.parts[POLICY] > 0.0


def test_backends_that_step_all_copies_at_once_are_found_by_making_them() -> None:
    assert "vector" in measuring.profile(a_spec(), ProfileLimits(steps=1), silent).at_once
    assert "vector" not in measuring.profile(replayed(), ProfileLimits(steps=1), silent).at_once


def test_what_trains_and_steps_is_told_with_what_stands_against_kernels() -> None:
    times = measuring.profile(
        a_spec("agent.network.activation=elu", "env.kwargs={sutton_barto_reward: true}"),
        ProfileLimits(steps=1),
        silent,
    )
    assert times.engine.value == "torch"
    assert times.engine.why_not == "agent.network.activation is 'elu', not tanh or relu"
    assert times.engine.mendable
    assert times.backend.value == "sync"
    assert times.backend.why_not is not None
    assert times.backend.why_not.startswith("env.kwargs is")
    assert times.observations == ("vector",)


def test_the_worker_answers_what_was_found() -> None:
    found = answer(ProfileTask(spec=a_spec(), steps=64), silent)
    assert found.steps == 64
    assert found.share(*found.parts) == pytest.approx(1.0)
    assert found.ms_per_1000_steps(ENV) == pytest.approx(1e6 * found.parts[ENV] / 64)


def test_the_worker_tells_of_errors_and_whose_they_are() -> None:
    spec = a_spec().model_dump(mode="json")
    spec["env"]["id"] = "Acrobot-v1"
    spec["env"]["backend"] = "native"
    spec["env"]["kwargs"] = {"render_mode": "rgb_array"}
    told = replied(answer, ProfileTask.model_validate({"spec": spec, "steps": 1}), silent)
    assert told["error"]["code"] == "bad_input"
    assert told["error"]["path"] == "env.backend"


def test_progress_is_told_a_few_times_a_second_and_whenever_something_else_begins() -> None:
    lines, clock = io.StringIO(), Ticks()
    tell = teller(lines, clock)
    tell("preparing", 0.0)
    tell("measuring", 0.0)
    tell("measuring", 0.1)
    clock.wait(TELL_EVERY_S)
    tell("measuring", 0.2)
    told = [json.loads(line) for line in lines.getvalue().split("\n") if line]
    assert [(each["doing"], each["done"]) for each in told] == [
        ("preparing", 0.0),
        ("measuring", 0.0),
        ("measuring", 0.2),
    ]


def test_a_program_of_ones_own_is_not_profiled() -> None:
    spec = resolve(
        {"env": {"id": "X-v0"}, "runner": {"name": "external", "command": ["python", "x.py"]}}
    )
    with pytest.raises(BadInput, match=r"runner\.name is 'external'.*must be 'local'"):
        refuse_unless_local(spec)


def test_an_error_of_the_child_is_one_of_ours() -> None:
    spec = a_spec("env.backend=native", "env.kwargs={sutton_barto_reward: true}")
    with pytest.raises(BadInput, match=r"env\.backend is 'native', but env\.kwargs is"):
        profile(spec, seconds=None, steps=1, watch=silent)


@pytest.mark.parametrize(
    ("overrides", "needed"),
    [
        ((), {}),
        (("agent.network.activation=elu",), {"agent.network.activation": "relu"}),
        (
            ("agent.network.activation=elu", "train.precision=bfloat16"),
            {"agent.network.activation": "relu", "train.precision": "float32"},
        ),
        (("feature.encoder=gru", "agent.network.activation=elu"), {}),
    ],
)
def test_only_what_stands_against_kernels_is_to_be_mended(
    overrides: tuple[str, ...], needed: dict[str, Any]
) -> None:
    assert kernel_requirements(a_spec(*overrides)) == needed


def found(
    engine: str = "kernels", backend: str = "native", *, steps: int = 1000, **options: Any
) -> Profile:
    """A profile of a second; parts are shares, the rest is the learner's."""
    names = ("env", "policy", "buffer", "other")
    parts = {name: options.pop(name) for name in names if name in options}
    parts.setdefault("env", 0.0)
    document = {
        "engine": {"value": engine, "why_not": options.pop("why_not", None), "mendable": True},
        "backend": {"value": backend, "why_not": options.pop("why_not_native", None)},
        "observations": ["vector"],
        "warm_up": {"steps": 1, "seconds": 1.0, "compiling_s": 0.0},
        "steps": steps,
        "seconds": 1.0,
        "parts": parts | {"learner": 1.0 - sum(parts.values())},
        "apart": False,
        "at_once": [],
    }
    return Profile.model_validate(document | options)


def changes(spec: Spec, seen: Profile, *, cores: int = 1, gpus: int = 0) -> list[str | None]:
    return [advice.change for advice in advise(spec, seen, cores=cores, gpus=gpus)]


def test_kernels_are_advised_where_they_can_train_and_torch_does() -> None:
    spec = a_spec("train.batch_size=64", "train.update_epochs=1")
    assert changes(spec, found("torch")) == ["train.engine=kernels"]
    assert changes(spec, found("kernels")) == []
    assert changes(spec, found("torch", env=0.9)) == []


def test_what_stands_against_kernels_is_advised_to_be_changed_where_that_is_enough() -> None:
    spec = a_spec("train.batch_size=64", "train.update_epochs=1", "agent.network.activation=elu")
    blocked = found("torch", why_not="agent.network.activation is 'elu', not tanh or relu")
    [advice] = advise(spec, blocked, cores=1, gpus=0)
    assert "because agent.network.activation is 'elu'" in advice.text
    assert advice.change == "agent.network.activation=relu train.engine=kernels"
    for_good = blocked.model_copy(
        update={"engine": blocked.engine.model_copy(update={"mendable": False})}
    )
    assert advise(spec, for_good, cores=1, gpus=0) == []


def test_native_environments_are_advised_where_they_exist() -> None:
    spec = a_spec()
    assert changes(spec, found(backend="sync", env=0.4)) == ["env.backend=native"]
    assert changes(spec, found(backend="sync", env=0.05, policy=0.2, other=0.1)) == []


def test_processes_are_advised_for_long_steps_and_against_for_short_ones() -> None:
    spec, why = a_spec(), "env.id is 'X-v0'"

    def at(steps: int, backend: str = "sync", cores: int = 2) -> list[str | None]:
        seen = found(backend=backend, env=0.9, steps=steps, why_not_native=why)
        return changes(spec, seen, cores=cores)

    assert at(100) == ["env.backend=async"]
    assert at(100, cores=1) == [None]
    assert at(100_000) == [None]
    assert at(100_000, backend="async") == ["env.backend=sync"]


def test_backends_that_step_all_copies_at_once_are_advised_where_stepping_takes_long() -> None:
    options: dict[str, Any] = {"why_not_native": "env.id is 'X-v0'", "at_once": ["envpool"]}
    assert changes(a_spec(), found(backend="sync", env=0.6, steps=10**5, **options)) == [
        "env.backend=envpool"
    ]
    assert changes(a_spec(), found(backend="sync", env=0.4, steps=10**5, **options)) == []


def test_more_copies_are_advised_where_deciding_takes_long_step_by_step() -> None:
    seen = found(policy=0.4, env=0.3)
    assert changes(a_spec(), seen) == ["env.num_envs=16"]
    assert changes(a_spec(), seen.model_copy(update={"apart": True})) == []
    assert changes(a_spec("env.num_envs=32"), seen) == []


def test_larger_minibatches_are_advised_in_torch_alone_and_as_far_as_a_rollout_goes() -> None:
    why = "observations are not a single vector"
    seen = found("torch", policy=0.4, why_not=why).model_copy(
        update={"parts": {"env": 0.2, "policy": 0.2, "learner": 0.6}}
    )
    assert changes(a_spec("train.batch_size=8"), seen) == ["train.batch_size=32"]
    assert changes(a_spec("train.batch_size=32"), seen) == ["train.batch_size=64"]
    assert changes(a_spec("train.batch_size=64"), seen) == []


def test_a_change_that_the_spec_does_not_allow_is_not_advised() -> None:
    """4 × 20 does not divide a rollout of 100 steps."""
    seen = found("torch", why_not="x").model_copy(
        update={
            "parts": {"env": 0.2, "policy": 0.2, "learner": 0.6},
            "engine": found("torch", why_not="x").engine.model_copy(update={"mendable": False}),
        }
    )
    odd = a_spec("env.num_envs=1", "rollout.steps=100", "train.batch_size=20")
    assert changes(odd, seen) == []


def test_drawing_uniformly_is_advised_where_priorities_take_long() -> None:
    seen = found(env=0.3, buffer=0.3)
    assert "buffer.prioritized=false" in changes(replayed("buffer.prioritized=true"), seen)
    assert "buffer.prioritized=false" not in changes(replayed(), seen)


def test_larger_rollouts_are_advised_where_bookkeeping_follows_each_step() -> None:
    seen = found(env=0.4, buffer=0.1, other=0.2)
    assert changes(replayed(), seen) == ["rollout.steps=10 train.gradient_steps=10"]
    assert changes(replayed("train.gradient_steps=-1"), seen) == ["rollout.steps=10"]
    assert changes(replayed("rollout.steps=32"), seen) == []


def test_another_number_of_threads_is_advised_to_be_tried() -> None:
    seen = found(env=0.4)
    wide = replayed("agent.algorithm=sac", "agent.network.hidden_sizes=[256]")
    assert "resources.threads=2" in changes(wide, seen, cores=2)
    assert "resources.threads=2" not in changes(wide, seen, cores=1)
    both = replayed(
        "agent.algorithm=sac", "agent.network.hidden_sizes=[256]", "resources.threads=2"
    )
    narrow = replayed(
        "agent.algorithm=sac", "agent.network.hidden_sizes=[8]", "resources.threads=2"
    )
    assert "resources.threads=1" not in changes(both, seen, cores=2)
    assert "resources.threads=1" in changes(narrow, seen, cores=2)


def test_threads_are_not_advised_where_kernels_take_one() -> None:
    wide = a_spec("agent.network.hidden_sizes=[256]")
    assert changes(wide, found(env=0.4), cores=2) == ["rollout.overlap=true"]


def test_a_gpu_is_advised_where_there_is_one_and_images_are_seen() -> None:
    seen = found("torch", env=0.4, why_not="x", observations=["image"])
    blocked = seen.model_copy(update={"engine": seen.engine.model_copy(update={"mendable": False})})
    spec = a_spec("train.batch_size=64")
    assert changes(spec, blocked, gpus=1) == ["resources.device=cuda"]
    assert changes(spec, blocked) == []


def test_fewer_updates_are_a_choice_where_they_take_nearly_all() -> None:
    assert advise(a_spec("train.update_epochs=10"), found(), cores=1, gpus=0) == [
        Advice(
            "Learning takes 100 %, in 10 passes over each rollout. Half as many: about 2.0 times "
            "as fast, and less is learned from each step.",
            "train.update_epochs=5",
        )
    ]
    [advice] = advise(replayed(), found(buffer=0.1), cores=1, gpus=0)
    assert "with 1 update every step." in advice.text
    assert advice.change == "rollout.steps=2"


def test_collecting_while_learning_is_advised_where_both_take_long() -> None:
    spec = a_spec("train.update_epochs=1", "env.num_envs=32")
    both = found(backend="sync", why_not="none", env=0.5)
    assert "rollout.overlap=true" in changes(spec, both, cores=2)
    assert "rollout.overlap=true" not in changes(spec, both, cores=1)
    assert "rollout.overlap=true" not in changes(replayed(), both, cores=2)
    assert "rollout.overlap=true" not in changes(spec, found(backend="sync", env=0.9), cores=2)
    already = a_spec("rollout.overlap=true")
    assert "rollout.overlap=true" not in changes(already, both, cores=2)
