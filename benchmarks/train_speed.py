"""How fast PPO trains, beside Stable-Baselines3 on the same workload, in the same run.

The two take turns, so that a slow moment of the machine hits both; the figure to read is the ratio.
Writes `benchmarks/results/train_speed.json`.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from rl_orch.io.manifest import git_commit

HERE = Path(__file__).parent
WORKLOADS: dict[str, dict[str, Any]] = {
    "W1": {"num_envs": 8, "steps": 256, "batch_size": 64, "update_epochs": 10},
    "W1b": {"num_envs": 64, "steps": 128, "batch_size": 2048, "update_epochs": 4},
}
COMMON = {"env": "CartPole-v1", "lr": 3e-4, "threads": 1, "seed": 1}


def main() -> None:
    """Measure, print a table, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", required=True, help="An interpreter that has SB3.")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rows = [_measure(name, options.peer_python, options.repeats) for name in WORKLOADS]
    for name, workload in WORKLOADS.items():
        print(f"{name}: PPO on {COMMON['env']}, {workload}")
    print("| workload | ours, steps/s | SB3, steps/s | ratio |")
    print("|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['workload']} | {row['ours']:,.0f} | {row['sb3']:,.0f} | {row['ratio']:.2f} |"
        )
    document = {
        "commit": git_commit(HERE),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "common": COMMON,
        "rows": rows,
    }
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "train_speed.json").write_text(json.dumps(document, indent=2) + "\n")


def _measure(name: str, peer_python: str, repeats: int) -> dict[str, Any]:
    workload = WORKLOADS[name] | COMMON | {"total_timesteps": 32_768 if name == "W1" else 131_072}
    ours, peer = [], []
    for _ in range(repeats):
        ours.append(_speed(sys.executable, "ours_ppo.py", workload))
        peer.append(_speed(peer_python, "sb3_ppo.py", workload))
    ratio = statistics.median(a / b for a, b in zip(ours, peer, strict=True))
    return {
        "workload": name,
        "spec": workload,
        "ours": statistics.median(ours),
        "sb3": statistics.median(peer),
        "ratio": ratio,
        "all_ours": ours,
        "all_sb3": peer,
    }


def _speed(python: str, script: str, workload: dict[str, Any]) -> float:
    command = [python, str(HERE / "peers" / script), json.dumps(workload)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{script} failed:\n{done.stderr}")
    figures = json.loads(done.stdout.splitlines()[-1])
    return float(figures["steps"]) / float(figures["seconds"])


if __name__ == "__main__":
    main()
