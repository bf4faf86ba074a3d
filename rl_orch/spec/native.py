"""Which environments can be stepped natively, and for which specs. Data alone."""

from dataclasses import dataclass

from rl_orch.spec.model import Spec


@dataclass(frozen=True, slots=True)
class Native:
    """An environment that kernels step: the name of its dynamics, and the registered limit."""

    dynamics: str
    max_episode_steps: int


NATIVE = {
    "CartPole-v0": Native("cartpole", 200),
    "CartPole-v1": Native("cartpole", 500),
    "MountainCar-v0": Native("mountain_car", 200),
    "MountainCarContinuous-v0": Native("mountain_car_continuous", 999),
    "Acrobot-v1": Native("acrobot", 500),
    "Pendulum-v1": Native("pendulum", 200),
}
"""By Gymnasium's id."""


def why_not_native(spec: Spec) -> str | None:
    """Why `env.backend: native` cannot step the spec's environment, as a part of a sentence; None
    if it can."""
    if spec.env.id not in NATIVE:
        return f"env.id is {spec.env.id!r}, and it steps only {', '.join(NATIVE)}"
    if spec.env.kwargs:
        return f"env.kwargs is {spec.env.kwargs}, and it steps environments as they are registered"
    if spec.env.wrappers:
        return f"env.wrappers is {list(spec.env.wrappers)}, and it wraps no copies"
    if spec.obs.stack_frames is not None:
        return f"obs.stack_frames is {spec.obs.stack_frames}, and it stacks no frames"
    if spec.agent.action_masks:
        return "agent.action_masks is true, and it gives no masks"
    return None
