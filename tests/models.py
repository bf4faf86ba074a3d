"""Models for tests of the registry: real files, real rows, and whoever plays them.

Runs here were never trained: their checkpoints are sealed bytes, and their reports say what a test
wants them to.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rl_orch.core.ports import ModelEvaluator
from rl_orch.core.registry.models import Registry
from rl_orch.core.registry.registration import judge
from rl_orch.core.registry.verbs import ModelVerbs
from rl_orch.core.runs.groups import fold
from rl_orch.core.store.runs import Store
from rl_orch.io.checkpoints import catalog
from rl_orch.io.policies import artefacts
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.gate_evidence import Baseline, EvidenceRequest, GateEvidence, Latency, plays
from rl_orch.records import EvalReport, Group, ModelVersion, Run, State
from rl_orch.stats import summarize
from rl_orch.testing import a_spec, seal_checkpoint
from tests.stores import a_run

GATED = ("gates.min_return=100", "gates.stability=false")
EPISODES = 12


def a_report(
    mean: float, *, env_id: str, checkpoint: str, seed: int = 0, episodes: int = EPISODES
) -> EvalReport:
    """A report whose returns scatter about a mean, in the same way for the same seed."""
    chance = random.Random(seed)
    returns = tuple(mean + chance.gauss(0.0, 1.0) for _ in range(episodes))
    return EvalReport(
        env_id=env_id, step=100, checkpoint=checkpoint, seed=seed, deterministic=True,
        returns=returns, lengths=(10,) * episodes, summary=summarize(returns),
    )  # fmt: skip


@dataclass
class PlayedAs:
    """`ModelEvaluator` by numbers that a test gives: the mean return of each model."""

    means: Mapping[int, float]
    asked: list[tuple[int, int | None, int]] = field(default_factory=list)
    gathered: list[EvidenceRequest] = field(default_factory=list)

    def assess(
        self, challenger: ModelVersion, champion: ModelVersion | None, episodes: int
    ) -> tuple[EvalReport, EvalReport | None]:
        """Reports on the same seed."""
        self.asked.append((challenger.id, None if champion is None else champion.id, episodes))
        report = self._report(challenger, episodes)
        return report, None if champion is None else self._report(champion, episodes)

    def gather(
        self, model: ModelVersion, report: EvalReport, wanted: EvidenceRequest
    ) -> GateEvidence:
        """Champions by their means, on the seeds of the report; a decision takes a millisecond."""
        self.gathered.append(wanted)
        baselines = {}
        for alias, champion in wanted.champions.items():
            found = None
            if champion is not None and plays(champion):
                mean, name = self.means[champion.model_id], champion.checkpoint
                found = a_report(mean, env_id=model.env_id, checkpoint=name, seed=report.seed)
                found = found.model_copy(update={"model": str(champion.model_id)})
            baselines[alias] = Baseline(champion=champion, report=found)
        latency = Latency(p99_ms=1.0, n=2000) if wanted.latency else None
        return GateEvidence(digest=model.digest, baselines=baselines, latency=latency)

    def _report(self, model: ModelVersion, episodes: int) -> EvalReport:
        mean, name = self.means[model.id], Path(model.model_path).name
        chance = random.Random(model.id)
        found = a_report(mean, env_id=model.env_id, checkpoint=name, seed=1, episodes=episodes)
        returns = tuple(value + chance.gauss(0.0, 1.0) for value in found.returns)
        seeds = tuple(range(episodes))
        told = {"returns": returns, "summary": summarize(returns), "seeds": seeds}
        return found.model_copy(update=told)


@dataclass(frozen=True)
class Shop:
    """A home with models in it, and the verbs of the registry over them."""

    home: Path
    store: Store
    exists: bool = True

    def models(self, assess: ModelEvaluator | None = None) -> ModelVerbs:
        """The verbs, with somebody who plays."""
        return ModelVerbs(self, assess or PlayedAs({}))

    def get(self, reference: str) -> Run:
        """The run of an id."""
        return self.store.find(reference)

    only = get

    def group(self, reference: str) -> Group | None:
        """The group of an id or a name, if there is one."""
        found = self.store.find_group(reference)
        return None if found is None else fold(self.store.group_runs(found))

    @property
    def registry(self) -> Registry:
        """The rows."""
        return Registry(self.store)

    def a_model(
        self,
        run_id: str,
        mean: float = 500.0,
        *,
        env_id: str = "CartPole-v1",
        state: State = State.SUCCEEDED,
        judged: bool = True,
        gates: Sequence[str] = GATED,
        at: float = 0.0,
        group: str | None = None,
        sealed: bool = True,
    ) -> ModelVersion:
        """The model of a run of its own, whose gate asks for a return of 100; one that is not
        sealed is as earlier releases have registered it."""
        directory = RunDir(self.home / "runs" / run_id)
        spec = a_spec(*gates, env_id=env_id)
        directory.create(spec, {"run_id": run_id})
        run = a_run(run_id, path=str(directory.path), env=env_id, created_at=at, group=group)
        name = catalog.name_of(100)
        path = seal_checkpoint(directory, name)
        self.store.add(run.model_copy(update={"state": State.EVALUATING}), lease=run_id)
        report = a_report(mean, env_id=env_id, checkpoint=name)
        made = artefacts.seal(path, spec) if sealed else path
        model_id = self.registry.register(
            run, spec, made, report, lease=run_id, git_commit="c0ffee"
        )
        if judged:
            directory.write_report("final", report)
            run, _ = judge(self.registry, run, spec, report, lease=run_id)
        ended = run.model_copy(update={"state": state, "model_id": model_id})
        self.store.save(ended, lease=run_id)
        self.store.release(run_id, lease=run_id)
        return self.registry.get(model_id)
