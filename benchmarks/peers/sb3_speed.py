"""One training by Stable-Baselines3, sb3-contrib or SBX on a task given as JSON; prints what was
measured as JSON.

Runs in an environment of its own, so it imports nothing of ours but the translation of specs.
"""

import json
import sys
import time
from importlib.metadata import version
from typing import Any

from benchmarks.peers.sb3_learning import PACKAGES, build


def main(task: dict[str, Any]) -> None:
    """Train once; the clock starts when the first update after the warm-up is complete."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    spec, peer = task["spec"], task["peer"]
    torch.set_num_threads(spec["resources"]["threads"])
    model = build(spec, peer)
    clock = _clock(task["warm_up"])
    model.learn(total_timesteps=spec["train"]["total_timesteps"], callback=clock)
    returns = [float(episode["r"]) for episode in model.ep_info_buffer]
    measured = {
        "steps": model.num_timesteps - clock.before,
        "seconds": clock.ended - clock.began,
        "returns": returns,
        "versions": {name: version(name) for name in PACKAGES[peer]},
    }
    print(json.dumps(measured))


def _clock(warm_up: int) -> Any:
    """A callback that reads the clock when an update is complete, and at the end."""
    from stable_baselines3.common.callbacks import BaseCallback  # type: ignore[import-not-found]

    class Clock(BaseCallback):  # type: ignore[misc]
        before, began, ended = 0, 0.0, 0.0

        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if not self.before and self.model.num_timesteps >= warm_up:
                self.before, self.began = self.model.num_timesteps, time.perf_counter()

        def _on_training_end(self) -> None:
            self.ended = time.perf_counter()

    return Clock()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
