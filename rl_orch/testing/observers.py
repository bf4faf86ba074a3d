"""A contract suite of every observer.

    class TestMine(ObserverContract):
        def make(self, spec):
            return Mine(spec)

Not among the names of `rl_orch.testing` itself, since it loads torch.
"""

from contextlib import closing
from typing import Any

from rl_orch import plugins
from rl_orch.rl.observe import Observer
from rl_orch.rl.seeding import seed_all
from rl_orch.rl.snapshot import Resumption
from rl_orch.rl.train import Training
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.testing.algorithms import ENV_ID, Recorder

NAME = "observer-under-test"


class ObserverContract:
    """The contract of every observer. A subclass says how one is made of a spec."""

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
