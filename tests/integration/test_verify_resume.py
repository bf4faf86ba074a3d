"""The certificate, with real kills. `make soak` has it for every environment that is promised and
every algorithm, with five kills each.
"""

from pathlib import Path

import pytest

from tests.integration.conftest import SMALL, Shell
from tests.soak import uncopyable

BUDGET = (
    *SMALL,
    "train.total_timesteps=6144",
    "checkpoint.every=512",
    "eval.every=2048",
)

UNSEEDABLE = """
import os, time
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv
class Unseedable(CartPoleEnv):
    def step(self, action):
        time.sleep(0.001)  # A training that is over at once is hard to hit.
        observation, reward, terminated, truncated, info = super().step(action)
        noise = int.from_bytes(os.urandom(2), "little") / 65536
        return observation, reward + noise, terminated, truncated, info
gym.register("Unseedable-v0", Unseedable, max_episode_steps=50)
"""


def test_kills_change_nothing_and_the_certificate_is_shown(shell: Shell) -> None:
    """While collecting and learning overlap, and with what wrappers remember."""
    spec = ("--env", "CartPole-v1", *BUDGET, "obs.normalize=running", "obs.stack_frames=2")
    overlap = ("rollout.overlap=true", "env.backend=sync")
    certificate = shell.json("verify-resume", *spec, *overlap, "--kills", "2")
    assert certificate["first_difference"] is None
    assert (certificate["level"], certificate["kills"]) == ("bitwise", 2)
    assert certificate["checkpoints"] == 12
    assert [kill["attempt"] for kill in certificate["moments"]] == [1, 2]
    assert all(kill["resumed_at"] > 0 for kill in certificate["moments"])
    for name in ("undisturbed", "killed"):
        shown = shell.json("show", certificate[name])
        assert shown["certificate"] == certificate
        assert shown["resume"] == "bitwise"
    said = shell.run("show", certificate["killed"]).stdout
    assert "bitwise over 2 kills, 12 checkpoints" in said
    assert shown["attempt"] == 3
    assert [attempt["exit_code"] for attempt in shown["attempts"]] == [-9] * 2 + [0]
    assert shell.processes() == []


def test_a_kill_changes_nothing_with_a_replay_buffer_and_an_environment_that_cannot_be_copied(
    shell: Shell,
) -> None:
    (shell.folder / "walks.py").write_text(Path(uncopyable.__file__).read_text())
    spec = (
        *("--algo", "dqn", "--env", "walks:Uncopyable-v0", "train.total_timesteps=2048"),
        *("rollout.steps=16", "train.batch_size=32", "train.learning_starts=128"),
        *("train.gradient_steps=4", "env.num_envs=2", "agent.network.hidden_sizes=[32]"),
        *("buffer.size=1000", "buffer.prioritized=true", "buffer.n_step=3", "obs.stack_frames=2"),
        *("checkpoint.every=256", "eval.every=1024", "eval.episodes=2", "eval.final_episodes=10"),
    )
    certificate = shell.json("verify-resume", *spec, "--kills", "1")
    assert certificate["first_difference"] is None
    assert (certificate["level"], certificate["kills"]) == ("bitwise", 1)
    shown = shell.json("show", certificate["killed"])
    assert shown["exactness"]["method"] == "redriven"


@pytest.mark.soak
def test_an_environment_that_no_seed_reaches_is_approximate(shell: Shell) -> None:
    (shell.folder / "noisy.py").write_text(UNSEEDABLE)
    spec = ("--env", "noisy:Unseedable-v0", *BUDGET, "train.total_timesteps=2048")
    certificate = shell.json("verify-resume", *spec, "--kills", "1", code=3)
    assert certificate["level"] == "approximate"
    assert "no seed reaches" in certificate["reason"]
    assert certificate["first_difference"]["at"].startswith("checkpoint step_000000000512")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--kills", "0"), "greater than or equal to 1"),
        (("--seeds", "2"), "verify-resume takes one seed"),
    ],
)
def test_what_cannot_be_certified_is_refused(
    shell: Shell, arguments: tuple[str, ...], sentence: str
) -> None:
    refused = shell.json("verify-resume", "--env", "CartPole-v1", *arguments, code=2)
    assert sentence in refused["error"]["message"]
