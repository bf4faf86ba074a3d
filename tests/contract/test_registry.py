"""The registry in SQLite and in PostgreSQL: verdicts, aliases, promotion, rollback, retention."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from rl_orch.core.policies.assessor import seed_of
from rl_orch.core.registry import references
from rl_orch.core.registry.aliases import Aliases, Change
from rl_orch.core.registry.model_retention import DAY_S, Retention, RetentionLimits
from rl_orch.core.store.runs import Store
from rl_orch.core.store.tables import MODELS
from rl_orch.errors import BadInput, Conflict, Damaged, GateRefused, NotFound
from rl_orch.io.checkpoints import catalog
from rl_orch.io.files import sealed
from rl_orch.io.policies import artefacts
from rl_orch.io.run import gate_evidence
from rl_orch.io.run.directory import MODEL, RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.io.run.gate_evidence import GateEvidence, Latency
from rl_orch.records import EvalReport, EventKind, ModelVersion, State
from rl_orch.records.queries import ModelQuery
from rl_orch.stats import summarize
from tests.models import GATED, PlayedAs, Shop, a_report

HERE = ("CartPole-v1", "production")


@pytest.fixture
def shop(store: Store, tmp_path: Path) -> Shop:
    """A home without a model."""
    return Shop(tmp_path / "home", store)


def refused(ask: Callable[[], object]) -> str:
    """What a gate says against something."""
    with pytest.raises(GateRefused) as caught:
        ask()
    assert caught.value.hint
    return caught.value.message


def test_a_verdict_is_kept_with_its_rules_and_the_report_that_it_read(shop: Shop) -> None:
    model = shop.a_model("r-1")
    (stored,) = shop.registry.verdicts_on(model.id)
    assert (stored.passed, stored.verdict, model.validated) == (True, model.verdict, True)
    (rule,) = stored.rules
    assert (rule["name"], rule["limit"], rule["against"]) == ("min_return", 100.0, None)
    final = RunDir(Path(model.model_path).parents[1]).report_file("final")
    assert stored.report_path == str(final)
    assert shop.models().verify().ok
    again = shop.models().validate(model.id)
    assert again == stored
    final.write_text(final.read_text() + " ")
    (fault,) = shop.models().verify().faults
    assert (fault.kind, fault.model_id) == ("report", model.id)


def test_a_model_knows_where_it_comes_from(shop: Shop) -> None:
    model = shop.a_model("r-1")
    assert model.config_hash == "h"
    assert model.git_commit == "c0ffee"
    assert model.lineage == {"run": "r-1", "attempt": 0, "seed": 1}
    assert model.digest == sealed.manifest_digest(Path(model.model_path))
    assert (model.source, model.retiring, model.aliases) == ("run", False, ())


def test_models_are_listed_by_what_is_asked(shop: Shop) -> None:
    poor, good = shop.a_model("poor", 50.0), shop.a_model("good", 500.0)
    best, other = shop.a_model("best", 900.0), shop.a_model("other", 999.0, env_id="Pendulum-v1")
    models = shop.models()
    models.promote(good.id, "production")

    def ids(query: ModelQuery) -> list[int]:
        return [model.id for model in models.list(query)]

    assert ids(ModelQuery()) == [other.id, best.id, good.id, poor.id]
    assert ids(ModelQuery(limit=2)) == [other.id, best.id]
    assert ids(ModelQuery(validated=True, env="CartPole-v1")) == [best.id, good.id]
    assert ids(ModelQuery(validated=True, top_n=2)) == [best.id, good.id, other.id]
    assert ids(ModelQuery(top_n=1, env="CartPole-v1")) == [best.id]
    assert ids(ModelQuery(alias="production")) == [good.id]
    assert ids(ModelQuery(algo="dqn")) == []
    assert ids(ModelQuery(run="poor")) == [poor.id]
    assert models.get(good.id).aliases == ("production",)


def test_what_no_gate_has_passed_is_not_promoted(shop: Shop) -> None:
    models = shop.models()
    fresh, poor = shop.a_model("fresh", judged=False), shop.a_model("poor", 50.0)
    with pytest.raises(GateRefused, match="has no verdict") as refusal:
        models.promote(fresh.id, "production")
    hint = f"rlctl registry validate {fresh.id}; with --min-return NUMBER, if its spec has no gate."
    assert refusal.value.hint == hint
    assert "at least 100 is asked" in refused(lambda: models.promote(poor.id, "production"))
    assert models.aliases() == ()
    assert models.history() == ()


def test_force_needs_a_reason_and_is_remembered(shop: Shop) -> None:
    models = shop.models()
    poor = shop.a_model("poor", 50.0)
    for reason in (None, "  "):
        with pytest.raises(BadInput, match="needs a --reason"):
            models.promote(poor.id, "production", force=True, reason=reason)
    change = models.promote(poor.id, "production", force=True, reason="a demo", who="me")
    assert (change.forced, change.reason, change.who, change.verdict_id) == (
        True, "a demo", "me", None,
    )  # fmt: skip
    assert models.history() == (change,)
    assert not models.get("production").validated


def test_a_champion_is_replaced_only_by_who_is_better(shop: Shop) -> None:
    first, same, better = (shop.a_model(name) for name in ("first", "same", "better"))
    player = PlayedAs({first.id: 500.0, same.id: 500.0, better.id: 510.0})
    models = shop.models(player)
    models.promote(first.id, "production")
    assert player.asked == []
    said = refused(lambda: models.promote(same.id, "production"))
    assert "mean return minus that of 'production' over 100 pairs of episodes" in said
    assert "more than 0 is asked" in said
    change = models.promote(better.id, "production")
    assert (change.model_id, change.previous_id) == (better.id, first.id)
    assert player.asked == [(same.id, first.id, 100), (better.id, first.id, 100)]
    stored = models.show(better.id).verdicts[0]
    assert (stored.id, stored.baseline_id, stored.passed) == (change.verdict_id, first.id, True)
    kept = json.loads(Path(str(stored.report_path)).read_text())
    assert set(kept) == {"default", "@baseline"}


def test_as_good_is_enough_where_that_is_said(shop: Shop) -> None:
    first, same, worse = (shop.a_model(name) for name in ("first", "same", "worse"))
    models = shop.models(PlayedAs({first.id: 500.0, same.id: 500.0, worse.id: 480.0}))
    models.promote(first.id, "production")
    said = refused(lambda: models.promote(worse.id, "production", allow_equal=True, margin=2.0))
    assert "a loss of at most 2 is allowed" in said
    assert models.show(worse.id).verdicts[0].verdict.checks[0].limit == -2.0
    models.promote(same.id, "production", allow_equal=True, margin=2.0)
    assert models.get("production").id == same.id


def test_a_stored_comparison_counts_for_that_champion_and_that_demand_alone(shop: Shop) -> None:
    first, second, third = (shop.a_model(name) for name in ("first", "second", "third"))
    player = PlayedAs({first.id: 500.0, second.id: 510.0, third.id: 505.0})
    models = shop.models(player)
    models.promote(first.id, "production")
    models.promote(third.id, "production", allow_equal=True, margin=50.0)
    models.rollback("production")
    models.promote(third.id, "production", allow_equal=True, margin=60.0)
    assert len(player.asked) == 1
    models.rollback("production")
    models.promote(third.id, "production", allow_equal=True, margin=1.0)
    models.rollback("production")
    models.promote(third.id, "production")
    assert len(player.asked) == 3
    models.promote(second.id, "production")
    assert player.asked[-1][:2] == (second.id, third.id)


def test_who_was_overtaken_is_told_so(shop: Shop) -> None:
    models, aliases = shop.models(), Aliases(shop.store)
    first, second = shop.a_model("first"), shop.a_model("second")
    models.promote(first.id, "production")
    for seen in (None, second.id):
        with pytest.raises(Conflict, match=f"model {first.id} has it now"):
            aliases.change(Change(*HERE, second.id, seen, "promote", "me"))
    with pytest.raises(Conflict, match="is production@CartPole-v1 already"):
        models.promote(first.id, "production")
    assert models.get("production").id == first.id
    assert len(models.history()) == 1


def test_a_rollback_goes_back_and_once_more_and_then_no_further(shop: Shop) -> None:
    made = [shop.a_model(f"r-{n}") for n in range(3)]
    models = shop.models()
    for model in made:
        models.promote(model.id, "production", force=True, reason="in turn")
    assert models.rollback("production", reason="it fell over").model_id == made[1].id
    assert models.history()[0].reason == "it fell over; forced before: in turn"
    assert models.rollback("production@CartPole-v1").model_id == made[0].id
    with pytest.raises(Conflict, match="nobody who is still there"):
        models.rollback("production")
    models.promote(made[2].id, "production", force=True, reason="again")
    assert models.rollback("production").model_id == made[0].id
    told = models.history(alias="production")
    assert [change.action for change in told[:2]] == ["rollback", "promote"]
    assert (told[0].forced, told[0].reason) == (True, "forced before: in turn")


def test_a_rollback_passes_over_what_is_gone(shop: Shop) -> None:
    made = [shop.a_model(f"r-{n}") for n in range(3)]
    models = shop.models()
    for model in made:
        models.promote(model.id, "production", force=True, reason="in turn")
    shop.registry.forget_run("r-1")
    assert models.rollback("production").model_id == made[0].id


def test_an_alias_is_taken_away_and_rollback_does_not_bring_it_back(shop: Shop) -> None:
    models, model = shop.models(), shop.a_model("r-1")
    models.promote(model.id, "production")
    change = models.unalias("production", reason="retired")
    assert (change.model_id, change.previous_id, change.action) == (None, model.id, "remove")
    assert models.aliases() == ()
    for ask in (models.rollback, models.unalias, models.get):
        with pytest.raises(NotFound):
            ask("production")


def test_each_environment_has_aliases_of_its_own(shop: Shop) -> None:
    cart, pole = shop.a_model("cart"), shop.a_model("swing", env_id="Pendulum-v1")
    models = shop.models()
    models.promote(cart.id, "production")
    models.promote(pole.id, "production@Pendulum-v1")
    with pytest.raises(BadInput, match="could be any of: production@CartPole-v1, production@Pend"):
        models.rollback("production")
    assert models.get("production@Pendulum-v1").id == pole.id
    assert models.history(env="Pendulum-v1")[0].model_id == pole.id


def test_a_model_of_another_environment_is_refused_with_what_there_is_instead(shop: Shop) -> None:
    cart, pole = shop.a_model("cart"), shop.a_model("swing", env_id="Pendulum-v1")
    models = shop.models()
    with pytest.raises(BadInput, match="cannot act in CartPole-v1") as caught:
        models.promote(pole.id, "production@CartPole-v1")
    hint = str(caught.value.hint)
    assert f"model {cart.id}: `rlctl promote {cart.id} --to production@CartPole-v1`" in hint
    assert f"`rlctl promote {pole.id} --to production@Pendulum-v1`" in hint
    with pytest.raises(BadInput) as caught:
        models.promote(pole.id, "production", env="Acrobot-v1")
    assert "no validated model of Acrobot-v1" in str(caught.value.hint)


@pytest.mark.parametrize("word", ["", "Production", "best", "last", "a b", "1st", "x" * 65, "a@"])
def test_what_cannot_be_an_alias_is_refused(shop: Shop, word: str) -> None:
    model = shop.a_model("r-1")
    with pytest.raises(BadInput, match="alias"):
        shop.models().promote(model.id, word)


def test_an_environment_that_cannot_be_printed_is_refused(shop: Shop) -> None:
    model = shop.a_model("r-1")
    with pytest.raises(BadInput) as raised:
        shop.models().promote(model.id, "production", env="\0")
    assert "\0" not in raised.value.message


def test_what_is_at_work_lost_or_changed_is_not_promoted(shop: Shop) -> None:
    models = shop.models()
    busy = shop.a_model("busy", state=State.RUNNING)
    gone, broken, other = (shop.a_model(name) for name in ("gone", "broken", "other"))
    with pytest.raises(Conflict, match="running and may still drop it"):
        models.promote(busy.id, "production", force=True, reason="whatever")
    shutil.rmtree(gone.model_path)
    with pytest.raises(NotFound):
        models.promote(gone.id, "production", force=True, reason="whatever")
    (Path(broken.model_path) / catalog.STATE).write_bytes(b"[]")
    with pytest.raises(Damaged):
        models.promote(broken.id, "production", force=True, reason="whatever")
    other_files(other)
    with pytest.raises(Conflict, match="other files than were registered"):
        models.promote(other.id, "production", force=True, reason="whatever")
    kinds = {fault.model_id: fault.kind for fault in models.verify().faults}
    assert kinds == {gone.id: "missing", broken.id: "damaged", other.id: "changed"}
    assert models.verify(env="Pendulum-v1").models == 0


def test_files_that_are_not_the_registered_ones_are_neither_judged_nor_used(shop: Shop) -> None:
    model = shop.a_model("r-1")
    player = PlayedAs({model.id: 300.0})
    models = shop.models(player)
    models.promote(model.id, "production")
    other_files(model)
    for fresh in (True, False):
        with pytest.raises(Conflict, match="other files than were registered"):
            models.validate(model.id, fresh=fresh)
    for word in (str(model.id), "production", "r-1"):
        with pytest.raises(Conflict, match="other files than were registered"):
            references.source(models, shop, word)
    assert player.asked == []
    assert models.get(model.id).digest == model.digest
    assert [fault.kind for fault in models.verify().faults] == ["changed"]


def test_a_model_is_judged_by_its_spec_or_by_what_is_asked(shop: Shop) -> None:
    poor, free = shop.a_model("poor", 50.0), shop.a_model("free", gates=())
    player = PlayedAs({poor.id: 60.0})
    models = shop.models(player)
    assert not models.validate(poor.id).passed
    assert not models.get(poor.id).validated
    assert models.validate(poor.id, min_return=40.0).passed
    assert models.get(poor.id).validated
    assert player.asked == []
    assert models.validate(poor.id, min_return=55.0, episodes=30).passed
    assert player.asked == [(poor.id, None, 30)]
    assert models.get(poor.id).mean_reward == pytest.approx(60.0, abs=1.5)
    with pytest.raises(BadInput, match="has no gate to pass"):
        models.validate(free.id)
    assert [stored.passed for stored in models.show(poor.id).verdicts] == [True, True, False]


COMPARED = (*GATED, "gates.improvement=production", "gates.no_regression=staging", "gates.margin=5")


def test_a_model_is_compared_with_whoever_has_the_alias_now(shop: Shop) -> None:
    first, second = shop.a_model("first", 480.0), shop.a_model("second", 495.0)
    model = shop.a_model("third", 490.0, gates=COMPARED)
    assert "not known" in str(shop.registry.verdicts_on(model.id)[0].verdict.checks[1].sentence)
    player = PlayedAs({first.id: 480.0, second.id: 495.0})
    models = shop.models(player)
    models.promote(first.id, "production")
    stored = models.validate(model.id)
    _, no_worse, better = stored.verdict.checks
    assert no_worse.sentence == "not judged: no model of CartPole-v1 is 'staging' yet"
    assert f"'production' (model {first.id}) over 12 " in better.sentence
    assert "is 10.00, with 95 % confidence between" in better.sentence
    assert stored.passed
    models.promote(second.id, "production", force=True, reason="in turn")
    models.promote(second.id, "staging")
    later = models.validate(model.id)
    assert [check.passed for check in later.verdict.checks] == [True, False, False]
    assert "a loss of at most 5 is allowed" in later.verdict.checks[1].sentence
    champions = [each.champions["production"] for each in player.gathered]
    assert [each and each.model_id for each in champions] == [first.id, second.id]
    assert player.asked == []


def test_nobody_is_compared_with_itself(shop: Shop) -> None:
    model = shop.a_model("first", gates=COMPARED[:3])
    player = PlayedAs({})
    models = shop.models(player)
    assert models.validate(model.id).passed
    models.promote(model.id, "production")
    stored = models.validate(model.id)
    assert stored.passed
    assert stored.verdict.checks[-1].sentence == "not judged: the model is 'production' itself"
    assert player.gathered == []


def test_what_a_verdict_read_besides_the_report_is_fixed_by_its_digest(shop: Shop) -> None:
    model = shop.a_model("r-1", gates=(*GATED, "gates.max_latency_ms=2"))
    player = PlayedAs({model.id: 500.0})
    models = shop.models(player)
    stored = models.validate(model.id)
    assert stored.passed
    assert models.verify().ok
    file = Path(str(stored.report_path))
    kept = json.loads(file.read_text())
    assert kept["@gathered"]["latency"] == {"p99_ms": 1.0, "n": 2000}
    kept["@gathered"]["latency"]["p99_ms"] = 0.5
    file.write_text(json.dumps(kept))
    (fault,) = models.verify().faults
    assert (fault.kind, fault.model_id) == ("report", model.id)
    again = models.validate(model.id)
    assert again.report_path == stored.report_path
    assert models.verify().ok
    assert models.validate(model.id, fresh=True).report_path != stored.report_path


def test_what_the_final_evaluation_gathered_is_not_gathered_again(shop: Shop) -> None:
    model = shop.a_model("r-1", gates=(*GATED, "gates.max_latency_ms=2"))
    directory = RunDir(Path(model.model_path).parents[1])
    report = directory.read_report("final")
    assert report is not None
    found = GateEvidence(digest=model.digest, latency=Latency(p99_ms=1.5, n=2000))
    gate_evidence.write(directory, "final", report, found)
    player = PlayedAs({model.id: 500.0})
    models = shop.models(player)
    assert "up to 1.5 ms" in models.validate(model.id).verdict.checks[-1].sentence
    assert player.gathered == []
    assert "up to 1 ms" in models.validate(model.id, fresh=True).verdict.checks[-1].sentence
    of_another = found.model_copy(update={"digest": "of another checkpoint"})
    gate_evidence.write(directory, "final", report, of_another)
    assert "up to 1 ms" in models.validate(model.id).verdict.checks[-1].sentence


@pytest.mark.parametrize(("gain", "passes"), [(0.0, True), (10.0, False)])
def test_convergence_and_guardrails_are_read_in_the_events_of_the_run(
    shop: Shop, gain: float, passes: bool
) -> None:
    gates = (*GATED, "eval.every=1000", "gates.converged=true", "gates.guardrail_clean=true")
    model = shop.a_model("r-1", gates=gates)
    events = RunDir(Path(model.model_path).parents[1]).events
    with EventWriter(events, run="r-1", attempt=1) as writer:
        writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
        for step in range(1, 100):
            tags = {"summary": summarize([gain * step] * 2).model_dump(mode="json")}
            writer.emit(EventKind.EVAL, "eval/mean_return", gain * step, step=step, tags=tags)
        if not passes:
            writer.emit(EventKind.GUARDRAIL, "loss", 1.0, step=99)
    stored = shop.models().validate(model.id)
    checks = {check.rule: check for check in stored.verdict.checks}
    assert checks["converged"].passed is checks["guardrail_clean"].passed is passes
    assert "over the last third of training" in checks["converged"].sentence
    kept = json.loads(Path(str(stored.report_path)).read_text())["@gathered"]
    assert len(kept["history"]) == 99
    assert kept["guardrail_events"] == (0 if passes else 1)


@pytest.mark.parametrize("kept", [True, False])
def test_without_events_of_a_training_nobody_knows_that_guardrails_were_quiet(
    shop: Shop, kept: bool
) -> None:
    model = shop.a_model("r-1", gates=(*GATED, "gates.guardrail_clean=true"))
    if not kept:
        RunDir(Path(model.model_path).parents[1]).events.unlink()
    stored = shop.models().validate(model.id)
    checks = {check.rule: check for check in stored.verdict.checks}
    assert not checks["guardrail_clean"].passed
    assert "whether guardrails spoke up" in checks["guardrail_clean"].sentence
    assert not stored.passed


def test_the_newest_verdict_decides_and_a_failed_one_takes_nothing_away(shop: Shop) -> None:
    models, model = shop.models(), shop.a_model("r-1")
    assert not models.validate(model.id, min_return=1000.0).passed
    assert models.get(model.id).validated
    assert "at least 1000 is asked" in refused(lambda: models.promote(model.id, "production"))


def test_two_models_always_meet_on_the_same_seeds(shop: Shop) -> None:
    first, second, third = (shop.a_model(name) for name in ("first", "second", "third"))
    seeds = [seed_of(first, second), seed_of(first, third), seed_of(second, first)]
    assert len({*seeds, seed_of(first, None)}) == 4
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert seed_of(shop.registry.get(first.id), second) == seeds[0]


def test_the_best_stay_and_the_others_go_with_their_files(shop: Shop) -> None:
    made = [shop.a_model(f"r-{mean}", float(mean)) for mean in (300, 500, 400, 200)]
    elsewhere = shop.a_model("swing", 110.0, env_id="Pendulum-v1")
    models = shop.models()
    told = models.prune(keep_top_n=2, dry_run=True)
    assert [gone.model_id for gone in told.removed] == [made[0].id, made[3].id]
    assert told.removed[0].why == "it is number 3 of CartPole-v1, and only 2 may stay"
    assert len(models.list()) == 5
    done = models.prune(keep_top_n=2)
    assert (done.removed, done.dry_run) == (told.removed, False)
    assert {model.id for model in models.list()} == {made[1].id, made[2].id, elsewhere.id}
    there = [Path(model.model_path).exists() for model in made]
    assert there == [False, True, True, False]
    assert models.verify().ok
    assert models.prune().removed == ()


def test_what_is_validated_comes_before_what_is_not(shop: Shop) -> None:
    unjudged, judged = shop.a_model("loud", 900.0, judged=False), shop.a_model("sound", 200.0)
    assert [g.model_id for g in shop.models().prune(keep_top_n=1).removed] == [unjudged.id]
    assert shop.models().get(judged.id).validated


def test_old_models_go_by_their_age(shop: Shop) -> None:
    old, new = shop.a_model("old", at=0.0), shop.a_model("new", at=10 * DAY_S)
    retention = Retention(shop.store, clock=lambda: 12 * DAY_S)
    done = retention.prune(RetentionLimits(max_age=5.0))
    assert [gone.model_id for gone in done.removed] == [old.id]
    assert done.removed[0].why == "it is older than 5 days"
    assert [model.id for model in shop.models().list()] == [new.id]


def test_what_an_alias_or_a_rollback_or_a_run_needs_is_spared(shop: Shop) -> None:
    models = shop.models()
    before, now, loose = (shop.a_model(name) for name in ("before", "now", "loose"))
    busy = shop.a_model("busy", state=State.RUNNING)
    stopped = shop.a_model("stopped", state=State.STOPPED)
    for model in (before, now):
        models.promote(model.id, "production", force=True, reason="in turn")
    done = models.prune(max_age=0.001)
    assert [gone.model_id for gone in done.removed] == [loose.id]
    assert {spared.model_id: spared.why for spared in done.spared} == {
        before.id: "a rollback of production would return to it",
        now.id: "it is production",
        busy.id: "its run busy is running and may still need it",
        stopped.id: "its run stopped is stopped and may still need it",
    }
    assert models.rollback("production").model_id == before.id


def test_a_removal_that_was_cut_short_is_finished_and_nobody_is_promoted_meanwhile(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, best = shop.a_model("r-1", 200.0), shop.a_model("r-2", 500.0)
    models = shop.models()

    def power_cut(_path: Path) -> None:
        raise SystemExit("no power")

    with monkeypatch.context() as patch:
        patch.setattr(artefacts, "remove", power_cut)
        with pytest.raises(SystemExit, match="no power"):
            models.prune(keep_top_n=1)
    assert shop.registry.get(model.id).retiring
    assert [found.id for found in models.list()] == [best.id]
    (fault,) = models.verify().faults
    assert (fault.model_id, fault.kind) == (model.id, "retiring")
    with pytest.raises(Conflict, match="is being removed"):
        models.promote(model.id, "production", force=True, reason="please")
    with pytest.raises(NotFound):
        models.validate(model.id)
    shutil.rmtree(model.model_path)
    assert [gone.model_id for gone in models.prune().removed] == [model.id]
    assert models.verify().ok
    with pytest.raises(NotFound):
        models.get(model.id)


def test_files_on_another_machine_are_not_ours_to_forget(shop: Shop) -> None:
    model = shop.a_model("r-1")
    directory = Path(model.model_path).parents[1]
    directory.rename(directory.with_name("elsewhere"))
    assert shop.models().prune(max_age=0.001).removed == ()
    assert shop.registry.get(model.id) == model


def test_a_run_whose_model_has_an_alias_is_not_forgotten(shop: Shop) -> None:
    models, model = shop.models(), shop.a_model("r-1")
    models.promote(model.id, "production")
    seen: list[ModelVersion] = []
    with pytest.raises(Conflict, match=f"its model {model.id} is production@CartPole-v1") as caught:
        shop.registry.forget_run("r-1", files=lambda: seen.append(model))
    assert "rlctl registry unalias production@CartPole-v1" in str(caught.value.hint)
    assert seen == []
    models.unalias("production")
    shop.registry.forget_run("r-1", files=lambda: seen.append(model))
    assert seen == [model]
    assert models.list() == ()
    assert models.history()[-1].model_id == model.id


def test_where_files_cannot_go_the_rows_stay(shop: Shop) -> None:
    model = shop.a_model("r-1")

    def stuck() -> None:
        raise OSError("in use")

    with pytest.raises(OSError, match="in use"):
        shop.registry.forget_run("r-1", files=stuck)
    assert shop.registry.get(model.id) == model


def test_a_run_whose_removal_was_cut_short_is_of_no_use_and_can_be_removed_again(
    shop: Shop,
) -> None:
    model, models = shop.a_model("r-1"), shop.models()
    directory = Path(model.model_path).parents[1]

    def power_cut() -> None:
        directory.rename(directory.with_name(".removing-r-1"))
        raise SystemExit("no power")

    with pytest.raises(SystemExit, match="no power"):
        shop.registry.forget_run("r-1", files=power_cut)
    with pytest.raises(NotFound):
        models.promote(model.id, "production", force=True, reason="a demo")
    assert models.list() == ()
    assert models.prune().removed == ()
    (fault,) = models.verify().faults
    assert fault.sentence == f"model {model.id} is being removed; `rlctl rm r-1` finishes that"
    shop.registry.forget_run("r-1")
    assert models.verify().ok


def test_what_the_registry_needs_of_a_run_is_known_to_it(shop: Shop) -> None:
    models = shop.models()
    shop.a_model("loose", judged=False, sealed=False)
    forced = shop.a_model("forced", judged=False)
    shop.a_model("sound")
    shop.a_model("old", sealed=False)
    models.promote(forced.id, "production", force=True, reason="a demo")
    kept = {run_id: shop.registry.kept_of(run_id) for run_id in ("loose", "forced", "sound", "old")}
    assert kept == {"loose": [], "forced": [], "sound": [], "old": [catalog.name_of(100)]}


def other_files(model: ModelVersion) -> Path:
    """Put another artefact where that of a model is."""
    path = Path(model.model_path)
    artefact = artefacts.read(path)
    other = artefact.document.model_copy(update={"checkpoint_digest": "0" * 64})
    files = artefact.files | {MODEL: other.model_dump_json().encode()}
    sealed.write(path, files, noun=artefacts.NOUN)
    return path


def replaced(shop: Shop, model: ModelVersion, mean: float = 0.0) -> None:
    """Let the run of a model save another checkpoint in its place, as one that is resumed may."""
    run = shop.get(str(model.run_id))
    path = other_files(model)
    report = a_report(mean, env_id=model.env_id, checkpoint=path.name)
    shop.store.take_lease(run.id, held_by=None, lease="again")
    spec = RunDir.of(run).spec()
    shop.registry.register(run, spec, path, report, lease="again", git_commit=None)
    shop.store.release(run.id, lease="again")


def test_a_verdict_on_other_files_promotes_nobody(shop: Shop) -> None:
    first, second = shop.a_model("first"), shop.a_model("second")
    player = PlayedAs({first.id: 500.0, second.id: 510.0})
    models = shop.models(player)
    models.promote(first.id, "production")
    models.promote(second.id, "production")
    models.rollback("production")
    replaced(shop, second)
    assert not models.get(second.id).validated
    said = refused(lambda: models.promote(second.id, "production"))
    assert "has no verdict on its files as they are now" in said
    models.validate(second.id, fresh=True)
    models.promote(second.id, "production")
    assert len(player.asked) == 3  # Nor is the comparison of the old files believed.


def test_a_model_that_is_replaced_while_it_is_judged_is_not_judged(shop: Shop) -> None:
    model = shop.a_model("r-1", judged=False)

    class Meanwhile(PlayedAs):
        def assess(
            self, challenger: ModelVersion, champion: ModelVersion | None, episodes: int
        ) -> tuple[EvalReport, EvalReport | None]:
            found = super().assess(challenger, champion, episodes)
            replaced(shop, challenger)
            return found

    models = shop.models(Meanwhile({model.id: 500.0}))
    with pytest.raises(Conflict, match="was replaced while it was judged"):
        models.validate(model.id)
    assert not models.get(model.id).validated
    assert models.show(model.id).verdicts == ()


def test_a_model_that_fails_while_a_promotion_is_decided_is_not_promoted(shop: Shop) -> None:
    first, second = shop.a_model("first"), shop.a_model("second")

    class Meanwhile(PlayedAs):
        def assess(
            self, challenger: ModelVersion, champion: ModelVersion | None, episodes: int
        ) -> tuple[EvalReport, EvalReport | None]:
            if champion is not None:
                shop.models().validate(challenger.id, min_return=1e6)
            return super().assess(challenger, champion, episodes)

    models = shop.models(Meanwhile({first.id: 500.0, second.id: 510.0}))
    models.promote(first.id, "production")
    with pytest.raises(Conflict, match="was judged anew, or replaced"):
        models.promote(second.id, "production")
    assert models.get("production").id == first.id


def test_who_was_beaten_has_to_play_more_to_try_again(shop: Shop) -> None:
    first, same = shop.a_model("first"), shop.a_model("same")
    player = PlayedAs({first.id: 500.0, same.id: 500.0})
    models = shop.models(player)
    models.promote(first.id, "production")
    for episodes in (None, None, 50, 100):
        refused(partial(models.promote, same.id, "production", episodes=episodes))
    assert [count for _, _, count in player.asked] == [100]
    refused(lambda: models.promote(same.id, "production", episodes=200))
    assert [count for _, _, count in player.asked] == [100, 200]
    with pytest.raises(BadInput, match="at least 10"):
        models.promote(same.id, "production", episodes=9)


def test_a_champion_with_other_files_is_no_measure(shop: Shop) -> None:
    first, second = shop.a_model("first"), shop.a_model("second")
    models = shop.models(PlayedAs({first.id: 500.0, second.id: 510.0}))
    models.promote(first.id, "production")
    other_files(first)
    with pytest.raises(Conflict, match="has other files than were registered"):
        models.promote(second.id, "production")


def test_a_rollback_never_returns_to_whoever_has_the_alias(shop: Shop) -> None:
    oldest, now, gone = (shop.a_model(name) for name in ("oldest", "now", "gone"))
    models = shop.models()
    for model in (oldest, now, gone, now):
        models.promote(model.id, "production", force=True, reason="a test")
    shop.registry.forget_run("gone")
    shop.a_model("best", 900.0)
    models.prune(keep_top_n=1)
    assert models.rollback("production").model_id == oldest.id


def test_a_final_evaluation_without_a_gate_takes_no_validation_away(shop: Shop) -> None:
    model = shop.a_model("r-1")
    run = shop.get("r-1")
    shop.store.take_lease(run.id, held_by=None, lease="again")
    report = a_report(1.0, env_id=model.env_id, checkpoint=Path(model.model_path).name)
    shop.registry.judge(run, model.id, report, None, lease="again")
    assert shop.registry.get(model.id).validated


def test_one_model_that_cannot_be_deleted_stops_no_other(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, free, best = (shop.a_model(n, m) for n, m in (("a", 200.0), ("b", 300.0), ("c", 500.0)))
    remove = artefacts.remove

    def refuse(path: Path) -> None:
        if str(path) == stuck.model_path:
            raise PermissionError(13, "Permission denied")
        remove(path)

    monkeypatch.setattr(artefacts, "remove", refuse)
    done = shop.models().prune(keep_top_n=1)
    assert [each.model_id for each in done.removed] == [free.id]
    assert {each.model_id: each.why for each in done.spared}[stuck.id].startswith(
        "its files cannot"
    )
    assert [model.id for model in shop.models().list()] == [best.id]


def test_a_run_whose_last_model_is_gone_means_the_best_that_it_has(shop: Shop) -> None:
    model = shop.a_model("r-1")
    run = shop.get("r-1")
    shop.store.take_lease(run.id, held_by=None, lease="again")
    shop.store.save(run.model_copy(update={"model_id": 999}), lease="again")
    shop.store.release(run.id, lease="again")
    assert shop.models().get("r-1").id == model.id


def test_a_verdict_needs_ten_episodes_and_a_small_sample_takes_no_larger_ones_place(
    shop: Shop,
) -> None:
    model = shop.a_model("r-1", 300.0)
    models = shop.models(PlayedAs({model.id: 500.0}))
    with pytest.raises(BadInput, match="a verdict needs at least 10"):
        models.validate(model.id, episodes=9)
    assert models.validate(model.id, episodes=11).episodes == 11
    assert models.get(model.id).mean_reward == model.mean_reward
    models.validate(model.id, episodes=40)
    assert models.get(model.id).mean_reward == pytest.approx(500.0, abs=2.0)


def test_what_would_be_passed_over_in_silence_is_refused(shop: Shop) -> None:
    model = shop.a_model("r-1")
    models = shop.models()
    with pytest.raises(BadInput, match="margin is about not being worse"):
        models.promote(model.id, "production", margin=5.0)
    with pytest.raises(NotFound, match="is a path, and a model of the registry is meant"):
        models.promote(model.model_path, "production")


def test_an_imported_model_stays_until_a_gate_has_judged_it(shop: Shop) -> None:
    shop.a_model("best")
    model = shop.a_model("imported", judged=False)
    with shop.store.writing() as connection:
        unmeasured = {"source": "import", "mean_reward": None}
        connection.execute(sa.update(MODELS).where(MODELS.c.id == model.id).values(**unmeasured))
    (spared,) = shop.models().prune(keep_top_n=1).spared
    told = f"it was imported, and not judged yet: rlctl registry validate {model.id}"
    assert spared.why == told
    shop.models(PlayedAs({model.id: 300.0})).validate(model.id)
    assert [gone.model_id for gone in shop.models().prune(keep_top_n=1).removed] == [model.id]


def test_a_removal_that_was_cut_short_is_finished_without_a_limit_and_told_of(shop: Shop) -> None:
    shop.a_model("stays")
    model = shop.a_model("goes")
    with shop.store.writing() as connection:
        connection.execute(sa.update(MODELS).where(MODELS.c.id == model.id).values(retiring=True))
    for dry_run in (True, False):
        (gone,) = shop.models().prune(dry_run=dry_run).removed
        assert (gone.model_id, gone.why) == (model.id, "its removal was cut short")
    assert not Path(model.model_path).exists()
    assert shop.models().prune().removed == ()
