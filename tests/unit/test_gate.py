"""Gates: what each rule asks, on which number, and what the verdict says."""

import pytest

from rl_orch.gate import Rule, judge, rules_from
from rl_orch.records import Verdict
from rl_orch.spec.groups import GatesGroup
from rl_orch.testing import a_report


def verdict_of(gates: GatesGroup, returns: list[float], *, env_steps: int = 1000) -> Verdict:
    """The verdict on some returns."""
    verdict = judge(a_report(returns), None, rules_from(gates), env_steps=env_steps)
    assert verdict is not None
    return verdict


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
    verdict = verdict_of(GatesGroup(min_return=-300.0), [-200.0, -100.0, -50.0])
    assert verdict.passed
    assert "not judged" in verdict.checks[-1].sentence


def test_stability_can_be_switched_off() -> None:
    rules = rules_from(GatesGroup(min_return=1.0, stability=False))
    assert rules == (Rule("min_return", 1.0),)


def test_minimum_episodes_counts_training_steps_in_mean_episode_lengths() -> None:
    gates = GatesGroup(min_episodes=10)
    assert verdict_of(gates, [5.0, 5.0], env_steps=100).passed
    assert not verdict_of(gates, [5.0, 5.0], env_steps=99).passed


def test_a_verdict_passes_only_if_every_check_does() -> None:
    verdict = verdict_of(GatesGroup(min_return=100.0, min_episodes=1), [5.0, 5.0])
    assert [check.passed for check in verdict.checks] == [False, True, True]
    assert verdict.word == "failed"
