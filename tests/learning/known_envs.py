"""Environments whose answers are known by hand. Importing this module registers them.

Also used by the unit tests: `Ladder` says exactly which rewards and ends come when.
"""

import math
import random
from abc import ABC, abstractmethod
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


class BanditBox(Known):
    """One step in a box that is not centred; the squared distance from (3, -2) is the cost."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space = spaces.Box(np.array([0.0, -3.0], np.float32), np.array([4.0, 1.0], np.float32))

    def step(self, action: Any) -> Step:
        return self.seen(), -float(np.square(action - np.array([3.0, -2.0])).sum()), True, False, {}


class DelayedReward(Known):
    """Five steps; the last pays 1 if the first action was 1.

    Only the time is seen, so that nothing in between tells what the first action was worth; if
    `told`, that action is seen as well.
    """

    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def __init__(self, told: bool = False) -> None:
        super().__init__()
        self.told, self.first = told, 0.0
        self.observation_space = spaces.Box(-1.0, 1.0, (6 if told else 5,))

    def seen(self) -> Any:
        time = np.eye(6, 5, dtype=np.float32)[self.t]
        told = self.first if self.t > 0 else 0.0
        return np.append(time, np.float32(told)) if self.told else time

    def step(self, action: Any) -> Step:
        if self.t == 0:
            self.first = float(np.ravel(action)[0])
        self.t += 1
        over = self.t == 5
        return self.seen(), self.first if over else 0.0, over, False, {}


class DelayedBox(DelayedReward):
    """As `DelayedReward`, but the last step pays what the first action was, from -1 to 1."""

    action_space = spaces.Box(-1.0, 1.0, (1,))


class Masked(Known):
    """Action 0 pays 1, action 1 pays 0.6, action 2 nothing; a forbidden one costs 10 and ends it.

    Only `info["action_mask"]` tells what is forbidden. The eight steps of an episode have each of
    four masks twice, in any order, so that the best return is 5.2.
    """

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space: spaces.Space[Any] = spaces.Discrete(3)
    masks = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 1], [0, 0, 1]], np.int8)
    pay = np.array([1.0, 0.6, 0.0])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        seen, _ = super().reset(seed=seed, options=options)
        self.order = np.append(self.np_random.permutation(8) % 4, 0)
        return seen, self.info()

    def info(self) -> dict[str, Any]:
        return {"action_mask": self.masks[self.order[self.t]].copy()}

    def step(self, action: Any) -> Step:
        if not self.info()["action_mask"][int(action)]:
            return self.seen(), -10.0, True, False, self.info()
        self.t += 1
        return self.seen(), float(self.pay[int(action)]), self.t == 8, False, self.info()


class MaskedPair(Masked):
    """As `Masked`, for two actions at a time; of the second, the order of payment is reversed."""

    action_space = spaces.MultiDiscrete([3, 3])

    def info(self) -> dict[str, Any]:
        mask = self.masks[self.order[self.t]]
        return {"action_mask": np.concatenate([mask, mask[::-1]])}

    def step(self, action: Any) -> Step:
        first, second = int(action[0]), int(action[1])
        allowed = self.info()["action_mask"].reshape(2, 3)
        if not (allowed[0, first] and allowed[1, second]):
            return self.seen(), -10.0, True, False, self.info()
        self.t += 1
        reward = (self.pay[first] + self.pay[2 - second]) / 2.0
        return self.seen(), float(reward), self.t == 8, False, self.info()


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


class IdentityMultiDiscrete(Known):
    """The answer is what is shown, one of three and one of two, counted from 1 and from 0."""

    observation_space = spaces.MultiDiscrete([3, 2])
    action_space = spaces.MultiDiscrete([3, 2], start=[1, 0])

    def seen(self) -> NDArray[np.int64]:
        self.shown = self.np_random.integers([3, 2])
        return self.shown

    def step(self, action: Any) -> Step:
        reward = float(np.mean(action - np.array([1, 0]) == self.shown))
        return self.seen(), reward, False, False, {}


class IdentityMultiBinary(Known):
    """The answer is the three bits that are shown; each right one pays a third."""

    observation_space = spaces.MultiBinary(3)
    action_space = spaces.MultiBinary(3)

    def seen(self) -> NDArray[np.int8]:
        self.shown = self.np_random.integers(2, size=3, dtype=np.int8)
        return self.shown

    def step(self, action: Any) -> Step:
        reward = float(np.mean(np.asarray(action) == self.shown))
        return self.seen(), reward, False, False, {}


Answer = Literal["Discrete", "Box", "MultiDiscrete", "MultiBinary"]

ANSWERS: dict[str, spaces.Space[Any]] = {
    "Discrete": spaces.Discrete(4),
    "Box": spaces.Box(-1.0, 1.0, (2,)),
    "MultiDiscrete": spaces.MultiDiscrete([2, 2]),
    "MultiBinary": spaces.MultiBinary(2),
}


class Quadrants(Known, ABC):
    """The answer is a quadrant, of four; subclasses say how it is shown.

    Right answers pay 1, right halves of an answer a half. In a Box, the answer is a step to the
    quadrant, and the farther the better. If `late`, the quadrant that was shown one step before is
    asked for; at the first step, this one.
    """

    def __init__(self, answer: Answer = "Discrete", late: bool = False) -> None:
        super().__init__()
        self.answer, self.late = answer, late
        self.action_space = ANSWERS[answer]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        seen, info = super().reset(seed=seed, options=options)
        self.asked = self.shown
        return seen, info

    def seen(self) -> Any:
        self.shown = self.np_random.integers(2, size=2)
        return self.drawn(self.shown)

    @abstractmethod
    def drawn(self, quadrant: NDArray[np.int64]) -> Any:
        """What is seen of a quadrant: upper or lower, left or right."""

    def step(self, action: Any) -> Step:
        reward, before = self.paid(action), self.shown
        seen = self.seen()
        self.asked = before if self.late else self.shown
        return seen, reward, False, False, {}

    def paid(self, action: Any) -> float:
        """What an answer to the quadrant that is asked for is worth."""
        if self.answer == "Discrete":
            return float(int(action) == 2 * self.asked[0] + self.asked[1])
        if self.answer == "Box":
            return float(np.mean(action * (2 * self.asked - 1)))
        return float(np.mean(np.asarray(action) == self.asked))


class IdentityVector(Quadrants):
    """The quadrant is shown as two signs."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))

    def drawn(self, quadrant: NDArray[np.int64]) -> NDArray[np.float32]:
        return (2 * quadrant - 1).astype(np.float32)


class IdentityImage(Quadrants):
    """The quadrant is the bright one of an image; from 36 pixels on, channels come first."""

    def __init__(self, answer: Answer = "Discrete", late: bool = False, size: int = 12) -> None:
        super().__init__(answer, late)
        self.shape = (1, size, size) if size >= 36 else (size, size, 1)
        self.half = size // 2
        self.observation_space = spaces.Box(0, 255, self.shape, np.uint8)

    def drawn(self, quadrant: NDArray[np.int64]) -> NDArray[np.uint8]:
        image = np.zeros((2, self.half, 2, self.half), np.uint8)
        image[quadrant[0], :, quadrant[1], :] = 255
        return image.reshape(self.shape)


class IdentityDict(Quadrants):
    """An image tells upper from lower, two numbers left from right, and a third part nothing."""

    observation_space = spaces.Dict(
        {
            "picture": spaces.Box(0, 255, (36, 36), np.uint8),
            "side": spaces.Box(-1.0, 1.0, (2,)),
            "noise": spaces.Discrete(3),
        }
    )

    def drawn(self, quadrant: NDArray[np.int64]) -> dict[str, Any]:
        picture = np.zeros((2, 18, 36), np.uint8)
        picture[quadrant[0]] = 255
        sign = np.float32(2 * quadrant[1] - 1)
        return {
            "picture": picture.reshape(36, 36),
            "side": np.array([sign, -sign]),
            "noise": self.np_random.integers(3),
        }


class Recall(Known):
    """The first of four steps shows a sign; the last pays 1 if its action names that sign.

    Whoever remembers nothing is right half of the time. The last step is marked.
    """

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)

    def seen(self) -> NDArray[np.float32]:
        if self.t > 0:
            return np.array([0.0, self.t == 3], np.float32)
        self.cue = int(self.np_random.integers(2))
        return np.array([2 * self.cue - 1, 0.0], np.float32)

    def step(self, action: Any) -> Step:
        right = self.t == 3 and int(action) == self.cue
        self.t += 1
        return self.seen(), float(right), self.t == 4, False, {}


class Forever(Known):
    """Pays 1 a step and never ends; a time limit only cuts it short, so V = 1 / (1 - gamma)."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def step(self, action: Any) -> Step:
        return self.seen(), 1.0, False, False, {}


class ForeverBox(Forever):
    """As `Forever`, whatever number is answered."""

    action_space = spaces.Box(-1.0, 1.0, (1,))


class Countdown(Known):
    """Pays 1 a step and ends after four, so V = 1 + gamma + ... over the steps that are left."""

    observation_space = spaces.Box(0.0, 1.0, (4,))
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def seen(self) -> Any:
        return np.eye(5, 4, dtype=np.float32)[self.t]

    def step(self, action: Any) -> Step:
        self.t += 1
        return self.seen(), 1.0, self.t == 4, False, {}


class CountdownBox(Countdown):
    """As `Countdown`, whatever number is answered."""

    action_space = spaces.Box(-1.0, 1.0, (1,))


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


class Goals(Known):
    """An environment with goals: a step pays 0 where it reaches what was asked for, else -1."""

    def __init__(self) -> None:
        super().__init__()
        self.at = self.goal = np.zeros(1, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        gymnasium.Env.reset(self, seed=seed)
        self.at, self.goal = self.drawn(), self.drawn()
        return self.seen(), {}

    def drawn(self) -> NDArray[np.float32]:
        raise NotImplementedError

    def seen(self) -> dict[str, NDArray[np.float32]]:
        at = self.at.copy()
        return {"observation": at, "achieved_goal": at, "desired_goal": self.goal.copy()}

    def paid(self) -> Step:
        reward = float(self.compute_reward(self.at[None], self.goal[None], [{}])[0])
        return self.seen(), reward, False, False, {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> NDArray[np.float64]:
        return np.where(np.linalg.norm(achieved - desired, axis=-1) <= self.near, 0.0, -1.0)

    near = 0.0


def _goals(low: float, high: float, size: int) -> spaces.Dict:
    names = ("observation", "achieved_goal", "desired_goal")
    return spaces.Dict({name: spaces.Box(low, high, (size,)) for name in names})


BITS = 8


class BitFlip(Goals):
    """Eight bits, one of which is flipped in a step, or none; all have to be as was asked for.

    The best policy needs as many steps as bits differ, and pays for all of them but the last.
    """

    observation_space = _goals(0.0, 1.0, BITS)
    action_space = spaces.Discrete(BITS + 1)

    def drawn(self) -> NDArray[np.float32]:
        return self.np_random.integers(0, 2, BITS).astype(np.float32)

    def step(self, action: Any) -> Step:
        if action < BITS:
            self.at[action] = 1.0 - self.at[action]
        return self.paid()


class Reach(Goals):
    """A point in a square, which moves by up to 0.3 along each axis, has to come within 0.1."""

    observation_space = _goals(-1.0, 1.0, 2)
    action_space = spaces.Box(-0.3, 0.3, (2,))
    near = 0.1

    def drawn(self) -> NDArray[np.float32]:
        return self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)

    def step(self, action: Any) -> Step:
        self.at = np.clip(self.at + action, -1.0, 1.0).astype(np.float32)
        return self.paid()


ENVS = (
    *(Bandit, BanditBox, DelayedReward, DelayedBox, Masked, MaskedPair, Recall),
    *(Forever, ForeverBox, Countdown, CountdownBox, Ladder, Dice),
)
ENDLESS = (
    *(Identity, IdentityBox, IdentityMultiDiscrete, IdentityMultiBinary),
    *(IdentityVector, IdentityImage, IdentityDict, BitFlip, Reach),
)
"""Those that go on until a time limit of 16 steps."""

for kind in (*ENVS, *ENDLESS):
    limit = 16 if kind in ENDLESS else 8 if issubclass(kind, Forever) else None
    gymnasium.register(f"{kind.__name__}-v0", f"{MODULE}:{kind.__name__}", max_episode_steps=limit)
