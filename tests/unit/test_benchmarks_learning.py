"""The benchmark of learning: what it makes of runs, which `make bench` makes."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning.differences import area, compare, final_return
from benchmarks.learning.page import differences, measured, verdict
from benchmarks.learning.picture import draw
from benchmarks.learning.results import Results, Side
from benchmarks.learning.tasks import EQUAL, Task, spec_of
from benchmarks.peers import sb3_learning
from rl_orch.spec.algorithms import BUILT_IN
from rl_orch.spec.engine import why_not

TASK = replace(EQUAL["ppo-CartPole-v1-equal"], seeds=3)
MACHINE = {"processor": "a processor", "cores": 2}

SB3_DEFAULTS: dict[str, dict[str, Any]] = {
    "ppo": {"n_steps": 2048, "batch_size": 64, "n_epochs": 10, "clip_range": 0.2}
    | {"learning_rate": 3e-4, "gae_lambda": 0.95, "ent_coef": 0.0, "max_grad_norm": 0.5},
    "a2c": {"n_steps": 5, "learning_rate": 7e-4, "gae_lambda": 1.0, "max_grad_norm": 0.5},
    "dqn": {"batch_size": 32, "train_freq": 4, "learning_starts": 100, "max_grad_norm": 10.0}
    | {"learning_rate": 1e-4, "target_update_interval": 10_000, "exploration_fraction": 0.1},
    "qrdqn": {"batch_size": 32, "train_freq": 4, "learning_starts": 100, "learning_rate": 5e-5}
    | {"target_update_interval": 10_000, "exploration_fraction": 0.005},
    "sac": {"batch_size": 256, "learning_rate": 3e-4, "learning_starts": 100, "tau": 0.005},
    "tqc": {"batch_size": 256, "learning_rate": 3e-4, "learning_starts": 100, "tau": 0.005}
    | {"top_quantiles_to_drop_per_net": 2},
    "crossq": {"batch_size": 256, "learning_rate": 1e-3, "learning_starts": 100, "policy_delay": 3},
    "td3": {"batch_size": 256, "learning_rate": 1e-3, "learning_starts": 100, "policy_delay": 2},
}
"""What Stable-Baselines3 and sb3-contrib take where nothing is said."""


def a_run(side: Side, seed: int, *returns: float) -> dict[str, Any]:
    steps = [15_000 * k for k in range(1, len(returns) + 1)]
    return {"side": side, "seed": seed, "steps": steps, "returns": [*returns]}


def some_results(path: Path, task: Task = TASK) -> Results:
    """Three runs of ours that end at 9, 10 and 11; three of the peer that end a hundred higher."""
    results = Results(path)
    results.begin(task, spec_of(task, seed=1), MACHINE)
    for seed, end in enumerate((9.0, 10.0, 11.0), start=1):
        results.add(task, a_run("ours", seed, 0.0, end, end))
        results.add(task, a_run("sb3", seed, 100.0, end + 100.0, end + 100.0))
    return results


def test_the_final_return_is_the_mean_of_the_last_two_evaluations() -> None:
    assert final_return(a_run("ours", 1, 500.0, 8.0, 9.0)) == 8.5
    assert final_return(a_run("ours", 1, 7.0)) == 7.0


def test_the_area_is_the_mean_return_along_the_steps() -> None:
    assert area({"steps": [0, 10, 40], "returns": [0.0, 10.0, 10.0]}) == (50 + 300) / 40
    assert area({"steps": [30], "returns": [7.0]}) == 7.0


def test_a_side_is_below_where_the_whole_interval_of_either_difference_is() -> None:
    better = [a_run("sb3", seed, 1.0, 9.0 + seed, 9.0 + seed) for seed in range(4)]
    worse = [a_run("ours", seed, 1.0, 1.0 + seed, 1.0 + seed) for seed in range(4)]
    late = [a_run("ours", seed, -50.0, -50.0, 9.0 + seed, 9.0 + seed) for seed in range(4)]
    assert compare(worse, better).below
    assert not compare(better, worse).below
    assert compare(worse, better).final.difference.mean == -8.0
    assert not compare(late, better).final.below
    assert compare(late, better).area.below
    assert compare(late, better).below


def test_sides_with_the_same_runs_are_not_told_apart() -> None:
    same = [a_run("ours", seed, 1.0, 2.0 * seed, 2.0 * seed) for seed in range(4)]
    comparison = compare(same, same)
    assert (comparison.seeds, comparison.below) == ((4, 4), False)
    assert comparison.final.difference.ci95[0] < 0.0 < comparison.final.difference.ci95[1]


def test_one_seed_bounds_nothing() -> None:
    comparison = compare([a_run("ours", 1, 1.0)], [a_run("sb3", 1, 500.0)])
    assert comparison.final.difference.ci95 == (-math.inf, math.inf)
    assert not comparison.below


def test_the_table_has_means_differences_and_intervals(tmp_path: Path) -> None:
    table = differences(some_results(tmp_path / "results.json"), [TASK])
    cells = [cell.strip() for cell in table.splitlines()[2].strip("|").split("|")]
    assert cells[:4] == ["PPO · CartPole-v1", "30,000", "3", "10.0, 110.0"]
    assert cells[4] == "-100.0 [-102.3, -97.7]"
    assert cells[-1] == "**below**"
    assert len(cells) == len(table.splitlines()[0].strip("|").split("|"))


def test_too_few_seeds_are_called_not_complete(tmp_path: Path) -> None:
    results = some_results(tmp_path / "results.json")
    found = results.compared(TASK, "ours", "sb3")
    assert found is not None
    assert verdict(replace(TASK, seeds=4), found) == "not complete"


def test_runs_of_a_part_of_the_budget_are_not_compared(tmp_path: Path) -> None:
    results = some_results(tmp_path / "results.json")
    results.add(TASK, a_run("sb3", 4, 0.0))
    found = results.compared(TASK, "ours", "sb3")
    assert found is not None
    assert found.seeds == (3, 3)
    assert results.compared(TASK, "ours", "torch") is None


def test_fresh_seeds_of_a_repeated_row_count_and_have_a_table_of_their_own(tmp_path: Path) -> None:
    results = some_results(tmp_path / "results.json")
    for seed in (4, 5, 6):
        for side in ("ours", "sb3"):
            results.add(TASK, a_run(side, seed, 0.0, seed, seed))
    first, announced, again = differences(results, [TASK]).split("\n\n")
    assert "| 7.5, 57.5 |" in first
    assert "fresh seeds alone" in announced
    assert "| 5.0, 5.0 |" in again
    assert again.endswith("| not below |")


def test_engines_have_a_table_of_their_own(tmp_path: Path) -> None:
    results = some_results(tmp_path / "results.json")
    results.add(TASK, a_run("torch", 1, 0.0, 10.0, 10.0))
    first, second = differences(results, [TASK]).split("\n\n")
    assert "ours, SB3" in first
    assert "ours, ours in torch" in second
    assert "| 3 and 1 |" in second
    assert "not complete" in second


def test_differences_are_kept_with_the_runs(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    some_results(path).write()
    kept = json.loads(path.read_text())["tasks"][TASK.name]
    assert kept["differences"]["ours - sb3"]["final"]["difference"]["mean"] == -100.0
    assert [*kept["curves"]] == ["ours", "sb3"]
    assert "bar" not in kept


def test_the_page_has_picture_tables_and_machine(tmp_path: Path) -> None:
    results = some_results(tmp_path / "results.json")
    text = measured(results, [TASK], "images/equal.svg")
    assert "(images/equal.svg)" in text
    assert differences(results, [TASK]) in text
    assert "a processor, 2 cores" in text


def test_the_page_names_what_is_not_compared_yet(tmp_path: Path) -> None:
    other = EQUAL["a2c-Acrobot-v1-equal"]
    text = measured(some_results(tmp_path / "results.json"), [TASK, other], "images/equal.svg")
    assert "Not compared with SB3 yet: A2C · Acrobot-v1." in text
    assert "Not compared with ours in torch yet: PPO · CartPole-v1." in text


def test_the_picture_names_the_sides_that_it_shows(tmp_path: Path) -> None:
    draw(some_results(tmp_path / "results.json"), [TASK], tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text()
    assert "PPO · CartPole-v1" in text
    assert "Stable-Baselines3" in text
    assert "in torch" not in text
    assert "asked for" not in text


@pytest.mark.parametrize("name", EQUAL)
def test_an_equal_task_has_no_option_that_the_peer_cannot_follow(name: str) -> None:
    assert sb3_learning.untranslatable(spec_of(EQUAL[name], seed=1).model_dump(mode="json")) == []


@pytest.mark.parametrize("algorithm", SB3_DEFAULTS)
def test_equal_tasks_begin_with_the_defaults_of_the_peer(algorithm: str) -> None:
    task = next(task for task in EQUAL.values() if task.algorithm == algorithm)
    usual = [change for change in task.overrides if change.startswith(("env.", "rollout."))]
    spec = spec_of(replace(task, overrides=tuple(usual)), seed=1)
    arguments = sb3_learning.translated(spec.model_dump(mode="json"))
    asked = SB3_DEFAULTS[algorithm]
    assert {name: arguments[name] for name in asked} == asked


def test_every_algorithm_that_has_a_peer_is_compared_on_three_environments_with_ten_seeds() -> None:
    for algorithm in sb3_learning.ALGORITHMS.keys() & BUILT_IN:
        tasks = [task for task in EQUAL.values() if task.algorithm == algorithm]
        assert len({task.env for task in tasks}) >= 3
        assert all(task.seeds >= 10 for task in tasks)
        by_kernels = [task for task in tasks if why_not(spec_of(task, seed=1)) is None]
        assert any(task.in_torch for task in by_kernels) or not by_kernels


def test_where_sbx_is_a_peer_too_ours_is_asked_to_be_below_neither(tmp_path: Path) -> None:
    task = replace(TASK, equal=False, sbx=True)
    results = some_results(tmp_path / "learning.json", task)
    assert results.bar(task).passed is None, "nothing is known of SBX yet"
    for seed, end in enumerate((209.0, 210.0, 211.0), start=1):
        results.add(task, a_run("sbx", seed, 0.0, end, end))
    bar = results.bar(task)
    assert bar.rule == "not below the interval of SB3 and SBX"
    assert (bar.passed, bar.target) == (False, results.curves(task)["sbx"].low[-1])
    for seed in range(1, 4):
        results.add(task, a_run("ours", seed, 0.0, 300.0, 300.0))
    assert results.bar(task).passed


def test_optimisers_of_the_peer_in_jax_get_their_moments_by_its_names() -> None:
    spec = spec_of(EQUAL["crossq-Pendulum-v1-equal"], seed=1).model_dump(mode="json")
    assert sb3_learning.translated(spec)["policy_kwargs"]["optimizer_kwargs"]["betas"][0] == 0.5
    assert sb3_learning.optax_moments({"eps": 1e-8, "betas": (0.5, 0.999)}) == {
        "eps": 1e-8,
        "b1": 0.5,
        "b2": 0.999,
    }
