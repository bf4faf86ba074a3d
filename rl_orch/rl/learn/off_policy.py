"""`ReplayLearner`: the frame of learners that draw from all experience."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_orch.rl.data.batch import Batch, on_host
from rl_orch.rl.data.schedules import scheduled
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.learn.learner import means, progress_of
from rl_orch.rl.learn.optimizer import Optimizer, Target
from rl_orch.rl.learn.precision import precision
from rl_orch.rl.learn.reward_scale import RewardScale
from rl_orch.rl.policies.policy import (
    Actor,
    Inputs,
    PolicyModule,
    Setup,
    load_module,
    module_state,
)
from rl_orch.rl.replay.buffer import ReplayBuffer, Sample
from rl_orch.rl.streams import Stream, derive
from rl_orch.spec.model import Spec

P = TypeVar("P", bound=PolicyModule)


class Drawn(NamedTuple):
    """A sample as tensors on the policy's device; B rows each."""

    inputs: Inputs
    actions: Tensor
    rewards: Tensor
    next_inputs: Inputs
    discounts: Tensor
    next_masks: Tensor | None
    weights: Tensor


class ReplayLearner(ABC, Generic[P]):
    """A learner that improves its policy from drawn samples.

    An algorithm says how: `improve` for one sample, `explore` for what behaviour is next. It sets
    `behaviour`, and adds to `optimizers` and `remembered` what a snapshot needs besides the policy,
    and to `targets` its slow copies; `state` and `load_state` may say more. The name of an only
    optimiser is "".
    """

    METRICS: ClassVar[tuple[str, ...]]
    """Names of the terms that `improve` returns."""

    behaviour: Actor

    def __init__(self, policy: P, setup: Setup) -> None:
        spec = setup.spec
        self.policy = policy
        self.options = spec.train
        self.optimizers: dict[str, Optimizer] = {}
        self.remembered: dict[str, nn.Module] = {}
        self.targets: list[Target[Any]] = []
        self.env_steps = 0
        self.updates = 0
        self.rewards = RewardScale(spec)
        self.replay = ReplayBuffer(setup, transform=self.rewards.transform)
        self._prioritized = spec.buffer.prioritized
        self.noise = torch.Generator(policy.device)
        self.noise.manual_seed(derive(spec.env.seed, Stream.NOISE))

    def update(self, batch: Batch) -> dict[str, float]:
        """Keep the transitions of a batch; and improve the policy as often as the options say."""
        self.rewards.observe(batch)
        self.replay.add(batch)
        added = int(on_host(batch.column("valid")).sum())
        self.env_steps += added
        learned = self._learned(added)
        self.explore()
        return learned

    @property
    def progress(self) -> float:
        """The part of the budget that is used up."""
        return progress_of(self, self.options.total_timesteps)

    @property
    def learning_rate(self) -> float:
        """The learning rate now."""
        return scheduled(self.options.lr_schedule, self.options.lr, self.progress)

    @property
    def warming_up(self) -> bool:
        """Whether experience is still gathered at random, and nothing is learned."""
        return self.env_steps < self.options.learning_starts

    @abstractmethod
    def improve(self, sample: Sample) -> Tensor:
        """One update from a sample; returns the terms that METRICS names, without gradients."""

    @abstractmethod
    def explore(self) -> None:
        """Say how the next transitions are to be collected."""

    def reconfigure(self, spec: Spec) -> None:
        """Go on by other live options."""
        self.options = spec.train

    def sync_targets(self) -> None:
        """Let slow copies begin anew as copies, after the weights were replaced."""
        for target in self.targets:
            target.follow(1.0)

    def drawn(self, sample: Sample) -> Drawn:
        """The sample as networks take it."""
        return Drawn(
            self.policy.to_inputs(sample.observations),
            self._tensor(sample.actions),
            self._tensor(sample.rewards),
            self.policy.to_inputs(sample.next_observations),
            self._tensor(sample.discounts),
            None if sample.next_masks is None else self._tensor(sample.next_masks),
            self._tensor(sample.weights),
        )

    def precision(self) -> AbstractContextManager[Any]:
        """A block in which networks run in the number format of the options."""
        return precision(self.options, self.policy.device)

    def prioritize(self, sample: Sample, errors: Tensor) -> None:
        """Let the rows of a sample be drawn by their errors (B,), where priorities count."""
        if self._prioritized:
            self.replay.update_priorities(sample.rows, errors.detach().cpu().numpy())

    def state(self) -> StateTree:
        """Counters, generators, reward statistics, modules that are remembered, optimisers."""
        if not self.optimizers:
            raise TypeError(f"{type(self).__name__} has no optimizers: it could not be resumed")
        parts = {f"learner/{name}": module_state(m) for name, m in self.remembered.items()}
        parts |= {_optimizer(name): each.state() for name, each in self.optimizers.items()}
        return StateTree.joined(parts | {"rewards": self.rewards.state()}) | StateTree(
            {"rng/noise": self.noise.get_state().numpy().copy()},
            {"env_steps": self.env_steps, "updates": self.updates},
        )

    def load_state(self, state: StateTree) -> None:
        """Go on from a state; policy and replay buffer are restored by others."""
        self.env_steps = int(state.document["env_steps"])
        self.updates = int(state.document["updates"])
        self.noise.set_state(torch.from_numpy(state.tensors["rng/noise"].copy()))
        self.rewards.load_state(state.under("rewards"))
        for name, module in self.remembered.items():
            load_module(module, state.under(f"learner/{name}"), what=f"learner/{name}")
        for name, optimizer in self.optimizers.items():
            optimizer.load_state(state.under(_optimizer(name)))
        self.explore()

    def _learned(self, added: int) -> dict[str, float]:
        if self.warming_up or len(self.replay) == 0:
            return {}
        count = self.options.gradient_steps
        rows = []
        for _ in range(added if count == -1 else count):
            rows.append(self.improve(self.replay.sample(self.options.batch_size, self.progress)))
            self.updates += 1
        if not rows:
            return {}
        return means(self.METRICS, rows) | {"charts/learning_rate": self.learning_rate}

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.policy.device)


def _optimizer(name: str) -> str:
    return f"optimizer/{name}" if name else "optimizer"
