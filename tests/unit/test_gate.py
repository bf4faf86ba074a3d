"""Gates: what each rule asks, on which number, and what the verdict says."""

import re

import pytest

from rl_orch.gate import Rule, judge, rules_from, rules_of_reports
from rl_orch.gate.verdict import RULES
from rl_orch.records import Verdict
from rl_orch.spec.groups import GatesGroup
from rl_orch.testing import a_report


def verdict_of(gates: GatesGroup, returns: list[float], *, env_steps: int = 1000) -> Verdict:
    """The verdict on some returns."""
    verdict = judge(a_report(returns), None, rules_from(gates), env_steps=env_steps)
    assert verdict is not None
    return verdict


def all_gates(stability: bool) -> GatesGroup:
    """A group in which everything is asked for."""
    return GatesGroup(
        min_return=1.0,
        min_episodes=1,
        max_std=1.0,
        stability=stability,
        min_success_rate=0.5,
        metrics={"reward_walk": ">= 1"},
        converged=True,
        no_regression="production",
        margin=1.0,
        improvement="production",
        max_latency_ms=1.0,
        max_bundle_mb=1.0,
        guardrail_clean=True,
        export_parity=True,
    )


def test_where_nothing_is_asked_there_is_no_verdict() -> None:
    assert judge(a_report([1.0]), None, rules_from(GatesGroup()), env_steps=1) is None


def test_the_minimum_return_is_held_against_the_lower_bound_not_the_mean() -> None:
    returns = [480.0] * 5 + [500.0] * 5
    report = a_report(returns)
    low, mean = report.summary.ci95[0], report.summary.mean
    assert low < mean
    between = GatesGroup(min_return=(low + mean) / 2)
    assert not verdict_of(between, returns).passed
    assert verdict_of(GatesGroup(min_return=low), returns).passed


def test_stability_for_a_mean_above_zero_asks_for_a_deviation_below_half_of_it() -> None:
    gates = GatesGroup(min_return=-1000.0)
    steady, shaky = [10.0, 10.0, 14.0, 14.0], [1.0, 1.0, 27.0, 27.0]
    assert verdict_of(gates, steady).passed
    failed = verdict_of(gates, shaky)
    assert not failed.passed
    assert [check.rule for check in failed.checks if not check.passed] == ["stability"]
    assert "half the mean" in failed.checks[-1].sentence


def test_a_deviation_of_exactly_half_the_mean_is_not_stable() -> None:
    returns = [5.0, 15.0]
    half = a_report(returns).summary.std / 2
    assert not verdict_of(GatesGroup(min_return=-1e6), [half, 3 * half]).passed


@pytest.mark.parametrize(("limit", "passes"), [(20.0, True), (1.0, False)])
def test_for_a_mean_not_above_zero_the_largest_deviation_decides_and_says_so(
    limit: float, passes: bool
) -> None:
    verdict = verdict_of(GatesGroup(min_return=-300.0, max_std=limit), [-110.0, -100.0, -90.0])
    assert verdict.passed is passes
    assert "gates.max_std decides" in verdict.checks[-1].sentence


def test_without_a_largest_deviation_a_negative_mean_is_not_judged_and_it_says_so() -> None:
    verdict = verdict_of(GatesGroup(min_return=-1000.0), [-200.0, -100.0, -50.0])
    assert verdict.passed
    assert "not judged" in verdict.checks[-1].sentence


def test_for_a_mean_above_zero_half_of_it_decides_and_says_what_the_largest_deviation_is_for() -> (
    None
):
    steady, shaky = [10.0, 10.0, 14.0, 14.0], [1.0, 1.0, 27.0, 27.0]
    for returns, limit, passes in ((steady, 0.1, True), (shaky, 1e6, False)):
        (check,) = verdict_of(GatesGroup(max_std=limit), returns).checks
        assert (check.rule, check.passed) == ("stability", passes)
        assert "half the mean" in check.sentence
        assert check.sentence.endswith("; gates.max_std is for means not above zero")
    assert "max_std" not in verdict_of(GatesGroup(min_return=1.0), steady).checks[-1].sentence


def test_stability_can_be_switched_off() -> None:
    rules = rules_from(GatesGroup(min_return=1.0, stability=False))
    assert rules == (Rule("min_return", 1.0),)


@pytest.mark.parametrize("middle", [-100.0, 0.0, 100.0])
@pytest.mark.parametrize(("limit", "passes"), [(10.0, True), (9.9, False)])
def test_without_stability_the_largest_deviation_decides_whatever_the_mean(
    middle: float, limit: float, passes: bool
) -> None:
    gates = GatesGroup(max_std=limit, stability=False)
    (check,) = verdict_of(gates, [middle - 10.0, middle, middle + 10.0]).checks
    assert (check.rule, check.passed, check.limit) == ("max_std", passes, limit)
    assert check.sentence == f"standard deviation is 10.00; at most {limit:g} is asked"


def test_one_episode_passes_no_return_gate_and_its_verdict_survives_json() -> None:
    verdict = verdict_of(GatesGroup(min_return=-1e9), [500.0])
    assert not verdict.passed
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


def test_every_rule_that_a_spec_can_ask_for_is_known_and_every_known_one_can_be_asked_for() -> None:
    asked = {rule.name for stability in (True, False) for rule in rules_from(all_gates(stability))}
    assert asked == set(RULES)


def test_training_is_held_only_against_rules_that_a_report_alone_decides() -> None:
    names = {rule.name for rule in rules_of_reports(all_gates(stability=True))}
    assert names == {"min_return", "min_episodes", "stability", "min_success_rate", "metrics"}
    gates = GatesGroup(converged=True, improvement="production", max_latency_ms=1.0)
    assert rules_of_reports(gates) == ()
    assert "stability" not in {rule.name for rule in rules_from(gates)}


def test_without_evidence_every_rule_fails_that_needs_it_and_says_what_to_run() -> None:
    verdict = judge(a_report([5.0, 5.0]), None, rules_from(all_gates(True)), env_steps=10**6)
    assert verdict is not None
    unknown = {check.rule: check for check in verdict.checks if check.observed is None}
    known = {"min_return", "min_episodes", "max_std", "stability", "metrics"}
    assert set(unknown) == set(RULES) - known | {"metrics.reward_walk"}
    for check in unknown.values():
        assert not check.passed
        assert check.sentence.startswith("not known: ")
        assert re.search(r"`rlctl registry validate`|event file|info", check.sentence)
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


def test_minimum_episodes_counts_training_steps_in_mean_episode_lengths() -> None:
    gates = GatesGroup(min_episodes=10)
    assert verdict_of(gates, [5.0, 5.0], env_steps=100).passed
    assert not verdict_of(gates, [5.0, 5.0], env_steps=99).passed


def test_a_verdict_passes_only_if_every_check_does() -> None:
    verdict = verdict_of(GatesGroup(min_return=100.0, min_episodes=1), [5.0, 5.0])
    assert [check.passed for check in verdict.checks] == [False, True, True]
    assert verdict.word == "failed"
