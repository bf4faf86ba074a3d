"""A contract suite of every observer.

    class TestMine(ObserverContract):
        def make(self, spec):
            return Mine(spec)

Not among the names of `rl_orch.testing` itself, since it loads torch.
"""

from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from rl_orch import plugins
from rl_orch.rl.named_observers import attributes, held
from rl_orch.rl.observe import Observer
from rl_orch.rl.seeding import seed_all
from rl_orch.rl.snapshot import Resumption
from rl_orch.rl.train import Training
from rl_orch.rl.training_recorder import TrainingCommand
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.testing.algorithms import ENV_ID, Recorder, round_trip

NAME = "observer-under-test"
DEEPEST = 20
STOPS = (1, 3)
"""Iterations after which a training is stopped: without a save that was due, and with one."""


class ObserverContract:
    """The contract of every observer. A subclass says how one is made of a spec."""

    passing: tuple[str, ...] = ()
    """Attributes that may be otherwise in a resumed training: clocks, files, what was printed."""

    def make(self, spec: Spec) -> Observer:
        """A new observer."""
        raise NotImplementedError

    def test_a_training_that_is_observed_learns_the_same(self) -> None:
        """It is named by the spec, hears every phase, and leaves all as it is; so does a resumed
        training."""
        for name in ("ppo", "dqn"):
            spec = _spec(name)
            plain = _trained(spec)
            with plugins.provided("observers", NAME, self.make):
                observed = spec.changed({"train.observers": (NAME,)})
                whole = _trained(observed)
                resumed = _trained(observed, Resumption(*whole.saved[0], whole.read))
            assert _bits(whole) == _bits(plain)
            assert _bits(resumed)[-1] == _bits(plain)[-1]

    def test_a_resumed_training_has_it_where_it_was(self) -> None:
        """Whichever checkpoint a killed or stopped one goes on from: at every save and at the end,
        what it says and what it holds is the same; or, where it has no `state` and `load_state`,
        the training says that it is not resumed exactly."""
        for name in ("ppo", "dqn"):
            made: list[Any] = []
            with plugins.provided("observers", NAME, partial(self._noted, made)):
                spec = _spec(name).changed({"train.observers": (NAME,), "checkpoint.every": 96})
                new = _held(self.make(spec))
                whole = _trained(spec)
                (one,) = made
                if not all(callable(getattr(one, each, None)) for each in ("state", "load_state")):
                    changed = self._differing(new, _held(one))
                    assert bool(whole.inexact) == bool(changed), f"{changed}: {whole.inexact}"
                    continue
                stopped = [_trained(spec, iterations=each) for each in STOPS]
                for recorder, saves in (
                    (whole, whole.saved),
                    *((s, s.saved[-1:]) for s in stopped),
                ):
                    for snapshot, report in saves:
                        point = Resumption(round_trip(snapshot), report, recorder.read)
                        self._compare(whole, one, _trained(spec, point), made[-1])

    def _compare(
        self, whole: "ObservedTraining", one: Any, resumed: "ObservedTraining", other: Any
    ) -> None:
        assert not whole.inexact + resumed.inexact
        told, again = _told(whole), _told(resumed)
        assert again == told[len(told) - len(again) :]
        assert one.state() == other.state()
        differing = self._differing(_held(one), _held(other))
        assert not differing, f"{differing} of a resumed training are not in state()"

    def _noted(self, made: list[Any], spec: Spec) -> Observer:
        made.append(self.make(spec))
        return made[-1]  # type: ignore[no-any-return]

    def _differing(self, one: dict[str, Any], other: dict[str, Any]) -> list[str]:
        names = sorted((one.keys() | other.keys()) - {*self.passing})
        return [name for name in names if one.get(name) != other.get(name)]


def _held(observer: Any) -> dict[str, Any]:
    """The attributes of an observer as plain data, so that equal ones compare as equal."""
    return {name: _comparable(value, 0) for name, value in held(observer).items()}


def _comparable(value: Any, depth: int) -> Any:
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if depth > DEEPEST or isinstance(value, str | bytes | int | float | type(None)):
        return repr(value) if value != value else value
    if isinstance(value, Mapping):
        return {repr(key): _comparable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_comparable(item, depth + 1) for item in value]
    own = {name: _comparable(item, depth + 1) for name, item in attributes(value).items()}
    return (type(value).__qualname__, own) if own else value


def _spec(name: str) -> Spec:
    document = {
        "env": {"id": ENV_ID, "num_envs": 2, "seed": 5},
        "agent": {"algorithm": name, "network": {"hidden_sizes": [8]}},
        "rollout": {"steps": 16},
        "train": {"batch_size": 16, "total_timesteps": 128, "learning_starts": 32},
        "eval": {"every": 64, "episodes": 2},
        "buffer": {"size": 1000},
    }
    return resolve(document)


class ObservedTraining(Recorder):
    """A recorder of a training whose observers may remember what they cannot say."""

    def __init__(self, iterations: int | None = None) -> None:
        """It is stopped after so many iterations."""
        super().__init__()
        self.inexact: list[str] = []
        self._left = iterations

    def mark_inexact(self, reason: str, *, step: int) -> None:
        """Keep the reason."""
        self.inexact.append(reason)

    def command(self) -> TrainingCommand | None:
        """To stop, where that many iterations were asked for."""
        self._left = None if self._left is None else self._left - 1
        return "stop" if self._left == -1 else None


def _trained(
    spec: Spec, resumption: Resumption | None = None, iterations: int | None = None
) -> ObservedTraining:
    recorder = ObservedTraining(iterations)
    seed_all(spec.env.seed)
    with closing(Training(spec, recorder)) as training:
        if resumption is not None:
            training.resume(resumption)
        training.run()
    return recorder


def _told(recorder: Recorder) -> list[Any]:
    """What observers have said at each save."""
    return [saved.document["trainer_state"]["observers"] for saved, _ in recorder.saved]


def _bits(recorder: Recorder) -> list[dict[str, Any]]:
    return [
        {name: tensor.tobytes() for name, tensor in snapshot.tensors.items()}
        for snapshot, _ in recorder.saved
    ]
