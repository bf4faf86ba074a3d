"""Groups as users see them: launch, ls, show, compare, wait, stop and rm, in words and in JSON."""

import io
import json
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from rich.console import Console

from rl_orch import orchestrator
from rl_orch.cli.live import panel as panel_module
from rl_orch.cli.live.progress import Panel, ProgressLines
from rl_orch.core.orchestrator import GroupResult, Orchestrator
from rl_orch.core.ports import Task
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.records import Event, EventKind, Run, State
from rl_orch.stats import share_ci95
from rl_orch.stats.text import bounds_text
from rl_orch.testing import FakeRunner, Script, a_report, a_spec
from tests.conftest import Ran
from tests.waiting import PATIENCE_S

Rlctl = Callable[..., Ran]

RUN_FIELDS = {
    "id", "name", "group", "state", "reason", "attempt", "env", "algo", "env_steps", "sps",
    "config_hash", "eval", "verdict", "model_id", "path", "resume",
}  # fmt: skip
EVAL_FIELDS = {"mean", "std", "iqm", "ci95", "n", "unit"}
GATE = "gates.min_return=400"


def learns(level: float, *, steps: int = 4_000, failing: Sequence[int] = ()) -> Script:
    """A training that rises to a level, plus its seed, and is evaluated to that."""

    def script(directory: RunDir, task: Task) -> int:
        seed = directory.spec().env.seed
        returns = [level + seed] * 12
        name = f"step_{steps:012}"
        if task.checkpoint is not None:
            directory.write_report("final", a_report(returns, checkpoint=task.checkpoint))
            return 0
        with EventWriter(directory.events, run=directory.path.name, attempt=task.attempt) as writer:
            writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
            for step in range(50, steps + 1, 50):
                ret = (level + seed) * step / steps
                writer.emit(EventKind.EPISODE, "charts/episodic_return", ret, step=step)
            if seed in failing:
                return 1
            report = a_report(returns, step=steps, checkpoint=name)
            directory.write_report(name, report)
            tags = {"summary": report.summary.model_dump(mode="json"), "mean_length": 10.0}
            writer.emit(
                EventKind.EVAL, "eval/mean_return", report.summary.mean, step=steps, tags=tags
            )
            tags = {"best": True, "evaluated": True, "removed": []}
            writer.emit(EventKind.CHECKPOINT, "saved", name, step=steps, tags=tags)
            writer.emit(EventKind.STATE, "ended", "trained", step=steps, tags={"reason": "trained"})
        return 0

    return script


@dataclass(frozen=True)
class Homes:
    """A home that tests look at: two good groups, one with a failed run, and a run by itself."""

    path: Path
    good: str
    better: str
    mixed: str
    alone: str


def launched(home: Path, script: Script, *overrides: str) -> GroupResult:
    return Orchestrator(home, FakeRunner(script)).launch_group(a_spec(*overrides))


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Homes:
    home = tmp_path_factory.mktemp("groups") / "a [b]home"
    good = launched(home, learns(450.0), "name=good", "seeds=[1,2,3]", GATE)
    alone = Orchestrator(home, FakeRunner(learns(300.0))).launch(a_spec("name=alone"))
    better = launched(home, learns(480.0), "name=better", "seeds=[1,2,3]", "train.lr=1e-3", GATE)
    mixed = launched(home, learns(380.0, failing=[5]), "name=mixed", "seeds=[4,5,40]", GATE)
    return Homes(home, good.group.id, better.group.id, mixed.group.id, alone.run.id)


@pytest.fixture
def here(rlctl: Rlctl, homes: Homes, monkeypatch: pytest.MonkeyPatch) -> Rlctl:
    """The command in the home that tests look at."""
    monkeypatch.setenv("RLCTL_HOME", str(homes.path))
    return rlctl


@pytest.fixture
def faked(rlctl: Rlctl, monkeypatch: pytest.MonkeyPatch) -> Callable[[Script], Rlctl]:
    """The command with roots that are a script, in a home of its own."""

    def with_script(script: Script) -> Rlctl:
        made = Orchestrator(Path("rlruns"), FakeRunner(script))
        monkeypatch.setattr(orchestrator, "connect", lambda *_args, **_kw: made)
        return rlctl

    return with_script


def documents(ran: Ran) -> dict[str, Any]:
    document = json.loads(ran.out)
    assert isinstance(document, dict)
    return document


def rows(text: str, first: str) -> list[list[str]]:
    """The rows of a table under the heading that begins so, split where columns are apart."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{first} "))
    body = [line.rstrip() for line in lines[at + 1 :]]
    body = body[: body.index("")] if "" in body else body
    return [re.split(r" {2,}", line) for line in body]


def test_launch_with_seeds_answers_with_the_group_its_runs_and_their_statistics(
    faked: Callable[[Script], Rlctl],
) -> None:
    rlctl = faked(learns(450.0))
    ran = rlctl("launch", "--env", "x", "--seeds", "3", "--min-reward", "400", "--json")
    found = documents(ran)
    assert ran.code == 0
    assert {"group", "runs", "eval"} <= set(found)
    assert [run["seed"] for run in found["runs"]] == [42, 43, 44]
    assert all(set(run) >= RUN_FIELDS for run in found["runs"])
    assert {run["group"] for run in found["runs"]} == {found["group"]}
    assert [run["id"] for run in found["runs"]] == [f"{found['group']}-s{s}" for s in (42, 43, 44)]
    assert set(found["eval"]) >= EVAL_FIELDS
    assert (found["eval"]["mean"], found["eval"]["n"]) == (493.0, 3)
    assert found["eval"]["unit"] == "training runs"
    assert (found["state"], found["verdicts"]) == ("succeeded", {"passed": 3, "n": 3})


@pytest.mark.parametrize(
    ("level", "failing", "code", "state"),
    [(380.0, (), 3, "rejected"), (380.0, (42,), 1, "failed"), (450.0, (42, 43), 1, "failed")],
)
def test_the_exit_code_of_a_group_is_that_of_its_worst_run(
    faked: Callable[[Script], Rlctl], level: float, failing: Sequence[int], code: int, state: str
) -> None:
    words = ("launch", "--env", "x", "--seeds", "[42,43]", "--min-reward", "423", "--json")
    ran = faked(learns(level, failing=failing))(*words)
    assert (ran.code, documents(ran)["state"]) == (code, state)


def test_launch_tells_of_every_run_and_ends_with_the_summary_of_the_group(
    faked: Callable[[Script], Rlctl],
) -> None:
    ran = faked(learns(450.0))("launch", "--env", "x", "--seeds", "1,2", "--name", "both")
    assert ran.code == 0
    for words in ("-s1  4,000/", "-s2  4,000/", "evaluated 451.0", "evaluated 452.0"):
        assert words in ran.err
    assert "queued" not in ran.err
    assert "── return, mean of 2 runs   ░ 95 % interval of the mean" in ran.out
    assert "succeeded: all 2 runs" in ran.out
    assert "IQM 451.5, 95 % interval" in ran.out
    assert "n = 2 training runs" in ran.out


def test_a_group_is_one_row_of_ls_among_the_runs(here: Rlctl, homes: Homes) -> None:
    found = rows(here("ls").out, "run")
    assert [row[0] for row in found] == [homes.mixed, homes.better, homes.alone, homes.good]
    assert found[0][1:5] == ["mixed", "failed 1/3", "ppo", "CartPole-v1"]
    assert found[1][5].startswith("12,000")
    assert found[3][2] == "succeeded 3/3"
    assert found[3][6].startswith("IQM 452.0 [449.5, 454.5] n=3")
    assert [row[7] for row in found] == ["1/2", "3/3", "–", "3/3"]


def test_ls_lists_every_run_where_that_is_asked(here: Rlctl, homes: Homes) -> None:
    for words in (["--runs"], ["--state", "succeeded", "--state", "rejected", "--state", "failed"]):
        found = rows(here("ls", *words).out, "run")
        assert len(found) == 10
        assert homes.mixed not in {row[0] for row in found}
    only = rows(here("ls", "--state", "failed").out, "run")
    assert [row[0] for row in only] == [f"{homes.mixed}-s5"]


def test_ls_folds_groups_under_filters(here: Rlctl, homes: Homes) -> None:
    whole = [homes.mixed, homes.better, homes.alone, homes.good]
    for words, found in (
        (["--env", "CartPole-v1"], whole),
        (["--algo", "ppo", "--since", "1d"], whole),
        (["--name", "good"], [homes.good]),
        (["--name", "alone"], [homes.alone]),
        (["--parent", homes.good], [f"{homes.good}-s{seed}" for seed in (3, 2, 1)]),
    ):
        assert [row[0] for row in rows(here("ls", *words).out, "run")] == found
    assert "no run matches" in here("ls", "--env", "Nowhere-v0").out
    assert len(documents(here("ls", "--name", "good", "--json"))["runs"]) == 3


def test_of_a_group_that_matches_in_part_each_run_that_does_is_a_row(
    rlctl: Rlctl, tmp_path: Path
) -> None:
    made = Orchestrator(tmp_path / "rlruns", FakeRunner(learns(1.0)))
    parted, whole = (made.launch_group(a_spec("seeds=3", f"name={n}")).group for n in "ab")
    alone = made.launch(a_spec("name=alone")).run.id
    for run in (*parted.runs[:2], *whole.runs, alone):
        rlctl("tag", run, "kept=yes")
    expected = [alone, whole.id, parted.runs[1], parted.runs[0]]
    assert [row[0] for row in rows(rlctl("ls", "--tag", "kept=yes").out, "run")] == expected
    seen, words = [], ["ls", "-n", "1", "--tag", "kept=yes"]
    while True:
        out = rlctl(*words).out
        seen += [row[0] for row in rows(out, "run") if not row[0].startswith("more:")]
        more = re.search(r"^more: rlctl ls --tag kept=yes --after (\S+)$", out, re.MULTILINE)
        if more is None:
            break
        words = ["ls", "-n", "1", "--tag", "kept=yes", "--after", more[1]]
    assert seen == expected


def test_ls_as_json_keeps_all_runs_and_adds_their_groups(here: Rlctl, homes: Homes) -> None:
    found = documents(here("ls", "--json"))
    assert len(found["runs"]) == 10
    assert found["next"] is None
    assert [group["id"] for group in found["groups"]] == [homes.mixed, homes.better, homes.good]
    part = documents(here("ls", "--json", "-n", "1"))
    assert [group["id"] for group in part["groups"]] == [homes.mixed]
    assert len(part["groups"][0]["runs"]) == 3


def test_the_pages_of_ls_fold_each_group_once(here: Rlctl, homes: Homes) -> None:
    seen, words = [], ["ls", "-n", "1"]
    while True:
        out = here(*words).out
        seen += [row[0] for row in rows(out, "run") if not row[0].startswith("more:")]
        more = re.search(r"^more: rlctl ls --after (\S+)$", out, re.MULTILINE)
        if more is None:
            break
        words = ["ls", "-n", "1", "--after", more[1]]
    assert seen == [homes.mixed, homes.better, homes.alone, homes.good]


def test_a_group_under_way_says_how_many_runs_have_ended(rlctl: Rlctl, tmp_path: Path) -> None:
    made = Orchestrator(tmp_path / "rlruns", FakeRunner(learns(1.0)))
    run = made.launch_group(a_spec("seeds=2", "name=g")).results[0].run
    other = run.model_copy(update={"id": "g-s9", "seed": 9, "state": State.QUEUED, "env_steps": 0})
    made.store.add(other)
    found = rows(rlctl("ls").out, "run")
    assert found[0][2] == "running 2/3"
    assert found[0][5] == "8,000 3%"


def test_show_folds_a_group_and_has_a_row_for_each_run(here: Rlctl, homes: Homes) -> None:
    ran = here("show", homes.mixed)
    assert "mean of 2 of 3 runs" in ran.out
    assert "failed: 1" in ran.out
    assert "seeds 4–5, 40" in ran.out
    assert "passed by 1 of 2 runs that were judged" in ran.out
    assert "n = 2 training runs" in ran.out
    assert f"rlctl logs {homes.mixed}-s5" in ran.out
    table = rows(ran.out, "run")
    assert [row[:3] for row in table] == [
        [f"{homes.mixed}-s4", "4", "rejected"],
        [f"{homes.mixed}-s5", "5", "failed"],
        [f"{homes.mixed}-s40", "40", "succeeded"],
    ]


def test_show_as_json_gives_the_group_with_its_runs(here: Rlctl, homes: Homes) -> None:
    for reference in (homes.good, homes.good[:-1], "good"):
        found = documents(here("show", reference, "--json"))
        assert (found["id"], found["group"], found["seeds"]) == (homes.good, homes.good, [1, 2, 3])
        assert [run["seed"] for run in found["runs"]] == [1, 2, 3]
        assert found["counts"] == {"succeeded": 3}


def test_show_of_a_run_names_its_group(here: Rlctl, homes: Homes) -> None:
    ran = here("show", f"{homes.good}-s2")
    assert f"rlctl show {homes.good}" in ran.out
    assert "── return   ● return, evaluated" in ran.out
    assert documents(here("show", f"{homes.good}-s2", "--json"))["seed"] == 2
    assert "group  " not in here("show", homes.alone).out


def test_compare_tells_which_of_two_groups_is_better_and_what_they_differ_in(
    here: Rlctl, homes: Homes
) -> None:
    ran = here("compare", "good", "better")
    assert f"{homes.better} is better than {homes.good} by 30.00 [27.73, 32.27], n = 3 and 3" in (
        ran.out
    )
    assert "over training runs" in ran.out
    assert [row[0] for row in rows(ran.out, "option")] == ["name", "train.lr"]
    results = rows(ran.out, "run")
    assert [row[2] for row in results] == ["1–3", "1–3"]
    assert [row[6] for row in results] == ["3 training runs"] * 2
    assert "a " + homes.good in ran.out


def test_compare_as_json_has_documents_difference_effects_and_note(
    here: Rlctl, homes: Homes
) -> None:
    found = documents(here("compare", "good", "better", "alone", "--json"))
    assert [document["id"] for document in found["runs"]] == [
        homes.good, homes.better, homes.alone
    ]  # fmt: skip
    clear, unclear = found["effects"]
    assert (clear["first"], clear["second"], clear["mean"]) == (homes.good, homes.better, -30.0)
    assert clear["ci95"] == pytest.approx([-32.27, -27.73], abs=0.01)
    assert unclear["n"] == [3, 1]
    assert "cannot be said" in unclear["sentence"]
    assert "the two do not compare" in found["note"]
    assert "env.seed" not in [row["path"] for row in found["difference"]]


def test_compare_of_runs_is_about_policies_and_shows_their_seeds(here: Rlctl, homes: Homes) -> None:
    found = documents(here("compare", f"{homes.good}-s1", f"{homes.good}-s2", "--json"))
    assert found["effects"] == []
    assert [row["path"] for row in found["difference"]] == ["env.seed"]
    assert "not which spec is better" in found["note"]


def test_groups_that_overlap_cannot_be_told_apart(here: Rlctl, homes: Homes) -> None:
    found = documents(here("compare", "good", "mixed", "--json"))
    assert "cannot be told apart" in found["effects"][0]["sentence"]


def test_a_picture_has_the_curves_their_bands_and_words(
    here: Rlctl, homes: Homes, tmp_path: Path
) -> None:
    png, svg = tmp_path / "new folder" / "curves.png", tmp_path / "curves.SVG"
    ran = here("compare", "good", "better", "--out", str(png), "--out", str(svg))
    assert f"wrote {svg}" in ran.out
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1650, 750)
    words = texts(svg)
    for said in (
        f"{homes.good}, mean of 3 runs",
        f"{homes.better}, mean of 3 runs",
        "95 % interval of the mean",
        "evaluated, with 95 % interval",
        "environment steps",
        "episode return",
        "CartPole-v1",
        "gate 400",
        "final return of each run; IQM, 95 % interval",
    ):
        assert said in words
    here("compare", "good", "better", "--out", str(svg), "--smooth", "5")
    assert "CartPole-v1; curves averaged over 5 of 80 points" in texts(svg)
    assert "FillBetweenPolyCollection_1" in svg.read_text()


def test_a_picture_of_runs_has_no_band_and_no_gate_that_they_do_not_share(
    here: Rlctl, homes: Homes, tmp_path: Path
) -> None:
    svg = tmp_path / "runs.svg"
    found = documents(here("compare", "alone", f"{homes.good}-s1", "--out", str(svg), "--json"))
    assert found["pictures"] == [str(svg)]
    words = texts(svg)
    assert {"evaluated", homes.alone, f"{homes.good}-s1"} <= set(words)
    assert not any("interval" in word or "gate" in word for word in words)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved from here on."""
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_args, **_kw: figures.append(figure))
    return figures


def uprights(axes: Axes) -> list[tuple[float, float]]:
    """The intervals that are drawn as upright lines, from the left."""
    lines = [line.get_xydata() for line in axes.lines]
    pairs = [[(float(x), float(y)) for x, y in np.asarray(line)] for line in lines]
    return [(p[0][1], p[1][1]) for p in pairs if len(p) == 2 and p[0][0] == p[1][0]]


def test_a_picture_has_the_intervals_of_the_table(
    here: Rlctl, homes: Homes, drawn: list[Figure], tmp_path: Path
) -> None:
    ran = here("compare", "good", "mixed", "--out", str(tmp_path / "curves.png"))
    shown = documents(here("compare", "good", "mixed", "--json"))["runs"]
    (scores,) = (axes for axes in drawn[0].axes if "final" in axes.get_title("left"))
    (curves,) = (axes for axes in drawn[0].axes if axes is not scores)
    intervals = uprights(scores)
    assert intervals == [tuple(group["eval"]["iqm_ci95"]) for group in shown]
    cells = [row[4] for row in rows(ran.out, "run")]
    for (low, high), cell in zip(intervals, cells, strict=True):
        assert bounds_text((low, high)) in cell
    low, high = scores.get_ylim()
    assert all(low <= end <= high for interval in intervals for end in interval)
    for bars in (part for part in curves.containers if isinstance(part, ErrorbarContainer)):
        ends = [float(y) for lines in bars[2] for part in lines.get_segments() for _, y in part]
        low, high = curves.get_ylim()
        assert len(ends) == 2
        assert low <= min(ends) < max(ends) <= high


def test_a_group_of_one_has_a_score_without_an_interval(
    faked: Callable[[Script], Rlctl], drawn: list[Figure], tmp_path: Path
) -> None:
    rlctl = faked(learns(450.0))
    for name in ("a", "b"):
        assert rlctl("launch", "--env", "x", "--seeds", "[1]", "--name", name).code == 0
    assert rlctl("compare", "a", "b", "--out", str(tmp_path / "curves.png")).code == 0
    assert not any(uprights(axes) for axes in drawn[0].axes)


def texts(svg: Path) -> list[str]:
    """Every text in a picture."""
    found = ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(node.itertext()).strip() for node in found]


def test_a_picture_in_another_format_is_refused_before_anything_is_done(
    here: Rlctl, tmp_path: Path
) -> None:
    ran = here("compare", "good", "better", "--out", str(tmp_path / "curves.pdf"))
    assert ran.code == 2
    assert "must end in .png or .svg" in ran.err
    assert here("compare", "good", "better", "--out", "curves").code == 2


def test_a_picture_that_cannot_be_written_is_an_error_in_words(here: Rlctl, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = here("compare", "good", "better", "--out", str(tmp_path / "file" / "a.png"))
    assert ran.code == 1
    assert "cannot be written" in ran.err


def test_nothing_is_drawn_where_nothing_has_happened(rlctl: Rlctl, tmp_path: Path) -> None:
    made = Orchestrator(tmp_path / "rlruns", FakeRunner(lambda _directory, _task: 1))
    first, second = (made.launch(a_spec(f"name={name}")).run.id for name in "ab")
    ran = rlctl("compare", first, second, "--out", "curves.png")
    assert ran.code == 2
    assert "no episode has ended" in ran.err


def test_groups_of_different_environments_are_not_compared(rlctl: Rlctl, tmp_path: Path) -> None:
    made = Orchestrator(tmp_path / "rlruns", FakeRunner(learns(1.0)))
    ids = [made.launch_group(a_spec("seeds=2", env_id=env)).group.id for env in ("A-v0", "B-v0")]
    found = documents(rlctl("compare", *ids, "--json"))
    assert "different environments" in found["effects"][0]["sentence"]
    assert found["effects"][0]["mean"] is None


@pytest.mark.parametrize(
    ("option", "path"),
    [
        ("env.wrappers=[{name:TransformReward,scale:2}]", "env.wrappers"),
        ("env.kwargs={sutton_barto_reward:true}", "env.kwargs"),
        ("env.max_episode_steps=100", "env.max_episode_steps"),
        ("eval.max_episode_steps=100", "eval.max_episode_steps"),
    ],
)
def test_groups_of_different_tasks_get_no_verdict(
    rlctl: Rlctl, tmp_path: Path, option: str, path: str
) -> None:
    made = Orchestrator(tmp_path / "rlruns", FakeRunner(learns(1.0)))
    plain = made.launch_group(a_spec("seeds=2")).group.id
    doubled = Orchestrator(tmp_path / "rlruns", FakeRunner(learns(900.0)))
    other = doubled.launch_group(a_spec("seeds=2", option)).group
    found = documents(rlctl("compare", plain, other.id, "--json"))
    (effect,) = found["effects"]
    assert (effect["mean"], effect["ci95"], effect["n"]) == (None, None, None)
    assert path in effect["reason"]
    assert effect["reason"] == effect["sentence"]
    assert [row["path"] for row in found["task_difference"]] == [path]
    ran = rlctl("compare", plain, other.id)
    assert "is better" not in ran.out
    assert f"play different tasks, whose returns do not compare: {path} is " in ran.out
    assert "return [95 %]" in ran.out
    runs = rlctl("compare", f"{plain}-s42", other.runs[0])
    assert "play different tasks" in runs.out


def test_groups_of_one_task_have_no_difference_of_tasks(here: Rlctl) -> None:
    found = documents(here("compare", "good", "better", "--json"))
    assert (found["task_difference"], found["effects"][0]["reason"]) == ([], None)


def succeeds(rate: float, *, charted: bool = False) -> Script:
    """A training whose final evaluation has two metrics, which differ a little by seed."""
    plain = learns(450.0)

    def script(directory: RunDir, task: Task) -> int:
        code = plain(directory, task)
        if task.checkpoint is None:
            if charted:
                with EventWriter(directory.events, run=directory.path.name, attempt=1) as writer:
                    writer.emit(EventKind.METRIC, "eval/success_rate", rate, step=4_000)
            return code
        report = a_report([450.0] * 20, checkpoint=task.checkpoint)
        good = round(20 * rate) + directory.spec().env.seed % 2
        metrics = {
            "success_rate": (1.0,) * good + (0.0,) * (20 - good),
            "reward_fuel": (-1.0,) * 20,
            "on_time": (1.0,) * 20,
            "speed": (rate,) * 20,
        }
        told = {"metrics": metrics, "shares": ("on_time",)}
        directory.write_report("final", report.model_copy(update=told))
        return code

    return script


@pytest.fixture
def solving(rlctl: Rlctl, tmp_path: Path) -> Rlctl:
    """The command in a home with two groups that succeed more or less often."""
    for name, rate in (("seldom", 0.2), ("often", 0.8)):
        launched(tmp_path / "rlruns", succeeds(rate), f"name={name}", "seeds=[1,2,3]", GATE)
    return rlctl


def test_groups_are_compared_by_another_metric(solving: Rlctl) -> None:
    found = documents(solving("compare", "seldom", "often", "--metric", "success_rate", "--json"))
    (effect,) = found["effects"]
    assert (found["metric"], effect["metric"]) == ("success_rate", "success_rate")
    assert effect["mean"] == pytest.approx(-0.6)
    assert [each["n"] for each in found["evals"]] == [3, 3]
    assert found["evals"][0]["mean"] == pytest.approx((0.25 + 0.2 + 0.25) / 3)
    ran = solving("compare", "seldom", "often", "--metric", "success_rate")
    assert re.search(
        r"success_rate of often-\w+ is higher than that of seldom-\w+ by 0\.6", ran.out
    )
    assert "is better" not in ran.out
    assert "success_rate [95 %]" in ran.out
    same = solving("compare", "seldom", "often", "--metric", "reward_fuel")
    assert "the difference of their mean reward_fuel is 0.0 [0.0, 0.0]" in same.out


def test_runs_are_compared_by_another_metric_over_their_episodes(solving: Rlctl) -> None:
    groups = documents(solving("compare", "seldom", "often", "--json"))["runs"]
    first, second = (group["runs"][0]["id"] for group in groups)
    found = documents(solving("compare", first, second, "--metric", "success_rate", "--json"))
    assert [(each["mean"], each["n"], each["unit"]) for each in found["evals"]] == [
        (0.25, 20, "episodes"),
        (0.85, 20, "episodes"),
    ]
    assert found["effects"] == []
    shares = documents(solving("compare", first, second, "--metric", "on_time", "--json"))
    assert shares["evals"][0]["ci95"] == pytest.approx(list(share_ci95(20, 20)))


def test_groups_of_which_each_has_one_and_the_same_number_cannot_be_told(solving: Rlctl) -> None:
    ran = solving("compare", "seldom", "often", "--metric", "speed")
    assert "cannot be told" in ran.out
    assert "is higher than" not in ran.out


def test_a_metric_that_no_evaluation_has_is_refused_with_those_that_are_there(
    solving: Rlctl,
) -> None:
    ran = solving("compare", "seldom", "often", "--metric", "sucess")
    assert ran.code == 2
    assert "have: return, success_rate, reward_fuel" in ran.err


@pytest.mark.parametrize("charted", [False, True])
def test_a_picture_by_a_metric_has_its_curves_where_there_are_any(
    rlctl: Rlctl, tmp_path: Path, drawn: list[Figure], *, charted: bool
) -> None:
    script = succeeds(0.5, charted=charted)
    for name in "ab":
        launched(tmp_path / "rlruns", script, f"name={name}", "seeds=[1,2]", GATE)
    words = ("compare", "a", "b", "--metric", "success_rate", "--out", str(tmp_path / "a.png"))
    assert rlctl(*words).code == 0
    (scores,) = (axes for axes in drawn[0].axes if "final" in axes.get_title("left"))
    assert scores.get_title("left").startswith("final success_rate of each run")
    labels = [axes.get_ylabel() for axes in drawn[0].axes if axes is not scores]
    assert labels == (["episode success_rate"] if charted else [])


def test_wait_ends_with_the_code_and_the_document_of_the_group(here: Rlctl, homes: Homes) -> None:
    assert here("wait", "good").code == 0
    ran = here("wait", homes.mixed, "--json")
    assert ran.code == 1
    assert (documents(ran)["group"], len(documents(ran)["runs"])) == (homes.mixed, 3)
    assert f"{homes.mixed}  failed: 1" in here("wait", homes.mixed).out


def test_several_are_waited_for_and_shown_and_the_worst_code_is_that_of_all(
    here: Rlctl, homes: Homes
) -> None:
    assert here("wait", "good", "alone").code == 0
    ran = here("wait", "good", homes.mixed, "alone")
    assert ran.code == 1
    assert [line.split()[0] for line in ran.out.splitlines()] == [
        homes.good,
        homes.mixed,
        homes.alone,
    ]
    each = [documents(here("show", word, "--json")) for word in ("good", "alone")]
    assert documents(here("show", "good", "alone", "good", "--json")) == {"runs": each}
    shown = here("show", "good", "alone").out
    assert shown == "\n".join(here("show", word).out for word in ("good", "alone"))


def test_wait_gives_up_on_a_group_after_the_timeout(rlctl: Rlctl, tmp_path: Path) -> None:
    waiting_group(tmp_path)
    ran = rlctl("wait", "g", "--timeout", "0")
    assert ran.code == 124
    assert (
        json.loads(rlctl("wait", "g", "--timeout", "0", "--json").out)["error"]["code"] == "timeout"
    )
    assert "is still queued" in ran.err


def test_stop_ends_every_run_of_a_group_that_has_not_ended(rlctl: Rlctl, tmp_path: Path) -> None:
    waiting_group(tmp_path)
    ran = rlctl("stop", "g", "--json")
    assert ran.code == 0
    assert documents(ran)["counts"] == {"stopped": 3}
    again = rlctl("stop", "g")
    assert again.code == 2
    assert "is stopped already; there is nothing to stop" in again.err
    assert rlctl("wait", "g").code == 4


def test_rm_deletes_a_group_whole_or_not_at_all(rlctl: Rlctl, tmp_path: Path) -> None:
    made = waiting_group(tmp_path)
    ran = rlctl("rm", "g", "--yes")
    assert ran.code == 2
    assert "rlctl stop g-abc" in ran.err
    assert len(made.store.group_runs("g-abc")) == 3
    rlctl("stop", "g")
    ran = rlctl("rm", "g", "--yes")
    assert (ran.code, "rlctl rm g-abc --yes" in ran.err) == (2, True)
    assert len(made.store.group_runs("g-abc")) == 3
    ran = rlctl("rm", "g-abc", "g-abc-s2", "--yes", "--json")
    assert documents(ran) == {"removed": ["g-abc-s1", "g-abc-s2", "g-abc-s3"]}
    assert made.store.group_runs("g-abc") == []


def waiting_group(folder: Path) -> Orchestrator:
    """A home with a group of three runs that nobody has begun with."""
    made = Orchestrator(folder / "rlruns", FakeRunner(learns(1.0), at_once=False))
    for member in a_spec("seeds=[1,2,3]", "name=g").members:
        run = made.create(member)
        made.store.remove(run.id)
        name = f"g-abc-s{member.env.seed}"
        moved = RunDir(Path(run.path).rename(Path(run.path).with_name(name)))
        made.store.add(
            run.model_copy(update={"id": name, "group": "g-abc", "path": str(moved.path)})
        )
    return made


def test_check_says_which_seeds_a_group_would_have(
    rlctl: Rlctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Orchestrator, "check", lambda _self, spec, **_: spec)
    assert "seeds 42–46: a group of 5" in rlctl("check", "--env", "x", "--seeds", "5").out
    assert "seed 42\n" in rlctl("check", "--env", "x").out
    found = documents(rlctl("check", "--env", "x", "seeds=[3,1]", "--json"))
    assert (found["ok"], found["seeds"]) == (True, [3, 1])


A_RUN = Run(
    id="g-s1", name="g", group="g", env="CartPole-v1", algo="ppo", config_hash="h", path="/p",
    seed=1, total_timesteps=100, created_at=0.0, updated_at=0.0, state=State.RUNNING,
)  # fmt: skip


def shown(panel: Panel, monkeypatch: pytest.MonkeyPatch, height: int) -> str:
    """What a panel looks like in a terminal of some height."""
    console = Console(width=120, height=height, record=True, file=io.StringIO())
    monkeypatch.setattr(panel, "_console", console)
    console.print(panel.live.renderable)
    return console.export_text()


def some_runs(n: int) -> list[Run]:
    return [A_RUN.model_copy(update={"id": f"g-s{k}", "seed": k}) for k in range(n)]


def test_the_panel_has_a_line_for_each_run_as_far_as_they_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    panel = panel_module.Panel()
    for run in some_runs(20):
        queued = run.seed >= 3
        state = State.QUEUED if queued else State.RUNNING
        panel.watch(run.model_copy(update={"state": state, "env_steps": 0 if queued else 50}), [])
    text = shown(panel, monkeypatch, height=12)
    assert "0/20 ended" in text
    assert "150/2000" in text.replace(" ", "")
    assert text.count("running") == 4
    assert text.count("queued") == 3
    assert "+ 14 more" in text
    assert "more" not in shown(panel, monkeypatch, height=50)


def test_the_panel_of_one_run_after_another_shows_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    panel = panel_module.Panel()
    for run in some_runs(2):
        panel.watch(run.model_copy(update={"group": None}), [])
    text = shown(panel, monkeypatch, height=20)
    assert "g-s1" in text
    assert "g-s0" not in text


def test_the_panel_of_several_runs_has_a_line_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of before count, and one that waits says for what."""
    panel = panel_module.Panel(several=True)
    runs = [run.model_copy(update={"group": None}) for run in some_runs(2)]
    fields = {"seq": 1, "attempt": 1, "ts": 1.0, "run": runs[0].id, "step": 0}
    ended = Event(**fields, kind=EventKind.EPISODE, key="charts/episodic_return", value=321.0)
    panel.recall(runs[0], [ended])
    for run in runs:
        panel.watch(run, [])
    text = shown(panel, monkeypatch, height=20)
    assert all(word in text for word in ("g-s0", "g-s1", "2 runs", "321"))
    single = panel_module.Panel()
    single.watch(runs[0].model_copy(update={"state": State.QUEUED, "reason": "for room"}), [])
    assert "for room" in shown(single, monkeypatch, height=20)


def test_plain_lines_say_how_many_runs_of_a_group_have_ended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = ProgressLines()
    runs = some_runs(3)
    for run in runs:
        lines.watch(run.model_copy(update={"state": State.QUEUED}), [])
    assert capsys.readouterr().err == ""
    for run, state in zip(runs, (State.SUCCEEDED, State.FAILED), strict=False):
        lines.watch(run.model_copy(update={"state": state, "reason": "why"}), [])
    said = [line.split("  ", 1) for line in capsys.readouterr().err.splitlines()]
    assert said == [
        ["g-s0", "0/100  succeeded: why"],
        ["g", "1/3 ended: 1 succeeded"],
        ["g-s1", "0/100  failed: why"],
        ["g", "2/3 ended: 1 succeeded, 1 failed"],
    ]


def test_kernels_that_are_compiled_are_shown_until_the_first_update(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = A_RUN.model_copy(update={"group": None, "state": State.RUNNING})
    fields = {"seq": 1, "attempt": 1, "ts": 1.0, "run": run.id, "step": 0}
    compiling = Event(
        **fields, kind=EventKind.LOG, key="compiling", value="kernels, once on this machine"
    )
    updated = Event(**fields, kind=EventKind.METRIC, key="losses/value_loss", value=0.5)
    lines, panel = ProgressLines(), panel_module.Panel()
    for watch in (lines.watch, panel.watch):
        watch(run, [])
        watch(run, [compiling])
        watch(run, [])
    said = capsys.readouterr().err.splitlines()
    assert sum("compiling kernels, once on this machine" in line for line in said) == 1
    assert "compiling kernels, once on this machine" in shown(panel, monkeypatch, height=20)
    panel.watch(run, [updated])
    assert "compiling" not in shown(panel, monkeypatch, height=20)


def test_while_a_run_is_evaluated_lines_say_how_far_that_is_and_nothing_of_training(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, seconds = ProgressLines(), {"now": 0.0}
    monkeypatch.setattr("rl_orch.cli.live.progress.time.monotonic", lambda: seconds["now"])
    run = A_RUN.model_copy(update={"group": None, "state": State.EVALUATING, "reason": "trained"})
    for tick in range(0, 100, 4):
        seconds["now"] = float(tick)
        told = f"; {tick // 8} of 12 episodes evaluated" if tick > 40 else ""
        lines.watch(run.model_copy(update={"reason": f"trained{told}"}), [])
    lines.watch(run.model_copy(update={"reason": "trained; measuring the latency"}), [])
    said = [line.split("evaluating: ")[1] for line in capsys.readouterr().err.splitlines()]
    assert said == [
        "trained",
        *(f"trained; {done} of 12 episodes evaluated" for done in (5, 7, 8, 10, 11)),
        "trained; measuring the latency",
    ]
    panel = panel_module.Panel()
    panel.watch(run.model_copy(update={"reason": "trained; 3 of 12 episodes evaluated"}), [])
    assert "3 of 12 episodes" in shown(panel, monkeypatch, height=20)


def test_of_many_evaluations_plain_lines_say_the_newest_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, seconds = ProgressLines(), {"now": 0.0}
    monkeypatch.setattr("rl_orch.cli.live.progress.time.monotonic", lambda: seconds["now"])
    run = A_RUN.model_copy(update={"group": None, "state": State.RUNNING, "reason": "started"})
    fields = {"seq": 1, "attempt": 1, "ts": 1.0, "run": run.id, "kind": EventKind.EVAL}

    def evaluated(step: int, mean: float) -> Event:
        summary = a_report([mean, mean], step=step, checkpoint="c").summary.model_dump(mode="json")
        tags = {"summary": summary, "mean_length": 10.0}
        return Event(**fields, key="eval/mean_return", value=mean, step=step, tags=tags)

    lines.watch(run, [])
    for tick in range(1, 26):
        seconds["now"] = float(tick)
        step = 4 * tick
        lines.watch(run.model_copy(update={"env_steps": step}), [evaluated(step, float(tick))])
    lines.watch(run.model_copy(update={"state": State.SUCCEEDED, "reason": "done"}), [])
    said = [line.split("  ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert [words.partition(",")[0] for words in said] == [
        "0/100  running: started",
        "4/100  evaluated 1.00",
        "44/100  evaluated 11.00",
        "84/100  evaluated 21.00",
        "100/100  evaluated 25.00",
        "0/100  succeeded: done",
    ]


DIES = """
import os, sys
from pathlib import Path

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.runs import creation
from rl_orch.testing import FakeRunner, a_spec, trains_to

class LastBreath(creation.Draft):
    def publish(self):
        for run in self.runs[:3]:
            self.unfinished(run).rename(run.path)
        os._exit(9)

creation.Draft = LastBreath
Orchestrator(Path(sys.argv[1]), FakeRunner(trains_to([1.0]))).submit(a_spec("seeds=5"))
"""
"""A launcher that dies while it creates the runs of a group."""


def test_a_group_whose_launcher_died_while_creating_it_says_that_it_is_smaller_than_asked(
    rlctl: Rlctl, tmp_path: Path
) -> None:
    home = tmp_path / "rlruns"
    died = subprocess.run([sys.executable, "-c", DIES, str(home)], check=False, timeout=PATIENCE_S)
    assert died.returncode == 9
    paths = sorted((home / "runs").glob("[!.]*"))
    assert len(paths) == 3
    for path in paths:
        assert rlctl("import-run", str(path)).code == 0
    group = paths[0].name.rpartition("-s")[0]
    shown = documents(rlctl("show", group, "--json"))
    assert (len(shown["runs"]), shown["asked"]) == (3, 5)
    assert "3 of 5 runs are here: the launcher ended while creating them" in rlctl(
        "show", group
    ).out.replace("\n", " ")
    (row,) = rows(rlctl("ls").out, "run")
    assert row[2].endswith("/3 of 5 asked")


def test_a_group_that_is_whole_says_nothing_of_its_size(here: Rlctl, homes: Homes) -> None:
    assert "are here:" not in here("show", homes.good).out
    assert "asked" not in here("ls").out
