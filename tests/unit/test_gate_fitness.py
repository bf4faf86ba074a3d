"""Rules on speed, size, exports and guardrails: what passes, what fails, what they say."""

from typing import Any

import pytest

from rl_orch.gate import Evidence, Rule, weigh
from rl_orch.records import Check, Parity
from rl_orch.testing import a_report

SAME = Parity(format="onnx", n=10_000, largest_difference=3e-7, passed=True)
OTHER = Parity(format="torchscript", n=10_000, largest_difference=0.25, passed=False)


def checked(name: str, limit: float, **evidence: Any) -> Check:
    verdict = weigh(Evidence(a_report([1.0, 1.0]), 1000, **evidence), [Rule(name, limit)])
    assert verdict is not None
    return verdict.checks[0]


@pytest.mark.parametrize(("seen", "passes"), [(1.99, True), (2.0, True), (2.01, False)])
def test_latency_is_held_against_its_limit(seen: float, passes: bool) -> None:
    check = checked("max_latency_ms", 2.0, latency_ms=seen)
    assert (check.passed, check.observed, check.limit) == (passes, seen, 2.0)
    assert check.sentence == f"99 % of decisions take up to {seen:.3g} ms; at most 2 is asked"


@pytest.mark.parametrize(("size", "passes"), [(1_500_000, True), (1_500_001, False)])
def test_the_size_of_a_bundle_is_in_millions_of_bytes(size: int, passes: bool) -> None:
    assert checked("max_bundle_mb", 1.5, bundle_bytes=size).passed is passes


def test_one_word_of_a_guardrail_is_enough() -> None:
    assert checked("guardrail_clean", 0.0, guardrail_events=0).passed
    check = checked("guardrail_clean", 0.0, guardrail_events=1)
    assert (check.passed, check.sentence) == (False, "guardrails spoke up once; none may")


def test_one_form_that_acts_otherwise_fails_the_export_and_is_named() -> None:
    good = checked("export_parity", 0.0, parity=(SAME,))
    assert good.passed
    assert "onnx act as the policy does: by up to 3e-07 on 10,000" in good.sentence
    bad = checked("export_parity", 0.0, parity=(SAME, OTHER))
    assert not bad.passed
    assert bad.sentence.startswith("torchscript differs from the policy: by up to 0.25")


def test_no_exported_form_at_all_is_no_parity() -> None:
    assert not checked("export_parity", 0.0, parity=()).passed
