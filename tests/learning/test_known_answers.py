"""Every algorithm in environments whose best return, or whose value, is known by hand.

Which actions an algorithm is tried on follows from its traits, so that none is left out.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rl_orch.records import EventKind
from rl_orch.rl.evaluate import evaluate
from rl_orch.rl.learn.critic_learner import ContinuousLearner
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import PolicyModule
from rl_orch.rl.policies.q_network import QNetwork
from rl_orch.rl.train import Training
from rl_orch.spec.algorithms import BUILT_IN
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from tests.learning import known_envs
from tests.learning.recorder import MemoryOutlet

Options = Mapping[str, Any]
"""Options of a spec by path; those that come later count."""

REPLAYED: Options = {
    "env.num_envs": 8,
    "rollout.steps": 4,
    "buffer.size": 5_000,
    "train.learning_starts": 128,
    "train.gradient_steps": 8,
    "train.batch_size": 32,
    "train.lr": 3e-3,
}
Q_VALUES: Options = {
    **REPLAYED,
    "train.target_update_interval": 64,
    "train.exploration_fraction": 0.5,
}
CRITICS: Options = {
    **REPLAYED,
    "agent.network.hidden_sizes": [64],
    "train.lr": 1e-2,
    "train.tau": 0.05,
}
QUICK: Mapping[str, Options] = {
    "ppo": {
        "env.num_envs": 16,
        "rollout.steps": 16,
        "train.batch_size": 64,
        "train.update_epochs": 4,
        "train.lr": 3e-3,
    },
    "a2c": {"env.num_envs": 16, "rollout.steps": 4, "train.lr": 3e-3},
    "dqn": Q_VALUES,
    "qrdqn": {**Q_VALUES, "train.n_quantiles": 8},
    "sac": {**CRITICS, "train.ent_coef": 0.01},
    "td3": CRITICS,
    "tqc": {**CRITICS, "train.ent_coef": 0.01, "train.n_quantiles": 8},
    "crossq": {
        **CRITICS,
        "agent.network.critic_hidden_sizes": [64],
        "train.ent_coef": 0.01,
        "train.gradient_steps": 32,
        "train.policy_delay": 1,
        "train.lr": 3e-3,
    },
}
"""Small networks and short rollouts; the environments are simple."""

MYOPIC: Options = {"train.gamma": 0.1, "train.gae_lambda": 0.5}
"""Where each answer is paid at once."""

FARSIGHTED: Options = {"train.gamma": 0.9}

PIXELS: Options = {**MYOPIC, "train.lr": 1e-3, "feature.embed_dim": 32}

PICTURED: Mapping[str, tuple[int, Options]] = {
    "ppo": (768, {"train.lr": 3e-3}),
    "a2c": (2_048, {}),
    "dqn": (448, {}),
    "qrdqn": (576, {}),
    "sac": (384, {"train.gradient_steps": 16}),
    "tqc": (640, {"train.gradient_steps": 16, "train.lr": 2e-3}),
    "crossq": (1_024, {"train.lr": 2e-3}),
    "td3": (768, {"train.gradient_steps": 16, "train.lr": 2e-3, "train.policy_delay": 12}),
}
"""Steps and options for images. Critics that do not know them yet would soon send TD3's policy into
a corner for good, so that it waits."""

EXACT = {
    "Discrete": "Identity",
    "Box": "IdentityBox",
    "MultiDiscrete": "IdentityMultiDiscrete",
    "MultiBinary": "IdentityMultiBinary",
}
"""Where what is shown is of the same kind as the answer."""

PAIRS = [(name, action) for name, traits in BUILT_IN.items() for action in traits.actions]
DELAYED_ENVS = {"Discrete": "DelayedReward", "Box": "DelayedBox"}
DELAYED = [(name, action) for name, action in PAIRS if action in DELAYED_ENVS]
DISCRETE = [name for name, action in PAIRS if action == "Discrete"]
CONTINUOUS = [name for name, action in PAIRS if action == "Box"]
REPLAYING = [name for name, traits in BUILT_IN.items() if traits.off_policy]
MASKABLE = [name for name, traits in BUILT_IN.items() if traits.masks]
RECURRENT = [name for name, traits in BUILT_IN.items() if traits.recurrent]

SETTLING: Options = {"train.gamma": 0.9, "train.lr": 1e-2, "train.lr_schedule": "linear"}
FOLLOWING: Options = {**SETTLING, "train.gradient_steps": 16, "train.tau": 0.2}
PRECISE: Mapping[str, tuple[int, Options]] = {
    "ppo": (5_120, {**SETTLING, "train.lr": 3e-3}),
    "a2c": (5_120, {**SETTLING, "rollout.steps": 8}),
    "dqn": (1_536, {**SETTLING, "train.target_update_interval": 16}),
    "qrdqn": (1_536, {**SETTLING, "train.target_update_interval": 16}),
    "sac": (1_024, {**FOLLOWING, "train.ent_coef": 0.0}),
    "td3": (1_024, FOLLOWING),
    "tqc": (1_024, {**FOLLOWING, "train.ent_coef": 0.0, "train.top_quantiles_to_drop_per_net": 0}),
    "crossq": (
        1_536,
        {**FOLLOWING, "train.gradient_steps": 32, "train.batch_size": 256, "train.ent_coef": 0.0},
    ),
}
"""Steps and options with which values settle."""

FLIPPING: Options = {
    "agent.network.hidden_sizes": [64],
    "train.lr": 2e-3,
    "train.batch_size": 64,
    "train.gradient_steps": 32,
    "train.target_update_interval": 128,
    "train.gamma": 0.95,
    "buffer.size": 8_000,
}
REACHING: tuple[str, int, Options] = (
    "Reach",
    3_000,
    {
        "train.lr": 2e-3,
        "train.tau": 0.02,
        "train.batch_size": 64,
        "train.gradient_steps": 16,
        "train.action_noise": 0.3,
        "train.gamma": 0.9,
    },
)
"""With which goals are learned; most need three steps, and any other policy pays for 16."""


def merged(*layers: Options) -> Options:
    """Options of several layers."""
    return {path: value for layer in layers for path, value in layer.items()}


def a_spec(algorithm: str, env: str, steps: int, *layers: Options) -> Spec:
    """What an algorithm is to learn in one of the known environments."""
    common = {
        "env.id": f"{known_envs.MODULE}:{env}-v0",
        "env.seed": 1,
        "agent.algorithm": algorithm,
        "agent.network.hidden_sizes": [32],
        "train.total_timesteps": steps,
        "eval.every": steps,
        "eval.episodes": 1,
    }
    return resolve(merged(common, QUICK[algorithm], *layers))


def trained(spec: Spec, recorder: MemoryOutlet | None = None) -> Training:
    """A training that has come to its end."""
    with closing(Training(spec, recorder or MemoryOutlet())) as training:
        training.run()
        return training


def judged(policy: PolicyModule, spec: Spec) -> float:
    """The mean return of a policy over 20 fresh episodes."""
    report = evaluate(policy, spec, episodes=20, seed=7, deterministic=True, step=0)
    return report.summary.mean


def mean_return(algorithm: str, env: str, steps: int, *layers: Options) -> float:
    """The mean return of what an algorithm has learned."""
    spec = a_spec(algorithm, env, steps, *layers)
    return judged(trained(spec).policy, spec)


def values(training: Training, observations: NDArray[np.float32]) -> NDArray[np.float32]:
    """What a learner thinks that states are worth, or an action in them that does not matter."""
    policy = training.policy
    if isinstance(policy, ActorCritic):
        return policy.values(observations)
    inputs = policy.to_inputs(observations)
    with torch.no_grad():
        if isinstance(policy, QNetwork):
            return policy.q_values(inputs)[:, 0].numpy()
        assert isinstance(training.learner, ContinuousLearner)
        actions = torch.zeros(len(observations), 1)
        worth = training.learner.critics(inputs, actions)[0]
        return np.asarray(worth.mean(-1) if worth.ndim == 2 else worth)


@pytest.mark.parametrize("algorithm", DISCRETE)
def test_the_best_arm_of_a_bandit_is_found(algorithm: str) -> None:
    assert mean_return(algorithm, "Bandit", 1_024) == 1.0


@pytest.mark.parametrize("algorithm", CONTINUOUS)
def test_the_best_point_of_a_box_is_found(algorithm: str) -> None:
    steps, layer = (1_280 if algorithm in REPLAYING else 4_096), {"train.lr": 1e-2}
    if algorithm == "crossq":  # What is known of batches in the only state has to settle.
        steps, settling = 1_920, {"train.lr_schedule": "linear", "train.batch_size": 256}
        layer = dict[str, Any](layer) | settling
    assert mean_return(algorithm, "BanditBox", steps, layer) >= -0.2


@pytest.mark.parametrize(("algorithm", "action"), DELAYED)
def test_a_reward_is_credited_to_an_action_five_steps_before(algorithm: str, action: str) -> None:
    """Returns need no more than time; bootstrapping needs a state that tells what was done."""
    steps, layer = 3_072, dict[str, Any]({"rollout.steps": 16, "train.lr": 1e-2})
    if algorithm in REPLAYING:
        steps, layer = 1_024, {"env.kwargs": {"told": True}}
    assert mean_return(algorithm, DELAYED_ENVS[action], steps, FARSIGHTED, layer) >= 0.95


@pytest.mark.parametrize(
    ("algorithm", "action"), [pair for pair in DELAYED if pair[0] in REPLAYING]
)
def test_n_step_returns_credit_what_no_state_in_between_tells(algorithm: str, action: str) -> None:
    layer = {"buffer.n_step": 5, "buffer.prioritized": True}
    if action == "Discrete":
        layer |= {"train.double_q": True, "agent.network.dueling": True}
    assert mean_return(algorithm, DELAYED_ENVS[action], 1_024, FARSIGHTED, layer) >= 0.9


@pytest.mark.parametrize(("algorithm", "action"), PAIRS)
def test_what_is_shown_is_answered(algorithm: str, action: str) -> None:
    if action == "Box":
        steps, layer = (1_280, {}) if algorithm in REPLAYING else (8_192, {"train.lr": 1e-2})
        assert mean_return(algorithm, "IdentityBox", steps, MYOPIC, layer) >= -0.32
    else:
        steps = 768 if algorithm in REPLAYING else 2_048
        assert mean_return(algorithm, EXACT[action], steps, MYOPIC) >= 15.5


def test_noise_that_depends_on_the_state_finds_the_answer_too() -> None:
    layer = {"train.use_sde": True, "train.ent_coef": "auto", "train.lr": 1e-2}
    assert mean_return("sac", "IdentityBox", 1_280, MYOPIC, layer) >= -0.32


@pytest.mark.parametrize(("algorithm", "action"), PAIRS)
def test_images_are_told_apart(algorithm: str, action: str) -> None:
    steps, layer = PICTURED[algorithm]
    asked = {"env.kwargs": {"answer": action, "size": 36}}
    assert mean_return(algorithm, "IdentityImage", steps, PIXELS, layer, asked) >= 15.0


@pytest.mark.parametrize(("algorithm", "action"), PAIRS)
def test_every_part_of_a_dict_is_seen(algorithm: str, action: str) -> None:
    steps, layer = PICTURED[algorithm]
    waits = {"train.policy_delay": 8} if algorithm == "td3" else {}
    asked = {"env.kwargs": {"answer": action}, **waits}
    assert mean_return(algorithm, "IdentityDict", steps, PIXELS, layer, asked) >= 15.0


@pytest.mark.parametrize("algorithm", DISCRETE)
def test_images_too_small_for_the_large_network_are_told_apart(algorithm: str) -> None:
    layers: Mapping[str, Options] = {
        "ppo": {"train.ent_coef": 0.05},
        "a2c": {"train.ent_coef": 0.3, "train.lr": 3e-4},
    }
    steps = {"ppo": 768, "a2c": 2_560}.get(algorithm, 576)
    answered = mean_return(algorithm, "IdentityImage", steps, PIXELS, layers.get(algorithm, {}))
    assert answered >= 15.5


def test_numbers_are_told_apart_by_attention() -> None:
    layer = {"feature.encoder": "transformer", "feature.embed_dim": 16}
    assert mean_return("dqn", "IdentityVector", 1_024, MYOPIC, layer) >= 15.5


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [
        (name, env)
        for name in MASKABLE
        for action, env in (("Discrete", "Masked"), ("MultiDiscrete", "MaskedPair"))
        if action in BUILT_IN[name].actions
    ],
)
def test_the_best_allowed_actions_are_found_and_no_others_are_ever_tried(
    algorithm: str, env: str
) -> None:
    steps = 768 if algorithm in REPLAYING else 2_048
    spec = a_spec(algorithm, env, steps, MYOPIC, {"agent.action_masks": True})
    recorder = MemoryOutlet()
    policy = trained(spec, recorder).policy
    lengths = {(event.tags or {})["length"] for event in recorder.of(EventKind.EPISODE)}
    assert lengths == {8}, "a forbidden action ends an episode early"
    assert judged(policy, spec) == pytest.approx(5.2)


@pytest.mark.parametrize("encoder", ["gru", "lstm"])
@pytest.mark.parametrize("algorithm", RECURRENT)
def test_a_recurrent_policy_remembers_the_first_step(algorithm: str, encoder: str) -> None:
    layer = {"feature.encoder": encoder, "feature.embed_dim": 16, "rollout.steps": 16}
    steps = 3_072 if algorithm == "ppo" else 8_192
    assert mean_return(algorithm, "Recall", steps, FARSIGHTED, layer) == 1.0


def test_a_policy_without_a_memory_can_only_guess() -> None:
    assert mean_return("ppo", "Recall", 2_048, FARSIGHTED) < 0.8


@pytest.mark.parametrize("algorithm", BUILT_IN)
def test_a_stack_of_frames_tells_what_was_shown_before(algorithm: str) -> None:
    action = BUILT_IN[algorithm].actions[0]
    layer = {"env.kwargs": {"late": True, "answer": action}, "obs.stack_frames": 2}
    steps = 768 if algorithm in REPLAYING else 2_048
    assert mean_return(algorithm, "IdentityVector", steps, MYOPIC, layer) >= 15.5


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_stack_of_images_tells_what_was_shown_before(algorithm: str) -> None:
    layer = {"env.kwargs": {"late": True, "size": 36}, "obs.stack_frames": 2}
    assert mean_return(algorithm, "IdentityImage", 1_024, PIXELS, layer) >= 15.5


@pytest.mark.parametrize("algorithm", ["dqn", "sac", "td3"])
def test_goals_that_pay_only_where_they_are_reached_are_learned_in_hindsight(
    algorithm: str,
) -> None:
    """All but a few random episodes reach nothing, from which nobody learns without hindsight."""
    env, steps, layer = ("BitFlip", 4_000, FLIPPING) if algorithm == "dqn" else REACHING
    spec = a_spec(algorithm, env, steps, layer, {"buffer.her_strategy": "future"})
    plain = spec.changed({"buffer.her_strategy": None})
    assert judged(trained(spec).policy, spec) >= -5.0
    assert judged(trained(plain).policy, plain) <= -12.0


@pytest.mark.parametrize("algorithm", BUILT_IN)
def test_an_episode_cut_short_is_worth_what_it_would_have_gone_on_to_pay(algorithm: str) -> None:
    box = "Box" if BUILT_IN[algorithm].bounded_actions else ""
    training = trained(a_spec(algorithm, f"Forever{box}", *PRECISE[algorithm]))
    assert values(training, np.zeros((1, 1), np.float32)) == pytest.approx(10.0, abs=0.15)


@pytest.mark.parametrize("algorithm", BUILT_IN)
def test_an_episode_that_terminates_is_worth_only_what_is_left_of_it(algorithm: str) -> None:
    box = "Box" if BUILT_IN[algorithm].bounded_actions else ""
    training = trained(a_spec(algorithm, f"Countdown{box}", *PRECISE[algorithm]))
    worth = values(training, np.eye(4, dtype=np.float32))
    assert worth == pytest.approx([3.439, 2.71, 1.9, 1.0], abs=0.05)
