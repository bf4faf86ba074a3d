"""The loop: what it says and saves, when, and that a seed decides all of it."""

import json
from typing import Any

import numpy as np
import pytest

from rl_orch.errors import Diverged
from rl_orch.records import Clock, EventKind
from rl_orch.rl.compile_time import CompileTimer
from rl_orch.rl.evaluate import evaluate, evaluation_seed
from rl_orch.rl.learn.learner import load_policy
from rl_orch.rl.policies.policy import Setup
from rl_orch.rl.snapshot import Resumption
from rl_orch.rl.train import Outcome, Training, train
from rl_orch.rl.training_recorder import TrainingCommand, TrainingRecorder
from rl_orch.spec.algorithms import BUILT_IN
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.testing import FakeClock
from tests.learning import known_envs
from tests.learning.recorder import MemoryOutlet, Said


def a_spec(**groups: Any) -> Spec:
    """Six rollouts of 64 steps; evaluations at 128, 256 and the end."""
    document: dict[str, Any] = {
        "env": {"id": "CartPole-v1", "num_envs": 4, "seed": 1},
        "agent": {"network": {"hidden_sizes": [8]}},
        "rollout": {"steps": 16},
        "train": {"total_timesteps": 384, "batch_size": 32, "update_epochs": 2},
        "eval": {"every": 128, "episodes": 3},
    }
    return Spec.model_validate(
        document | {name: document.get(name, {}) | options for name, options in groups.items()}
    )


def trained(spec: Spec, *commands: TrainingCommand | None) -> tuple[Outcome, MemoryOutlet]:
    recorder = MemoryOutlet(commands)
    return train(spec, recorder), recorder


def told(recorder: MemoryOutlet) -> list[Said]:
    """What was said but for readings of the clock."""
    return [event for event in recorder.events if event.kind is not EventKind.LOG]


def test_training_ends_with_its_budget() -> None:
    outcome, _ = trained(a_spec())
    assert outcome == Outcome(
        "budget", Clock("env_steps", 384), "trained for its budget of 384 steps"
    )


def test_rollouts_are_whole_and_the_last_may_pass_the_budget() -> None:
    outcome, recorder = trained(a_spec(train={"total_timesteps": 100}))
    assert outcome.clock.value == 128
    assert [snapshot.step for snapshot, _ in recorder.saved] == [128]


def test_evaluations_come_at_the_first_boundary_past_each_multiple_and_at_the_end() -> None:
    _, recorder = trained(a_spec(eval={"every": 100}))
    assert [event.step for event in recorder.of(EventKind.EVAL)] == [128, 256, 320, 384]
    _, recorder = trained(a_spec(eval={"every": 10**6}))
    assert [event.step for event in recorder.of(EventKind.EVAL)] == [384]


def test_an_evaluation_is_told_and_saved_with_its_report() -> None:
    _, recorder = trained(a_spec())
    for (snapshot, report), event in zip(recorder.saved, recorder.of(EventKind.EVAL), strict=True):
        assert report is not None
        assert event.key == "eval/mean_return"
        assert event.value == report.summary.mean
        summary = report.summary.model_dump(mode="json")
        assert event.tags == {"summary": summary, "mean_length": report.mean_length}
        assert event.step == snapshot.step == report.step


def test_checkpoints_come_between_evaluations_without_a_report() -> None:
    _, recorder = trained(a_spec(checkpoint={"every": 64}))
    saved = [(snapshot.step, report is not None) for snapshot, report in recorder.saved]
    assert saved == [(64, False), (128, True), (192, False), (256, True), (320, False), (384, True)]


def test_every_iteration_tells_its_metrics_and_its_speed() -> None:
    recorder, clock = MemoryOutlet(), FakeClock()
    training = Training(a_spec(), recorder, clock=clock)
    learn = training.learner.update

    def slowly(batch: Any) -> dict[str, float]:
        clock.advance(2.0)
        return learn(batch)

    training.learner.update = slowly  # type: ignore[method-assign]
    metrics = training.train_step()
    training.close()
    assert {e.key: e.value for e in recorder.of(EventKind.METRIC)} == metrics
    assert [(e.key, e.value, e.step) for e in recorder.of(EventKind.LOG)] == [
        ("charts/SPS", 32.0, 64)
    ]


def test_reports_come_at_their_interval_and_are_means_of_losses_and_the_last_of_charts() -> None:
    spec = a_spec(train={"report_every": 128, "lr_schedule": "linear"})
    recorder, said = MemoryOutlet(), list[dict[str, float]]()
    training = Training(spec, recorder)
    for _ in range(4):
        said.append(training.train_step())
    training.close()
    steps = sorted({event.step for event in recorder.of(EventKind.METRIC)})
    assert steps == [event.step for event in recorder.of(EventKind.LOG)] == [128, 256]
    for step, pair in zip(steps, (said[:2], said[2:]), strict=True):
        told = {e.key: e.value for e in recorder.of(EventKind.METRIC) if e.step == step}
        assert told.keys() == pair[0].keys()
        for key, value in told.items():
            last, mean = pair[1][key], (pair[0][key] + pair[1][key]) / 2
            assert value == (last if key.startswith("charts/") else pytest.approx(mean)), key
    assert said[0]["charts/learning_rate"] != said[1]["charts/learning_rate"]


def test_what_was_not_reported_yet_outlives_a_resume() -> None:
    spec = a_spec(train={"report_every": 192}, eval={"every": 128})
    whole, rest = MemoryOutlet(), MemoryOutlet()
    train(spec, whole)
    train(spec, rest, resumption=Resumption(*whole.saved[0]))
    reports = whole.saved[0][0].document["trainer_state"]["reports"]
    assert reports["losses/value_loss"][1] == 2
    assert told(rest) == [event for event in told(whole) if event.step > 128]


def test_nothing_is_reported_while_nothing_is_learned() -> None:
    spec = replayed(train={"learning_starts": 64, "report_every": 16})
    recorder = MemoryOutlet()
    train(spec, recorder)
    assert {event.step for event in recorder.of(EventKind.METRIC)} == {64, 80, 96, 112, 128}
    assert [event.step for event in recorder.of(EventKind.LOG)] == [*range(16, 129, 16)]


def replayed(**groups: Any) -> Spec:
    """A training from a replay buffer; evaluations at 64 and the end."""
    small: dict[str, Any] = {
        "env": {"id": "CartPole-v1", "num_envs": 2, "seed": 1},
        "agent": {"algorithm": "dqn", "network": {"hidden_sizes": [8]}},
        "rollout": {"steps": 4},
        "train": {"total_timesteps": 128, "batch_size": 8, "learning_starts": 16},
        "buffer": {"size": 100},
        "eval": {"every": 64, "episodes": 2},
    }
    return resolve(
        small | {name: small.get(name, {}) | options for name, options in groups.items()}
    )


def test_a_replay_buffer_is_handed_over_before_each_snapshot_and_named_by_it() -> None:
    recorder = MemoryOutlet()
    train(replayed(), recorder)
    (first, _), (last, _) = recorder.saved
    assert len(first.segments) == 1
    assert {*first.segments, *last.segments} <= {*recorder.segments}
    assert first.document["replay_meta"]["size"] > 0
    assert last.document["replay_meta"]["size"] > first.document["replay_meta"]["size"]
    assert not any(name.startswith("replay/frames") for name in last.tensors)


def test_experience_is_handed_over_in_between_where_there_is_much_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seldom, often = MemoryOutlet(), MemoryOutlet()
    train(replayed(), seldom)
    monkeypatch.setattr("rl_orch.rl.train.SEGMENT_BYTES", 1000)
    train(replayed(), often)
    assert len(often.segments) > len(seldom.segments) == 2
    assert told(often) == told(seldom)


@pytest.mark.parametrize("algo", ["dqn", "qrdqn", "sac", "td3", "tqc", "crossq"])
def test_a_training_from_a_replay_buffer_goes_on_as_if_it_had_never_stopped(algo: str) -> None:
    env = {"id": "Pendulum-v1" if BUILT_IN[algo].bounded_actions else "CartPole-v1"}
    spec = replayed(
        env={"num_envs": 2, "seed": 1, "max_episode_steps": 20} | env,
        agent={"algorithm": algo, "network": {"hidden_sizes": [8]}},
        obs={"normalize": "running"},
    )
    whole, rest = MemoryOutlet(), MemoryOutlet()
    train(spec, whole)
    train(spec, rest, resumption=Resumption(*whole.saved[0], whole.read))
    assert told(rest) == [event for event in told(whole) if event.step > 64]
    (one, _), (other, _) = whole.saved[-1], rest.saved[-1]
    assert one.document == other.document
    assert one.tensors.keys() == other.tensors.keys()
    for name, tensor in one.tensors.items():
        assert tensor.tobytes() == other.tensors[name].tobytes(), name


def test_a_policy_with_a_memory_goes_on_as_if_it_had_never_stopped() -> None:
    spec = a_spec(
        env={"id": f"{known_envs.MODULE}:Masked-v0"},
        feature={"encoder": "lstm", "embed_dim": 8},
        agent={"network": {"hidden_sizes": [8]}, "action_masks": True},
        train={"batch_size": 32, "total_timesteps": 256, "normalize_reward": True},
    )
    whole, rest = MemoryOutlet(), MemoryOutlet()
    train(spec, whole)
    train(spec, rest, resumption=Resumption(*whole.saved[0]))
    assert told(rest) == [event for event in told(whole) if event.step > 128]
    (one, _), (other, _) = whole.saved[-1], rest.saved[-1]
    assert {"collector/memory", "collector/masks", "rewards/sums"} <= {*one.tensors}
    assert all(np.array_equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items())


def test_episodes_are_told_at_the_step_they_ended_with_length_and_copy() -> None:
    _, recorder = trained(a_spec())
    episodes = recorder.of(EventKind.EPISODE)
    assert len(episodes) > 5
    assert all(event.key == "charts/episodic_return" for event in episodes)
    assert all(event.tags and event.tags["length"] == event.value for event in episodes)
    assert [event.step for event in episodes] == sorted(event.step for event in episodes)
    assert all(event.step % 4 == 0 for event in episodes)


@pytest.mark.parametrize("env_id", ["CartPole-v1", f"{known_envs.MODULE}:Dice-v0"])
def test_a_seed_decides_every_event_and_every_tensor(env_id: str) -> None:
    spec = a_spec(env={"id": env_id}, obs={"normalize": "running"})
    (first_outcome, first), (second_outcome, second) = trained(spec), trained(spec)
    assert first_outcome == second_outcome
    assert told(first) == told(second)
    for (before, _), (after, _) in zip(first.saved, second.saved, strict=True):
        assert before.document == after.document
        assert before.tensors.keys() == after.tensors.keys()
        assert all(np.array_equal(before.tensors[k], after.tensors[k]) for k in before.tensors)
    _, other = trained(a_spec(env={"id": env_id, "seed": 2}, obs={"normalize": "running"}))
    assert told(other) != told(first)


def test_how_often_is_evaluated_does_not_change_what_is_learned() -> None:
    spec = {"env": {"id": f"{known_envs.MODULE}:Dice-v0"}}
    (_, often), (_, seldom) = trained(a_spec(eval={"every": 64}, **spec)), trained(a_spec(**spec))
    first, second = often.saved[-1][0].tensors, seldom.saved[-1][0].tensors
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_a_snapshot_is_json_and_arrays_and_names_its_parts() -> None:
    _, recorder = trained(a_spec(obs={"normalize": "running"}))
    snapshot, _ = recorder.saved[-1]
    document = json.loads(json.dumps(snapshot.document, allow_nan=False))
    assert document == snapshot.document
    assert set(document) == {"trainer_state", "replay_meta", "rng_state"}
    assert document["trainer_state"]["collector"]["env_steps"] == 384
    assert document["replay_meta"] == {"size": 0, "segments": []}
    assert set(document["rng_state"]) == {"python", "numpy"}
    roots = {name.partition("/")[0] for name in snapshot.tensors}
    assert roots == {"policies", "optimizer", "rng", "collector", "envs"}
    rng = {name for name in snapshot.tensors if name.startswith("rng/")}
    assert rng == {"rng/torch", "rng/actions", "rng/minibatches"}


def test_what_was_saved_is_what_was_evaluated() -> None:
    spec = a_spec(obs={"normalize": "running"})
    recorder = MemoryOutlet()
    training = Training(spec, recorder)
    training.run()
    policy = training.policy
    setup = Setup(spec, policy.observation_space, policy.action_space)
    for snapshot, report in recorder.saved:
        again = evaluate(
            load_policy(setup, snapshot.tensors),
            spec,
            episodes=3,
            seed=evaluation_seed(spec),
            deterministic=True,
            step=snapshot.step,
        )
        assert again.model_copy(update={"env_steps": snapshot.step}) == report
    training.close()


def test_stop_saves_a_last_snapshot_and_ends() -> None:
    outcome, recorder = trained(a_spec(), None, "stop")
    assert outcome == Outcome(
        "stopped", Clock("env_steps", 64), "asked to end at step 64; a last checkpoint is saved"
    )
    assert [(snapshot.step, report) for snapshot, report in recorder.saved] == [(64, None)]


def test_stop_right_after_an_evaluation_keeps_the_report() -> None:
    _, recorder = trained(a_spec(), None, None, "stop")
    assert [(snapshot.step, report is not None) for snapshot, report in recorder.saved] == [
        (128, True)
    ]


def test_checkpoint_saves_now_and_goes_on() -> None:
    outcome, recorder = trained(a_spec(), None, "checkpoint")
    assert outcome.reason == "budget"
    assert [snapshot.step for snapshot, _ in recorder.saved] == [64, 128, 256, 384]


def test_training_stops_when_solved() -> None:
    gates = {"min_return": 1.0, "stop_when_solved": True, "stability": False}
    outcome, _ = trained(a_spec(gates=gates))
    assert outcome == Outcome("solved", Clock("env_steps", 128), "solved at step 128")


def test_a_passed_gate_alone_does_not_stop_training() -> None:
    outcome, _ = trained(a_spec(gates={"min_return": 1.0}))
    assert outcome.reason == "budget"


def test_patience_ends_with_evaluations_that_keep_failing() -> None:
    outcome, _ = trained(a_spec(gates={"min_return": 1e6, "patience": 2}))
    assert (outcome.reason, outcome.clock.value) == ("gate_failed", 256)
    assert "2 evaluations in a row failed the gate; at step 256, lower bound" in outcome.detail


def test_a_reward_that_is_not_a_number_ends_training_with_its_name() -> None:
    ladder = {"id": f"{known_envs.MODULE}:Ladder-v0", "kwargs": {"length": 5, "poison": 3}}
    with pytest.raises(Diverged, match="non-finite reward at step 12"):
        trained(a_spec(env=ladder))


def test_training_can_be_driven_step_by_step() -> None:
    recorder: TrainingRecorder = MemoryOutlet()
    training = Training(a_spec(), recorder)
    assert "losses/policy_loss" in training.train_step()
    assert set(training.eval_step()) == {"eval/mean_return", "eval/mean_length"}
    training.close()


def test_the_time_of_compiling_is_counted_once_however_it_is_nested() -> None:
    readings = iter((1.0, 5.0, 7.0, 100.0, 101.0))
    timer = CompileTimer(clock=lambda: next(readings))
    assert timer.seconds == 0.0
    timer.start()
    timer.start()
    timer.stop()
    assert timer.seconds == 4.0
    timer.stop()
    assert timer.seconds == 6.0
    timer.start()
    assert timer.seconds == 7.0


def test_the_clock_of_a_training_stands_still_while_kernels_are_compiled() -> None:
    now = [10.0]
    timer = CompileTimer(clock=lambda: now[0])
    timer.start()
    now[0] += 8.0
    assert timer.training_clock() == 10.0
    timer.stop()
    now[0] += 1.0
    assert timer.training_clock() == 11.0
