"""Every shipped spec can be carried out, and those that take seconds learn what they are for:
judged on episodes that training never saw. `make soak` has those that take longer."""

from contextlib import closing

import pytest

from rl_orch.gate import judge, rules_from
from rl_orch.rl.envs import describe
from rl_orch.rl.evaluate import evaluate, final_evaluation_seed
from rl_orch.rl.train import Training
from rl_orch.spec import checks, tuned
from rl_orch.spec.model import Spec
from rl_orch.spec.reader import read_spec
from rl_orch.spec.resolve import resolve
from tests.learning.recorder import MemoryOutlet

ALL = sorted(path.name for path in tuned.CONFIGS.glob("*.yaml"))
SOLVED = {
    "ppo-CartPole-v1.yaml": (475.0, (1, 2)),
    "ppo-Acrobot-v1.yaml": (-100.0, (1,)),
    "ppo-Pendulum-v1.yaml": (-200.0, (1,)),
    "a2c-CartPole-v1.yaml": (475.0, (1,)),
    "dqn-CartPole-v1.yaml": (475.0, (1,)),
    "qrdqn-CartPole-v1.yaml": (475.0, (1,)),
}
"""The return that counts as solved, and the seeds that are tried here."""

SHORT = (
    *("env.max_episode_steps=20", "eval.episodes=1", "gates.stop_when_solved=false"),
    *("train.batch_size=16", "train.learning_starts=8", "train.update_epochs=1"),
    *("rollout.steps=8", "env.num_envs=2", "train.total_timesteps=64", "eval.every=64"),
)


def of(name: str, *overrides: str) -> Spec:
    return resolve(read_spec(tuned.CONFIGS / name), overrides=overrides)


@pytest.mark.parametrize("name", ALL)
def test_a_shipped_spec_can_be_carried_out(name: str) -> None:
    whole = of(name)
    assert checks.unread(whole) == []
    assert describe.problems(whole, describe.describe(whole)) == []
    spec, recorder = of(name, *SHORT), MemoryOutlet()
    with closing(Training(spec, recorder)) as training:
        outcome = training.run()
    assert outcome.clock.value >= 64
    assert recorder.saved[-1][1] is not None


@pytest.mark.parametrize("name", [name for name in ALL if not name.startswith("experiment")])
def test_a_shipped_spec_is_found_by_algorithm_and_environment(name: str) -> None:
    spec = of(name)
    found = tuned.find(spec)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name, (_, seeds) in SOLVED.items() for seed in seeds]
)
def test_a_shipped_spec_reaches_the_level_that_counts_as_solved(name: str, seed: int) -> None:
    solves(name, seed, SOLVED[name][0])


def solves(name: str, seed: int, level: float) -> None:
    """Train, and judge the policy on fresh episodes."""
    spec = of(name, f"env.seed={seed}")
    with closing(Training(spec, MemoryOutlet())) as training:
        outcome = training.run()
    report = evaluate(
        training.policy,
        spec,
        episodes=spec.eval.final_episodes,
        seed=final_evaluation_seed(spec),
        deterministic=True,
        step=outcome.clock.value,
    )
    assert report.summary.mean >= level
    verdict = judge(report, None, rules_from(spec.gates), env_steps=outcome.clock.value)
    assert verdict is not None
    assert verdict.passed, verdict.checks
