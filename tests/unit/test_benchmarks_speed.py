"""The benchmark of speed: what it makes of runs. The runs themselves are made by `make bench`."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import marks
from benchmarks.peers import cleanrl_speed, sb3_learning
from benchmarks.speed import page
from benchmarks.speed.picture import draw
from benchmarks.speed.recorder import Returns
from benchmarks.speed.results import (
    Figure,
    Results,
    best_threads,
    fastest_peer,
    figure,
    learned,
    mean_return,
    ratio,
    table,
)
from benchmarks.speed.workloads import (
    ENGINES,
    WORKLOADS,
    Floor,
    Workload,
    overrides_of,
    spec_of,
    steps_of,
)
from rl_orch.records import EventKind
from rl_orch.rl.seeding import seed_all
from rl_orch.rl.train import Training

W1, A2C = WORKLOADS["W1"], WORKLOADS["A2C"]
MACHINE = {"processor": "a processor", "cores": 2}


def a_run(side: str, repeat: int, speed: float, *, learned: bool | None = True) -> dict[str, Any]:
    """A run that took ten seconds."""
    return {
        "side": side,
        "repeat": repeat,
        "seed": repeat,
        "steps": 10 * speed,
        "seconds": 10.0,
        "mean_return": 12.5,
        "learned": learned,
        "date": f"2026-01-0{repeat}T00:00:00+00:00",
    }


def some_results(path: Path, workload: Workload = W1) -> Results:
    results = Results(path)
    results.begin(workload, env_steps=workload.env_steps, about=MACHINE)
    speeds = {"ours": (400, 600, 500), "sb3": (200, 200, 100), "sbx": (300, 100, 250)}
    for side, values in speeds.items():
        for repeat, speed in enumerate(values, start=1):
            results.add(workload, a_run(side, repeat, speed))
    return results


def test_a_figure_is_the_median_and_the_ends() -> None:
    assert figure([3.0, 1.0, 2.0]) == Figure(2.0, 1.0, 3.0)
    assert figure([4.0, 1.0]) == Figure(2.5, 1.0, 4.0)


def test_a_ratio_pairs_runs_of_one_number() -> None:
    assert ratio({1: 4.0, 2: 6.0, 3: 9.0}, {3: 3.0, 1: 2.0, 2: 1.0}) == Figure(3.0, 2.0, 6.0)
    assert ratio({1: 4.0, 2: 100.0}, {1: 2.0, 3: 1.0}) == Figure(2.0, 2.0, 2.0)
    assert ratio({1: 4.0}, {2: 2.0}) is None


def test_the_fastest_peer_has_the_greatest_median_and_is_not_ours() -> None:
    speeds = {"ours": {1: 99.0}, "sb3": {1: 5.0, 2: 5.0, 3: 5.0}, "sbx": {1: 9.0, 2: 1.0, 3: 4.0}}
    assert fastest_peer(speeds) == "sb3"
    assert fastest_peer({"ours": {1: 1.0}}) is None


def test_the_best_number_of_threads_is_the_fastest_and_of_equals_the_smaller() -> None:
    assert best_threads({1: 10.0, 2: 11.0}) == 2
    assert best_threads({2: 10.0, 1: 11.0}) == 1
    assert best_threads({2: 10.0, 1: 10.0}) == 1


def test_only_the_last_episodes_say_whether_a_run_learned() -> None:
    floor = Floor(episodes=2, at_least=10.0)
    assert mean_return([500.0, 9.0, 11.0], floor) == 10.0
    assert learned([0.0, 9.0, 11.0], floor)
    assert not learned([500.0, 9.0, 10.9], floor)


def test_a_run_with_too_few_episodes_did_not_learn() -> None:
    floor = Floor(episodes=2, at_least=10.0)
    assert mean_return([500.0], floor) is None
    assert not learned([500.0], floor)


def test_the_table_has_medians_ratios_and_their_ends(tmp_path: Path) -> None:
    lines = table(some_results(tmp_path / "results.json"), [W1]).splitlines()
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert len(cells) == len(lines[0].strip("|").split("|"))
    assert cells == [
        "W1",
        "ours",
        "500 (400..600)",
        "200 (100..200)",
        "–",
        "250 (100..300)",
        "3.00 (2.00..5.00)",
        "–",
        "2.00 (1.33..6.00)",
        "2.00 (1.33..6.00)",
    ]


def test_each_of_our_ways_has_a_row(tmp_path: Path) -> None:
    results = some_results(tmp_path / "results.json")
    results.add(W1, a_run("ours-torch", 1, 100))
    rows = table(results, [W1]).splitlines()[2:]
    assert [row.split(" | ")[1] for row in rows] == ["ours", "ours, torch"]
    assert rows[1].endswith("| 0.33 |")


def test_a_run_that_did_not_learn_is_marked_and_named(tmp_path: Path) -> None:
    results = some_results(tmp_path / "results.json")
    assert results.unlearned(W1) == []
    results.add(W1, a_run("sb3", 2, 200, learned=False))
    (line,) = results.unlearned(W1)
    assert line.startswith("W1 SB3, seed 2: mean return 12.5 of the last 20 episodes")
    assert "**did not learn**" in table(results, [W1])


def test_a_quick_run_is_not_judged(tmp_path: Path) -> None:
    results = some_results(tmp_path / "results.json")
    results.add(W1, a_run("sb3", 2, 200, learned=None))
    assert results.unlearned(W1) == []
    assert "did not learn" not in table(results, [W1])


def test_results_are_read_back_and_replaced_by_side_and_number(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    some_results(path).probed(W1, "sb3", {1: 10.0, 2: 20.0})
    again = Results(path)
    again.begin(W1, env_steps=W1.env_steps, about=MACHINE)
    assert again.threads(W1, "sb3") == 2
    assert again.threads(W1, "ours") is None
    assert again.has(W1, "ours", 3)
    assert not again.has(W1, "ours", 4)
    again.add(W1, a_run("ours", 3, 700))
    assert again.speeds(W1)["ours"] == {1: 400.0, 2: 600.0, 3: 700.0}
    kept = json.loads(path.read_text())["workloads"]["W1"]
    assert kept["steps_per_s"]["ours"] == {"median": 600.0, "low": 400.0, "high": 700.0}
    assert kept["fastest_peer"] == "sbx"


def test_runs_of_another_form_of_a_workload_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    some_results(path)
    shorter = Results(path)
    shorter.begin(W1, env_steps=steps_of(W1, quick=True), about=MACHINE)
    assert not shorter.has(W1, "ours", 1)
    other = Results(path)
    other.begin(replace(W1, warm_up=W1.warm_up + 1), env_steps=W1.env_steps, about=MACHINE)
    assert not other.has(W1, "ours", 1)


def test_a_file_of_an_older_form_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text('{"rows": []}')
    assert Results(path).known() == []


def test_the_picture_shows_every_side_and_the_ratio(tmp_path: Path) -> None:
    draw(some_results(tmp_path / "results.json"), tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text()
    assert all(word in text for word in ("rl-orch", "Stable-Baselines3", "SBX", "×2.00", "W1"))
    assert "CleanRL" not in text


def test_the_page_is_filled_between_its_marks_however_often(tmp_path: Path) -> None:
    path, picture = tmp_path / "page.md", tmp_path / "images" / "speed.svg"
    path.write_text(f"before\n{marks.BEGIN}\nold\n{marks.END}\nafter\n")
    results = some_results(tmp_path / "results.json")
    page.fill(path, picture, "| new |", results)
    once = path.read_text()
    page.fill(path, picture, "| new |", results)
    assert path.read_text() == once
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert "old" not in once
    assert "| new |" in once
    assert "(images/speed.svg)" in once
    assert "Measured on a processor, 2 cores, 2026-01-01 to 2026-01-03." in once


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("no marks")
    with pytest.raises(ValueError, match="put both where results go"):
        page.fill(path, tmp_path / "speed.svg", "", some_results(tmp_path / "results.json"))
    assert path.read_text() == "no marks"


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_is_a_spec_that_peers_can_follow(name: str) -> None:
    workload = WORKLOADS[name]
    spec = spec_of(workload, seed=3, threads=2, steps=workload.env_steps)
    document = spec.model_dump(mode="json")
    assert sb3_learning.untranslatable(document) == []
    assert (spec.env.seed, spec.resources.threads) == (3, 2)
    assert workload.env_steps % spec.rollout_size == 0
    if spec.agent.algorithm not in ("ppo", "a2c"):
        assert workload.warm_up > spec.train.learning_starts
    if "cleanrl" in workload.peers:
        _, arguments = cleanrl_speed.translated(document)
        assert arguments["seed"] == 3
        assert arguments["total-timesteps"] == workload.env_steps


def test_a_quick_run_is_short_but_longer_than_its_warm_up() -> None:
    for workload in WORKLOADS.values():
        steps = steps_of(workload, quick=True)
        assert workload.warm_up < steps < workload.env_steps
        assert steps_of(workload, quick=False) == workload.env_steps


def test_cleanrl_gets_as_many_minibatches_as_make_their_size() -> None:
    document = spec_of(W1, seed=1, threads=1, steps=W1.env_steps).model_dump(mode="json")
    script, arguments = cleanrl_speed.translated(document)
    assert script == "ppo"
    assert arguments["num-minibatches"] == 8 * 256 // 64


def test_our_ways_are_asked_for_only_with_what_the_spec_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ENGINES, "kernels", ("train.engin=kernels", "env.backend=native"))
    assert overrides_of(W1, "kernels") is None
    monkeypatch.setitem(ENGINES, "torch", ("train.engin=torch", "env.backend=sync"))
    assert overrides_of(W1, "torch") == ["env.backend=sync"]
    monkeypatch.setitem(ENGINES, "auto", ("train.lr=1e-3", "env.backend=none-such"))
    assert overrides_of(W1, "auto") == ["train.lr=1e-3"]


def test_the_outlet_keeps_returns_of_episodes_and_nothing_else() -> None:
    recorder = Returns()
    recorder.emit(EventKind.EPISODE, "charts/episodic_return", 7, step=1)
    recorder.emit(EventKind.METRIC, "losses/value_loss", 3.0, step=2)
    assert recorder.returns == [7.0]


def test_the_loop_tells_the_outlet_of_its_episodes() -> None:
    recorder = Returns()
    spec = spec_of(A2C, seed=1, threads=1, steps=400)
    seed_all(spec.env.seed)
    training = Training(spec, recorder)
    while training.env_steps < 400:
        training.train_step()
    training.close()
    assert len(recorder.returns) > 5
    assert all(1 <= value <= 400 / 8 for value in recorder.returns)


def test_the_writer_of_cleanrl_starts_the_clock_after_the_warm_up() -> None:
    writer = cleanrl_speed.Writer(warm_up=100)
    writer.add_scalar("charts/episodic_return", 5.0, 100)
    writer.add_scalar("losses/value_loss", 1.0, 99)
    assert (writer.before, writer.returns) == (0, [5.0])
    writer.add_scalar("losses/value_loss", 1.0, 128)
    began = writer.began
    writer.add_scalar("losses/value_loss", 1.0, 256)
    assert (writer.before, writer.began) == (128, began)
    assert began > 0
