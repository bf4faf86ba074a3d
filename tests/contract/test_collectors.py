"""Every collector collects alike: here, ahead of learning, and in another process."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from rl_orch import plugins
from rl_orch.rl.collect.collector import Collector
from rl_orch.rl.seeding import seed_all
from rl_orch.rl.train import Training
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.testing.algorithms import Recorder
from rl_orch.testing.collectors import CollectorContract
from tests.collector_process import CollectorProcess


class TestLocal(CollectorContract):
    def make(self, spec: Spec) -> Collector:
        made: Collector = plugins.load("collectors", "local")(spec, "captured")
        return made


class TestOverlapped(CollectorContract):
    algorithms = ("ppo",)
    lag = 1

    def make(self, spec: Spec) -> Collector:
        made: Collector = plugins.load("collectors", "overlapped")(spec, "captured")
        return made


@pytest.fixture(scope="module")
def process() -> Iterator[CollectorProcess]:
    started = CollectorProcess()
    yield started
    started.stop()


class TestInAnotherProcess(CollectorContract):
    @pytest.fixture(autouse=True)
    def _started(self, process: CollectorProcess) -> None:
        self.process = process

    def make(self, spec: Spec) -> Collector:
        return self.process.make(spec)


def trained(spec: Spec) -> Recorder:
    recorder = Recorder()
    seed_all(spec.env.seed)
    with closing(Training(spec, recorder)) as training:
        training.run()
    return recorder


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_training_is_the_same_wherever_its_experience_comes_from(
    algorithm: str, process: CollectorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = plugins.load

    def with_distant(kind: str, name: str) -> Any:
        return process.make if (kind, name) == ("collectors", "distant") else load(kind, name)

    monkeypatch.setattr(plugins, "load", with_distant)
    monkeypatch.setattr(plugins, "names", lambda kind: ["distant"])
    options = {"train.learning_starts": 64} if algorithm == "dqn" else {"train.batch_size": 64}
    env = {"id": "CartPole-v1", "seed": 2, "num_envs": 2, "backend": "sync"}
    overrides = ["train.total_timesteps=512", "eval.every=256", "train.engine=torch"]
    local = resolve({"env": env, "agent": {"algorithm": algorithm}}, overrides=overrides)
    local = local.changed({"rollout.steps": 32, "obs.normalize": "running", **options})
    distant = local.changed({"rollout.collector": "distant"})
    whole, other = trained(local), trained(distant)
    assert whole.returns == other.returns
    for (one, _), (two, _) in zip(whole.saved, other.saved, strict=True):
        assert one.document == two.document
        assert {n: t.tobytes() for n, t in one.tensors.items()} == {
            n: t.tobytes() for n, t in two.tensors.items()
        }
