"""Comparisons as gates: which episodes are paired, what a bound must clear, how often they err."""

import math

import numpy as np
import pytest

from rl_orch.gate import Evidence, Rule, weigh
from rl_orch.gate.comparison import _beside, same_episodes
from rl_orch.records import Check, EvalReport, Stopping
from rl_orch.stats import bootstrap, paired, plan
from rl_orch.stats.bootstrap import Floats
from rl_orch.testing import a_report

TEMPLATE = a_report([0.0])
"""Comparisons read no summary, and making one takes time."""

BETTER = Rule("improvement", 0.0, "production")


def no_worse(margin: float) -> Rule:
    return Rule("no_regression", margin, "production")


def played(returns: Floats | list[float], *, first_seed: int = 0) -> EvalReport:
    """A report on episodes with the seeds from `first_seed` on."""
    seeds = tuple(range(first_seed, first_seed + len(returns)))
    found = {"returns": tuple(float(ret) for ret in returns), "seeds": seeds}
    return TEMPLATE.model_copy(update=found)


def checked(rule: Rule, report: EvalReport, baseline: EvalReport | None) -> Check:
    verdict = weigh(Evidence(report, 1000, {"production": baseline}), [rule])
    assert verdict is not None
    return verdict.checks[0]


def sample(seed: int, n: int = 100) -> Floats:
    return np.random.default_rng(seed).normal(0.0, 1.0, n)


def test_episodes_are_paired_where_the_shorter_report_has_the_first_seeds_of_the_other() -> None:
    report = played([1.0] * 5)
    assert same_episodes(report, played([2.0] * 9)) == 5
    assert same_episodes(report, played([2.0] * 9, first_seed=1)) == 0
    assert same_episodes(report, a_report([2.0] * 5)) == 0


def test_pairs_show_what_samples_apart_do_not() -> None:
    hard = 100.0 * sample(0)
    report, baseline = played(hard + 1.0 + sample(1)), played(hard)
    paired = checked(BETTER, report, baseline)
    assert paired.passed
    assert "100 pairs of episodes with the same seed" in paired.sentence
    apart = checked(BETTER, report, played(hard, first_seed=1))
    assert not apart.passed
    assert "with other seeds" in apart.sentence


def test_to_be_no_worse_and_to_be_better_are_two_different_things() -> None:
    equal = played(100.0 + sample(2)), played(100.0 + sample(3))
    assert not checked(BETTER, *equal).passed
    assert not checked(no_worse(0.0), *equal).passed
    within = checked(no_worse(1.0), *equal)
    assert (within.passed, within.limit) == (True, -1.0)
    assert "a loss of at most 1 is allowed" in within.sentence


@pytest.mark.parametrize("low", [-0.003, 0.003])
def test_a_bound_is_told_from_a_limit_that_it_is_close_to(low: float) -> None:
    assert _beside(low, 0.0) == f"{low:.3f}"
    assert _beside(0.0, 0.0) == "0.00"
    assert _beside(-4.996, -5.0) == "-4.996"


def test_the_same_policy_is_no_worse_than_itself_and_no_better() -> None:
    report = played([500.0] * 20)
    assert checked(no_worse(0.0), report, report).passed
    assert not checked(BETTER, report, report).passed


def test_a_few_episodes_do_not_show_that_nothing_is_lost() -> None:
    assert not checked(no_worse(0.1), played(sample(4, 5)), played(sample(5, 5))).passed


def test_a_check_names_the_model_that_it_compared_with() -> None:
    baseline = played([1.0, 2.0]).model_copy(update={"model": "12"})
    assert "'production' (model 12)" in checked(BETTER, played([1.0, 2.0]), baseline).sentence


def test_where_no_model_holds_the_alias_there_is_nothing_to_compare_with_and_it_says_so() -> None:
    for rule in (BETTER, no_worse(1.0)):
        check = checked(rule, played([1.0]), None)
        assert check.passed
        assert check.sentence == "not judged: no model of CartPole-v1 is 'production' yet"


def test_a_model_that_has_the_alias_itself_is_not_judged_by_it() -> None:
    evidence = Evidence(played([1.0]), 1000, {"production": None}, own={"production"})
    verdict = weigh(evidence, [BETTER, no_worse(1.0)])
    assert verdict is not None
    assert verdict.passed
    sentences = {check.sentence for check in verdict.checks}
    assert sentences == {"not judged: the model is 'production' itself"}


def test_a_champion_that_could_not_be_played_fails_the_rule_with_the_reason() -> None:
    problems = {"improvement": "model 7 cannot be played: it is gone"}
    verdict = weigh(Evidence(played([1.0]), 1000, {}, problems=problems), [BETTER])
    assert verdict is not None
    assert not verdict.passed
    assert verdict.checks[0].sentence == (
        "not known: how the model at 'production' does: model 7 cannot be played: it is gone"
    )


def test_a_check_states_the_difference_with_its_interval() -> None:
    check = checked(BETTER, played(3.0 + sample(9)), played(np.zeros(100)))
    low, high = paired((3.0 + sample(9)).tolist(), [0.0] * 100, seed=0).ci95
    assert f"with 95 % confidence between {low:.2f} and {high:.2f}; more" in check.sentence


@pytest.mark.parametrize(
    ("unlike", "said"),
    [({"env_id": "Other-v0"}, "Other-v0"), ({"deterministic": False}, "sampled")],
)
def test_what_was_not_evaluated_alike_is_not_compared(unlike: dict[str, object], said: str) -> None:
    report = played([9.0] * 20)
    check = checked(BETTER, report, played([1.0] * 20).model_copy(update=unlike))
    assert not check.passed
    assert said in check.sentence


def test_a_comparison_that_was_stopped_early_is_held_against_the_bounds_of_its_looks() -> None:
    test = plan(100)
    gains = 0.62 + sample(6, 40)  # Clear at a single look after 40 pairs, not at the second of 5.
    low = test.look(gains.tolist()).low
    stopped = played(gains).model_copy(update={"stopping": test.stopping})
    nothing = played(np.zeros(100))
    check = checked(BETTER, stopped, nothing)
    assert check.observed == pytest.approx(low)
    plain = checked(BETTER, played(gains), nothing).observed
    assert plain is not None
    assert low < plain
    assert "40 pairs of episodes with the same seed, of at most 100," in check.sentence


def test_what_was_stopped_between_looks_or_by_other_pairs_bounds_nothing() -> None:
    stopping = Stopping(n_max=100, looks=5, alpha=0.025)
    for n, first_seed in ((19, 0), (40, 1)):
        report = played(10.0 + sample(7, n)).model_copy(update={"stopping": stopping})
        check = checked(BETTER, report, played(np.zeros(100), first_seed=first_seed))
        assert (check.passed, check.observed) == (False, -math.inf)


@pytest.mark.parametrize("kind", ["normal", "capped"])
def test_in_simulation_gates_pass_what_is_better_and_reject_what_is_worse(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 pairs and an effect of half the deviation of returns, which the pairs share half of."""
    monkeypatch.setattr(bootstrap, "RESAMPLES", 300)
    rng, trials = np.random.default_rng(8), 300
    common, own = (rng.normal(0.0, math.sqrt(0.5), (trials, 100)) for _ in range(2))
    other = rng.normal(0.0, math.sqrt(0.5), (trials, 100))
    champion = common + other

    def passes(effect: float, rule: Rule) -> float:
        challenger = common + own + effect
        if kind == "capped":
            pairs = zip(np.minimum(challenger, 0.5), np.minimum(champion, 0.5), strict=True)
        else:
            pairs = zip(challenger, champion, strict=True)
        return float(np.mean([checked(rule, played(a), played(b)).passed for a, b in pairs]))

    assert passes(0.0, BETTER) <= 0.05
    assert passes(0.5, BETTER) >= 0.90
    assert passes(-0.5, BETTER) <= 0.05
    assert passes(-0.5, no_worse(0.2)) <= 0.05
    assert passes(0.0, no_worse(0.5)) >= 0.90
