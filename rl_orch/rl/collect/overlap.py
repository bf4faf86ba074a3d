"""`OverlappedCollector`: the next rollout is collected while the last one is learned from."""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import cached_property

import torch

from rl_orch.errors import BadInput
from rl_orch.rl.collect.collector import Episode, Weights
from rl_orch.rl.collect.rollout import LocalCollector, local
from rl_orch.rl.data.batch import Batch, batch_of, batch_state
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.envs.state.capture import Method
from rl_orch.rl.learn.engine import engine_for
from rl_orch.rl.learn.on_policy import Rollouts
from rl_orch.rl.learn.policy_copy import PolicyCopy
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import Actor, Setup, Traced, untraced
from rl_orch.spec.model import Spec


@dataclass(frozen=True, slots=True)
class _Collected:
    """A rollout, the episodes that ended in it, and how many steps it has."""

    batch: Batch
    episodes: list[Episode]
    steps: int


def overlapped(spec: Spec, method: Method, traced: Traced = untraced) -> "OverlappedCollector":
    """A collector that works ahead, by a copy of the policy that the spec describes."""
    inner = local(spec, method, traced)
    setup = Setup(spec, inner.observation_space, inner.action_space)
    copy = PolicyCopy.build(setup)
    if not isinstance(copy.policy, ActorCritic):
        raise BadInput(
            f"the policy of {spec.agent.algorithm} is no ActorCritic, whose log-probabilities "
            "correct for an older policy",
            path="rollout.overlap",
            hint="Leave rollout.overlap out; `overlaps` is for algorithms with an ActorCritic.",
        )
    rollouts = Rollouts(copy.policy, spec, engine_for(setup).assessor(copy.policy))
    return OverlappedCollector(inner, copy, rollouts)


class OverlappedCollector:
    """Collects one rollout ahead, in a thread, by a copy of the policy.

    The first rollout comes from the policy itself. Every later one was begun when the one before it
    was handed out, so that its actions are those of the policy before its last update; `log_probs`
    has what they were worth to that policy. Which actions these are depends on the order of calls
    alone: the number of cores and their speed change nothing.
    """

    def __init__(self, collector: LocalCollector, copy: PolicyCopy, rollouts: Rollouts) -> None:
        """`rollouts` are those of the copy."""
        self.env_steps = collector.env_steps
        self.observation_space = collector.observation_space
        self.action_space = collector.action_space
        self._collector, self._copy, self._rollouts = collector, copy, rollouts
        self._next: Future[_Collected] | None = None
        self._episodes: list[Episode] = []

    def collect(self, actor: Actor, n: int, weights: Weights) -> Batch:
        """The rollout that was begun last time; the next one is begun. See `Collector`."""
        if self._next is None:
            self._next = self._begun(n, weights)
        ahead = self._next.result()
        self._next = self._begun(n, weights)
        self.env_steps += ahead.steps
        self._episodes += ahead.episodes
        return ahead.batch

    def settle(self) -> None:
        """See `collector.settle`; what went wrong in there is told by `collect`."""
        if self._next is not None:
            wait([self._next])

    def drain_episodes(self) -> list[Episode]:
        """The episodes that ended in what was handed out since the last call."""
        episodes, self._episodes = self._episodes, []
        return episodes

    def state(self) -> StateTree:
        """The collector behind the rollout that is ahead, and that rollout; copies."""
        ahead = None if self._next is None else self._next.result()
        inner = self._collector.state()
        whole = inner | StateTree({}, {"env_steps": self.env_steps, "ahead": None})
        if ahead is None:
            return whole
        document = {
            "env_steps": inner.document["env_steps"],
            "episodes": [asdict(episode) for episode in ahead.episodes],
        }
        rollout = batch_state(ahead.batch) | StateTree({}, document)
        return whole | StateTree.joined({"ahead": rollout})

    def load_state(self, state: StateTree) -> bool:
        """Go on from a state; whether episodes had to begin anew."""
        ahead = state.under("ahead")
        self.env_steps = int(state.document["env_steps"])
        steps = int(ahead.document.get("env_steps", self.env_steps))
        begun_anew = self._collector.load_state(state | StateTree({}, {"env_steps": steps}))
        if ahead.document:
            episodes = [Episode(**episode) for episode in ahead.document["episodes"]]
            self._next = Future()
            self._next.set_result(_Collected(batch_of(ahead), episodes, steps - self.env_steps))
        return begun_anew

    def close(self) -> None:
        """Wait for what is being collected, let it go, and close the environments."""
        self._thread.shutdown(wait=True)
        self._collector.close()

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        threads = torch.get_num_threads()
        return ThreadPoolExecutor(1, "collector", torch.set_num_threads, (threads,))

    def _begun(self, n: int, weights: Weights) -> "Future[_Collected]":
        """A rollout by the present policy. Nothing is being collected when this is called."""
        self._copy.load_state(weights())
        return self._thread.submit(self._collected, n)

    def _collected(self, n: int) -> _Collected:
        before = self._collector.env_steps
        batch = self._collector.collect(self._copy.actor, n)
        log_probs = self._rollouts.log_probs(batch)
        steps = self._collector.env_steps - before
        return _Collected(
            batch.with_extras(log_probs=log_probs), self._collector.drain_episodes(), steps
        )
