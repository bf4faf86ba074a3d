"""What is learned, with which budget, and what counts as learned; configs have the rest."""

from dataclasses import dataclass
from typing import Any

from rl_orch.spec import tuned
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve

EPISODES = 20
"""Episodes of each evaluation, the most likely action taken."""

TITLES = {"qrdqn": "QR-DQN", "crossq": "CrossQ"}

POINTS = 20
"""Evaluations of each run, at equal distances; the last one is at the end of the budget."""

SOONER = ("train.learning_starts=1000",)
"""Of a budget that small, the usual 10,000 random steps would be half, and nothing be learned."""

PEER_DEFAULTS = {"ppo": ("env.num_envs=1", "rollout.steps=2048")}
"""Where the defaults of our algorithms are not those of the peer's, the peer's."""

QUICK_Q = ("train.lr=1e-3", "train.target_update_interval=500")
"""With their defaults, DQN and QR-DQN would copy the target but twice in a budget that small."""

FEW = "train.n_quantiles=25"
"""With its own 200, an update of the peer takes ten times as long."""

SMALL = ("agent.network.hidden_sizes=[64, 64]",)
"""A network in which the peer's updates take a third of the time that they take in its own."""

NARROW = "agent.network.critic_hidden_sizes=[256, 256]"
"""CrossQ's own critics of 1,024 take days on a CPU, with as many seeds on both sides."""

SMALL_BOTH = (*SMALL, "agent.network.critic_hidden_sizes=[64, 64]")
"""CrossQ's critics, as small as `SMALL` makes policies."""


@dataclass(frozen=True, slots=True)
class Task:
    """One algorithm in one environment.

    Learned is what reaches `threshold`, or, where that is None, what is not below the interval of
    the peer. `overrides` hold for both sides. With `equal`, both sides train with the peer's
    defaults, but for `overrides`, and the difference between them counts; with `in_torch`, ours is
    trained once more without kernels; with `sbx`, there is a second peer.
    """

    algorithm: str
    env: str
    env_steps: int
    threshold: float | None
    seeds: int = 5
    overrides: tuple[str, ...] = ()
    episodes: int = EPISODES
    points: int = POINTS
    equal: bool = False
    in_torch: bool = False
    sbx: bool = False

    @property
    def name(self) -> str:
        """What to call it; the name of its example spec, where one is used."""
        return f"{self.algorithm}-{self.env}{'-equal' if self.equal else ''}"

    @property
    def title(self) -> str:
        """What tables and panels call it."""
        return f"{TITLES.get(self.algorithm, self.algorithm.upper())} · {self.env}"


def _with_sbx(algorithm: str, env: str, env_steps: int, *overrides: str) -> Task:
    """A task with two peers, evaluated less often than others: theirs is slow at it."""
    return Task(
        algorithm, env, env_steps, None, overrides=overrides, episodes=10, points=10, sbx=True
    )


TASKS = {
    task.name: task
    for task in (
        Task("ppo", "CartPole-v1", 100_000, 475.0),
        Task("a2c", "CartPole-v1", 200_000, 475.0),
        Task("dqn", "CartPole-v1", 100_000, 475.0),
        Task("qrdqn", "CartPole-v1", 100_000, 475.0),
        Task("ppo", "Acrobot-v1", 100_000, -100.0),
        Task("dqn", "Acrobot-v1", 100_000, -100.0),
        Task("ppo", "Pendulum-v1", 200_000, -200.0),
        Task("sac", "Pendulum-v1", 20_000, -200.0),
        Task("td3", "Pendulum-v1", 20_000, -200.0),
        Task("ppo", "LunarLander-v3", 1_000_000, 200.0),
        Task("dqn", "LunarLander-v3", 200_000, 150.0),
        Task("sac", "MountainCarContinuous-v0", 50_000, 90.0, overrides=("train.use_sde=true",)),
        Task("sac", "HalfCheetah-v5", 20_000, None, seeds=3, overrides=SOONER),
        Task("td3", "HalfCheetah-v5", 20_000, None, seeds=20, overrides=SOONER),
        _with_sbx("tqc", "Pendulum-v1", 20_000, *SMALL),
        _with_sbx("tqc", "HalfCheetah-v5", 10_000, *SOONER, *SMALL),
        _with_sbx("crossq", "Pendulum-v1", 20_000, *SMALL_BOTH),
        _with_sbx("crossq", "HalfCheetah-v5", 10_000, *SOONER, *SMALL_BOTH),
    )
}


def _equal(
    algorithm: str, env: str, env_steps: int, *overrides: str, in_torch: bool = False
) -> Task:
    """A task in which the sides differ in nothing that is an option."""
    return Task(
        algorithm,
        env,
        env_steps,
        threshold=None,
        seeds=10,
        overrides=(*PEER_DEFAULTS.get(algorithm, ()), *overrides),
        episodes=10,
        points=10,
        equal=True,
        in_torch=in_torch,
    )


EQUAL = {
    task.name: task
    for task in (
        _equal("ppo", "CartPole-v1", 30_000, in_torch=True),
        _equal("ppo", "LunarLander-v3", 120_000),
        _equal("ppo", "InvertedPendulum-v5", 20_000),
        _equal("ppo", "HalfCheetah-v5", 20_000),
        _equal("a2c", "CartPole-v1", 50_000, in_torch=True),
        _equal("a2c", "Acrobot-v1", 50_000),
        _equal("a2c", "InvertedPendulum-v5", 50_000),
        _equal("dqn", "CartPole-v1", 20_000, *QUICK_Q, in_torch=True),
        _equal("dqn", "Acrobot-v1", 25_000),
        _equal("dqn", "LunarLander-v3", 25_000, *QUICK_Q),
        _equal("qrdqn", "CartPole-v1", 20_000, *QUICK_Q, FEW, in_torch=True),
        _equal("qrdqn", "Acrobot-v1", 15_000, FEW),
        _equal("qrdqn", "LunarLander-v3", 15_000, *QUICK_Q, FEW),
        _equal("sac", "Pendulum-v1", 3_000),
        _equal("sac", "InvertedPendulum-v5", 4_000, *SMALL, in_torch=True),
        _equal("sac", "HalfCheetah-v5", 4_000, *SMALL),
        _equal("td3", "Pendulum-v1", 3_000),
        _equal("td3", "InvertedPendulum-v5", 4_000, *SMALL, in_torch=True),
        _equal("td3", "HalfCheetah-v5", 4_000, *SMALL),
        _equal("tqc", "Pendulum-v1", 3_000),
        _equal("tqc", "InvertedPendulum-v5", 4_000, *SMALL, in_torch=True),
        _equal("tqc", "HalfCheetah-v5", 4_000, *SMALL),
        _equal("crossq", "Pendulum-v1", 3_000, NARROW),
        _equal("crossq", "InvertedPendulum-v5", 4_000, *SMALL_BOTH),
        _equal("crossq", "HalfCheetah-v5", 4_000, *SMALL_BOTH),
    )
}
"""Every algorithm beside the peer's with the peer's defaults: at least three environments each."""


def spec_of(task: Task, *, seed: int, share: float = 1.0) -> Spec:
    """What both sides train: the example spec of the task, or else the algorithm's defaults.

    `share` is the part of the budget that is used.
    """
    asked: dict[str, dict[str, Any]] = {
        "env": {"id": task.env},
        "agent": {"algorithm": task.algorithm},
    }
    example = None if task.equal else tuned.find(resolve(asked))
    known = {} if example is None else tuned.hyperparameters(example)
    document = dict(known) | {group: {**known.get(group, {}), **asked[group]} for group in asked}
    steps = max(round(task.env_steps * share), 1)
    # Another budget than the example's may begin before what the example waits for.
    starts = dict(known.get("train", {})).get("learning_starts")
    waits = [] if starts is None else [f"train.learning_starts={min(int(starts), steps // 2)}"]
    return resolve(
        document,
        overrides=[f"env.seed={seed}", f"train.total_timesteps={steps}", *waits, *task.overrides],
    )
