"""Every algorithm of this package does what every algorithm does."""

from rl_orch.testing.algorithms import AlgorithmContract

REPLAYED = ("buffer.prioritized=true", "buffer.n_step=3", "obs.stack_frames=2", "buffer.size=300")
"""All that a replay buffer can do at once, and so small that it is overwritten."""


class TestPPO(AlgorithmContract):
    name = "ppo"
    overrides = ("train.update_epochs=4",)
    variants = (
        ("feature.encoder=lstm", "feature.embed_dim=8", "train.sequence_length=4"),
        ("obs.normalize=running", "obs.stack_frames=2", "train.normalize_reward=true"),
        ("train.clip_schedule=linear", "train.lr_schedule=cosine", "train.target_kl=0.01"),
    )


class TestA2C(AlgorithmContract):
    name = "a2c"
    overrides = ("rollout.steps=8", "train.optimizer=adam", "train.lr=1e-2")


class TestDQN(AlgorithmContract):
    name = "dqn"
    overrides = ("train.target_update_interval=64", "train.gradient_steps=8", "buffer.size=2000")
    variants = (REPLAYED, ("train.double_q=true", "agent.network.dueling=true", "buffer.size=200"))
    steps = 2048


class TestQRDQN(AlgorithmContract):
    name = "qrdqn"
    overrides = (
        "train.n_quantiles=8",
        "train.target_update_interval=64",
        "train.gradient_steps=8",
        "buffer.size=2000",
    )
    variants = (REPLAYED,)
    steps = 2048


class TestSAC(AlgorithmContract):
    name = "sac"
    overrides = ("train.batch_size=64", "train.gradient_steps=16", "buffer.size=2000")
    variants = (REPLAYED, ("train.use_sde=true", "train.sde_sample_freq=4"))
    steps = 2048


class TestTD3(AlgorithmContract):
    name = "td3"
    overrides = (
        "train.batch_size=64",
        "train.gradient_steps=16",
        "train.action_noise=0.3",
        "buffer.size=2000",
    )
    variants = (REPLAYED, ("train.learning_starts=300", "train.normalize_reward=true"))
    steps = 2048


class TestCrossQ(AlgorithmContract):
    name = "crossq"
    overrides = (
        "train.batch_size=64",
        "train.gradient_steps=32",
        "train.policy_delay=2",
        "agent.network.critic_hidden_sizes=[32]",
        "buffer.size=2000",
    )
    variants = (
        REPLAYED,
        ("train.use_sde=true", "train.sde_sample_freq=4"),
        ("obs.normalize=running", "train.policy_delay=5", "train.learning_starts=300"),
    )
    steps = 2048


class TestTQC(AlgorithmContract):
    name = "tqc"
    overrides = (
        "train.batch_size=64",
        "train.gradient_steps=16",
        "train.n_quantiles=8",
        "buffer.size=2000",
    )
    variants = (
        REPLAYED,
        ("train.use_sde=true", "train.sde_sample_freq=4"),
        ("agent.network.n_critics=3", "train.engine=torch", "train.learning_starts=300"),
    )
    steps = 2048
