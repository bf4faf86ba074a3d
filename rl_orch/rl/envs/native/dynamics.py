"""The dynamics of Gymnasium's classic control as kernels.

Every formula is Gymnasium 1.4's, with its order of operations and its precision. A copy is a row of
four numbers; kernels that do more can call `step_choice`, `step_move` and `observe_one`.

A row holds, in float64 and followed by zeros:
- cartpole: x, its velocity, the angle of the pole, its velocity
- mountain_car: position, velocity
- mountain_car_continuous: position, velocity, and 1 once the episode has been stepped
- acrobot: two angles, two velocities
- pendulum: angle, velocity
"""

import math
from typing import Any, TypeAlias

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from rl_orch.rl.jit import kernel, part

StateRow: TypeAlias = NDArray[np.float64]
StepOutcome: TypeAlias = tuple[float, bool]
"""A reward, and whether the episode is over."""

single, double = np.float32, np.float64

ROW = 4
"""Numbers in the row of a copy."""

CARTPOLE = 0
MOUNTAIN_CAR = 1
MOUNTAIN_CAR_CONTINUOUS = 2
ACROBOT = 3
PENDULUM = 4

KINDS = {
    "cartpole": CARTPOLE,
    "mountain_car": MOUNTAIN_CAR,
    "mountain_car_continuous": MOUNTAIN_CAR_CONTINUOUS,
    "acrobot": ACROBOT,
    "pendulum": PENDULUM,
}

TOTAL_MASS = 0.1 + 1.0
POLE_MASS_LENGTH = 0.1 * 0.5
THETA_LIMIT = 12 * 2 * math.pi / 360


@kernel
def step_choice(kind: int, row: StateRow, action: int) -> StepOutcome:
    """Step one copy in place by one of the choices."""
    if kind == CARTPOLE:
        return _cartpole(row, action)
    if kind == MOUNTAIN_CAR:
        return _mountain_car(row, action)
    return _acrobot(row, action)


@kernel
def step_move(kind: int, row: StateRow, action: Any) -> StepOutcome:
    """Step one copy in place by the only number of a Box, a float32."""
    if kind == MOUNTAIN_CAR_CONTINUOUS:
        return _mountain_car_continuous(row, action)
    return _pendulum(row, action)


def step_one(kind: int, row: StateRow, action: Any) -> StepOutcome:
    """Step one copy in place by a choice or a number, whichever it is."""
    return (step_choice if isinstance(action, int | np.integer) else step_move)(kind, row, action)


@overload(step_one)
def _step_one(kind: Any, row: Any, action: Any) -> Any:
    """Compiled code has only the kind of action that it is compiled for."""
    step = step_choice if isinstance(action, types.Integer) else step_move

    def stepped(kind: Any, row: Any, action: Any) -> Any:
        return step(kind, row, action)

    return stepped


@part
def observe_one(kind: int, row: StateRow, observation: NDArray[np.float32]) -> None:
    """Write what a copy shows."""
    if kind == CARTPOLE:
        for i in range(4):
            observation[i] = row[i]
    elif kind == ACROBOT:
        observation[0], observation[1] = math.cos(row[0]), math.sin(row[0])
        observation[2], observation[3] = math.cos(row[1]), math.sin(row[1])
        observation[4], observation[5] = row[2], row[3]
    elif kind == PENDULUM:
        observation[0], observation[1] = math.cos(row[0]), math.sin(row[0])
        observation[2] = row[1]
    else:
        observation[0], observation[1] = row[0], row[1]


@part
def allows(kind: int, action: Any) -> bool:
    """Whether an action is one of the choices; a Box takes any number."""
    if kind == CARTPOLE:
        return bool(0 <= action <= 1)
    if kind in (MOUNTAIN_CAR, ACROBOT):
        return bool(0 <= action <= 2)
    return True


@kernel
def step_all(
    kind: int,
    state: NDArray[np.float64],
    elapsed: NDArray[np.int64],
    limit: int,
    actions: NDArray[Any],
    observations: NDArray[np.float32],
    rewards: NDArray[np.float64],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
) -> int:
    """Step all copies in place; how many of their episodes ended.

    `actions` are (N,), int64 or float32. If one of them is none of the choices, nothing is stepped
    and the answer is -1.
    """
    for i in range(len(rewards)):
        if not allows(kind, actions[i]):
            return -1
    ended = 0
    for i in range(len(rewards)):
        rewards[i], terminated[i] = step_one(kind, state[i], actions[i])
        elapsed[i] += 1
        truncated[i] = elapsed[i] >= limit
        observe_one(kind, state[i], observations[i])
        if terminated[i] or truncated[i]:
            ended += 1
    return ended


@part
def _cartpole(row: StateRow, action: Any) -> StepOutcome:
    x, x_dot, theta, theta_dot = row[0], row[1], row[2], row[3]
    force = 10.0 if action == 1 else -10.0
    cos_theta, sin_theta = math.cos(theta), math.sin(theta)
    temp = (force + POLE_MASS_LENGTH * (theta_dot * theta_dot) * sin_theta) / TOTAL_MASS
    theta_acc = (9.8 * sin_theta - cos_theta * temp) / (
        0.5 * (4.0 / 3.0 - 0.1 * (cos_theta * cos_theta) / TOTAL_MASS)
    )
    x_acc = temp - POLE_MASS_LENGTH * theta_acc * cos_theta / TOTAL_MASS
    x, x_dot = x + 0.02 * x_dot, x_dot + 0.02 * x_acc
    theta, theta_dot = theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc
    row[0], row[1], row[2], row[3] = x, x_dot, theta, theta_dot
    return 1.0, x < -2.4 or x > 2.4 or theta < -THETA_LIMIT or theta > THETA_LIMIT


@part
def _mountain_car(row: StateRow, action: Any) -> StepOutcome:
    velocity = row[1] + ((action - 1) * 0.001 + math.cos(3 * row[0]) * (-0.0025))
    velocity = _clipped(velocity, -0.07, 0.07)
    position = _clipped(row[0] + velocity, -1.2, 0.6)
    if position == -1.2 and velocity < 0:
        velocity = 0.0
    row[0], row[1] = position, velocity
    return -1.0, position >= 0.5 and velocity >= 0


@part
def _mountain_car_continuous(row: StateRow, action: Any) -> StepOutcome:
    """Gymnasium computes in float32 wherever one of its float32 arrays takes part: the action does,
    unless it is clipped; the state does from the second step of an episode on."""
    given = single(action)
    stepped = row[2] == 1.0
    pull = 0.0025 * math.cos(double(single(3) * single(row[0])) if stepped else 3 * row[0])
    if given < -1.0:
        push = -1.0 * 0.0015 - pull
    elif given > 1.0:
        push = 1.0 * 0.0015 - pull
    else:
        push = double(given * single(0.0015) - single(pull))
    low, high, goal, fastest = -1.2, 0.6, 0.45, 0.07
    velocity = row[1] + push
    if stepped:
        low, high, goal, fastest = _rounded(low), _rounded(high), _rounded(goal), _rounded(fastest)
        velocity = double(single(row[1]) + single(push))
    velocity = _clipped(velocity, -fastest, fastest)
    position = row[0] + velocity
    if stepped:
        position = double(single(row[0]) + single(velocity))
    position = _clipped(position, low, high)
    if position == low and velocity < 0:
        velocity = 0.0
    terminated = position >= goal and velocity >= 0
    row[0], row[1], row[2] = _rounded(position), _rounded(velocity), 1.0
    reward = 100.0 if terminated else 0.0
    return reward - double(given) * double(given) * 0.1, terminated


@kernel
def _acrobot(row: StateRow, action: Any) -> StepOutcome:
    """One step of the classical Runge-Kutta method, of 0.2 s."""
    torque = action - 1.0
    a0, a1, a2, a3 = row[0], row[1], row[2], row[3]
    half = 0.2 / 2.0
    k0, k1, k2, k3 = _acrobot_slope(a0, a1, a2, a3, torque)
    l0, l1, l2, l3 = _acrobot_slope(
        a0 + half * k0, a1 + half * k1, a2 + half * k2, a3 + half * k3, torque
    )
    m0, m1, m2, m3 = _acrobot_slope(
        a0 + half * l0, a1 + half * l1, a2 + half * l2, a3 + half * l3, torque
    )
    n0, n1, n2, n3 = _acrobot_slope(
        a0 + 0.2 * m0, a1 + 0.2 * m1, a2 + 0.2 * m2, a3 + 0.2 * m3, torque
    )
    sixth = 0.2 / 6.0
    row[0] = _wrapped(a0 + sixth * (k0 + 2 * l0 + 2 * m0 + n0))
    row[1] = _wrapped(a1 + sixth * (k1 + 2 * l1 + 2 * m1 + n1))
    fastest = 4 * math.pi
    row[2] = _clipped(a2 + sixth * (k2 + 2 * l2 + 2 * m2 + n2), -fastest, fastest)
    fastest = 9 * math.pi
    row[3] = _clipped(a3 + sixth * (k3 + 2 * l3 + 2 * m3 + n3), -fastest, fastest)
    terminated = -math.cos(row[0]) - math.cos(row[1] + row[0]) > 1.0
    return 0.0 if terminated else -1.0, terminated


@kernel
def _acrobot_slope(
    theta1: float, theta2: float, dtheta1: float, dtheta2: float, torque: float
) -> tuple[float, float, float, float]:
    """The derivatives of an acrobot's state, as in the book of Sutton and Barto; both links are
    1 m long, weigh 1 kg, have their mass at 0.5 m and a moment of inertia of 1."""
    cos2, sin2 = math.cos(theta2), math.sin(theta2)
    d1 = 0.25 + (1.0 + 0.25 + 1.0 * cos2) + 1.0 + 1.0
    d2 = (0.25 + 0.5 * cos2) + 1.0
    two = _two(theta1)
    phi2 = 0.5 * 9.8 * math.cos(theta1 + theta2 - math.pi / 2.0)
    phi1 = (
        -0.5 * dtheta2**two * sin2
        - 1.0 * dtheta2 * dtheta1 * sin2
        + 1.5 * 9.8 * math.cos(theta1 - math.pi / 2)
        + phi2
    )
    ddtheta2 = (torque + d2 / d1 * phi1 - 0.5 * dtheta1**two * sin2 - phi2) / (
        0.25 + 1.0 - d2**two / d1
    )
    return dtheta1, dtheta2, -(d2 * ddtheta2 + phi1) / d1, ddtheta2


@part
def _wrapped(angle: float) -> float:
    turn = math.pi - -math.pi
    while angle > math.pi:
        angle = angle - turn
    while angle < -math.pi:
        angle = angle + turn
    return angle


@part
def _pendulum(row: StateRow, action: Any) -> StepOutcome:
    """Gymnasium's torque is a float32, and so is what it is multiplied with."""
    theta, theta_dot = row[0], row[1]
    torque = _clipped(single(action), single(-2.0), single(2.0))
    angle = (theta + math.pi) % (2 * math.pi) - math.pi
    two = _two(theta)
    effort = double(single(0.001) * torque ** single(two))
    cost = angle**two + 0.1 * theta_dot**two + effort
    push = double(single(3.0) * torque)
    theta_dot = theta_dot + (15.0 * math.sin(theta) + push) * 0.05
    theta_dot = _clipped(theta_dot, -8.0, 8.0)
    row[0], row[1] = theta + theta_dot * 0.05, theta_dot
    return -cost, False


@part
def _two(number: float) -> float:
    """2, though no compiler can know it, since the number might be infinite.

    A square of Gymnasium's is the `pow` of the C library. A compiler that sees the exponent makes a
    product of it, which differs in the last bit of about one number in a thousand.
    """
    return 2.0 + 0.0 * number


@part
def _clipped(number: Any, low: Any, high: Any) -> Any:
    """Within the bounds, or NaN if the number is."""
    if number < low:
        return low
    if number > high:
        return high
    return number


@part
def _rounded(number: float) -> float:
    """The nearest number of float32."""
    return double(single(number))
