"""A contract suite of the registry's verbs: the same here, in the orchestrator itself, and over
HTTP."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.errors import BadInput, GateRefused
from rl_orch.io.checkpoints import catalog
from rl_orch.io.run.gate_evidence import Baseline, EvidenceRequest, GateEvidence, plays
from rl_orch.records import EvalReport, ModelVersion
from rl_orch.records.queries import ModelQuery
from rl_orch.testing.fakes import FakeRunner, a_report, a_spec, trains_to
from rl_orch.testing.verbs import VerbsUnderTest, alike

GATED = ("gates.min_return=1", "eval.final_episodes=10")


class ModelsContract(ABC):
    """The contract of everybody who has the verbs of the registry."""

    @abstractmethod
    def reach(self, local: Orchestrator) -> AbstractContextManager[VerbsUnderTest]:
        """The verbs under test, at the home of an orchestrator in this process."""

    def make_shop(self, folder: Path) -> Orchestrator:
        """An orchestrator whose runs leave checkpoints that are whole, all of them as good."""
        script = trains_to([4.0, 5.0] * 6)
        return Orchestrator(folder / "home", FakeRunner(script), assess=_AsGood())

    def test_models_are_listed_judged_promoted_and_taken_back_alike(self, tmp_path: Path) -> None:
        """By gates, and by force with a reason."""
        local = self.make_shop(tmp_path)
        runs = [local.launch(a_spec(*GATED)).run for _ in range(2)]
        first, second = (run.model_id or 0 for run in runs)
        with self.reach(local) as verbs:
            assert [model.id for model in verbs.models.list()] == [second, first]
            assert verbs.models.list(ModelQuery(validated=True, top_n=1)) == local.models.list(
                ModelQuery(validated=True, top_n=1)
            )
            assert verbs.models.validate(first).passed
            change = verbs.models.promote(runs[0].id, "production", env="CartPole-v1")
            assert (change.model_id, change.previous_id, change.forced) == (first, None, False)
            alike(local, verbs, lambda known: known.models.promote("production", "production"))
            refusal = alike(local, verbs, lambda known: known.models.promote(second, "production"))
            assert isinstance(refusal, GateRefused)
            forced = verbs.models.promote(second, "production", force=True, reason="a demo")
            assert (forced.previous_id, forced.reason) == (first, "a demo")
            assert verbs.models.get("production").aliases == ("production",)
            assert verbs.models.rollback("production", reason="it was one").model_id == first
            assert verbs.models.history(alias="production") == local.models.history()
            assert verbs.models.aliases() == local.models.aliases()
            assert verbs.models.environments() == ("CartPole-v1",)
            assert verbs.models.show("best@CartPole-v1") == local.models.show("best@CartPole-v1")
            assert verbs.models.unalias("production").model_id is None

    def test_no_word_is_both_an_alias_and_the_name_of_a_run(self, tmp_path: Path) -> None:
        """Whichever of the two was there first; an alias that is held may move on."""
        local = self.make_shop(tmp_path)
        first, second = (local.launch(a_spec(*GATED, "name=taken")).run for _ in range(2))
        with self.reach(local) as verbs:
            refusal = alike(local, verbs, lambda known: known.models.promote(first.id, "taken"))
            assert "name of a run" in refusal.message
            verbs.models.promote(first.id, "production")
            for ask in (
                lambda known: known.submit(a_spec("name=production")),
                lambda known: known.submit(a_spec("name=production", "seeds=2")),
                lambda known: known.check(a_spec("name=production")),
            ):
                refusal = alike(local, verbs, ask)
                assert refusal.path == "name"
                assert f"alias of model {first.model_id}" in refusal.message
            moved = verbs.models.promote(second.id, "production", force=True, reason="a demo")
            assert moved.previous_id == first.model_id

    def test_models_are_compared_with_who_has_an_alias_alike(self, tmp_path: Path) -> None:
        """By the gate of their spec, as of now."""
        local = self.make_shop(tmp_path)
        first = local.launch(a_spec(*GATED)).run
        asked = a_spec(*GATED, "gates.no_regression=production", "gates.margin=1")
        second = local.launch(asked).run
        local.models.promote(first.model_id or 0, "production")
        with self.reach(local) as verbs:
            found = verbs.models.validate(second.model_id or 0)
            assert found.passed
            assert found == local.models.validate(second.model_id or 0)
            assert "mean return minus that of 'production'" in found.verdict.checks[-1].sentence
            fresh = verbs.models.validate(second.model_id or 0, fresh=True)
            assert fresh.passed

    def test_models_are_verified_and_pruned_alike(self, tmp_path: Path) -> None:
        """An alias keeps what it needs, and its run is not removed."""
        local = self.make_shop(tmp_path)
        runs = [local.launch(a_spec(*GATED)).run for _ in range(3)]
        with self.reach(local) as verbs:
            verbs.models.promote(runs[0].id, "production")
            refusal = alike(local, verbs, lambda known: known.remove(runs[0].id))
            assert "production@CartPole-v1" in refusal.message
            told = verbs.models.prune(keep_top_n=1, dry_run=True)
            assert told == local.models.prune(keep_top_n=1, dry_run=True)
            assert [gone.model_id for gone in told.removed] == [runs[1].model_id]
            assert verbs.models.prune(keep_top_n=1).removed == told.removed
            kept = {model.id for model in verbs.models.list()}
            assert kept == {runs[0].model_id, runs[2].model_id}
            shutil.rmtree(Path(runs[0].path) / "checkpoints")
            assert verbs.models.verify().ok
            shutil.rmtree(Path(runs[2].path) / "models" / catalog.name_of(100))
            assert verbs.models.verify() == local.models.verify()
            assert [fault.kind for fault in verbs.models.verify().faults] == ["missing"]

    def test_models_that_there_are_not_are_told_of_in_the_same_words(self, tmp_path: Path) -> None:
        """Whatever is asked of them."""
        local = self.make_shop(tmp_path)
        local.launch(a_spec(*GATED))
        with self.reach(local) as verbs:
            asked: list[Callable[[VerbsUnderTest], object]] = [
                lambda known: known.models.get(99),
                lambda known: known.models.get("99"),
                lambda known: known.models.get("nobody"),
                lambda known: known.models.get("production@Nowhere-v0"),
                lambda known: known.models.get("best@Nowhere-v0"),
                lambda known: known.models.validate(99),
                lambda known: known.models.promote(99, "production"),
                lambda known: known.models.promote(1, "Production!"),
                lambda known: known.models.promote(1, "production", force=True),
                lambda known: known.models.promote(1, "production", env="Pendulum-v1"),
                lambda known: known.models.promote(1, "production@CartPole-v1", env="Other-v0"),
                lambda known: known.models.promote(1, "production@", env="CartPole-v1"),
                lambda known: known.models.rollback("production@CartPole-v1", env="Other-v0"),
                lambda known: known.models.rollback(f"production@{'Long' * 20}-v0"),
                lambda known: known.models.unalias("p" * 301),
                lambda known: known.models.rollback("production"),
                lambda known: known.models.unalias("production"),
            ]
            for ask in asked:
                assert isinstance(alike(local, verbs, ask), BadInput)


class _AsGood:
    """Plays every model alike."""

    def assess(
        self, challenger: ModelVersion, champion: ModelVersion | None, episodes: int
    ) -> tuple[EvalReport, EvalReport | None]:
        """The same report on both."""
        report = a_report([4.0, 5.0] * (episodes // 2))
        return report, report

    def gather(
        self, model: ModelVersion, report: EvalReport, wanted: EvidenceRequest
    ) -> GateEvidence:
        """Champions do as the model did."""
        baselines = {
            alias: Baseline(champion=champion, report=report if plays(champion) else None)
            for alias, champion in wanted.champions.items()
        }
        return GateEvidence(digest=model.digest, baselines=baselines)
