"""A collector in another process: weights go there, experience comes back, as plain arrays."""

import multiprocessing
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

import torch

from rl_orch import plugins
from rl_orch.rl.collect.collector import Collector, Episode, Weights
from rl_orch.rl.data.batch import Batch, batch_of, batch_state
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.envs import space_json
from rl_orch.rl.learn.policy_copy import PolicyCopy
from rl_orch.rl.policies.policy import Actor, Setup, Traced, untraced
from rl_orch.rl.seeding import seed_all
from rl_orch.spec.model import Spec


def serve(connection: Connection) -> None:
    """Answer requests until the other end hangs up; one process serves collectors by number."""
    torch.set_num_threads(1)
    served: dict[int, tuple[Collector, PolicyCopy]] = {}
    while True:
        try:
            number, verb, given = connection.recv()
        except EOFError:
            return
        if verb == "make":
            spec, method = Spec.model_validate(given[0]), given[1]
            seed_all(spec.env.seed)
            made = plugins.load("collectors", "local")(spec, method)
            setup = Setup(spec, made.observation_space, made.action_space)
            served[number] = made, PolicyCopy.build(setup)
            spaces = (made.observation_space, made.action_space)
            connection.send([space_json.to_json(space) for space in spaces])
            continue
        connection.send(answer(verb, given, *served[number]))


def answer(verb: str, given: Any, collector: Collector, copy: PolicyCopy) -> Any:
    match verb:
        case "collect":
            tensors, document, n = given
            copy.load_state(StateTree(tensors, document))
            batch = batch_state(collector.collect(copy.actor, n, StateTree))
            episodes = [asdict(episode) for episode in collector.drain_episodes()]
            return batch.tensors, batch.document, collector.env_steps, episodes
        case "state":
            state = collector.state()
            return state.tensors, state.document
        case "load":
            return collector.load_state(StateTree(*given)), collector.env_steps
        case "close":
            return collector.close()


class CollectorProcess:
    """A process that collects, for as many collectors as are made of it."""

    def __init__(self) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._made = 0

    def ask(self, number: int, verb: str, given: Any = None) -> Any:
        self._connection.send((number, verb, given))
        return self._connection.recv()

    def make(
        self, spec: Spec, method: str = "captured", traced: Traced = untraced
    ) -> "DistantCollector":
        self._made += 1
        there = spec.changed({"rollout.collector": "local"}).model_dump(mode="json")
        spaces = self.ask(self._made, "make", (there, method))
        return DistantCollector(self, self._made, *map(space_json.from_json, spaces))

    def stop(self) -> None:
        self._connection.close()
        self._process.join()


class DistantCollector:
    """The near end of a collector in another process."""

    def __init__(
        self, process: CollectorProcess, number: int, observation_space: Any, action_space: Any
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.env_steps = 0
        self._process, self._number = process, number
        self._episodes: list[Episode] = []

    def collect(self, actor: Actor, n: int, weights: Weights) -> Batch:
        known = weights()
        tensors, document, self.env_steps, episodes = self._ask(
            "collect", (known.tensors, known.document, n)
        )
        self._episodes += [Episode(**episode) for episode in episodes]
        return batch_of(StateTree(tensors, document))

    def drain_episodes(self) -> list[Episode]:
        episodes, self._episodes = self._episodes, []
        return episodes

    def state(self) -> StateTree:
        return StateTree(*self._ask("state"))

    def load_state(self, state: StateTree) -> bool:
        begun_anew, self.env_steps = self._ask("load", (state.tensors, state.document))
        return bool(begun_anew)

    def close(self) -> None:
        self._ask("close")

    def _ask(self, verb: str, given: Any = None) -> Any:
        return self._process.ask(self._number, verb, given)
