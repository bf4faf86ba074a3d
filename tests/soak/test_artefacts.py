"""A model of an off-policy run with a replay buffer of a million transitions."""

from collections.abc import Callable
from pathlib import Path

from tests.counting import bytes_read
from tests.integration.conftest import Shell

TRANSITIONS = 1_000_000
MOST_READ = 50_000_000
MOST_KEPT = 60_000_000
MOST_S = 1800.0
LARGE = (
    *("--env", "Pendulum-v1", "agent.algorithm=sac", "env.num_envs=64", "rollout.steps=64"),
    f"train.total_timesteps={TRANSITIONS}",
    f"train.learning_starts={TRANSITIONS - 10_000}",
    f"buffer.size={TRANSITIONS}",
    f"eval.every={TRANSITIONS // 4}",
    *("eval.episodes=4", "eval.final_episodes=10", "gates.min_return=-10000"),
    "gates.stability=false",
)


def test_a_large_buffer_is_not_read_to_promote_and_goes_once_its_run_succeeded(
    shell: Shell, record_property: Callable[[str, object], None]
) -> None:
    whole = shell.json("launch", *LARGE, "checkpoint.keep_training_state=always", timeout_s=MOST_S)
    assert size_of(Path(whole["path"]) / "replay") > 20 * TRANSITIONS
    promote = bytes_read(lambda: shell.json("promote", whole["id"], "--to", "production"))
    verify = bytes_read(lambda: shell.json("registry", "verify"))
    assert max(promote, verify) < MOST_READ
    run = shell.json("launch", *LARGE, timeout_s=MOST_S)
    kept, freed = size_of(Path(run["path"])), shell.json("show", run["id"])["let_go"]["bytes"]
    assert kept < MOST_KEPT
    assert freed > 20 * TRANSITIONS
    tune = (*LARGE, f"start.from={run['id']}", "start.parts=policy+optimizer")
    short = ("train.total_timesteps=65536", "train.learning_starts=64000", "eval.every=16384")
    tuned = shell.json("launch", *tune, *short, timeout_s=MOST_S)
    assert tuned["state"] == "succeeded"
    figures = {"promote": promote, "verify": verify, "kept": kept, "freed": freed}
    record_property("figures", str(figures))


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
