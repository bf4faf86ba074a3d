"""`KernelEngine`: kernels behind the `Engine` seam. Loaded by name, with Numba, when chosen."""

from rl_orch.rl.envs.native.envs import NativeEnvs
from rl_orch.rl.envs.vector import Envs
from rl_orch.rl.kernels import off_policy, on_policy
from rl_orch.rl.kernels.act import KernelActor
from rl_orch.rl.kernels.rollouts import KernelStepper
from rl_orch.rl.learn.engine import Engine, TrainedCritics
from rl_orch.rl.learn.optimizer import Optimizer, Target
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import PolicyModule, Traced, untraced
from rl_orch.rl.policies.q_network import ActionValues, QNetwork
from rl_orch.rl.policies.twin_critics import ContinuousPolicy
from rl_orch.spec.part_traits import ENGINES


class KernelEngine(Engine):
    """Fused CPU kernels for the policies of our algorithms."""

    traits = ENGINES["kernels"]

    def actor(self, policy: PolicyModule) -> KernelActor:
        """An actor in kernels; there is one for each kind of policy that has updates."""
        if isinstance(policy, ActorCritic):
            return on_policy.actor(policy)
        if isinstance(policy, QNetwork):
            return off_policy.value_actor(policy)
        assert isinstance(policy, ContinuousPolicy)
        return off_policy.move_actor(policy)

    def assessor(self, policy: ActorCritic) -> on_policy.KernelAssessor:
        """Estimates in kernels."""
        return on_policy.KernelAssessor(policy)

    def policy_updates(
        self, policy: ActorCritic, optimizer: Optimizer
    ) -> on_policy.KernelPolicyUpdates:
        """Updates of an actor-critic in kernels."""
        return on_policy.KernelPolicyUpdates(policy, optimizer)

    def value_updates(
        self, policy: QNetwork, optimizer: Optimizer, target: Target[ActionValues], *, double: bool
    ) -> off_policy.KernelValueUpdates:
        """Updates of a Q-network in kernels."""
        return off_policy.KernelValueUpdates(policy, optimizer, target, double=double)

    def critic_updates(self, trained: TrainedCritics) -> off_policy.KernelCriticUpdates:
        """Updates of twin critics and their policy in kernels."""
        return off_policy.KernelCriticUpdates(trained)

    def stepper(self, envs: Envs, traced: Traced = untraced) -> KernelStepper | None:
        """Rollouts in kernels, of native environments."""
        return KernelStepper(envs, traced) if isinstance(envs, NativeEnvs) else None
