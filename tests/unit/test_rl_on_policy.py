"""Rollouts: values after each row, sequences through a memory, and number formats."""

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from rl_orch.rl.algos.a2c import A2C
from rl_orch.rl.algos.ppo import PPO
from rl_orch.rl.collect.rollout import LocalCollector
from rl_orch.rl.data.batch import Batch, host_column, on_host
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.masks import ShownMasks
from rl_orch.rl.envs.observations import flat_space
from rl_orch.rl.envs.state.seeded_episodes import SeededEpisodes
from rl_orch.rl.learn import precision as passes
from rl_orch.rl.learn.on_policy import Rollout, Rollouts
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import Setup, policy_tensors
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from tests.learning import known_envs

STEPS, COPIES = 12, 2
both_ways = pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
memories = pytest.mark.parametrize("encoder", ["gru", "lstm"])


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in training: for networks of this size, more are slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def a_spec(env: str = "Recall", **options: Any) -> Spec:
    chosen: dict[str, Any] = {
        "env.id": f"{known_envs.MODULE}:{env}-v0",
        "env.num_envs": COPIES,
        "agent.network.hidden_sizes": [8],
        "feature.embed_dim": 8,
        "rollout.steps": STEPS,
        "train.batch_size": STEPS,
        "train.total_timesteps": 1000,
        "train.update_epochs": 2,
    }
    return resolve(chosen | {path.replace("__", "."): value for path, value in options.items()})


@contextmanager
def acting(spec: Spec, mode: AutoresetMode) -> Iterator[tuple[Setup, LocalCollector]]:
    made: vector.Envs = gymnasium.make_vec(
        spec.env.id,
        spec.env.num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode, "copy": False},
        wrappers=[ShownMasks, SeededEpisodes],
        disable_env_checker=True,
        **spec.env.kwargs,
    )
    with closing(made) as envs:
        space = flat_space(envs.single_observation_space)
        setup = Setup(spec, space, envs.single_action_space)
        masked = spec.agent.action_masks
        yield (
            setup,
            LocalCollector(envs, seed=1, device="cpu", masked=masked),
        )


def a_policy(setup: Setup) -> ActorCritic:
    """A policy whose choices and values are not all alike."""
    policy = ActorCritic.build(setup)
    with torch.no_grad():
        for parameter in policy.actor.parameters():
            parameter.mul_(100.0)
    return policy


def step_by_step(policy: ActorCritic, batch: Batch) -> tuple[Any, Any]:
    """log π(a | s) and V(s) of each row, from what was remembered before it as it was acted."""
    masks = batch.extras.get("masks")
    with torch.no_grad():
        distribution, values = policy.unroll(
            policy.to_inputs(host_column(batch.observations)),
            torch.from_numpy(on_host(batch.column("memories"))),
            torch.from_numpy(on_host(batch.column("first"))),
            None if masks is None else torch.from_numpy(on_host(batch.column("masks"))),
        )
        log_probs = distribution.log_prob(policy.to_choices(on_host(batch.column("actions"))))
    return log_probs.numpy(), values.numpy()


@both_ways
@memories
@pytest.mark.parametrize("length", [1, 4, None])
@pytest.mark.parametrize("env", ["Recall", "Masked"])
def test_training_through_a_memory_sees_what_acting_saw(
    env: str, length: int | None, encoder: str, mode: AutoresetMode
) -> None:
    options = {"feature__encoder": encoder, "train__sequence_length": length}
    spec = a_spec(env, **options, agent__action_masks=env == "Masked")
    assert spec.sequence_length == (length or STEPS)
    with acting(spec, mode) as (setup, collector):
        policy = a_policy(setup)
        rollouts = Rollouts(policy, spec)
        for _ in range(2):
            batch = collector.collect(policy, STEPS)
            log_probs, values = step_by_step(policy, batch)
            rollout = rollouts.prepare(batch)
            assert rollout.log_probs.numpy() == pytest.approx(log_probs, abs=1e-6)
            assert rollout.values.numpy() == pytest.approx(values, abs=1e-6)
            distribution, asked = rollouts.ask(rollout)
            again = distribution.log_prob(rollout.actions).detach().numpy()
            assert again == pytest.approx(log_probs, abs=1e-6)
            assert asked.detach().numpy() == pytest.approx(values, abs=1e-6)
            generator = torch.Generator().manual_seed(0)
            for part in rollouts.minibatches(rollout, 2, generator):
                found = rollouts.ask(part)[0].log_prob(part.actions)
                torch.testing.assert_close(found.detach(), part.log_probs, rtol=0, atol=1e-6)
        assert np.std(log_probs) > 1e-3
        assert on_host(batch.column("first")).sum() >= 2


@memories
def test_a_memory_makes_a_difference_and_gradients_reach_back_through_it(encoder: str) -> None:
    spec = a_spec(feature__encoder=encoder)
    with acting(spec, AutoresetMode.SAME_STEP) as (setup, collector):
        policy = a_policy(setup)
        batch = collector.collect(policy, STEPS)
        cues = policy.to_inputs(host_column(batch.observations))
        assert isinstance(cues, torch.Tensor)
        cues.requires_grad_(True)
        start = torch.zeros(COPIES, policy.memory_size)
        first = torch.from_numpy(on_host(batch.column("first")))
        _, values = policy.unroll(cues, start, first)
        (gradient,) = torch.autograd.grad(values[3], cues)
        assert (gradient[:4].abs().sum(-1) > 0).all()
        # Of another episode, nothing is remembered.
        (later,) = torch.autograd.grad(policy.unroll(cues, start, first)[1][4], cues)
        assert later[:4].abs().sum() == 0.0


@both_ways
@pytest.mark.parametrize("encoder", ["auto", "gru"])
@pytest.mark.parametrize("env", ["Recall", "Forever"])
def test_what_is_expected_after_a_row_is_the_value_of_what_follows(
    env: str, encoder: str, mode: AutoresetMode
) -> None:
    """With lambda 0 and gamma 1, returns are r + V(s'); Recall terminates, Forever is cut short."""
    spec = a_spec(env, feature__encoder=encoder, train__gae_lambda=0.0, train__gamma=1.0)
    with acting(spec, mode) as (setup, collector):
        policy = a_policy(setup)
        rollouts = Rollouts(policy, spec)
        one, two = (collector.collect(policy, STEPS) for _ in range(2))
        rewards, valid = (on_host(one.column(name)) for name in ("rewards", "valid"))
        rollout = rollouts.prepare(one)
        rows = slice(None) if encoder == "gru" else valid
        found = np.full(len(one), np.nan)
        found[rows] = rollout.returns.numpy() - rewards[rows]

        values = (values_of(policy, one), values_of(policy, two))
        finals = finals_of(policy, one)
        for row in np.flatnonzero(valid):
            copy, t = divmod(int(row), STEPS)
            expected = values[0][row + 1] if t + 1 < STEPS else values[1][copy * STEPS]
            if on_host(one.column("terminated"))[row]:
                expected = 0.0
            elif on_host(one.column("truncated"))[row]:
                expected = finals[row]
            assert found[row] == pytest.approx(expected, abs=1e-5), (copy, t)
        assert valid.all() is np.bool_(mode is AutoresetMode.SAME_STEP)


def values_of(policy: ActorCritic, batch: Batch) -> Any:
    if policy.memory is not None:
        return step_by_step(policy, batch)[1]
    return policy.values(host_column(batch.observations))


def finals_of(policy: ActorCritic, batch: Batch) -> Any:
    kept = batch.extras.get("next_memories")
    return policy.values(
        host_column(batch.next_observations), None if kept is None else host_column(kept)
    )


@both_ways
def test_rows_that_only_reset_count_for_nothing_but_stay_in_their_sequences(
    mode: AutoresetMode,
) -> None:
    spec = a_spec(feature__encoder="gru")
    with acting(spec, mode) as (setup, collector):
        policy = a_policy(setup)
        rollout = Rollouts(policy, spec).prepare(batch := collector.collect(policy, STEPS))
        assert len(rollout.actions) == STEPS * COPIES
        if mode is AutoresetMode.SAME_STEP:
            assert rollout.counts is None
        else:
            assert rollout.counts is not None
            assert np.array_equal(rollout.counts.numpy(), on_host(batch.column("valid")))
            assert 0 < rollout.counts.sum() < STEPS * COPIES


def numbered(rows: int) -> Rollout:
    """A rollout whose every column is the number of the row."""
    number = torch.arange(rows)
    return Rollout(number, number, *(number.float(),) * 4)


@pytest.mark.parametrize(("length", "count"), [(1, 3), (4, 2), (12, 2), (12, 9)])
def test_minibatches_are_a_new_order_in_which_sequences_stay_whole(length: int, count: int) -> None:
    spec = a_spec(feature__encoder="gru", train__sequence_length=length)
    setup = Setup(spec, known_envs.Recall.observation_space, known_envs.Recall.action_space)
    rollouts, generator = Rollouts(a_policy(setup), spec), torch.Generator().manual_seed(1)
    orders = []
    for _ in range(2):
        parts = [part.actions for part in rollouts.minibatches(numbered(24), count, generator)]
        assert len(parts) == min(count, 24 // length)
        order = torch.cat(parts)
        orders.append(order.tolist())
        assert sorted(orders[-1]) == list(range(24))
        sequences = order.view(-1, length)
        assert (sequences[:, 0] % length == 0).all()
        assert torch.equal(sequences, sequences[:, :1] + torch.arange(length))
    assert length == 12 or orders[0] != orders[1]


@pytest.mark.parametrize("count", [1, 3, 5])
def test_minibatches_without_a_memory_share_the_rows_evenly(count: int) -> None:
    spec = a_spec()
    setup = Setup(spec, known_envs.Recall.observation_space, known_envs.Recall.action_space)
    rollouts, generator = Rollouts(a_policy(setup), spec), torch.Generator().manual_seed(1)
    parts = [part.actions for part in rollouts.minibatches(numbered(24), count, generator)]
    assert sorted(torch.cat(parts).tolist()) == list(range(24))
    assert torch.cat(parts).tolist() != list(range(24))
    sizes = [len(part) for part in parts]
    assert (len(sizes), max(sizes) - min(sizes)) <= (count, 1)


LEARNERS: dict[str, type[PPO] | type[A2C]] = {"ppo": PPO, "a2c": A2C}
every_learner = pytest.mark.parametrize("algo", [*LEARNERS])


def updated(spec: Spec, mode: AutoresetMode = AutoresetMode.SAME_STEP) -> tuple[Any, Any]:
    """A learner after two updates, and what it said of the second."""
    with acting(spec, mode) as (setup, collector):
        kind = LEARNERS[spec.agent.algorithm]
        learner = kind(kind.build_policy(setup), setup)
        for _ in range(2):
            said = learner.update(collector.collect(learner.behaviour, spec.rollout.steps))
    return learner, said


@every_learner
@pytest.mark.parametrize("encoder", ["auto", "gru"])
@pytest.mark.parametrize(
    "env", ["IdentityMultiDiscrete", "IdentityMultiBinary", "IdentityBox", "IdentityDict", "Recall"]
)
def test_every_kind_of_action_and_observation_is_learned_from(
    env: str, encoder: str, algo: str
) -> None:
    spec = a_spec(env, agent__algorithm=algo, feature__encoder=encoder)
    learner, said = updated(spec)
    assert all(math.isfinite(value) for value in said.values())
    before = policy_tensors(type(learner).build_policy(setup_of(learner, spec)))
    after = policy_tensors(learner.policy)
    assert any(not np.array_equal(before[name], after[name]) for name in before)


def setup_of(learner: Any, spec: Spec) -> Setup:
    return Setup(spec, learner.policy.observation_space, learner.policy.action_space)


@every_learner
@both_ways
def test_a_policy_with_a_memory_and_masks_is_trained_in_both_ways_of_resetting(
    algo: str, mode: AutoresetMode
) -> None:
    options: dict[str, Any] = {"agent__action_masks": True, "feature__encoder": "lstm"}
    learner, said = updated(a_spec("MaskedPair", agent__algorithm=algo, **options), mode)
    assert all(math.isfinite(value) for value in said.values())
    steps = learner.state().document["env_steps"]
    assert (steps == 2 * STEPS * COPIES) is (mode is AutoresetMode.SAME_STEP)


@every_learner
@pytest.mark.parametrize("encoder", ["auto", "gru", "lstm"])
def test_in_bfloat16_weights_stay_in_float32_and_losses_come_close(algo: str, encoder: str) -> None:
    said = []
    for precision in ("float32", "bfloat16"):
        spec = a_spec(agent__algorithm=algo, train__precision=precision, feature__encoder=encoder)
        learner, metrics = updated(spec)
        said.append(metrics)
        assert all(math.isfinite(value) for value in metrics.values())
        assert {tensor.dtype for tensor in policy_tensors(learner.policy).values()} == {
            np.dtype(np.float32)
        }
    for name in ("losses/value_loss", "losses/entropy"):
        assert said[1][name] == pytest.approx(said[0][name], rel=0.05, abs=0.02), name
    assert said[0] != said[1]


def test_networks_are_compiled_only_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[str, Any]] = []

    def compile_(function: Any, **options: Any) -> Any:
        asked.append(options)
        return function

    monkeypatch.setattr(torch, "compile", compile_)
    plain, compiled = (a_spec(train__compile=wanted).train for wanted in (False, True))
    assert passes.compiled(math.sin, plain) is math.sin
    assert asked == []
    assert passes.compiled(math.sin, compiled)(0.0) == 0.0
    assert asked == [{"dynamic": False}]
    _, said = updated(a_spec(train__compile=True))
    assert len(asked) == 2
    assert math.isfinite(said["losses/value_loss"])


def test_clip_ranges_and_rewards_are_what_the_options_say() -> None:
    """With a clip that has fallen to nothing, every ratio but 1 is beyond it."""
    narrow = a_spec(train__clip_schedule="linear", train__total_timesteps=STEPS * COPIES)
    _, said = updated(narrow)
    assert said["losses/clipfrac"] > 0.5
    _, wide = updated(a_spec(train__total_timesteps=STEPS * COPIES))
    assert wide["losses/clipfrac"] < 0.5


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Tuple((spaces.Discrete(2),))])
def test_actions_that_no_distribution_gives_are_refused(space: Any) -> None:
    setup = Setup(a_spec(), known_envs.Recall.observation_space, space)
    with pytest.raises(TypeError, match="must be Discrete, MultiDiscrete, MultiBinary or Box"):
        ActorCritic.build(setup)
