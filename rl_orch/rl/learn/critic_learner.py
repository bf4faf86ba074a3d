"""`ContinuousLearner`, `CriticLearner`: the frames of learners with critics, without slow copies
and with them, and the losses they share.

Which target the critics learn, and how the policy follows them, is in the files of algorithms.
"""

from abc import abstractmethod
from copy import deepcopy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from rl_orch.rl.learn.engine import TrainedCritics, engine_for
from rl_orch.rl.learn.off_policy import Drawn, ReplayLearner
from rl_orch.rl.learn.optimizer import Target, build_optimizer
from rl_orch.rl.learn.precision import compiled
from rl_orch.rl.policies.policy import Setup
from rl_orch.rl.policies.twin_critics import ContinuousPolicy, Critics
from rl_orch.rl.replay.buffer import Sample

M = TypeVar("M", bound=nn.Module)
P = TypeVar("P", bound=ContinuousPolicy)
C = TypeVar("C", bound=Critics)


class ContinuousLearner(ReplayLearner[P], Generic[P, C]):
    """A learner of continuous actions, with critics and optimisers.

    `judges` are the critics as the policy's loss sees them, without gradients for their weights.
    """

    def __init__(self, policy: P, setup: Setup) -> None:
        super().__init__(policy, setup)
        self.critics = self.build_critics(setup)
        self.optimizers = {
            "policy": build_optimizer(policy, self.options),
            "critics": build_optimizer(self.critics, self.options),
        }
        self.remembered["critics"] = self.critics
        self.judges = frozen(self.critics)

    @abstractmethod
    def build_critics(self, setup: Setup) -> C:
        """New critics of the policy."""

    def drawn(self, sample: Sample) -> Drawn:
        """The sample as networks take it; an action is a row (A,)."""
        drawn = super().drawn(sample)
        return drawn._replace(actions=drawn.actions.reshape(len(drawn.actions), -1))

    def normal(self, count: int) -> Tensor:
        """Standard normal noise for the actions of so many rows, (count, A)."""
        noise = torch.empty(count, self.policy.action_size, device=self.policy.device)
        return noise.normal_(generator=self.noise)


class CriticLearner(ContinuousLearner[P, C]):
    """A learner whose critics have slow copies.

    `q` and `target_q` map inputs and actions to what critics and slow copies say, (n, B, …).
    `engine_updates` are None where the algorithm does them itself.
    """

    def __init__(self, policy: P, setup: Setup) -> None:
        super().__init__(policy, setup)
        self.target_critics = Target(self.critics)
        self.remembered["target_critics"] = self.target_critics.module
        self.targets = [self.target_critics]
        threads = setup.spec.resources.threads
        self.engine_updates = engine_for(setup).critic_updates(
            TrainedCritics(policy, self.critics, self.target_critics, self.optimizers, threads)
        )
        self.q = compiled(self.critics.forward, self.options)
        self.target_q = compiled(self.target_critics.module.forward, self.options)


def least(q: Tensor) -> Tensor:
    """min_j Q_j, (2, B) → (B,): clipped double Q-learning (Fujimoto et al. 2018, eq. 10)."""
    return torch.minimum(*q.unbind())


def mean_errors(q: Tensor, target: Tensor) -> Tensor:
    """E_j |Q_j - y|, by which transitions are drawn again: (2, B), (B,) → (B,)."""
    return (q.detach() - target).abs().mean(0)


def squared_errors(q: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Σ_j E[w (Q_j - y)²]: (2, B), (B,), (B,) → scalar; w corrects for priorities."""
    return ((q - target).square() * weights).sum() / len(target)


def frozen(module: M) -> M:
    """A second module over the same memory: gradients pass through it, but none are worked out for
    its weights. What moves the weights of one in place moves those of both."""
    view = deepcopy(module).requires_grad_(False)
    for copied, shared in zip(_memory(view), _memory(module), strict=True):
        copied.data = shared.data
    return view


def _memory(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]
