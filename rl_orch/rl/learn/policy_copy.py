"""`PolicyCopy`: a policy that acts in place of another one, in a thread or a process elsewhere."""

from dataclasses import dataclass

from rl_orch.errors import BadInput
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.learn.learner import Learner, algorithm
from rl_orch.rl.policies.exploration import ActorWrapper
from rl_orch.rl.policies.policy import Actor, PolicyModule, Setup, load_module, module_state


@dataclass(frozen=True, slots=True)
class PolicyCopy:
    """A policy without a learner, and its actor, which explores as the learner's does."""

    policy: PolicyModule
    actor: Actor

    @classmethod
    def build(cls, setup: Setup) -> "PolicyCopy":
        """A copy for the algorithm of a spec; with weights of its own until it is given others."""
        chosen = algorithm(setup.spec.agent.algorithm)
        policy = chosen.build_policy(setup)
        build = getattr(chosen, "build_behaviour", None)
        return cls(policy, policy if build is None else build(policy, setup))

    def load_state(self, state: StateTree) -> None:
        """Become what `behaviour_state` told of."""
        load_module(self.policy, state.under("policy"), what="policy")
        if isinstance(self.actor, ActorWrapper):
            self.actor.load_state(state.under("exploration"))


def behaviour_state(learner: Learner) -> StateTree:
    """The weights and normalisers of a learner's policy, and how it explores now; copies."""
    actor, policy = learner.behaviour, learner.policy
    if actor is not policy and not hasattr(learner, "build_behaviour"):
        raise BadInput(
            f"{type(learner).__name__} does not say how its policy explores elsewhere",
            path="rollout.collector",
            hint="Give the algorithm a build_behaviour(policy, setup), or use the collector local.",
        )
    parts = {"policy": module_state(policy)}
    if isinstance(actor, ActorWrapper):
        parts["exploration"] = actor.state()
    return StateTree.joined(parts)
