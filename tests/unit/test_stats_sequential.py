"""Tests that may stop early: their bounds, that they keep their level, and what they save."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from rl_orch.stats import plan
from rl_orch.stats.bootstrap import Floats
from rl_orch.stats.sequential import MISSED, Sequential

TRIALS = 4000
TEST = plan(100)


def normal_bounds(bounds: tuple[float, ...]) -> list[float]:
    """Bounds for Student's t as those for a normal number."""
    pairs = zip(bounds, TEST.sizes, strict=True)
    return [float(scipy_stats.norm.isf(scipy_stats.t.sf(t, n - 1))) for t, n in pairs]


def paths(drift: float, seed: int = 0, trials: int = 400_000) -> Floats:
    """z at five looks at equal distances; the drift is that of the last."""
    steps = np.random.default_rng(seed).normal(drift / 5, math.sqrt(0.2), (trials, 5))
    return np.asarray(np.cumsum(steps, axis=1) / np.sqrt(np.arange(1, 6) / 5))


def outcomes(test: Sequential, rows: Floats) -> tuple[float, float]:
    """How often rows of differences end as superior, and the mean number of pairs until the end."""
    looks = [test.look(row) for row in rows]
    superior = np.mean([look.decision == "superior" for look in looks])
    return float(superior), float(np.mean([look.pairs for look in looks]))


def test_one_look_is_the_plain_test() -> None:
    single = plan(50, looks=1, alpha=0.025)
    assert single.sizes == (50,)
    assert single.upper == pytest.approx((scipy_stats.t.isf(0.025, 49),), rel=1e-6)


def test_the_bounds_spend_alpha_as_the_square_of_what_was_seen() -> None:
    upper = np.asarray(normal_bounds(TEST.upper))
    assert upper[0] == pytest.approx(scipy_stats.norm.isf(0.025 / 25), abs=1e-4)
    crossed = np.maximum.accumulate(paths(0.0) >= upper, axis=1).mean(axis=0)
    assert crossed == pytest.approx(0.025 * (np.arange(1, 6) / 5) ** 2, abs=6e-4)


def test_two_looks_agree_with_the_bivariate_normal_distribution() -> None:
    # The covariance of z at half the pairs and at all of them is the root of a half.
    test = plan(4000, looks=2, alpha=0.05)
    first, second = (
        float(scipy_stats.norm.isf(scipy_stats.t.sf(t, n - 1)))
        for t, n in zip(test.upper, test.sizes, strict=True)
    )
    joint = scipy_stats.multivariate_normal(cov=[[1.0, math.sqrt(0.5)], [math.sqrt(0.5), 1.0]])
    assert first == pytest.approx(scipy_stats.norm.isf(0.0125), abs=1e-4)
    assert 1.0 - joint.cdf([first, second]) == pytest.approx(0.05, abs=1e-4)


def test_futility_misses_no_more_than_it_may_of_the_effect_it_is_made_for() -> None:
    upper, lower = (np.asarray(normal_bounds(bounds)) for bounds in (TEST.upper, TEST.lower))
    assert upper[-1] == lower[-1]
    assert (lower[:-1] < upper[:-1]).all()

    def missed(drift: float) -> float:
        z = paths(drift)
        stops = (z >= upper) | (z < lower)
        stops[:, -1] = True
        at = stops.argmax(axis=1)[:, None]
        return float(np.mean(np.take_along_axis(z, at, 1)[:, 0] < upper[at[:, 0]]))

    assert missed(3.4) > MISSED > missed(3.5)


def test_the_decision_does_not_depend_on_how_often_it_is_asked_for() -> None:
    rng = np.random.default_rng(1)
    for effect in (-0.3, 0.0, 0.3, 0.6):
        row = rng.normal(effect, 1.0, 100)
        asked = [TEST.decide(row[:n]) for n in range(101)]
        ended = [n for n, decision in enumerate(asked) if decision != "go on"]
        assert ended[0] in TEST.sizes
        assert len({asked[n] for n in ended}) == 1
        assert TEST.look(row).pairs == ended[0]


def test_it_always_ends_and_never_before_the_first_look() -> None:
    assert TEST.decide([]) == TEST.decide([9.0] * 19) == "go on"
    assert TEST.decide(np.random.default_rng(2).normal(0, 1, 100)) != "go on"


def test_pairs_that_are_all_alike_decide_only_at_the_end() -> None:
    assert TEST.decide([1.0] * 99) == "go on"
    assert TEST.decide([1.0] * 100) == "superior"
    assert TEST.decide([0.0] * 100) == "not"
    assert plan(100, margin=2.0).decide([0.0] * 100) == "superior"
    assert plan(100, margin=2.0).decide([-2.0] * 100) == "not"


@pytest.mark.parametrize(
    "wrong", [{"n_max": 9}, {"looks": 0}, {"looks": 21}, {"alpha": 0.0}, {"margin": -1.0}]
)
def test_a_plan_that_cannot_be_kept_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be in|from 0 on"):
        plan(**{"n_max": 100} | wrong)


def differences(kind: str, effect: float, seed: int) -> Floats:
    """Differences of pairs of returns, whose deviation is one, apart by `effect` of it.

    `normal` returns have nothing in common, which is the hardest case; `shared` ones half of their
    variance; `capped` ones are cut off where 30 % of the champion's are.
    """
    rng = np.random.default_rng([seed, 7])
    common, one, other = rng.normal(0.0, 1.0, (3, TRIALS, 100))
    part = 0.0 if kind == "normal" else 0.5
    first, second = (math.sqrt(part) * common + math.sqrt(1 - part) * own for own in (one, other))
    first += effect
    if kind == "capped":
        first, second = np.minimum(first, 0.524), np.minimum(second, 0.524)
    return np.asarray(first - second)


@pytest.mark.parametrize("kind", ["normal", "shared", "capped"])
def test_the_level_is_kept_improvements_pass_and_a_third_of_the_episodes_is_saved(
    kind: str,
) -> None:
    promoted, pairs = outcomes(TEST, differences(kind, 0.0, 1))
    assert promoted <= 0.03
    assert pairs <= 70
    promoted, pairs = outcomes(TEST, differences(kind, 0.5, 2))
    assert promoted >= 0.90
    assert pairs <= 70
    promoted, pairs = outcomes(TEST, differences(kind, -0.5, 3))
    assert promoted <= 0.001
    assert pairs <= 70


def test_looking_without_a_plan_would_not_keep_the_level() -> None:
    rows = differences("normal", 0.0, 1)
    crossed = [scipy_stats.ttest_1samp(rows[:, :n], 0.0, axis=1) for n in TEST.sizes]
    plain = np.any([(look.statistic > 0) & (look.pvalue < 0.05) for look in crossed], axis=0)
    assert plain.mean() > 0.05


def test_the_level_is_kept_at_the_margin_and_the_lower_bound_holds_at_every_look() -> None:
    test = plan(100, margin=0.5)
    at_margin = differences("shared", -0.5, 4)
    promoted, _ = outcomes(test, at_margin)
    assert promoted <= 0.03
    wrong = [any(test.look(row[:n]).low > -0.5 for n in test.sizes) for row in at_margin[:1500]]
    assert np.mean(wrong) <= 0.03
