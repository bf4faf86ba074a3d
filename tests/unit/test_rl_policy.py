"""Policies: what they see, what they do, and that what is saved is what was there."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from hypothesis import given
from hypothesis import strategies as st

from rl_orch.errors import BadInput, Damaged
from rl_orch.rl.envs.actions import choices_of
from rl_orch.rl.learn.learner import load_policy
from rl_orch.rl.policies import actor_critic
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.observations import ObservationPipeline, RunningNormalizer
from rl_orch.rl.policies.policy import PolicyInput, Setup, policy_tensors, usable_device
from rl_orch.spec.groups import ObsGroup
from rl_orch.spec.model import Spec

BOX = spaces.Box(-10.0, 10.0, (3,))
CHOICES = spaces.Discrete(4, start=2)
PUSH = spaces.Box(np.array([-1.0, -2.0], np.float32), np.array([1.0, 2.0], np.float32))


def a_spec(seed: int = 0, **groups: Any) -> Spec:
    return Spec.model_validate({"env": {"id": "Any-v0", "seed": seed}, **groups})


def a_policy(action_space: Space[Any] = CHOICES, **groups: Any) -> ActorCritic:
    return ActorCritic.build(Setup(a_spec(**groups), BOX, action_space))


def shown(observations: Any, masks: Any = None) -> PolicyInput:
    """Observations at the beginning of episodes."""
    return PolicyInput(observations, np.ones(len(observations), np.bool_), masks=masks)


def some_observations(rows: int = 6) -> Any:
    return np.random.default_rng(0).normal(3.0, 5.0, (rows, 3)).astype(np.float32)


def test_the_mode_is_decided_on_and_its_log_probability_is_the_distributions() -> None:
    policy = a_policy()
    actions = policy.decide(shown(some_observations()), None).actions
    log_probs, _ = policy.assess(some_observations(), actions)
    distribution, _ = policy(policy.to_inputs(some_observations()))
    theirs = torch.distributions.Categorical(logits=distribution.logits)
    assert np.array_equal(actions, theirs.probs.argmax(-1))
    expected = theirs.log_prob(torch.as_tensor(actions)).detach()  # type: ignore[no-untyped-call]
    assert log_probs == pytest.approx(expected.numpy(), abs=1e-6)


def test_a_generator_makes_the_policy_sample() -> None:
    policy, seen = a_policy(), shown(some_observations(200))
    sampled = policy.decide(seen, torch.Generator().manual_seed(1)).actions
    again = policy.decide(seen, torch.Generator().manual_seed(1)).actions
    assert len(set(sampled.tolist())) == 4
    assert np.array_equal(sampled, again)


def test_values_do_not_depend_on_the_size_of_a_batch() -> None:
    policy, observations = a_policy(), some_observations()
    alone = [policy.values(row[None])[0] for row in observations]
    assert policy.values(observations) == pytest.approx(np.array(alone), abs=1e-5)


def test_gaussian_actions_are_clipped_for_the_environment_only() -> None:
    policy = a_policy(PUSH, agent={"network": {"log_std_init": 2.0}})
    actions = policy.decide(shown(some_observations(100)), torch.Generator().manual_seed(0)).actions
    assert np.abs(actions).max() > 2.0
    sent = policy.to_env(actions)
    assert sent.dtype == PUSH.dtype
    assert all(PUSH.contains(action) for action in sent)


def test_discrete_actions_are_counted_from_the_spaces_start() -> None:
    assert a_policy().to_env(np.array([0, 3])).tolist() == [2, 5]


def test_actions_have_the_shape_of_their_space() -> None:
    grid = spaces.Box(-1.0, 1.0, (2, 2))
    policy = a_policy(grid)
    actions = policy.decide(shown(some_observations(5)), None).actions
    assert actions.shape == (5, 2, 2)
    log_probs, values = policy.assess(some_observations(5), actions)
    assert log_probs.shape == values.shape == (5,)


GRIDS: dict[str, Space[Any]] = {
    "MultiDiscrete": spaces.MultiDiscrete([3, 2], start=[1, 0]),
    "MultiDiscrete in rows": spaces.MultiDiscrete(np.array([[3, 2], [2, 4]])),
    "MultiBinary": spaces.MultiBinary(3),
    "MultiBinary in rows": spaces.MultiBinary((2, 2)),
}


def spread(policy: ActorCritic) -> ActorCritic:
    """The policy with preferences that differ from row to row."""
    with torch.no_grad():
        for parameter in policy.actor.parameters():
            parameter.mul_(200.0)
    return policy


@pytest.mark.parametrize("name", GRIDS)
def test_several_choices_at_once_are_drawn_within_their_space(name: str) -> None:
    space = GRIDS[name]
    policy, observations = spread(a_policy(space)), some_observations(300)
    decided = policy.decide(shown(observations), torch.Generator().manual_seed(0))
    assert decided.memory is None
    assert decided.actions.shape == (300, *(space.shape or ()))
    sent = policy.to_env(decided.actions).astype(space.dtype)
    assert all(space.contains(action) for action in sent)
    assert len(np.unique(sent.reshape(300, -1), axis=0)) > 4
    mode = policy.decide(shown(observations), None).actions
    assert np.array_equal(mode, policy.decide(shown(observations), None).actions)
    assert not np.array_equal(mode, decided.actions)


@pytest.mark.parametrize("name", GRIDS)
def test_the_probability_of_several_choices_is_the_product_of_theirs(name: str) -> None:
    space = GRIDS[name]
    policy, observations = spread(a_policy(space)), some_observations(50)
    actions = policy.decide(shown(observations), torch.Generator().manual_seed(0)).actions
    with torch.no_grad():
        outputs = policy.actor(policy.encoder(policy.to_inputs(observations)))
    taken = torch.from_numpy(actions.reshape(50, -1))
    if isinstance(space, spaces.MultiDiscrete):
        parts = outputs.split([int(n) for n in space.nvec.ravel()], dim=-1)
        terms = [
            part.log_softmax(-1)[torch.arange(50), taken[:, i]] for i, part in enumerate(parts)
        ]
    else:
        signs = 2.0 * taken - 1.0
        terms = list(torch.nn.functional.logsigmoid(signs * outputs).T)
    log_probs, values = policy.assess(observations, actions)
    assert log_probs == pytest.approx(torch.stack(terms).sum(0).numpy(), abs=1e-5)
    assert values == pytest.approx(policy.values(observations), abs=1e-6)


@pytest.mark.parametrize("space", [CHOICES, GRIDS["MultiDiscrete"], GRIDS["MultiDiscrete in rows"]])
def test_a_forbidden_choice_is_never_made_and_has_no_probability(space: Any) -> None:
    policy, rows = spread(a_policy(space)), 200
    counts = choices_of(space)
    rng = np.random.default_rng(0)
    parts = [rng.random((rows, count)) < 0.5 for count in counts]
    for part in parts:
        part[np.arange(rows), rng.integers(part.shape[1], size=rows)] = True
    masks, observations = np.concatenate(parts, -1), some_observations(rows)
    for generator in (None, torch.Generator().manual_seed(0)):
        actions = policy.decide(shown(observations, masks), generator).actions
        for part, choice in zip(parts, actions.reshape(rows, -1).T, strict=True):
            assert part[np.arange(rows), choice].all()
    anything = policy.decide(shown(observations), torch.Generator().manual_seed(0)).actions
    allowed = np.stack(
        [
            part[np.arange(rows), choice]
            for part, choice in zip(parts, anything.reshape(rows, -1).T, strict=True)
        ]
    ).all(0)
    assert 0 < allowed.sum() < rows
    log_probs, _ = policy.assess(observations, anything, masks=masks)
    assert np.array_equal(np.exp(log_probs) > 0.0, allowed)
    free, _ = policy.assess(observations, anything)
    assert (log_probs[allowed] >= free[allowed] - 1e-5).all()


@pytest.mark.parametrize("encoder", ["gru", "lstm"])
def test_a_memory_is_carried_from_step_to_step_and_wiped_where_an_episode_begins(
    encoder: str,
) -> None:
    policy = a_policy(feature={"encoder": encoder, "embed_dim": 8})
    assert policy.memory_size == (8 if encoder == "gru" else 16)
    observations = some_observations(4)
    first = np.ones(4, np.bool_)
    fresh = policy.decide(PolicyInput(observations, first), None).memory
    assert fresh is not None
    assert fresh.shape == (4, policy.memory_size)
    full = np.ones((4, policy.memory_size), np.float32)
    wiped = policy.decide(PolicyInput(observations, first, full), None).memory
    carried = policy.decide(PolicyInput(observations, ~first, full), None).memory
    assert wiped is not None
    assert carried is not None
    assert np.array_equal(wiped, fresh)
    assert not np.isclose(carried, fresh).all(-1).any()
    assert full.min() == 1.0


def test_a_policy_without_a_memory_remembers_nothing() -> None:
    policy = a_policy()
    assert policy.memory_size == 0
    assert policy.decide(shown(some_observations()), None).memory is None


def test_a_long_rollout_is_assessed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, observations = spread(a_policy()), some_observations(50)
    actions = np.arange(50) % 4
    masks = np.ones((50, 4), np.bool_)
    masks[:25, 3] = False
    whole = policy.assess(observations, actions, masks=masks)
    monkeypatch.setattr(actor_critic, "CHUNK", 7)
    for mine, theirs in zip(policy.assess(observations, actions, masks=masks), whole, strict=True):
        assert mine == pytest.approx(theirs, abs=1e-5)


def test_discrete_observations_become_one_hot() -> None:
    pipeline = ObservationPipeline(spaces.Discrete(3, start=1), ObsGroup())
    seen = pipeline.process(np.array([3, 1]))
    assert isinstance(seen, np.ndarray)
    assert seen.tolist() == [[0, 0, 1], [1, 0, 0]]


def test_observations_are_normalised_then_clipped_then_flattened() -> None:
    options = ObsGroup.model_validate({"normalize": "running", "clip_range": [-1, 1]})
    pipeline = ObservationPipeline(spaces.Box(-99.0, 99.0, (2, 2)), options)
    pipeline.update(np.array([[[0.0, 0.0], [0.0, 0.0]], [[2.0, 2.0], [2.0, 2.0]]]))
    seen = pipeline.process(np.array([[[1.0, 1.5], [9.0, -9.0]]]))
    assert isinstance(seen, np.ndarray)
    assert seen.dtype == np.float32
    assert seen == pytest.approx(np.array([[0.0, 0.5, 1.0, -1.0]]), abs=1e-6)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(0, 99))
def test_the_running_statistics_are_those_of_all_rows_at_once(sizes: list[int], seed: int) -> None:
    parts = [np.random.default_rng([seed, i]).normal(1e4, 3.0, (n, 2)) for i, n in enumerate(sizes)]
    normalizer = RunningNormalizer((2,))
    for part in parts:
        normalizer.update(part)
    everything = np.concatenate(parts)
    expected = (everything - everything.mean(0)) / np.sqrt(everything.var(0) + 1e-8)
    assert normalizer.normalize(everything) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_the_normaliser_is_the_identity_before_it_has_seen_anything() -> None:
    normalizer = RunningNormalizer((1,))
    normalizer.update(np.empty((0, 1)))
    assert normalizer.normalize(np.array([[7.0]])) == 7.0


def test_the_normaliser_stays_in_double_precision() -> None:
    policy = a_policy(obs={"normalize": "running"}).to(torch.float32)
    assert policy.state_dict()["pipeline.normalizer.mean"].dtype == torch.float64


def test_a_policy_comes_back_from_its_tensors_with_its_normaliser() -> None:
    spec = a_spec(obs={"normalize": "running"})
    policy = ActorCritic.build(Setup(spec, BOX, PUSH))
    policy.pipeline.update(some_observations(50))
    tensors = policy_tensors(policy)
    assert "policies/default/pipeline.normalizer.mean" in tensors
    other = a_spec(seed=9, obs={"normalize": "running"})
    back = load_policy(Setup(other, BOX, PUSH), tensors)
    assert isinstance(back, ActorCritic)
    decided = [each.decide(shown(some_observations()), None).actions for each in (back, policy)]
    assert np.array_equal(decided[0], decided[1])
    assert np.array_equal(back.values(some_observations()), policy.values(some_observations()))


def test_saved_tensors_do_not_change_with_the_policy() -> None:
    policy = a_policy(obs={"normalize": "running"})
    tensors = policy_tensors(policy)
    copies = {name: tensor.copy() for name, tensor in tensors.items()}
    policy.pipeline.update(some_observations())
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(1.0)
    assert all(np.array_equal(tensors[name], copies[name]) for name in tensors)


def test_tensors_of_another_shape_are_refused() -> None:
    tensors = policy_tensors(a_policy())
    with pytest.raises(Damaged, match="does not fit its spec"):
        load_policy(Setup(a_spec(), BOX, PUSH), tensors)


def test_weights_follow_from_the_seed_and_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    setups = (Setup(a_spec(seed), BOX, PUSH) for seed in (1, 1, 2))
    first, same, other = (policy_tensors(ActorCritic.build(setup)) for setup in setups)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(np.array_equal(first[name], same[name]) for name in first)
    assert not np.array_equal(
        first["policies/default/actor.layers.0.weight"],
        other["policies/default/actor.layers.0.weight"],
    )


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "gelu", "silu"])
def test_every_network_of_a_spec_can_be_built(shared: bool, activation: str) -> None:
    network = {
        "shared": shared,
        "activation": activation,
        "hidden_sizes": [8, 8],
        "ortho_init": shared,
    }
    policy = a_policy(agent={"network": network})
    assert (len(policy.trunk.layers), len(policy.actor.layers)) == ((2, 1) if shared else (0, 3))
    distribution, values = policy(policy.to_inputs(some_observations()))
    assert distribution.entropy().shape == values.shape == (6,)


def test_orthogonal_layers_are_orthogonal_and_the_policy_starts_almost_uniform() -> None:
    policy = a_policy()
    weight = policy.actor.layers[1].weight
    assert isinstance(weight, torch.Tensor)
    product = (weight @ weight.T).detach()
    assert product.numpy() == pytest.approx(2.0 * np.eye(64), abs=1e-4)
    distribution, _ = policy(policy.to_inputs(some_observations()))
    assert distribution.entropy().detach().numpy() == pytest.approx(np.log(4.0), abs=1e-3)


def test_a_network_without_hidden_layers_is_linear() -> None:
    policy = a_policy(agent={"network": {"hidden_sizes": []}})
    assert len(policy.actor.layers) == 1


def test_a_device_that_is_not_there_is_refused_in_a_sentence() -> None:
    missing = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(BadInput, match=f"resources.device is '{missing}'; torch"):
        usable_device(missing)
    assert usable_device("cpu") == torch.device("cpu")
