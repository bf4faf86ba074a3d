"""How often the 95 % intervals hold the truth, in simulation: between 93 and 97 % from n = 20 on.

Fewer resamples than in earnest, so that it takes seconds; docs/evaluation.md has the full figures.
"""

import numpy as np
import pytest

from rl_orch.stats import bootstrap, probability_of_improvement
from rl_orch.stats.bootstrap import Floats
from rl_orch.stats.summary import iqm_ci95, mean_ci95, median_ci95

KINDS = ["normal", "skewed", "capped"]
MEANS = {"normal": 0.0, "skewed": 1.0, "capped": 440.0}
IQMS = {"normal": 0.0, "skewed": 0.73838, "capped": 495.0}
MEDIANS = {"normal": 0.0, "skewed": 0.69315}
"""Quarters are cut off the whole distributions; 30 % of the capped one are even in [100, 500]."""


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "RESAMPLES", 600)


def draw(kind: str, shape: tuple[int, int], seed: int = 0) -> Floats:
    """Samples: normal, exponential, or like CartPole, where most episodes reach the limit."""
    rng = np.random.default_rng([*shape, seed])
    if kind == "normal":
        return rng.normal(0.0, 1.0, shape)
    if kind == "skewed":
        return rng.exponential(1.0, shape)
    return np.where(rng.random(shape) < 0.7, 500.0, rng.uniform(100.0, 500.0, shape))


def held(intervals: list[tuple[float, float]], truth: float) -> float:
    return float(np.mean([low <= truth <= high for low, high in intervals]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "samples"), [(20, 1500), (60, 800), (200, 500)])
def test_the_interval_of_the_mean(kind: str, n: int, samples: int) -> None:
    found = [mean_ci95(sample) for sample in draw(kind, (samples, n))]
    assert 0.93 <= held(found, MEANS[kind]) <= 0.97


@pytest.mark.parametrize(
    ("kind", "n", "least"),
    [("normal", 5, 0.93), ("normal", 10, 0.93), ("skewed", 5, 0.85), ("skewed", 10, 0.89)],
)
def test_skewed_samples_of_a_few_numbers_fall_short_by_so_much(
    kind: str, n: int, least: float
) -> None:
    found = [mean_ci95(sample) for sample in draw(kind, (500, n))]
    assert least <= held(found, MEANS[kind]) <= 0.975


@pytest.mark.parametrize("kind", ["normal", "skewed"])
@pytest.mark.parametrize(("n", "samples"), [(20, 1000), (60, 500)])
def test_the_interval_of_the_interquartile_mean(kind: str, n: int, samples: int) -> None:
    found = [iqm_ci95(sample) for sample in draw(kind, (samples, n))]
    assert 0.93 <= held(found, IQMS[kind]) <= 0.98


@pytest.mark.parametrize("kind", ["normal", "skewed"])
@pytest.mark.parametrize("n", [7, 20, 61, 200])
def test_the_interval_of_the_median(kind: str, n: int) -> None:
    found = [median_ci95(sample) for sample in draw(kind, (2000, n))]
    assert 0.935 <= held(found, MEDIANS[kind]) <= 0.97


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "m"), [(20, 30), (60, 60)])
def test_the_interval_of_the_probability_of_improvement(kind: str, n: int, m: int) -> None:
    first, second = draw(kind, (400, n)), draw(kind, (400, m), seed=1)
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    found = [probability_of_improvement(one, other).ci95 for one, other in pairs]
    assert 0.93 <= held(found, 0.5) <= 0.97
