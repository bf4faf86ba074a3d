"""Evaluation: seeded episodes in environments of their own, apart from all training.

Every evaluation with one seed sees the same episodes, so that policies are compared on equal terms:
episode k is seeded with `derive(seed, k)`, however many are played side by side.
"""

import math
from contextlib import closing
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from rl_orch import stats
from rl_orch.errors import Diverged, RlctlError
from rl_orch.records import EvalReport
from rl_orch.rl.actions import choices_of
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.masks import masks_in
from rl_orch.rl.envs.seen import seen
from rl_orch.rl.policy import Actor, Seen
from rl_orch.rl.seeding import isolated
from rl_orch.rl.streams import Stream, derive
from rl_orch.spec.model import Spec

LANES = 16
"""The most episodes that are played side by side."""

ENDLESS = 100_000
"""Steps after which an episode without a time limit counts as one that never ends."""


def evaluation_seed(spec: Spec) -> int:
    """The seed of evaluations during training."""
    return derive(_base_seed(spec), Stream.EVALUATION)


def final_evaluation_seed(spec: Spec) -> int:
    """The seed of the final evaluation, whose episodes training has never seen."""
    return derive(_base_seed(spec), Stream.FINAL_EVALUATION)


def evaluate(
    policy: Actor,
    spec: Spec,
    *,
    episodes: int,
    seed: int,
    deterministic: bool,
    step: int,
    checkpoint: str | None = None,
) -> EvalReport:
    """One evaluation; `Evaluator` keeps its environments for the next one."""
    with closing(Evaluator(spec)) as evaluator:
        return evaluator.evaluate(
            policy,
            episodes=episodes,
            seed=seed,
            deterministic=deterministic,
            step=step,
            checkpoint=checkpoint,
        )


class Evaluator:
    """Evaluates policies of one spec. Leaves every random generator as it was.

    Environments in which a seeded reset does not wipe out all that went before must not be kept
    (`keep_envs`): what an evaluation finds would depend on how many there were before it.
    """

    def __init__(self, spec: Spec, *, keep_envs: bool = True) -> None:
        self._spec = spec
        self._keep_envs = keep_envs
        self._envs: vector.Envs | None = None

    def evaluate(
        self,
        policy: Actor,
        *,
        episodes: int,
        seed: int,
        deterministic: bool,
        step: int,
        checkpoint: str | None = None,
    ) -> EvalReport:
        """Play `episodes` episodes and report them in the order of their numbers.

        Each lane plays a fixed share: were the first to finish counted, short episodes would be.
        A training with few environments has few lanes, since its lanes stay open beside it.
        """
        lanes = max(1, min(LANES, episodes, self._spec.env.num_envs))
        shares = [len(range(lane, episodes, lanes)) for lane in range(lanes)]
        with isolated(seed):
            generator = None if deterministic else _generator(policy, seed)
            played = self._play(policy, self._lanes(lanes), shares, seed, generator)
        if not self._keep_envs:
            self.close()
        returns, lengths = zip(*played, strict=True)
        return EvalReport(
            env_id=self._spec.env.id,
            step=step,
            checkpoint=checkpoint,
            seed=seed,
            deterministic=deterministic,
            returns=returns,
            lengths=lengths,
            summary=stats.summarize(returns, seed=seed),
        )

    def close(self) -> None:
        """Close the environments; the next evaluation makes new ones."""
        if self._envs is not None:
            self._envs.close()
            self._envs = None

    def _lanes(self, lanes: int) -> vector.Envs:
        if self._envs is not None and self._envs.num_envs == lanes:
            return self._envs
        self.close()
        self._envs = vector.make(self._spec, num_envs=lanes)
        return self._envs

    def _play(
        self,
        policy: Actor,
        envs: vector.Envs,
        shares: list[int],
        seed: int,
        generator: torch.Generator | None,
    ) -> list[tuple[float, int]]:
        """(return, length) of each episode; round k of lane i is episode i + k · lanes."""
        resets_next = vector.autoreset(envs) is AutoresetMode.NEXT_STEP
        limit = self._patience(envs)
        played: list[list[tuple[float, int]]] = [[] for _ in shares]
        returns = np.zeros(len(shares))
        lengths = np.zeros(len(shares), np.int64)
        resetting = np.zeros(len(shares), np.bool_)
        observations, infos = vector.reset(envs, seed, numbered=True)
        first, memory = np.ones(len(shares), np.bool_), None
        masked = self._spec.agent.action_masks and self._spec.runner.name != "external"
        choices = sum(choices_of(envs.single_action_space))
        left = sum(shares)
        while left:
            masks = masks_in(infos, len(shares), choices) if masked else None
            decision = policy.decide(Seen(observations, first, memory, masks), generator)
            raw, rewards, terminated, truncated, infos = envs.step(policy.to_env(decision.actions))
            observations, memory = seen(envs.single_observation_space, raw), decision.memory
            returns += np.where(resetting, 0.0, rewards)
            lengths += ~resetting
            ended = np.logical_or(terminated, truncated)
            for lane in np.flatnonzero(ended):
                if len(played[lane]) < shares[lane]:
                    played[lane].append((_finite(returns[lane]), int(lengths[lane])))
                    left -= 1
                returns[lane], lengths[lane] = 0.0, 0
            first = resetting if resets_next else ended
            if resets_next:
                resetting = ended
            if lengths.max() > limit:
                raise RlctlError(
                    f"an evaluation episode of {self._spec.env.id} has not ended after "
                    f"{ENDLESS} steps, and the environment has no time limit",
                    path="env.max_episode_steps",
                    hint="Set it; a plugin of vector environments must limit episodes itself.",
                )
        rounds = range(max(shares))
        return [lane[k] for k in rounds for lane in played if k < len(lane)]

    def _patience(self, envs: vector.Envs) -> float:
        declared = envs.spec.max_episode_steps if envs.spec else None
        return math.inf if declared or self._spec.env.max_episode_steps else ENDLESS


def _base_seed(spec: Spec) -> int:
    """What all evaluations derive their seeds from: `eval.seed`, or else the run's seed."""
    return spec.env.seed if spec.eval.seed is None else spec.eval.seed


def _generator(policy: Actor, seed: int) -> torch.Generator:
    return torch.Generator(policy.device).manual_seed(derive(seed, Stream.ACTIONS))


def _finite(ret: Any) -> float:
    if not math.isfinite(ret):
        raise Diverged(f"an evaluation episode has a return of {ret}")
    return float(ret)
