"""Metrics from infos: success, reward terms, and keys that were asked for, in training, evaluation
and gates alike."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_orch import gate, stats
from rl_orch.core.policies.player_pool import merged
from rl_orch.errors import SpecInvalid
from rl_orch.io.policies.episode_tables import write_table
from rl_orch.records import EventKind
from rl_orch.records.reports import table_of
from rl_orch.rl.collect.collector import Episode
from rl_orch.rl.collect.rollout import LocalCollector, local
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.info_metrics import InfoMetrics
from rl_orch.rl.envs.state.seeded_episodes import SeededEpisodes
from rl_orch.rl.envs.trial import try_out
from rl_orch.rl.evaluate import evaluate
from rl_orch.rl.train import Training
from rl_orch.spec.groups import GatesGroup
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.testing.fakes import a_report
from tests.unit.test_rl_evaluate import a_policy

LENGTH = 5
ENV = "Told-v0"
OUTSPOKEN = "Outspoken-v0"
COUNTING = "Counting-v0"


class Told(gymnasium.Env[Any, Any]):
    """Tells in its infos what it does: terms of its reward, and at the end whether it went well."""

    observation_space = spaces.Box(-10.0, 10.0, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t, self.goal = 0, int(self.np_random.integers(2))
        return np.zeros(1, np.float32), {"x": 99.0, "reward_walk": 1000.0}

    def step(self, action: Any) -> Any:
        self.t += 1
        over = self.t == LENGTH
        info: dict[str, Any] = {
            "reward_walk": 1.5,
            "reward_terms": {"cost": -0.5, "reward_bonus": float(action == self.goal)},
            "x": float(self.t),
            "word": "hello",
        }
        if over and self.goal:
            info["is_success"] = True
        return np.full(1, self.t, np.float32), 1.0, over, False, info


class Outspoken(Told):
    """Says in every step whether it is at its goal, as an object of the class's choice."""

    word: Any = staticmethod(np.bool_)

    def step(self, action: Any) -> Any:
        *stepped, info = super().step(action)
        info["is_success"] = type(self).word(self.t == LENGTH and self.goal == 1)
        return *stepped, info


class Counting(Told):
    """Tells of falls by booleans, of collisions by numbers, and of something by both."""

    def step(self, action: Any) -> Any:
        *stepped, _ = super().step(action)
        mixed = False if self.t < LENGTH else 1
        return *stepped, {"fell": np.bool_(False), "collisions": 0, "mixed": mixed}


gymnasium.register(COUNTING, entry_point=f"{__name__}:Counting")
gymnasium.register(ENV, entry_point=f"{__name__}:Told")
gymnasium.register(OUTSPOKEN, entry_point=f"{__name__}:Outspoken")


def a_spec(**groups: Any) -> Spec:
    env = {"id": ENV, "num_envs": 3, "info_metrics": ["x"]} | groups.pop("env", {})
    return resolve(
        {
            "env": env,
            "rollout": {"steps": 8},
            "train": {"batch_size": 24, "total_timesteps": 48, "update_epochs": 1},
            "eval": {"episodes": 10, "every": 48},
            **groups,
        }
    )


def collected(collector: LocalCollector, spec: Spec, steps: int) -> list[Episode]:
    collector.collect(a_policy(spec), steps)
    return collector.drain_episodes()


def test_episodes_have_the_numbers_that_their_infos_told() -> None:
    spec = a_spec()
    with closing(local(spec, "captured")) as collector:
        episodes = collected(collector, spec, 3 * LENGTH)
    assert len(episodes) == 9
    for episode in episodes:
        metrics = dict(episode.metrics)
        assert 0 <= metrics.pop("reward_bonus") <= LENGTH
        assert metrics.pop("success_rate", 0.0) in (0.0, 1.0)
        assert metrics == {"reward_walk": 7.5, "reward_cost": -2.5, "x": 5.0}


def test_an_environment_that_resets_in_the_next_step_tells_the_same() -> None:
    spec = a_spec()
    found = []
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
        make = [lambda: SeededEpisodes(gymnasium.make(ENV))] * 2
        envs = SyncVectorEnv(make, autoreset_mode=mode)
        collector = LocalCollector(envs, seed=4, device="cpu", info_metrics=("x",))
        with closing(collector):
            found.append(collected(collector, spec, 4 * LENGTH)[:6])
    both = [[(e.env, e.length, {**e.metrics, "reward_bonus": 0}) for e in each] for each in found]
    assert both[0] == both[1]
    assert {episode.metrics["reward_walk"] for episode in found[1]} == {7.5}


def test_partial_sums_are_part_of_the_state() -> None:
    spec = a_spec()
    with closing(local(spec, "captured")) as whole, closing(local(spec, "captured")) as second:
        collected(whole, spec, LENGTH + 2)
        second.load_state(whole.state())
        ours, theirs = collected(whole, spec, 6), collected(second, spec, 6)
    assert ours
    assert ours == theirs
    assert ours[0].metrics["reward_walk"] == 7.5


def wins(spec: Spec) -> tuple[float, ...]:
    report = evaluate(a_policy(spec), spec, episodes=20, seed=3, deterministic=True, step=0)
    return report.metrics.get("success_rate", ())


@pytest.mark.parametrize("word", [np.bool_, np.float32, np.array, lambda won: won or None])
def test_success_may_be_a_numpy_boolean(word: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outspoken, "word", staticmethod(word))
    spec = a_spec(env={"id": OUTSPOKEN}, gates={"min_success_rate": 0.5})
    assert wins(spec) == wins(a_spec())
    assert 0 < sum(wins(spec)) < 20
    assert [each.path for each in try_out(spec).warnings] == ["env.max_episode_steps"]


@pytest.mark.parametrize("word", [str, lambda won: [won], lambda won: np.full(1, won)])
def test_success_that_is_no_number_is_not_recorded_and_warned_of(
    word: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Outspoken, "word", staticmethod(word))
    spec = a_spec(env={"id": OUTSPOKEN}, gates={"min_success_rate": 0.5})
    assert wins(spec) == ()
    warnings = {each.path: each for each in try_out(spec).warnings}
    kind = type(word(True)).__name__
    assert f"of type {kind}" in warnings["gates.min_success_rate"].message


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1"])
def test_environments_without_such_infos_have_no_metrics_and_no_state_of_them(env_id: str) -> None:
    spec = resolve({"env": {"id": env_id, "num_envs": 2}})
    with closing(local(spec, "captured")) as collector:
        episodes = collected(collector, spec, 200)
        assert "infos" not in {name.partition("/")[0] for name in collector.state().tensors}
    assert episodes
    assert all(not episode.metrics for episode in episodes)


def test_a_report_has_them_episode_by_episode_and_so_does_its_table(tmp_path: Path) -> None:
    spec = a_spec(env={"info_metrics": ["x", "word", "nothing"]})
    found = evaluate(a_policy(spec), spec, episodes=20, seed=3, deterministic=True, step=0)
    assert {*found.metrics} == {"reward_walk", "reward_cost", "reward_bonus", "success_rate", "x"}
    assert found.metrics["reward_walk"] == (7.5,) * 20
    assert 0 < sum(found.metrics["success_rate"]) < 20
    assert found.missing == {
        name: f"none of 20 episodes gave a number as info[{name!r}]" for name in ("word", "nothing")
    }
    write_table(tmp_path / "final.parquet", found)
    table = pq.read_table(tmp_path / "final.parquet").to_pydict()
    assert tuple(table["success_rate"]) == found.metrics["success_rate"]
    rate = stats.metric_estimates(found.metrics)["success_rate"]
    assert rate.ci95[0] < rate.value < rate.ci95[1]


class Recorder:
    """Notes events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, Any, dict[str, Any]]] = []

    def emit(self, kind: EventKind, key: str, value: Any, *, step: int, tags: Any = None) -> None:
        self.events.append((kind, key, value, tags or {}))

    def __getattr__(self, _name: str) -> Any:
        return lambda *_words, **_names: None


def test_training_tells_them_as_curves_and_with_every_episode() -> None:
    recorder: Any = Recorder()
    with closing(Training(a_spec(), recorder)) as training:
        training.run()
    keys = {key for _, key, _, _ in recorder.events}
    assert keys >= {"charts/success_rate", "info/reward_walk", "info/x", "eval/success_rate"}
    walks = [value for _, key, value, _ in recorder.events if key == "info/reward_walk"]
    assert {*walks} == {7.5}
    episodes = [tags for kind, _, _, tags in recorder.events if kind is EventKind.EPISODE]
    assert all(tags["metrics"]["x"] == 5.0 for tags in episodes)
    (evaluated,) = [tags for kind, _, _, tags in recorder.events if kind is EventKind.EVAL]
    assert evaluated["metrics"]["reward_walk"]["value"] == 7.5


def verdict(seen: Mapping[str, tuple[float, ...]], **gates: Any) -> dict[str, bool]:
    told = a_report([1.0] * 20).model_copy(update={"metrics": dict(seen)})
    rules = gate.rules_from(GatesGroup.model_validate(gates))
    found = gate.judge(told, None, rules, env_steps=100)
    assert found is not None
    return {check.rule: check.passed for check in found.checks}


def test_gates_read_the_bounds_of_metrics() -> None:
    wins = {"success_rate": (1.0,) * 19 + (0.0,)}
    assert verdict(wins, min_success_rate=0.7) == {"min_success_rate": True}
    # 19 of 20 are 95 %, and yet with 95 % confidence only 75 %.
    assert verdict(wins, min_success_rate=0.8) == {"min_success_rate": False}
    terms = {"reward_walk": tuple(float(n % 3) for n in range(20)), **wins}
    asked = {"reward_walk": "<= 1.5", "success_rate": 0.9}
    assert verdict(terms, metrics=asked) == {
        "metrics.reward_walk": True,
        "metrics.success_rate": False,
    }
    assert verdict(terms, metrics={"reward_walk": "> 0.9"}) == {"metrics.reward_walk": False}


def test_missing_evidence_fails_a_gate_and_says_why() -> None:
    rules = gate.rules_from(GatesGroup(min_success_rate=0.1, metrics={"x": ">= 1", "y": "< 2"}))
    told = a_report([1.0] * 20).model_copy(update={"missing": {"x": "no x was told"}})
    found = gate.judge(told, None, rules, env_steps=100)
    assert found is not None
    success, asked, unknown = found.checks
    assert not any(check.passed for check in found.checks)
    assert "info['is_success']" in success.sentence
    assert "no x was told" in asked.sentence
    assert "env.info_metrics" in unknown.sentence


def test_limits_have_one_spelling() -> None:
    written = {"a": 3, "b": "≥3", "c": "<0.5", "d": " <= 1e-3 "}
    spec = resolve({"env.id": "CartPole-v1", "gates.metrics": written})
    assert spec.gates.metrics == {"a": ">= 3", "b": ">= 3", "c": "< 0.5", "d": "<= 0.001"}
    one = resolve({"env.id": "CartPole-v1"}, overrides=["gates.metrics.success_rate=0.9"])
    assert one.gates.metrics == {"success_rate": ">= 0.9"}


def test_a_share_has_an_exact_interval_also_where_all_are_alike() -> None:
    assert stats.share_ci95(20, 20)[0] == pytest.approx(0.8315665, abs=1e-6)
    assert stats.share_ci95(0, 10) == pytest.approx((0.0, 0.3084971), abs=1e-6)
    assert stats.share_ci95(7, 10) == pytest.approx((0.3475471, 0.9332605), abs=1e-6)


def test_only_what_was_a_boolean_all_along_is_a_share() -> None:
    spec = a_spec(env={"info_metrics": ["fell", "collisions", "mixed"]})
    spec = spec.changed({"env.id": COUNTING})
    report = evaluate(a_policy(spec), spec, episodes=20, seed=3, deterministic=True, step=0)
    assert report.metrics["fell"] == report.metrics["collisions"] == (0.0,) * 20
    assert report.shares == ("fell",)
    assert merged([report, report.model_copy(update={"shares": ()})], seed=0).shares == ()
    assert merged([report, report], seed=0).shares == ("fell",)
    estimates = stats.metric_estimates(report.metrics, shares=report.shares)
    assert estimates["fell"].ci95 == pytest.approx(stats.share_ci95(0, 20))
    # As the interval of twenty equal returns.
    assert estimates["collisions"].ci95 == (0.0, 0.0)
    rules = gate.rules_from(GatesGroup(metrics={"fell": "<= 0.1", "collisions": "<= 0.1"}))
    judged = gate.judge(report, None, rules, env_steps=100)
    assert judged is not None
    assert [check.passed for check in judged.checks] == [False, True]


def test_terms_that_happen_to_be_zero_or_one_have_the_interval_of_a_mean() -> None:
    sample = (0.0,) * 10 + (1.0,) * 10
    metrics = {"success_rate": sample, "reward_a": sample}
    estimates = stats.metric_estimates(metrics)
    assert estimates["success_rate"].ci95 == stats.share_ci95(10, 20)
    assert estimates["reward_a"].ci95 == stats.summarize(sample).ci95
    halves = stats.metric_estimates({"success_rate": (0.5, 1.0, 0.0)})["success_rate"]
    assert halves.ci95 == stats.summarize((0.5, 1.0, 0.0)).ci95


def test_what_an_episode_does_not_tell_is_zero_or_nothing() -> None:
    rows = [{"success_rate": 1.0, "x": 2.0}, {"reward_a": 1.0}]
    assert table_of(rows) == {"success_rate": (1.0, 0.0), "reward_a": (0.0, 1.0)}


def test_an_asked_term_that_an_episode_lacks_is_missing_and_not_zero() -> None:
    rows = [{"reward_a": 1.0, "success_rate": 1.0}, {}]
    assert table_of(rows, ["reward_a", "is_success"]) == {"success_rate": (1.0, 0.0)}
    lacking, having = a_report([1.0, 2.0]), a_report([1.0, 2.0])
    lacking = lacking.model_copy(update={"missing": {"reward_a": "why", "is_success": "none"}})
    metrics = {"reward_a": (1.0, 1.0), "success_rate": (1.0, 1.0)}
    both = merged([lacking, having.model_copy(update={"metrics": metrics})], seed=0)
    assert both.metrics == {"success_rate": (0.0, 0.0, 1.0, 1.0)}
    assert both.missing == {"reward_a": "why"}


def test_success_that_was_asked_for_is_not_said_to_be_missing() -> None:
    for keys in (["is_success"], ["success", "reward_terms"]):
        spec = a_spec(env={"info_metrics": keys})
        report = evaluate(a_policy(spec), spec, episodes=20, seed=3, deterministic=True, step=0)
        assert "success_rate" in report.metrics
        assert report.missing == {}


def test_asking_for_metrics_changes_no_hash() -> None:
    assert a_spec().config_hash == a_spec(env={"info_metrics": []}).config_hash
    assert vector.backend_of(resolve({"env.id": "CartPole-v1"})) == "native"


def test_a_check_warns_of_metrics_that_would_not_be_recorded_under_their_names() -> None:
    gates = {"metrics": {"x": 1, "is_success": 0.5}}
    spec = a_spec(env={"id": OUTSPOKEN, "info_metrics": ["is_success", "word"]}, gates=gates)
    assert [(each.path, each.value) for each in try_out(spec).warnings[1:]] == [
        ("gates.metrics", "is_success"),
        ("env.info_metrics", "word"),
        ("gates.metrics", "x"),
    ]
    listed = a_spec(env={"info_metrics": ["x", "reward_terms", "success"]})
    assert [each.path for each in try_out(listed).warnings] == ["env.max_episode_steps"]


def test_a_check_warns_of_metrics_that_no_info_has() -> None:
    gates = {"min_success_rate": 0.5, "metrics": {"reward_cost": -9, "reward_fuel": 1}}
    told = try_out(a_spec(env={"info_metrics": ["x", "y"]}, gates=gates)).warnings
    assert [(each.path, each.value) for each in told] == [
        ("env.max_episode_steps", None),
        ("env.info_metrics", "y"),
        ("gates.metrics", "reward_fuel"),
    ]


def test_keys_that_are_no_text_to_show_are_passed_over() -> None:
    noted, every = InfoMetrics(2), np.ones(2, np.bool_)
    odd: dict[Any, Any] = {1: np.ones(2), "reward_\ud800": np.ones(2), "reward_\n": np.ones(2)}
    terms = {"reward_terms": {2: np.ones(2), "up": np.ones(2)}}
    noted.note({**odd, **terms, "reward_" + 300 * "x": np.ones(2)}, ~every, every)
    assert noted.names == ["reward_up"]


def test_a_share_of_successes_by_the_environment_itself_is_none_of_an_episode() -> None:
    noted, every = InfoMetrics(2), np.ones(2, np.bool_)
    noted.note({"success_rate": np.full(2, 0.95)}, ~every, every)
    noted.note({"is_success": np.full(2, 0.95)}, ~every, every)
    assert noted.finish(0) == {}
    noted.note({"success": np.array([0.95, 1.0])}, ~every, every)
    assert [noted.finish(copy) for copy in range(2)] == [
        {"success_rate": 0.0},
        {"success_rate": 1.0},
    ]
    listed = InfoMetrics(1, ["success_rate"])
    listed.note({"success_rate": np.ones(1)}, np.zeros(1, np.bool_), np.ones(1, np.bool_))
    assert listed.names == []
    with pytest.raises(SpecInvalid, match="is_success"):
        a_spec(env={"info_metrics": ["success_rate"]})


def test_a_check_warns_of_success_between_yes_and_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outspoken, "word", staticmethod(lambda won: 0.25))
    spec = a_spec(env={"id": OUTSPOKEN}, gates={"min_success_rate": 0.5})
    warnings = [(each.path, each.message) for each in try_out(spec).warnings]
    assert {path for path, _ in warnings} >= {"env.id", "gates.min_success_rate"}
    assert "info['is_success'] = 0.25" in dict(warnings)["env.id"]


def test_a_term_that_is_told_twice_counts_once_for_each_copy() -> None:
    noted, every = InfoMetrics(3), np.ones(3, np.bool_)
    infos = {
        "reward_ctrl": np.array([-1.0, -1.0, 0.0]),
        "_reward_ctrl": np.array([True, True, False]),
        "reward_terms": {
            "ctrl": np.array([-1.0, 0.0, -2.0]),
            "_ctrl": np.array([True, False, True]),
            "reward_walk": np.ones(3),
            "walk": np.ones(3),
        },
    }
    for _ in range(2):
        noted.note(infos, ~every, every)
    expected = [-2.0, -2.0, -4.0]
    found = [noted.finish(copy) for copy in range(3)]
    assert found == [{"reward_ctrl": each, "reward_walk": 2.0} for each in expected]


def test_what_gymnasium_says_of_all_rewards_is_no_term_of_one() -> None:
    for asked, expected in ((), {}), (("reward_threshold",), {"reward_threshold": 200.0}):
        noted, one = InfoMetrics(1, asked), np.ones(1, np.bool_)
        for _ in range(2):
            noted.note({"reward_threshold": np.full(1, 200.0)}, ~one, one)
        assert noted.finish(0) == expected
