"""The profile of a short training, by an observer of it."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from statistics import median
from typing import Any

import torch

from rl_orch.errors import RlctlError
from rl_orch.records.profile import Profile, Resolved, WarmUp
from rl_orch.rl import engine
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.leaves import leaves_of
from rl_orch.rl.envs.native.envs import is_gymnasiums
from rl_orch.rl.named_observers import observers_of
from rl_orch.rl.observe import Observer, Phase
from rl_orch.rl.seeding import seed_all
from rl_orch.rl.train import Training
from rl_orch.rl.training_recorder import NullRecorder
from rl_orch.spec.kernel_requirements import REQUIREMENTS
from rl_orch.spec.model import Spec
from rl_orch.spec.native import why_not_native
from rl_orch.spec.part_traits import USUAL_COLLECTOR, collector_traits, may_compile

Clock = Callable[[], float]
Tell = Callable[[str, float], None]
"""Takes what is being done, and the part of it that is."""

ENV, POLICY, BUFFER, LEARNER, OTHER = "env", "policy", "buffer", "learner", "other"
TOGETHER = "together"
"""Deciding and stepping where one call does both, until they are told apart."""

MOST_RANDOM_STEPS = 1000
"""Where learning begins later than this, it begins here: until then there is little to see."""

AT_ONCE = ("vector", "envpool")
"""Backends whose environments are not made of single ones."""

PATIENCE = 100
"""Rollouts after which a learner that says nothing is taken to learn."""

COPIES = 4096
FEW_STEPS = 5
"""So many copies of a native environment, so few steps: calls weigh nothing, no episode ends."""


@dataclass(frozen=True, slots=True)
class ProfileLimits:
    """The limits of measuring: whichever is reached first, and not before one rollout is over."""

    seconds: float | None = None
    steps: int | None = None

    def progress(self, seconds: float, steps: int) -> float:
        """The share that is done, up to 1."""
        done = [seconds / self.seconds] if self.seconds else []
        done += [steps / self.steps] if self.steps else []
        return min(max(done, default=1.0), 1.0)


class Stopwatch(Observer):
    """Seconds by part; at any moment, time is that of one part alone."""

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._part = OTHER
        self._since = clock()

    def turn_to(self, part: str) -> str:
        """Count time as that part's from here on; returns whose it was."""
        before, now = self._part, self._clock()
        self.seconds[before] = self.seconds.get(before, 0.0) + now - self._since
        self._part, self._since = part, now
        return before

    def restart(self) -> None:
        """Forget what was measured."""
        self.turn_to(self._part)
        self.seconds = {}

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose time is that part's."""

        @wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            before = self.turn_to(part)
            try:
                return function(*arguments, **named)
            finally:
                self.turn_to(before)

        return call

    def before(self, phase: Phase, step: int) -> None:
        """Updates are the learner's time."""
        self.turn_to(LEARNER if phase == "update" else OTHER)

    def updated(self, metrics: Mapping[str, float], step: int) -> None:
        """The update is over."""
        self.turn_to(OTHER)


def profile(
    spec: Spec, limits: ProfileLimits, tell: Tell, *, clock: Clock = time.perf_counter
) -> Profile:
    """The parts of the time of a short training, in a process of its own.

    Evaluations and checkpoints are no part of it.
    """
    torch.set_num_threads(spec.resources.threads)
    seed_all(spec.env.seed)
    spec, clock = soon_learning(spec), _waiting(spec.resources.device, clock)
    began = clock()
    tell("preparing", 0.0)
    stopwatch = Stopwatch(clock)
    with _compiling(spec) as compiling_s, closing(_made(spec, stopwatch)) as training:
        _warm_up(training, spec, tell)
        warm_up = WarmUp(
            steps=training.env_steps, seconds=clock() - began, compiling_s=compiling_s()
        )
        stopwatch.restart()
        steps = _train(training, limits, tell, clock)
        stopwatch.turn_to(OTHER)
        parts, seconds = stopwatch.seconds, sum(stopwatch.seconds.values())
        trains, steps_by, observations = _resolved(spec, training)
    # Who decides otherwise than by kernels is asked step by step, after that call has refused.
    apart = TOGETHER in parts and POLICY not in parts
    _tell_apart(parts, steps * step_alone_s(spec, clock) if apart else 0.0)
    order = [part for part in (ENV, POLICY, BUFFER, LEARNER, OTHER) if part in parts]
    named = {part: parts[part] for part in order}
    at_once = _at_once(spec) if steps_by.value in vector.GYMNASIUM_BACKENDS else ()
    return Profile(
        engine=trains,
        backend=steps_by,
        observations=observations,
        warm_up=warm_up,
        steps=steps,
        seconds=seconds,
        parts=named,
        apart=apart,
        at_once=at_once,
    )


def soon_learning(spec: Spec) -> Spec:
    """The spec, with learning that begins after few random steps; it waits for what is collected:
    of what overlaps, no part could be told how long it takes."""
    first = max(spec.train.batch_size, MOST_RANDOM_STEPS)
    starts = min(spec.train.learning_starts, first)
    ahead = collector_traits(spec.rollout.collector).overlaps
    collector = USUAL_COLLECTOR if ahead else spec.rollout.collector
    alone = {"rollout.overlap": False, "rollout.collector": collector}
    return spec.changed({"train.learning_starts": starts, **alone})


def step_alone_s(spec: Spec, clock: Clock = time.perf_counter) -> float:
    """Seconds that a step of one copy of a native environment takes, resets apart."""
    with closing(vector.make(spec, num_envs=COPIES)) as envs:
        vector.reset(envs, spec.env.seed)
        actions = envs.action_space.sample()
        envs.step(actions)
        taken = []
        for _ in range(FEW_STEPS):
            began = clock()
            envs.step(actions)
            taken.append(clock() - began)
    return median(taken) / COPIES


def _made(spec: Spec, stopwatch: Stopwatch) -> Training:
    observers = (*observers_of(spec), stopwatch)
    try:
        return Training(spec, NullRecorder(), observers=observers, traced=stopwatch.timed)
    except MemoryError as error:
        raise RlctlError(
            f"there is not enough memory to profile this: {error}",
            path="buffer.size",
            hint="Lower buffer.size: a run would map the buffer to a file, a profile does not.",
        ) from error


def _warm_up(training: Training, spec: Spec, tell: Tell) -> None:
    """Train until everything has been done once that will be done again."""
    # The first updates of a policy may come some updates later than those of its critics.
    updates = 1 if training.learner.replay is None else 1 + spec.train.policy_delay
    most = spec.train.learning_starts + PATIENCE * spec.rollout_size
    learned = 0
    while learned < updates and training.env_steps < most:
        tell("warming up", learned / updates)
        learned += bool(training.train_step())


def _train(training: Training, limits: ProfileLimits, tell: Tell, clock: Clock) -> int:
    """Train up to the limits; returns how many steps that took."""
    began, before, done = clock(), training.env_steps, 0.0
    while done < 1.0:
        tell("measuring", done)
        training.train_step()
        done = limits.progress(clock() - began, training.env_steps - before)
    return training.env_steps - before


def _tell_apart(parts: dict[str, float], stepping_s: float) -> None:
    """Give what was done in one call to those who did it: what stepping takes, and the rest."""
    together = parts.pop(TOGETHER, 0.0)
    stepping = min(stepping_s, together)
    parts[ENV] = parts.get(ENV, 0.0) + stepping
    parts[POLICY] = parts.get(POLICY, 0.0) + together - stepping


def _resolved(spec: Spec, training: Training) -> tuple[Resolved, Resolved, tuple[str, ...]]:
    """The engine, the backend, and the kinds of observations."""
    stacked = spec.obs.stack_frames is not None
    leaves = leaves_of(training.collector.observation_space, stacked=stacked)
    actions = type(training.collector.action_space).__name__
    trains = Resolved(
        value=engine.engine_of(spec, leaves, actions),
        why_not=engine.why_not(spec, leaves, actions),
        mendable=engine.why_not(spec.changed(REQUIREMENTS), leaves, actions) is None,
    )
    cannot_step = why_not_native(spec)
    if cannot_step is None and not is_gymnasiums(spec.env.id):
        cannot_step = f"{spec.env.id} is registered by somebody else"
    steps = Resolved(value=vector.backend_of(spec), why_not=cannot_step)
    return trains, steps, tuple(leaf.kind for leaf in leaves.values())


def _at_once(spec: Spec) -> tuple[str, ...]:
    """The backends that step all copies at once, and can make this environment."""
    backends = []
    with closing(vector.make(spec, num_envs=1, backend="sync")) as plain:
        for name in AT_ONCE:
            # Making an environment may do anything; then this one is none of them.
            with suppress(Exception), closing(vector.make(spec, num_envs=1, backend=name)) as envs:
                if _form(envs) == _form(plain):
                    backends.append(name)
    return tuple(backends)


def _form(envs: vector.Envs) -> list[Any]:
    """The parts of an environment's spaces that networks depend on; bounds vary."""
    spaces = (envs.single_observation_space, envs.single_action_space)
    return [(type(space), space.shape, getattr(space, "n", None)) for space in spaces]


def _waiting(device: str, clock: Clock) -> Clock:
    """The clock, read when the device has done what it was asked for."""
    kind = torch.device(device).type
    wait = {"cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize}.get(kind)
    if wait is None:
        return clock

    def read() -> float:
        wait()
        return clock()

    return read


@contextmanager
def _compiling(spec: Spec) -> Iterator[Callable[[], float]]:
    """Says how many seconds were spent on compiling kernels since."""
    if not may_compile(spec.train.engine) and vector.backend_of(spec) != vector.NATIVE:
        yield lambda: 0.0
        return
    # Here, and not above: where nothing is a kernel, loading Numba would be a waste.
    from numba.core import event

    listener: Any = event.TimingListener()  # type: ignore[no-untyped-call]
    with event.install_listener("numba:compile", listener):
        yield lambda: float(listener.duration) if listener.done else 0.0
