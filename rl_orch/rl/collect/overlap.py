"""`OverlappedCollector`: the next rollout is collected while the last one is learned from."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_orch.rl.collect.rollout import Episode, LocalCollector, named, unnamed
from rl_orch.rl.data.batch import ARRAY_FIELDS, Batch
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.learn.engine import engine_for
from rl_orch.rl.learn.learner import algorithm
from rl_orch.rl.learn.on_policy import Rollouts
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import Actor, PolicyModule, Setup


@dataclass(frozen=True, slots=True)
class _Collected:
    """A rollout, the episodes that ended in it, and how many steps it has."""

    batch: Batch
    episodes: list[Episode]
    steps: int


@dataclass(frozen=True, slots=True)
class PolicyCopy:
    """A policy in training, a copy of it, and who decides for the copy."""

    policy: PolicyModule
    copy: PolicyModule
    actor: Actor


def overlapped(
    collector: LocalCollector, setup: Setup, policy: PolicyModule
) -> "OverlappedCollector":
    """A collector that works ahead, by a copy of the policy that the setup describes."""
    copy, engine = algorithm(setup.spec.agent.algorithm).build_policy(setup), engine_for(setup)
    assert isinstance(copy, ActorCritic)
    rollouts = Rollouts(copy, setup.spec, engine.assessor(copy))
    return OverlappedCollector(collector, PolicyCopy(policy, copy, engine.actor(copy)), rollouts)


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
        self._collector, self._copy, self._rollouts = collector, copy, rollouts
        self._threads = torch.get_num_threads()
        self._thread = ThreadPoolExecutor(1, "collector", torch.set_num_threads, (self._threads,))
        self._next: Future[_Collected] | None = None
        self._episodes: list[Episode] = []

    def collect(self, actor: Actor, n: int) -> Batch:
        """The rollout that was begun last time; the next one is begun. See `Collector`."""
        if self._next is None:
            self._next = self._begun(n)
        ahead = self._next.result()
        self._next = self._begun(n)
        self.env_steps += ahead.steps
        self._episodes += ahead.episodes
        return ahead.batch

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
            "columns": [name for name in ARRAY_FIELDS if getattr(ahead.batch, name) is not None],
            "episodes": [asdict(episode) for episode in ahead.episodes],
        }
        return whole | StateTree.joined({"ahead": StateTree(_apart(ahead.batch), document)})

    def load_state(self, state: StateTree) -> bool:
        """Go on from a state; whether episodes had to begin anew."""
        ahead = state.under("ahead")
        self.env_steps = int(state.document["env_steps"])
        steps = int(ahead.document.get("env_steps", self.env_steps))
        begun_anew = self._collector.load_state(state | StateTree({}, {"env_steps": steps}))
        if ahead.document:
            episodes = [Episode(**episode) for episode in ahead.document["episodes"]]
            self._next = Future()
            batch = _whole(ahead)
            self._next.set_result(_Collected(batch, episodes, steps - self.env_steps))
        return begun_anew

    def close(self) -> None:
        """Wait for what is being collected, let it go, and close the environments."""
        self._thread.shutdown(wait=True)
        self._collector.close()

    def _begun(self, n: int) -> "Future[_Collected]":
        """A rollout by the present policy. Nothing is being collected when this is called."""
        self._copy.copy.load_state_dict(self._copy.policy.state_dict())
        return self._thread.submit(self._collected, n)

    def _collected(self, n: int) -> _Collected:
        before = self._collector.env_steps
        batch = self._collector.collect(self._copy.actor, n)
        log_probs = self._rollouts.log_probs(batch)
        steps = self._collector.env_steps - before
        return _Collected(
            batch.with_extras(log_probs=log_probs), self._collector.drain_episodes(), steps
        )


def _apart(batch: Batch) -> dict[str, NDArray[Any]]:
    """The columns of a batch with names for a snapshot; copies."""
    fields = {name: getattr(batch, name) for name in ARRAY_FIELDS}
    columns = {name: column for name, column in fields.items() if column is not None}
    columns |= {f"extras/{name}": column for name, column in batch.extras.items()}
    return dict(entry for name, column in columns.items() for entry in named(name, column))


def _whole(state: StateTree) -> Batch:
    """The batch that `_apart` took apart."""
    extras = {name: np.array(tensor) for name, tensor in state.under("extras").tensors.items()}
    names = state.document["columns"]
    columns: dict[str, Any] = {name: unnamed(name, state.tensors) for name in names}
    return Batch(**columns, extras=extras)
