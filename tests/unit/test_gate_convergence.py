"""Whether training has converged: curves that have settled, that rise, that fall, and noise."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from rl_orch.gate import Evidence, Rule, weigh
from rl_orch.gate.convergence import SETTLED_SHARE
from rl_orch.records import Check, Evaluation
from rl_orch.stats import trend
from rl_orch.testing import a_report

RULE = Rule("converged", SETTLED_SHARE)
TIMES = np.linspace(0.0, 1.0, 31)[1:]


def checked(means: np.ndarray | list[float]) -> Check:
    """The check of a curve with an evaluation every thousand steps."""
    history = tuple(
        (1000 * (k + 1), Evaluation(mean=float(mean), std=1.0, iqm=0.0, ci95=(0.0, 0.0), n=10))
        for k, mean in enumerate(means)
    )
    verdict = weigh(Evidence(a_report([1.0, 1.0]), 1000, history=history), [RULE])
    assert verdict is not None
    return verdict.checks[0]


def noisy(curve: np.ndarray, spread: float, seed: int) -> np.ndarray:
    return np.asarray(curve + np.random.default_rng(seed).normal(0.0, spread, curve.size))


def test_a_curve_at_its_ceiling_has_converged() -> None:
    check = checked(np.minimum(500.0, 1500.0 * TIMES))
    assert (check.passed, check.observed) == (True, 0.0)
    assert checked([7.0] * 30).passed


def test_a_curve_that_rises_or_falls_to_the_end_has_not() -> None:
    for curve in (500.0 * TIMES, -500.0 * TIMES, 500.0 * TIMES**3):
        check = checked(curve)
        assert not check.passed
        assert "over the last third of training, 11 evaluations" in check.sentence


def test_a_clear_rise_that_is_next_to_nothing_counts_as_none() -> None:
    assert checked(np.minimum(500.0, 1500.0 * TIMES) + TIMES).passed


def test_a_collapse_is_no_convergence() -> None:
    assert not checked(np.where(TIMES < 0.7, 500.0, 500.0 - 1500.0 * (TIMES - 0.7))).passed


def test_settled_curves_pass_and_climbing_ones_fail_through_noise_of_a_twentieth() -> None:
    settled, climbing = 500.0 * (1 - np.exp(-6.0 * TIMES)), 500.0 * TIMES
    passed = np.mean([checked(noisy(settled, 25.0, seed)).passed for seed in range(200)])
    failed = np.mean([not checked(noisy(climbing, 25.0, seed)).passed for seed in range(200)])
    assert passed >= 0.95
    assert failed >= 0.95


def test_a_curve_that_wanders_about_its_level_is_not_taken_for_a_trend() -> None:
    rng, passed = np.random.default_rng(0), []
    for _ in range(200):
        noise = [0.0]
        for step in rng.normal(0.0, 20.0, 60):
            noise.append(0.6 * noise[-1] + step)
        passed.append(checked(500.0 * (1 - np.exp(-0.2 * np.arange(61))) + noise).passed)
    assert np.mean(passed) >= 0.95


@pytest.mark.parametrize("evaluations", [1, 3, 12])
def test_too_few_evaluations_fail_and_say_how_often_to_evaluate(evaluations: int) -> None:
    check = checked([5.0] * evaluations)
    if evaluations == 12:
        assert check.passed
        return
    assert not check.passed
    assert "set eval.every to at most" in check.sentence
    assert checked([5.0] * 15).passed


def test_a_trend_is_the_regression_line_with_its_interval() -> None:
    steps, values = [1.0, 2.0, 4.0, 7.0], [3.0, 5.0, 4.0, 9.0]
    line, found = scipy_stats.linregress(steps, values), trend(steps, values)
    assert found.value == pytest.approx(6.0 * line.slope)
    half = 6.0 * line.stderr * scipy_stats.t.isf(0.025, 2)
    assert found.ci95 == pytest.approx((found.value - half, found.value + half), rel=1e-3)


def test_two_points_bound_no_trend() -> None:
    found = trend([1.0, 2.0], [5.0, 9.0])
    assert (found.value, found.ci95) == (4.0, (-np.inf, np.inf))
    assert trend([3.0, 3.0, 3.0], [1.0, 2.0, 9.0]).value == 0.0
    with pytest.raises(ValueError, match="a value for each step"):
        trend([1.0], [])
