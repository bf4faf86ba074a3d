"""A contract suite of every algorithm, and the small environment that it learns in.

    class TestReinforce(AlgorithmContract):
        name = "reinforce"

Not among the names of `rl_orch.testing` itself, since it loads torch.
"""

import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import Space, spaces
from numpy.typing import NDArray

from rl_orch.records import EvalReport, EventKind
from rl_orch.rl.envs import vector
from rl_orch.rl.learn.learner import algorithm, load_policy
from rl_orch.rl.policies.policy import PolicyInput, Setup, policy_tensors
from rl_orch.rl.replay.buffer import LogSegment
from rl_orch.rl.snapshot import Resumption, TrainingSnapshot
from rl_orch.rl.train import Training
from rl_orch.rl.training_recorder import NullRecorder
from rl_orch.spec import checks
from rl_orch.spec.algorithms import ANY_ACTIONS, Traits
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve

EPISODE_STEPS = 8
ENV_ID = f"{__name__}:Signal-v0"

ACTIONS: dict[str, Space[Any]] = {
    "Discrete": spaces.Discrete(2),
    "Box": spaces.Box(-2.0, 2.0, (1,)),
    "MultiDiscrete": spaces.MultiDiscrete([2, 3]),
    "MultiBinary": spaces.MultiBinary(2),
}


class Signal(gymnasium.Env[Any, Any]):
    """Shows one of two signals at each step; the answer that it calls for pays 1, others less.

    `masked` forbids every answer but one of the choices, which changes from step to step.
    """

    observation_space = spaces.Box(0.0, 1.0, (2,))

    def __init__(self, actions: str = "Discrete", masked: bool = False) -> None:
        self.action_space = ACTIONS[actions]
        self._masked = masked
        self._steps = 0
        self._signal = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The first signal."""
        super().reset(seed=seed)
        self._steps = 0
        return self._shown()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The reward of the answer, and the next signal."""
        if self._masked and int(action) != self._allowed:
            raise ValueError(f"action {action} was forbidden; allowed: {self._allowed}")
        reward = self._worth(np.asarray(action, np.float64))
        self._steps += 1
        return self._shown()[0], reward, self._steps == EPISODE_STEPS, False, self._info()

    @property
    def _allowed(self) -> int:
        return (self._signal + self._steps) % 2

    def _worth(self, action: NDArray[np.float64]) -> float:
        if isinstance(self.action_space, spaces.Box):
            return float(1.0 - np.abs(action - (2 * self._signal - 1)).mean())
        return float(np.mean(action == self._signal))

    def _shown(self) -> tuple[Any, dict[str, Any]]:
        self._signal = int(self.np_random.integers(2))
        return np.eye(2, dtype=np.float32)[self._signal], self._info()

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.arange(2) == self._allowed} if self._masked else {}


gymnasium.register("Signal-v0", entry_point=f"{__name__}:Signal")


class Recorder(NullRecorder):
    """A recorder that keeps all it is told."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.returns: list[float] = []
        self.saved: list[tuple[TrainingSnapshot, EvalReport | None]] = []
        self._segments: dict[str, LogSegment] = {}

    def emit(
        self,
        kind: EventKind,
        key: str,
        value: Any,
        *,
        step: int,
        tags: dict[str, Any] | None = None,
    ) -> None:
        """Keep metrics and evaluations."""
        if kind is EventKind.METRIC:
            self.metrics[key] = value
        elif kind is EventKind.EVAL:
            self.returns.append(value)

    def add_segment(self, segment: LogSegment) -> None:
        """Keep a segment."""
        self._segments[segment.name] = segment

    def read(self, name: str) -> Mapping[str, NDArray[Any]]:
        """The arrays of a segment."""
        return self._segments[name].arrays

    def save(self, snapshot: TrainingSnapshot, report: EvalReport | None) -> None:
        """Keep a snapshot."""
        self.saved.append((snapshot, report))

    def mark_inexact(self, reason: str, *, step: int) -> None:
        """There is none in such an environment."""
        raise AssertionError(reason)


class AlgorithmContract:
    """The contract of every algorithm. A subclass names it, and may say how it learns best."""

    name: str
    overrides: tuple[str, ...] = ()
    """Options for these small tasks: nets, rates, budgets."""

    steps = 4096
    """Environment steps in which a task is learned."""

    variants: tuple[tuple[str, ...], ...] = ()
    """Further options under which a resumed training must be exact."""

    good = 0.85
    """Share of the best return that has to be reached."""

    def setup_method(self) -> None:
        """One thread, which is faster for small networks and the same everywhere."""
        torch.set_num_threads(1)

    def test_it_says_what_it_can_do(self) -> None:
        """Its traits are an algorithm's, and it acts in at least one kind of space."""
        traits = self._traits()
        assert isinstance(traits, Traits)
        assert traits.actions
        assert set(traits.actions) <= set(ANY_ACTIONS)

    def test_a_new_policy_follows_from_the_seed_alone(self) -> None:
        """The same seed gives the same weights, whatever torch's own generator has given."""
        for kind in self._traits().actions:
            before = torch.random.get_rng_state()
            first = policy_tensors(self._built(kind, 1))
            assert torch.equal(torch.random.get_rng_state(), before)
            torch.rand(3)
            again, other = (policy_tensors(self._built(kind, seed)) for seed in (1, 2))
            assert all(np.array_equal(first[name], again[name]) for name in first)
            assert any(not np.array_equal(first[name], other[name]) for name in first)

    def test_it_decides_on_actions_that_the_environment_takes(self) -> None:
        """Sampled or not, they are in the action space; without a generator they repeat."""
        for kind in self._traits().actions:
            policy, space = self._built(kind, 1), ACTIONS[kind]
            memory = np.zeros((5, policy.memory_size), np.float32) if policy.memory_size else None
            observations = np.random.default_rng(0).uniform(size=(5, 2)).astype(np.float32)
            seen = PolicyInput(observations, np.ones(5, np.bool_), memory)
            sampled = policy.decide(seen, torch.Generator().manual_seed(0)).actions
            greedy = [policy.decide(seen, None).actions for _ in range(2)]
            assert np.array_equal(greedy[0], greedy[1])
            for actions in (sampled, greedy[0]):
                assert all(space.contains(action) for action in _cast(space, policy, actions))

    def test_it_learns(self) -> None:
        """In every kind of space that it says it acts in."""
        for kind in self._traits().actions:
            recorder = self._trained(self._spec(kind))
            reached = recorder.returns[-1] / EPISODE_STEPS
            assert reached >= self.good, f"{kind} actions: {reached:.2f} of the best return"
            assert recorder.metrics, "no metric was reported"
            bad = {k: v for k, v in recorder.metrics.items() if not np.isfinite(v)}
            assert not bad

    def test_what_is_saved_is_the_policy_that_was_trained(self) -> None:
        """A policy made anew from a snapshot decides as the one that was saved."""
        kind = self._traits().actions[0]
        spec = self._spec(kind, "train.total_timesteps=512", "eval.every=512")
        recorder = Recorder()
        with closing(Training(spec, recorder)) as training:
            training.run()
            setup = setup_of(spec)
            loaded = load_policy(setup, recorder.saved[-1][0].tensors)
            seen = PolicyInput(np.eye(2, dtype=np.float32), np.ones(2, np.bool_))
            decisions = [policy.decide(seen, None).actions for policy in (training.policy, loaded)]
        assert np.array_equal(decisions[0], decisions[1])

    def test_a_resumed_training_goes_on_bit_for_bit(self) -> None:
        """From a snapshot that went through JSON and bytes, everything comes out the same."""
        for options in self._variants():
            kind = self._traits().actions[0]
            spec = self._spec(kind, "train.total_timesteps=768", "eval.every=256", *options)
            whole = self._trained(spec)
            first, report = whole.saved[0]
            resumed = Recorder()
            with closing(Training(spec, resumed)) as training:
                training.resume(Resumption(round_trip(first), report, whole.read))
                training.run()
            last, again = whole.saved[-1][0], resumed.saved[-1][0]
            assert last.step == again.step
            differing = [n for n in last.tensors if not _same(last.tensors[n], again.tensors[n])]
            assert not differing, f"{options}: {differing} differ after resuming"
            assert _plain(last.document) == _plain(again.document)

    def test_it_takes_no_forbidden_action_or_masks_are_refused(self) -> None:
        """The environment raises on an action that it forbids."""
        traits, plain = self._traits(), self._spec(self._traits().actions[0])
        masked = plain.changed({"agent.action_masks": True})
        refused = [problem.path for problem in checks.pairing(masked, traits)]
        assert refused == ([] if traits.masks else ["agent.action_masks"])
        if traits.masks:
            assert self._trained(masked.changed({"env.kwargs": {"masked": True}})).returns

    def _traits(self) -> Traits:
        return algorithm(self.name).traits

    def _variants(self) -> list[tuple[str, ...]]:
        """Options under which a training must be exact: as it is, and with a memory if it can."""
        memory = ("feature.encoder=gru", "feature.embed_dim=8")
        return [(), *([memory] if self._traits().recurrent else []), *self.variants]

    def _spec(self, kind: str, *overrides: str) -> Spec:
        document = {
            "env": {"id": ENV_ID, "num_envs": 4, "seed": 1, "kwargs": {"actions": kind}},
            "agent": {"algorithm": self.name, "network": {"hidden_sizes": [32]}},
            "train": {"total_timesteps": self.steps, "lr": 3e-3, "gamma": 0.5},
            "rollout": {"steps": 16},
            "eval": {"every": self.steps, "episodes": 8},
        }
        return resolve(document, overrides=[*self.overrides, *overrides])

    def _trained(self, spec: Spec) -> Recorder:
        recorder = Recorder()
        with closing(Training(spec, recorder)) as training:
            training.run()
        return recorder

    def _built(self, kind: str, seed: int) -> Any:
        return algorithm(self.name).build_policy(setup_of(self._spec(kind, f"env.seed={seed}")))


def setup_of(spec: Spec) -> Setup:
    """The spec with the spaces of its environment."""
    with closing(vector.make(spec, num_envs=1)) as envs:
        return Setup(spec, envs.single_observation_space, envs.single_action_space)


def _cast(space: Space[Any], policy: Any, actions: NDArray[Any]) -> list[Any]:
    """Actions as the environment gets them, in the type that its space asks for."""
    taken = policy.to_env(actions)
    return [np.asarray(action).astype(space.dtype, copy=False) for action in taken]


def round_trip(snapshot: TrainingSnapshot) -> TrainingSnapshot:
    """A snapshot as a checkpoint gives it back."""
    tensors = {
        name: np.frombuffer(tensor.tobytes(), tensor.dtype).reshape(tensor.shape).copy()
        for name, tensor in snapshot.tensors.items()
    }
    document = _plain(snapshot.document)
    return TrainingSnapshot(tensors, document, step=snapshot.step, segments=snapshot.segments)


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(document))
    return plain


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()
