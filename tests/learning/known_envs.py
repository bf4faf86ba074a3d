"""Environments whose answers are known by hand. Importing this module registers them.

Also used by the unit tests: `Ladder` says exactly which rewards and ends come when.
"""

import math
import random
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

MODULE = __name__

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class Known(gymnasium.Env[Any, Any]):
    """An environment that counts its steps; subclasses say what is seen and what is paid."""

    def __init__(self) -> None:
        self.t = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.seen(), {}

    def seen(self) -> Any:
        return np.zeros(1, np.float32)


class Bandit(Known):
    """One step, three arms that are counted from 5; the second pays 1, the third a half."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space = spaces.Discrete(3, start=5)

    def step(self, action: Any) -> Step:
        return self.seen(), {5: 0.0, 6: 1.0, 7: 0.5}[int(action)], True, False, {}


class DelayedReward(Known):
    """Five steps; the last pays 1 if the first action was 1. Only the time is seen."""

    observation_space = spaces.Box(0.0, 1.0, (5,))
    action_space = spaces.Discrete(2)

    def seen(self) -> Any:
        return np.eye(6, 5, dtype=np.float32)[self.t]

    def step(self, action: Any) -> Step:
        if self.t == 0:
            self.first = int(action)
        self.t += 1
        over = self.t == 5
        return self.seen(), float(over and self.first == 1), over, False, {}


class Identity(Known):
    """The answer is what is shown, one of four; each right one pays 1."""

    observation_space = spaces.Discrete(4)
    action_space = spaces.Discrete(4)

    def seen(self) -> np.int64:
        self.shown = self.np_random.integers(4)
        return self.shown

    def step(self, action: Any) -> Step:
        reward = float(int(action) == int(self.shown))
        return self.seen(), reward, False, False, {}


class IdentityBox(Known):
    """The answer is the point that is shown, of two numbers; the squared distance is the cost."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Box(-1.0, 1.0, (2,))

    def seen(self) -> NDArray[np.float32]:
        self.shown = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return self.shown

    def step(self, action: Any) -> Step:
        reward = -float(np.square(action - self.shown).sum())
        return self.seen(), reward, False, False, {}


class Forever(Known):
    """Pays 1 a step and never ends; a time limit only cuts it short, so V = 1 / (1 - gamma)."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space = spaces.Discrete(2)

    def step(self, action: Any) -> Step:
        return self.seen(), 1.0, False, False, {}


class Countdown(Known):
    """Pays 1 a step and ends after four, so V = 1 + gamma + ... over the steps that are left."""

    observation_space = spaces.Box(0.0, 1.0, (4,))
    action_space = spaces.Discrete(2)

    def seen(self) -> Any:
        return np.eye(5, 4, dtype=np.float32)[self.t]

    def step(self, action: Any) -> Step:
        self.t += 1
        return self.seen(), 1.0, self.t == 4, False, {}


class Ladder(Known):
    """Shows the rung, pays its number, and ends at the top in the way it was told to.

    It hands out its own memory, as careless environments do. `poison` makes one rung pay NaN.
    """

    observation_space = spaces.Box(-math.inf, math.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(
        self,
        length: int = 2,
        end: Literal["terminated", "truncated"] = "terminated",
        poison: int | None = None,
    ) -> None:
        super().__init__()
        self.length, self.end, self.poison = length, end, poison
        self.rung = np.zeros(1)

    def seen(self) -> NDArray[np.float64]:
        self.rung[0] = self.t
        return self.rung

    def step(self, action: Any) -> Step:
        self.t += 1
        top = self.t == self.length
        reward = math.nan if self.t == self.poison else float(self.t)
        terminated, truncated = top and self.end == "terminated", top and self.end == "truncated"
        return self.seen(), reward, terminated, truncated, {}


class Dice(Known):
    """Throws Python's, NumPy's and its own dice; an episode ends at random and pays its throws."""

    observation_space = spaces.Box(-math.inf, math.inf, (2,))
    action_space = spaces.Box(-0.5, 0.5, (1,))

    def seen(self) -> NDArray[np.float32]:
        return np.array([self.np_random.random(), self.t], np.float32)

    def step(self, action: Any) -> Step:
        self.t += 1
        reward = random.random() + np.random.random() + float(action[0])
        return self.seen(), reward, bool(self.np_random.random() < 0.2), False, {}


LIMITS = {Identity: 16, IdentityBox: 16, Forever: 8}

for kind in (Bandit, DelayedReward, Identity, IdentityBox, Forever, Countdown, Ladder, Dice):
    gymnasium.register(
        f"{kind.__name__}-v0", f"{MODULE}:{kind.__name__}", max_episode_steps=LIMITS.get(kind)
    )
