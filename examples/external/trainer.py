"""Random search on CartPole-v1 with the standard library alone: it knows nothing of rl_orch."""

import json
import random
from math import cos, sin
from os import environ
from pathlib import Path

from act import action


def episode(weights):
    """The steps for which the pole stays up, by the physics of CartPole-v1."""
    state = [random.uniform(-0.05, 0.05) for _ in range(4)]
    for length in range(1, 501):
        x, v, a, w = state
        f = ((10 if action(weights, state) else -10) + 0.05 * w**2 * sin(a)) / 1.1
        t = (9.8 * sin(a) - cos(a) * f) / (0.5 * (4 / 3 - 0.1 * cos(a) ** 2 / 1.1))
        state = [x + 0.02 * v, v + 0.02 * (f - 0.05 * t * cos(a) / 1.1), a + 0.02 * w, w + 0.02 * t]
        if abs(state[0]) > 2.4 or abs(state[2]) > 0.2095:
            return length
    return 500


random.seed(environ["RLCTL_SEED"] + environ["RLCTL_ATTEMPT"])
saved = environ.get("RLCTL_RESUME")
step, best, _ = json.loads(Path(saved).read_text()) if saved else (0, 0, None)
with open(environ["RLCTL_EVENTS"], "a", buffering=1) as said:
    while step < int(environ["RLCTL_TOTAL_TIMESTEPS"]):
        trial = [random.gauss(0, 1) for _ in range(4)]
        steps = sum(episode(trial) for _ in range(10))
        step += steps
        said.write(json.dumps({"step": step, "key": "episodic_return", "value": steps / 10}) + "\n")
        if steps > best:
            best = steps
            path = Path(environ["RLCTL_CHECKPOINTS"], f"{step}.json")
            path.write_text(json.dumps([step, best, trial]))
            said.write(json.dumps({"step": step, "checkpoint": path.name, "best": True}) + "\n")
