"""How long 1,000 evaluation episodes of CartPole-v1 take, beside SB3's `evaluate_policy`; with
`--quick`, 100 of them once, which only shows that it works and is kept nowhere.

One policy for both: PPO is trained for a few seconds, and its weights are given to SB3, which is
tried with one environment and with several. Sides take turns, three times; medians count, and all
must score alike. Writes `benchmarks/results/evaluation_speed.json`.
"""

import argparse
import json
import platform
import statistics
import subprocess
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from rl_orch.io.run.manifest import fingerprint, git_commit
from rl_orch.rl.evaluate import Evaluator, lanes_alone
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import Actor
from rl_orch.rl.seeding import seed_all
from rl_orch.rl.train import Training
from rl_orch.rl.training_recorder import NullRecorder
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve

HERE = Path(__file__).parent
PEER = HERE / "peers" / "sb3_evaluate.py"
COPIES = (1, 16)
LEAST = 450.0


def main() -> None:
    """Measure, print a table, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="100 episodes, once, kept nowhere")
    parser.add_argument("--peer-python", default=".venv-peers/bin/python")
    options = parser.parse_args()
    if options.quick:
        options.episodes, options.repeats = 100, 1
    torch.set_num_threads(1)
    spec = resolve({"env": {"id": "CartPole-v1"}}, overrides=["train.total_timesteps=100000"])
    policy, actor = _trained(spec)
    sides: dict[str, list[dict[str, Any]]] = {}
    with TemporaryDirectory() as folder:
        weights = _written(policy, Path(folder) / "weights.npz")
        for _ in range(options.repeats):
            sides.setdefault("ours", []).append(_ours(actor, spec, options.episodes))
            for copies in COPIES:
                words = [
                    options.peer_python,
                    str(PEER),
                    weights,
                    str(options.episodes),
                    str(copies),
                ]
                found = json.loads(subprocess.check_output(words, text=True).splitlines()[-1])
                sides.setdefault(f"SB3, {copies} environments", []).append(found)
    medians = {name: statistics.median(run["seconds"] for run in sides[name]) for name in sides}
    ratios = {name: medians[name] / medians["ours"] for name in sides}
    print(f"| {options.episodes} episodes | seconds | mean return | as long as ours |")
    print("|---|---|---|---|")
    for name, runs in sides.items():
        print(f"| {name} | {medians[name]:.2f} | {runs[0]['mean']:.1f} | {ratios[name]:.1f} × |")
    low = [name for name, runs in sides.items() if min(run["mean"] for run in runs) < LEAST]
    document = {
        "commit": git_commit(HERE),
        "python": platform.python_version(),
        "fingerprint": fingerprint(spec),
        "episodes": options.episodes,
        "repeats": options.repeats,
        "median_seconds": medians,
        "times_ours": ratios,
        "runs": sides,
    }
    file = HERE / "results" / "evaluation_speed.json"
    if not options.quick:
        file.write_text(json.dumps(document, indent=2) + "\n")
    if low:
        raise SystemExit(f"a mean return below {LEAST:g}: {', '.join(low)}")


def _trained(spec: Spec) -> tuple[ActorCritic, Actor]:
    seed_all(spec.env.seed)
    with closing(Training(spec, NullRecorder())) as training:
        while training.env_steps < spec.train.total_timesteps:
            training.train_step()
        assert isinstance(training.policy, ActorCritic)
        return training.policy, training.actor


def _written(policy: ActorCritic, path: Path) -> str:
    layers: Any = [layer for layer in policy.actor.modules() if isinstance(layer, torch.nn.Linear)]
    arrays = {f"weight{n}": layer.weight.detach().numpy() for n, layer in enumerate(layers)}
    arrays |= {f"bias{n}": layer.bias.detach().numpy() for n, layer in enumerate(layers)}
    np.savez(path, **arrays)
    return str(path)


def _ours(policy: Actor, spec: Spec, episodes: int) -> dict[str, Any]:
    with closing(Evaluator(spec, lanes=lanes_alone(spec))) as evaluator:
        began = time.perf_counter()
        played = evaluator.play(policy, episodes=episodes, seed=7, deterministic=True)
        took = time.perf_counter() - began
    return {"seconds": took, "mean": statistics.fmean(each.ret for each in played)}


if __name__ == "__main__":
    main()
