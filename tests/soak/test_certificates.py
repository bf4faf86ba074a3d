"""Certificates for every environment that is promised: five kills each, with every wrapper."""

from pathlib import Path

import pytest

from tests.integration.conftest import Shell

BUDGETS = {
    "CartPole-v1": 20480,
    "Acrobot-v1": 16384,
    "Pendulum-v1": 20480,
    "MountainCarContinuous-v0": 20480,
    "LunarLander-v3": 12288,
    "HalfCheetah-v5": 12288,
    "tests.soak.uncopyable:Uncopyable-v0": 20480,
}


@pytest.mark.parametrize("stack", ["null", "4"])
@pytest.mark.parametrize("normalize", ["none", "running"])
@pytest.mark.parametrize("env_id", BUDGETS)
def test_five_kills_change_nothing(shell: Shell, env_id: str, normalize: str, stack: str) -> None:
    steps = BUDGETS[env_id]
    root = Path(__file__).parents[2]
    certificate = Shell(shell.home, root).json(
        *("verify-resume", "--env", env_id, "--kills", "5"),
        *("env.num_envs=4", "rollout.steps=128", f"train.total_timesteps={steps}"),
        *(f"obs.normalize={normalize}", f"obs.stack_frames={stack}"),
        *("checkpoint.every=1024", "eval.every=4096", "eval.episodes=5"),
        timeout_s=1200.0,
    )
    assert certificate["first_difference"] is None
    assert (certificate["level"], certificate["kills"]) == ("bitwise", 5)


REPLAYED = ("buffer.size=3000", "train.batch_size=32", "train.learning_starts=256")
DISCRETE = ("CartPole-v1", *REPLAYED, "train.target_update_interval=128")
CONTINUOUS = ("Pendulum-v1", *REPLAYED, "agent.network.hidden_sizes=[32,32]")
ALL_AT_ONCE = ("buffer.prioritized=true", "buffer.n_step=3", "obs.stack_frames=4")
ALGORITHMS = {
    "ppo-gru": ("ppo", "CartPole-v1", "feature.encoder=gru", "feature.embed_dim=16"),
    "ppo-lstm": ("ppo", "CartPole-v1", "feature.encoder=lstm", "train.sequence_length=16"),
    "ppo-rewards": ("ppo", "Pendulum-v1", "train.normalize_reward=true"),
    "ppo-overlap": ("ppo", "CartPole-v1", "rollout.overlap=true"),
    "ppo-overlap-sync": ("ppo", "HalfCheetah-v5", "rollout.overlap=true", "obs.normalize=running"),
    "a2c": ("a2c", "CartPole-v1"),
    "a2c-gru": ("a2c", "CartPole-v1", "feature.encoder=gru", "feature.embed_dim=16"),
    "dqn": ("dqn", *DISCRETE),
    "dqn-all": ("dqn", *DISCRETE, *ALL_AT_ONCE, "train.double_q=true"),
    "dqn-dueling": ("dqn", *DISCRETE, "agent.network.dueling=true", "env.num_envs=3"),
    "qrdqn": ("qrdqn", *DISCRETE, "train.n_quantiles=16"),
    "qrdqn-all": ("qrdqn", *DISCRETE, *ALL_AT_ONCE, "train.n_quantiles=16"),
    "sac": ("sac", *CONTINUOUS),
    "sac-all": ("sac", *CONTINUOUS, *ALL_AT_ONCE),
    "sac-gsde": ("sac", *CONTINUOUS, "train.use_sde=true", "rollout.steps=16"),
    "td3": ("td3", *CONTINUOUS),
    "td3-all": ("td3", *CONTINUOUS, *ALL_AT_ONCE),
    "crossq": ("crossq", *CONTINUOUS, "agent.network.critic_hidden_sizes=[64]"),
    "tqc": ("tqc", *CONTINUOUS),
    "tqc-all": ("tqc", *CONTINUOUS, *ALL_AT_ONCE, "agent.network.n_critics=3"),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_five_kills_change_nothing_for_any_algorithm(shell: Shell, name: str) -> None:
    algorithm, env_id, *options = ALGORITHMS[name]
    certificate = shell.json(
        *("verify-resume", "--algo", algorithm, "--env", env_id, "--kills", "5"),
        *("train.total_timesteps=6144", "rollout.steps=16", *options),
        *("checkpoint.every=512", "eval.every=2048", "eval.episodes=5"),
        timeout_s=1200.0,
    )
    assert certificate["first_difference"] is None
    assert (certificate["level"], certificate["kills"]) == ("bitwise", 5)
