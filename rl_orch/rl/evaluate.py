"""Evaluation: seeded episodes in environments of their own, apart from all training.

Every evaluation with one seed sees the same episodes, so that policies are compared on equal terms:
episode k is seeded with `derive(seed, k)`, however many are played side by side.
"""

from collections.abc import Callable, Sequence
from contextlib import closing

import torch

from rl_orch import plugins, stats
from rl_orch.records import EvalReport
from rl_orch.records.reports import TERMS, info_metric, table_of
from rl_orch.rl.collect.episodes import EpisodeNumbers, Extras, PlayedEpisode, play
from rl_orch.rl.envs import vector
from rl_orch.rl.policies.policy import Actor
from rl_orch.rl.seeding import isolated
from rl_orch.rl.streams import Stream, derive
from rl_orch.spec.model import Spec

LANES = 16
"""The most episodes that are played side by side in environments of Gymnasium's."""

NATIVE_LANES = 128
"""The most in native environments, where training does not go on beside it."""


def evaluation_seed(spec: Spec) -> int:
    """The seed of evaluations during training."""
    return derive(_base_seed(spec), Stream.EVALUATION)


def final_evaluation_seed(spec: Spec) -> int:
    """The seed of the final evaluation, whose episodes training has never seen."""
    return derive(_base_seed(spec), Stream.FINAL_EVALUATION)


def lanes_alone(spec: Spec) -> int:
    """The number of episodes played side by side where nothing is trained meanwhile."""
    return NATIVE_LANES if vector.backend_of(spec) == vector.NATIVE else LANES


def extras_of(metrics: Sequence[str], *, actions: bool = False) -> Extras:
    """Measurements besides returns; metrics are plugins, by name."""
    return Extras({name: plugins.load("metrics", name) for name in metrics}, actions)


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


def report(
    played: Sequence[PlayedEpisode], spec: Spec, *, seed: int, deterministic: bool
) -> EvalReport:
    """The report on episodes of a policy that was saved nowhere, at no step."""
    returns = tuple(each.ret for each in played)
    asked = spec.env.info_metrics
    metrics = table_of([each.metrics for each in played], asked)
    lacking = [key for key in asked if info_metric(key) not in metrics and key != TERMS]
    return EvalReport(
        env_id=spec.env.id,
        step=0,
        seed=seed,
        deterministic=deterministic,
        returns=returns,
        lengths=tuple(each.length for each in played),
        summary=stats.summarize(returns, seed=seed),
        seeds=tuple(each.seed for each in played if each.seed is not None),
        metrics=metrics,
        shares=tuple(name for name in metrics if all(name in each.shares for each in played)),
        missing=_missing(played, lacking),
        cut=sum(each.cut for each in played),
    )


def _missing(played: Sequence[PlayedEpisode], keys: Sequence[str]) -> dict[str, str]:
    """The reason why there is no metric of these keys of info, by key."""
    counts = {key: sum(info_metric(key) in each.metrics for each in played) for key in keys}
    return {
        key: f"{count or 'none'} of {len(played)} episodes gave a number as info[{key!r}]"
        for key, count in counts.items()
    }


class Evaluator:
    """Evaluates policies of one spec. Leaves every random generator as it was.

    Environments in which a seeded reset does not wipe out all that went before must not be kept
    (`keep_envs`): what an evaluation finds would depend on how many there were before it.
    `lanes` is how many episodes are played side by side. Left open, a training with few
    environments has few, since they stay open beside it.
    """

    def __init__(self, spec: Spec, *, keep_envs: bool = True, lanes: int | None = None) -> None:
        self._spec = vector.evaluated(spec)
        self._limit = vector.evaluation_limit(spec)
        self._keep_envs = keep_envs
        self._most = min(LANES, spec.env.num_envs) if lanes is None else lanes
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
        """Play `episodes` episodes and report them in the order of their numbers."""
        played = self.play(policy, episodes=episodes, seed=seed, deterministic=deterministic)
        evaluation = report(played, self._spec, seed=seed, deterministic=deterministic)
        return evaluation.model_copy(update={"step": step, "checkpoint": checkpoint})

    def play(
        self,
        policy: Actor,
        *,
        episodes: int,
        seed: int,
        deterministic: bool,
        first: int = 0,
        extras: Extras | None = None,
        tell: Callable[[int], None] = lambda _done: None,
    ) -> list[PlayedEpisode]:
        """The episodes from number `first` on, in the order of their numbers; `tell` hears how many
        are done."""
        lanes = max(1, min(self._most, episodes))
        begins = derive(seed, Stream.EVALUATION, first) if first else seed
        numbers = EpisodeNumbers(seed, first, episodes, self._limit)
        extras = extras or Extras()
        with isolated(begins):
            envs = self._lanes(lanes)
            source = None if deterministic else action_generator(policy, begins)
            played = play(policy, self._spec, envs, numbers, source, extras, tell)
        if not self._keep_envs:
            self.close()
        return played

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


def _base_seed(spec: Spec) -> int:
    """The seed behind all evaluations: `eval.seed`, or else the run's."""
    return spec.env.seed if spec.eval.seed is None else spec.eval.seed


def action_generator(policy: Actor, seed: int) -> torch.Generator:
    """The generator of sampled actions in an evaluation of that seed."""
    return torch.Generator(policy.device).manual_seed(derive(seed, Stream.ACTIONS))
