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
from rl_orch.rl.named_observers import held
from rl_orch.rl.observe import Observer
from rl_orch.rl.seeding import seed_all
from rl_orch.rl.snapshot import Resumption
from rl_orch.rl.train import Training
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.testing.algorithms import ENV_ID, Recorder, round_trip

NAME = "observer-under-test"
DEEPEST = 20


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
                assert observed.config_hash == spec.config_hash
                whole = _trained(observed)
                resumed = _trained(observed, Resumption(*whole.saved[0], whole.read))
            assert _bits(whole) == _bits(plain)
            assert _bits(resumed)[-1] == _bits(plain)[-1]

    def test_a_resumed_training_has_it_where_it_was(self) -> None:
        """At the end, what it says and what it holds is the same; or, where it has no `state` and
        `load_state`, the training says that it is not resumed exactly."""
        for name in ("ppo", "dqn"):
            made: list[Any] = []
            with plugins.provided("observers", NAME, partial(self._noted, made)):
                spec = _spec(name).changed({"train.observers": (NAME,)})
                new = _held(self.make(spec))
                whole = _trained(spec)
                snapshot, report = whole.saved[0]
                point = Resumption(round_trip(snapshot), report, whole.read)
                resumed = _trained(spec, point)
            one, other = made
            told = [callable(getattr(one, method, None)) for method in ("state", "load_state")]
            if not all(told):
                changed = self._differing(new, _held(one))
                assert bool(whole.inexact) == bool(changed), f"{changed} changed: {whole.inexact}"
                continue
            assert not whole.inexact + resumed.inexact
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
    own = {name: _comparable(item, depth + 1) for name, item in held(value).items()}
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

    def __init__(self) -> None:
        super().__init__()
        self.inexact: list[str] = []

    def mark_inexact(self, reason: str, *, step: int) -> None:
        """Keep the reason."""
        self.inexact.append(reason)


def _trained(spec: Spec, resumption: Resumption | None = None) -> ObservedTraining:
    recorder = ObservedTraining()
    seed_all(spec.env.seed)
    with closing(Training(spec, recorder)) as training:
        if resumption is not None:
            training.resume(resumption)
        training.run()
    return recorder


def _bits(recorder: Recorder) -> list[dict[str, Any]]:
    return [
        {name: tensor.tobytes() for name, tensor in snapshot.tensors.items()}
        for snapshot, _ in recorder.saved
    ]
