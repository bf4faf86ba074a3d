"""Every shipped spec learns what it is for, on three seeds, judged on episodes it never saw."""

from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest

from rl_orch.gate import judge, rules_from
from rl_orch.rl.evaluate import evaluate, final_evaluation_seed
from rl_orch.rl.train import Training
from rl_orch.spec.reader import read_spec
from rl_orch.spec.resolve import resolve
from tests.learning.outlet import MemoryOutlet

CONFIGS = Path(str(files("rl_orch") / "configs"))
SOLVED = {"acrobot.yaml": -100.0, "cartpole.yaml": 475.0, "pendulum.yaml": -260.0}
"""The return that each spec's own gate asks for, at least."""


def test_every_shipped_spec_is_tested() -> None:
    assert sorted(path.name for path in CONFIGS.glob("*.yaml")) == sorted(SOLVED)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", sorted(SOLVED))
def test_a_shipped_spec_reaches_the_level_that_counts_as_solved(name: str, seed: int) -> None:
    spec = resolve(read_spec(CONFIGS / name), overrides=[f"env.seed={seed}"])
    with closing(Training(spec, MemoryOutlet())) as training:
        outcome = training.run()
    report = evaluate(
        training.policy,
        spec,
        episodes=spec.eval.final_episodes,
        seed=final_evaluation_seed(spec),
        deterministic=True,
        step=outcome.env_steps,
    )
    assert report.summary.mean >= SOLVED[name]
    verdict = judge(report, None, rules_from(spec.gates), env_steps=outcome.env_steps)
    assert verdict is not None
    assert verdict.passed, verdict.checks
