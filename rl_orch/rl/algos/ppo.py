"""Proximal policy optimisation with a clipped objective (Schulman et al. 2017, arXiv:1707.06347).

The details that the paper leaves open, as they are here:

 1. Advantages are generalised advantage estimates; episodes cut short bootstrap from the value of
    their final observation, terminated ones from zero.
 2. The value target is advantage plus old value, fixed for all passes over a rollout.
 3. Every pass draws a new permutation and cuts it into minibatches of `train.batch_size`; what
    does not divide is spread evenly, so that no minibatch is much smaller than another.
 4. Advantages are standardised in each minibatch, not over the rollout.
 5. The objective is the clipped surrogate, eq. 7; the ratio is exp(log π - log π_old).
 6. The value loss is the mean squared error, without a factor ½ (as in Stable-Baselines3), and
    clipped around the old value if `train.clip_range_vf` is set.
 7. Policy, value and entropy terms are summed into one loss, eq. 9, for one optimiser.
 8. The gradient is scaled down to `train.max_grad_norm` over all parameters together.
 9. Adam with epsilon 1e-5; the learning rate follows `train.lr_schedule` between rollouts.
10. Networks start orthogonal: gain √2, 0.01 for the policy's head, 1 for the value's (`policy.py`).
11. Gaussian actions have a deviation that does not depend on the state; they are clipped for the
    environment, and the log-probability is that of the action before clipping.
12. The KL divergence is estimated by k3 = (r - 1) - log r, unbiased and never negative
    (Schulman 2020); passes stop once its mean over a pass exceeds `train.target_kl`.
13. Rows in which an environment only reset itself are left out after the advantages are computed.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from rl_orch.errors import Diverged
from rl_orch.rl.batch import Array, Batch, on_host
from rl_orch.rl.learner import LearnerState, scheduled
from rl_orch.rl.optimizer import Adam
from rl_orch.rl.policy import ActorCritic
from rl_orch.rl.returns import explained_variance, gae
from rl_orch.rl.streams import Stream, derive
from rl_orch.spec.model import Spec

LOSSES = ("losses/policy_loss", "losses/value_loss", "losses/entropy", "losses/grad_norm")
DIVERGENCES = ("losses/approx_kl", "losses/clipfrac")


class Rollout(NamedTuple):
    """What the loss reads of each transition, B rows; minibatches have the same columns."""

    inputs: Tensor
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor


class PPO:
    """Improves an actor-critic by PPO."""

    def __init__(self, policy: ActorCritic, spec: Spec) -> None:
        self.policy = policy
        self._options = spec.train
        self._steps = spec.rollout.steps
        self._optimizer = Adam(
            policy, eps=spec.train.adam_eps, max_grad_norm=spec.train.max_grad_norm
        )
        self._generator = torch.Generator()
        self._generator.manual_seed(derive(spec.env.seed, Stream.MINIBATCHES))
        self._env_steps = 0

    def update(self, batch: Batch) -> dict[str, float]:
        """Several passes over a rollout, in minibatches; `batch` is used once and not kept."""
        rollout = self._rollout(batch)
        learning_rate = self._learning_rate()
        self._env_steps += len(rollout.inputs)
        losses: list[Tensor] = []
        divergences: list[Tensor] = []
        for _ in range(self._options.update_epochs):
            log_ratios = []
            for minibatch in self._minibatches(rollout):
                terms, log_ratio = self._improve(minibatch, learning_rate)
                losses.append(terms)
                log_ratios.append(log_ratio)
            divergences.append(self._divergence(torch.cat(log_ratios)))
            if self._moved_too_far(divergences[-1]):
                break
        return {
            **self._finite_means(LOSSES, losses),
            **self._finite_means(DIVERGENCES, divergences),
            "losses/explained_variance": explained_variance(
                on_host(rollout.values), on_host(rollout.returns)
            ),
            "charts/learning_rate": learning_rate,
        }

    def state(self) -> LearnerState:
        """Optimiser, minibatch generator and the steps learned from so far."""
        generator = self._generator.get_state().numpy().copy()
        tensors = {**self._optimizer.tensors(), "rng/minibatches": generator}
        return LearnerState(tensors, {"env_steps": self._env_steps})

    def load_state(self, state: LearnerState) -> None:
        """Go on from a state; the policy's weights are loaded into the policy itself."""
        self._optimizer.load_tensors(state.tensors)
        self._generator.set_state(torch.from_numpy(state.tensors["rng/minibatches"].copy()))
        self._env_steps = int(state.document["env_steps"])

    def _rollout(self, batch: Batch) -> Rollout:
        """What the loss reads of the rows that count, as tensors on the policy's device."""
        advantages, values = self._advantages(batch), on_host(batch.column("values"))
        columns = (on_host(batch.column("log_probs")), values, advantages, advantages + values)
        valid, device = on_host(batch.column("valid")), self.policy.device
        return Rollout(
            self.policy.to_inputs(on_host(batch.column("observations"))[valid]),
            self.policy.to_choices(on_host(batch.column("actions"))[valid]),
            *(torch.from_numpy(column[valid]).to(device) for column in columns),
        )

    def _advantages(self, batch: Batch) -> NDArray[np.float32]:
        """(B,); rows come ordered by copy, then time, and GAE runs over (time, copy)."""
        if len(batch) % self._steps:
            raise ValueError(f"{len(batch)} rows are not whole rollouts of {self._steps} steps")

        def by_time(column: Array) -> NDArray[Any]:
            return on_host(column).reshape(-1, self._steps).T

        advantages = gae(
            by_time(batch.column("rewards")),
            by_time(batch.column("values")),
            by_time(batch.column("next_values")),
            by_time(batch.dones),
            gamma=self._options.gamma,
            lam=self._options.gae_lambda,
        )
        return advantages.T.reshape(-1).astype(np.float32)

    def _learning_rate(self) -> float:
        progress = self._env_steps / self._options.total_timesteps
        return scheduled(self._options.lr_schedule, self._options.lr, progress)

    def _minibatches(self, rollout: Rollout) -> Iterator[Rollout]:
        """The rollout in a new order, cut into minibatches; one gather a column for all of them."""
        size = len(rollout.inputs)
        order = torch.randperm(size, generator=self._generator).to(self.policy.device)
        count = math.ceil(size / self._options.batch_size)
        columns = [column[order].tensor_split(count) for column in rollout]
        return (Rollout(*parts) for parts in zip(*columns, strict=True))

    def _improve(self, minibatch: Rollout, learning_rate: float) -> tuple[Tensor, Tensor]:
        """One step of gradient descent; returns the terms named in LOSSES, and log π/π_old."""
        options = self._options
        distribution, values = self.policy(minibatch.inputs)
        advantages = minibatch.advantages
        if options.normalize_advantage:
            advantages = standardized(advantages)
        log_ratio = distribution.log_prob(minibatch.actions) - minibatch.log_probs
        policy_loss = -clipped_surrogate(log_ratio.exp(), advantages, options.clip_range)
        value_loss = value_error(values, minibatch.values, minibatch.returns, options.clip_range_vf)
        # Where entropy earns nothing it is only measured, and takes no gradient.
        with torch.set_grad_enabled(options.ent_coef > 0.0):
            entropy = distribution.entropy().mean()
        loss = policy_loss + options.vf_coef * value_loss - options.ent_coef * entropy
        grad_norm = self._optimizer.step(loss, learning_rate)
        terms = torch.stack((policy_loss, value_loss, entropy, grad_norm)).detach()
        return terms, log_ratio.detach()

    def _divergence(self, log_ratio: Tensor) -> Tensor:
        """How far a pass moved the policy: the terms named in DIVERGENCES."""
        ratio = log_ratio.exp()
        clipped = (ratio - 1.0).abs() > self._options.clip_range
        return torch.stack((approximate_kl(log_ratio), clipped.float().mean()))

    def _moved_too_far(self, divergence: Tensor) -> bool:
        target = self._options.target_kl
        return target is not None and divergence[0].item() > target

    def _finite_means(self, names: tuple[str, ...], rows: list[Tensor]) -> dict[str, float]:
        """The mean of each term over the update; raises on the first that is not finite."""
        table = torch.stack(rows).cpu()
        bad = torch.nonzero(~table.isfinite())
        if len(bad):
            row, column = bad[0].tolist()
            raise Diverged(
                f"{names[column]} became {table[row, column].item()} in the update at step "
                f"{self._env_steps}",
                hint="Lower train.lr, set train.max_grad_norm, or normalise observations.",
            )
        return dict(zip(names, table.mean(0).tolist(), strict=True))


def clipped_surrogate(ratio: Tensor, advantages: Tensor, clip_range: float) -> Tensor:
    """L^CLIP, eq. 7: E[min(r A, clip(r, 1 - ε, 1 + ε) A)], to be maximised. All (B,) → scalar."""
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    return torch.minimum(ratio * advantages, clipped * advantages).mean()


def value_error(
    values: Tensor, old_values: Tensor, returns: Tensor, clip_range: float | None
) -> Tensor:
    """E[(V - R)²]; with a clip range, E[max((V - R)², (V_old + clip(V - V_old) - R)²)]."""
    if clip_range is None:
        return F.mse_loss(values, returns)
    clipped = old_values + (values - old_values).clamp(-clip_range, clip_range)
    return torch.maximum((values - returns).square(), (clipped - returns).square()).mean()


def standardized(advantages: Tensor) -> Tensor:
    """Zero mean and unit deviation; a single advantage has no deviation and is left alone."""
    if len(advantages) < 2:
        return advantages
    deviation, mean = torch.std_mean(advantages)
    return (advantages - mean) / (deviation + 1e-8)


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """E[(r - 1) - log r], which estimates KL(π_old ‖ π) from samples of π_old. (B,) → scalar."""
    return (log_ratio.expm1() - log_ratio).mean()
