"""What is learned, with which budget, and what counts as learned; configs have the rest."""

from dataclasses import dataclass
from typing import Any

from rl_orch.spec import tuned
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve

EPISODES = 20
"""Episodes of each evaluation, the most likely action taken."""

POINTS = 20
"""Evaluations of each run, at equal distances; the last one is at the end of the budget."""

SOONER = ("train.learning_starts=1000",)
"""Of a budget that small, the usual 10,000 random steps would be half, and nothing be learned."""


@dataclass(frozen=True, slots=True)
class Task:
    """One algorithm in one environment.

    Learned is what reaches `threshold`, or, where that is None, what is not below the interval of
    the peer. `overrides` hold for both sides.
    """

    algorithm: str
    env: str
    env_steps: int
    threshold: float | None
    seeds: int = 5
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What to call it; the name of its example spec, where there is one."""
        return f"{self.algorithm}-{self.env}"


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
    )
}


def spec_of(task: Task, *, seed: int, share: float = 1.0) -> Spec:
    """What both sides train: the example spec of the task, or else the algorithm's defaults.

    `share` is the part of the budget that is used.
    """
    asked: dict[str, dict[str, Any]] = {
        "env": {"id": task.env},
        "agent": {"algorithm": task.algorithm},
    }
    example = tuned.find(resolve(asked))
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
