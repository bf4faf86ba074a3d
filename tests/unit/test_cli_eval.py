"""`eval` of two policies: what is told depends on whether the number of episodes was fixed."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rl_orch import stats
from rl_orch.cli.views.run_summary import metric_sentences
from rl_orch.core.policies import evaluation
from rl_orch.core.policies.evaluation import LOOKS
from rl_orch.core.policies.player_pool import EvalResult
from rl_orch.core.store.runs import Store
from rl_orch.records.tasks import EvaluateTask
from rl_orch.stats import summarize
from rl_orch.stats.text import figure
from tests.conftest import Ran
from tests.models import Shop, a_report

Rlctl = Callable[..., Ran]
ASKED = 100
GAINS = [1.0, 4.0, 2.5, -0.5, 3.0] * (ASKED // 5)
"""How far the challenger is ahead in each pair."""


class Scripted:
    """Plays nothing: the challenger is ahead by what `GAINS` says."""

    def play(self, _task: EvaluateTask, first: int, episodes: int, _watch: Any) -> EvalResult:
        gains = GAINS[first : first + episodes]
        theirs = a_report(5.0, env_id="CartPole-v1", checkpoint="x", seed=first, episodes=episodes)
        returns = tuple(ret + gain for ret, gain in zip(theirs.returns, gains, strict=True))
        ours = theirs.model_copy(update={"returns": returns, "summary": summarize(returns)})
        return EvalResult(ours, theirs)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models, and somebody who plays them."""

    @contextmanager
    def playing(_children: int) -> Iterator[Scripted]:
        yield Scripted()

    shop = Shop(tmp_path / "rlruns", Store(tmp_path / "rlruns" / "rlctl.db"))
    for name in ("r-0", "r-1"):
        shop.a_model(name)
    monkeypatch.setattr(evaluation, "playing", playing)


@pytest.mark.usefixtures("home")
def test_of_a_comparison_that_ended_early_the_bound_of_its_looks_is_told_and_no_interval(
    rlctl: Rlctl,
) -> None:
    words = ("eval", "r-0", "--against", "r-1", "-n", str(ASKED), "--sequential")
    comparison = json.loads(rlctl(*words, "--json").out)["comparison"]
    seen = stats.plan(ASKED, looks=LOOKS).look(GAINS)
    apart = comparison["difference"]
    assert (comparison["decision"], apart["pairs"]) == ("superior", seen.pairs)
    assert apart["pairs"] < ASKED
    assert apart["low"] == pytest.approx(seen.low)
    assert apart["ci95"] is comparison["probability_of_improvement"]["ci95"] is None
    printed = " ".join(rlctl(*words).out.split())
    told = (
        f"at least {figure(seen.low)} by all looks, over {seen.pairs} pairs of episodes (of at most"
    )
    assert printed.endswith(f"minus r-1: 2.00, {told} {ASKED}: it is better)")


@pytest.mark.usefixtures("home")
def test_of_a_comparison_with_a_fixed_number_of_pairs_the_interval_is_told(rlctl: Rlctl) -> None:
    words = ("eval", "r-0", "--against", "r-1", "-n", str(ASKED))
    comparison = json.loads(rlctl(*words, "--json").out)["comparison"]
    low, high = comparison["difference"]["ci95"]
    assert low < comparison["difference"]["mean"] < high
    assert len(comparison["probability_of_improvement"]["ci95"]) == 2
    assert (comparison["decision"], comparison["difference"]["low"]) == (None, None)
    told = rlctl(*words).out
    assert "it returns more with a chance of" in " ".join(told.split())
    assert "(ties count half)" in " ".join(told.split())


@pytest.mark.usefixtures("home")
def test_of_a_group_it_is_told_what_was_written_where(rlctl: Rlctl, tmp_path: Path) -> None:
    shop = Shop(tmp_path / "rlruns", Store(tmp_path / "rlruns" / "rlctl.db"))
    for name in ("g-s1", "g-s2"):
        shop.a_model(name, group="g")
    told = "".join(rlctl("eval", "g", "-n", "10").err.split())
    for name in ("g-s1", "g-s2"):
        file = tmp_path / "rlruns" / "runs" / name / "evals" / "eval-1.json"
        assert f"wrote{file};" in told
    assert f"wrote{tmp_path / 'x' / 'g-s1'}" in "".join(
        rlctl("eval", "g", "-n", "10", "--out", "x", "--json").err.split()
    )


@pytest.mark.usefixtures("home")
def test_of_two_policies_the_numbers_of_both_are_told(rlctl: Rlctl) -> None:
    words = ("eval", "r-0", "--against", "r-1", "-n", str(ASKED))
    document = json.loads(rlctl(*words, "--json").out)
    lines = [line.split() for line in rlctl(*words).out.splitlines()]
    assert ["return", "r-0", "95", "%", "r-1", "95", "%"] in lines
    assert (document["typed"], document["against"]["typed"]) == ("r-0", "r-1")
    (mean,) = (line for line in lines if line[:1] == ["mean"])
    ours, theirs = document["eval"]["mean"], document["against"]["eval"]["mean"]
    assert ours > theirs
    assert (mean[1], mean[4]) == (figure(ours), figure(theirs))


def test_of_many_metrics_some_are_shown_and_the_others_counted() -> None:
    names = [*(f"reward_{n}" for n in range(2000)), "success_rate"]
    report = a_report(1.0, env_id="CartPole-v1", checkpoint="c").model_copy(
        update={"metrics": dict.fromkeys(names, (1.0,) * 12), "missing": {"x": "not in info"}}
    )
    sentences = metric_sentences(report)
    assert sentences[0].startswith("success_rate ")
    assert sentences[-2:] == ["and 1,981 more; --json has all of them", "x: not in info"]
    assert len(sentences) == 22
