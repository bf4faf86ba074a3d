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
