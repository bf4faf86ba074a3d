"""How long decisions take: on single observations from playing, many times, within a budget."""

from typing import Any

import numpy as np
import pytest

from rl_orch.rl.measure import latency
from rl_orch.rl.measure.latency import BUDGET_S, DECISIONS, FEWEST, SHOWN, decision_times, observed
from rl_orch.rl.policies.policy import Actor, PolicyInput
from tests.exported import CASES, Case, made


@pytest.fixture(scope="module")
def recurrent() -> Case:
    return made(CASES["recurrent ppo"])


def test_decisions_are_made_on_what_a_policy_sees_when_it_plays_alone(recurrent: Case) -> None:
    shown = observed(recurrent.policy, recurrent.spec, seed=3, deterministic=True)
    assert 5 < len(shown) <= SHOWN
    assert [bool(seen.first[0]) for seen in shown[:3]] == [True, False, False]
    assert {len(seen.first) for seen in shown} == {1}
    assert shown[0].memory is None
    for seen in shown[1:]:
        assert seen.memory is not None
        assert seen.memory.shape == (1, recurrent.policy.memory_size)
    first, second = (np.asarray(seen.observations) for seen in shown[:2])
    assert not np.array_equal(first, second)
    again = observed(recurrent.policy, recurrent.spec, seed=3, deterministic=True)
    assert np.array_equal(np.asarray(again[-1].observations), np.asarray(shown[-1].observations))


class Ticks:
    """A timer by which every other look is so many seconds after the one before."""

    def __init__(self, step_s: float) -> None:
        self.now, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


@pytest.mark.parametrize(("step_s", "count"), [(1e-4, DECISIONS), (BUDGET_S, FEWEST)])
def test_many_decisions_are_timed_and_fewer_where_they_take_long(
    recurrent: Case, step_s: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[int] = []
    decide = latency._decide

    def counted(policy: Actor, shown: list[PolicyInput], number: int, source: Any) -> None:
        decided.append(number)
        decide(policy, shown, number, source)

    monkeypatch.setattr(latency, "_decide", counted)
    took = decision_times(
        recurrent.policy, recurrent.spec, seed=3, deterministic=False, timer=Ticks(step_s)
    )
    assert took.tolist() == pytest.approx([step_s] * count)
    assert len(decided) == count + latency.WARM_UP
