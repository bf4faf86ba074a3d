"""Fused CPU kernels: small networks, their losses and optimisers, without returning to Python.

What is compiled is loaded when it is first asked for here: whoever trains in torch never waits.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl_orch.rl.envs.native.envs import NativeEnvs
    from rl_orch.rl.kernels.off_policy import CriticUpdates, ValueUpdates
    from rl_orch.rl.kernels.on_policy import KernelAssessor, Passes
    from rl_orch.rl.kernels.rollouts import Stepper
    from rl_orch.rl.learn.optimizer import Optimizer, Target
    from rl_orch.rl.policies.actor_critic import ActorCritic
    from rl_orch.rl.policies.nets import MLP
    from rl_orch.rl.policies.policy import Actor
    from rl_orch.rl.policies.q_network import ActionValues, QNetwork
    from rl_orch.rl.policies.twin_critics import ContinuousPolicy, TwinCritics


def compiled_note(what: str) -> str | None:
    """The file that says that all kernels for something have been compiled."""
    from rl_orch.rl.jit import note_of

    return note_of(what)


def compile_layers() -> None:
    """Compile what the updates of all algorithms call, by having nothing done; without torch."""
    import numpy as np

    from rl_orch.rl.kernels.dense import GOALS, TO_WEIGHTS, backward, forward
    from rl_orch.rl.kernels.optimizers import descend
    from rl_orch.rl.learn.optimizer_arrays import OptimizerArrays

    none, no_layers = np.empty(0, np.float32), np.empty((0, 8), np.int64)
    forward(none, no_layers, 0, none)
    backward(none, none, no_layers, 0, none, none, GOALS[TO_WEIGHTS])
    descend(OptimizerArrays(none, none, none, none, True, 1.0, 1.0, 0.0, 0.0), 1, 0.0)


def stepper(envs: "NativeEnvs") -> "Stepper":
    """What steps native environments for whole rollouts."""
    from rl_orch.rl.kernels.rollouts import Stepper

    return Stepper(envs)


def policy_actor(policy: "ActorCritic") -> "Actor":
    """What decides for an actor-critic."""
    from rl_orch.rl.kernels.on_policy import acting

    return acting(policy)


def assessor(policy: "ActorCritic") -> "KernelAssessor":
    """What says what an actor-critic thinks of transitions."""
    from rl_orch.rl.kernels.on_policy import KernelAssessor

    return KernelAssessor(policy)


def passes(policy: "ActorCritic", optimizer: "Optimizer") -> "Passes":
    """What improves an actor-critic."""
    from rl_orch.rl.kernels.on_policy import Passes

    return Passes(policy, optimizer)


def value_actor(policy: "QNetwork") -> "Actor":
    """What decides for a network of values."""
    from rl_orch.rl.kernels.off_policy import values_acting

    return values_acting(policy)


def value_updates(
    policy: "QNetwork", optimizer: "Optimizer", target: "Target[ActionValues]", *, double: bool
) -> "ValueUpdates":
    """What improves a network of values."""
    from rl_orch.rl.kernels.off_policy import ValueUpdates

    return ValueUpdates(policy, optimizer, target, double=double)


def move_actor(
    policy: "ContinuousPolicy", nets: list["MLP"], bounds: tuple[float, float] | None = None
) -> "Actor":
    """What decides for a policy of continuous actions, whose perceptrons follow one another; with
    bounds of log deviations for a squashed Gaussian."""
    from rl_orch.rl.kernels.off_policy import moves_acting

    return moves_acting(policy, nets, bounds)


def critic_updates(
    policy: "ContinuousPolicy",
    actor: list["MLP"],
    critics: "TwinCritics",
    target_critics: "Target[TwinCritics]",
    optimizers: Mapping[str, "Optimizer"],
    *,
    threads: int,
) -> "CriticUpdates":
    """What improves a policy of continuous actions and its critics."""
    from rl_orch.rl.kernels.off_policy import CriticUpdates

    return CriticUpdates(policy, actor, critics, target_critics, optimizers, threads=threads)
