"""`rl_orch.train` and `rl_orch.runs`: the field's words, tables, and what a notebook shows."""

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pandas  # type: ignore[import-untyped]
import pytest

import rl_orch
from rl_orch import orchestrator, plugins
from rl_orch.core.ports import Task
from rl_orch.core.runs.curves import Line
from rl_orch.errors import BadInput, MissingExtra, NotFound, RunFailed, SpecInvalid
from rl_orch.interactive import frames
from rl_orch.interactive import progress as showing
from rl_orch.interactive.drawing import DrawnCurve, sparkline, svg
from rl_orch.interactive.progress import RunProgress
from rl_orch.interactive.results import TrainingResult
from rl_orch.interactive.runs import Runs
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.records import EventKind, State
from rl_orch.testing import FakeRunner, trains_to

RETURNS = [10.0, 20.0, 30.0]
PATHS: dict[str, Any] = {"eval.episodes": 4, "agent.net_arch": [8]}


def script(directory: RunDir, task: Task) -> int:
    """Tells of two episodes and of a loss, then of the training's end."""
    if task.checkpoint is not None:
        return trains_to(RETURNS)(directory, task)
    with EventWriter(directory.events, run=directory.path.name, attempt=task.attempt) as writer:
        for step in (20, 60):
            tags = {"length": step, "env": 0}
            writer.emit(EventKind.EPISODE, "charts/episodic_return", step / 2, step=step, tags=tags)
        writer.emit(EventKind.METRIC, "losses/policy", 0.25, step=60)
    return trains_to(RETURNS)(directory, task)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home whose runs are functions; those called `broken` fail."""

    def play(directory: RunDir, task: Task) -> int:
        return 1 if directory.path.name.startswith("broken") else script(directory, task)

    monkeypatch.setenv("RLCTL_HOME", str(tmp_path / "home"))
    with plugins.provided("runners", "local", lambda: FakeRunner(play)):
        yield tmp_path / "home"


@pytest.fixture
def trained() -> TrainingResult:
    """A run of one seed."""
    return rl_orch.train("CartPole-v1", "ppo", name="first", total_timesteps=100)


def test_options_go_by_any_name_that_the_spec_knows() -> None:
    result = rl_orch.train(
        "CartPole-v1",
        "ppo",
        total_timesteps=50_000,
        learning_rate=3e-4,
        n_steps=64,
        seed=7,
        obs={"normalize": "running"},
        **PATHS,
    )
    spec = rl_orch.runs.get(result.id).home.show(result.id).spec
    assert (spec.train.total_timesteps, spec.train.lr, spec.rollout.steps) == (50_000, 3e-4, 64)
    assert (spec.env.seed, spec.obs.normalize, spec.eval.episodes) == (7, "running", 4)
    assert spec.agent.network.hidden_sizes == (8,)


def test_what_the_command_line_says_of_options_is_logged_as_warnings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rl_orch.train("CartPole-v1", "ppo", use_sde=True, tau=0.5)
    said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert any(line.startswith("train.tau is 0.5, but ppo does not read it") for line in said)
    assert any(line.startswith("train.use_sde is true, but ppo does not") for line in said)
    assert any(line.startswith("hyperparameters tuned for CartPole-v1") for line in said)


def test_an_unknown_option_raises_with_the_nearest_name() -> None:
    with pytest.raises(SpecInvalid) as refused:
        rl_orch.train("CartPole-v1", totl_timesteps=10, qqq=1)
    first, second = refused.value.problems
    assert (first.path, second.path) == ("totl_timesteps", "qqq")
    assert "total_timesteps" in str(first.hint)
    assert "total_timesteps" in refused.value.__notes__[0]


def test_an_environment_that_is_an_object_is_refused() -> None:
    with pytest.raises(BadInput) as refused:
        rl_orch.train(object(), "ppo")  # type: ignore[arg-type]
    assert refused.value.path == "env.id"


def test_callbacks_are_named_as_the_process_of_a_run_finds_them() -> None:
    class Local:
        """Found by nobody."""

    result = rl_orch.train("CartPole-v1", callbacks=[FakeRunner, "my_callbacks:Mine"])
    named = (f"{FakeRunner.__module__}:FakeRunner", "my_callbacks:Mine")
    assert result.home.show(result.id).spec.train.observers == named
    arguments = {"threshold": 5}
    pairs: list[Any] = [(FakeRunner, arguments), {"name": "m:C", **arguments}, ("m:C", {})]
    result = rl_orch.train("CartPole-v1", callbacks=pairs)
    entries = ({"name": named[0], **arguments}, {"name": "m:C", **arguments}, "m:C")
    assert result.home.show(result.id).spec.train.observers == entries
    single: list[Any] = [FakeRunner, named[1], (FakeRunner, arguments), {"name": named[1]}]
    wanted = (named[0], named[1], {"name": named[0], **arguments}, named[1])
    for callback, entry in zip(single, wanted, strict=True):
        result = rl_orch.train("CartPole-v1", callbacks=callback)
        assert result.home.show(result.id).spec.train.observers == (entry,)
    main = type("Main", (), {"__module__": "__main__"})
    wrong: list[Any] = [[Local], Local, [Local()], Local(), 5, [5], main]
    for callbacks in wrong:
        with pytest.raises(BadInput) as refused:
            rl_orch.train("CartPole-v1", callbacks=callbacks)
        assert refused.value.path == "train.observers"


def test_a_training_in_this_process_finds_callbacks_of_the_notebook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Main(rl_orch.Callback):
        """Defined in a cell."""

        asked = 0

        def __init__(self, spec: Any) -> None:
            Main.asked += 1

    Main.__module__, Main.__qualname__ = "__main__", "Main"
    monkeypatch.setattr(sys.modules["__main__"], "Main", Main, raising=False)
    options: Any = {"total_timesteps": 64, "rollout": {"n_steps": 64}, "eval": {"episodes": 1}}
    result = rl_orch.train("CartPole-v1", "ppo", callbacks=Main, in_process=True, **options)
    assert result.home.show(result.id).spec.train.observers == ("__main__:Main",)
    assert Main.asked


def test_a_single_override_needs_no_list() -> None:
    assert orchestrator.to_spec({"env.id": "CartPole-v1"}, "train.lr=0.5").train.lr == 0.5


def test_the_package_lists_what_it_loads_late() -> None:
    assert {"train", "runs", "load_policy", "Callback", "__version__"} <= {*dir(rl_orch)}


def test_a_result_says_what_became_of_it(trained: TrainingResult) -> None:
    assert (trained.state, trained.succeeded) == (State.SUCCEEDED, True)
    assert trained.eval is not None
    assert trained.eval.mean == 20.0
    assert trained.report is not None
    assert trained.report.returns == tuple(RETURNS)
    assert trained.verdict is None
    assert trained.id in repr(trained)
    assert "ppo on CartPole-v1, succeeded, return 20.00" in repr(trained)
    ElementTree.fromstring(trained._repr_html_())


def test_metrics_are_a_row_for_each_number(trained: TrainingResult) -> None:
    table = trained.metrics()
    assert isinstance(table, pandas.DataFrame)
    assert [*table.columns] == ["run", "seed", "step", "metric", "value"]
    episodes = table[table.metric == "charts/episodic_return"]
    assert [*zip(episodes.step, episodes.value, strict=True)] == [(20, 10.0), (60, 30.0)]
    (row,) = trained.metrics("losses/policy", frame="plain")
    seed = trained.run.seed
    metric = {"metric": "losses/policy", "value": 0.25}
    assert row == {"run": trained.id, "seed": seed, "step": 60} | metric


def test_a_metric_that_nobody_reported_is_refused_with_the_nearest(trained: TrainingResult) -> None:
    with pytest.raises(BadInput, match="'losses/polcy' was reported") as refused:
        trained.metrics("losses/policy", "losses/polcy")
    assert refused.value.hint == "Did you mean losses/policy?"
    with pytest.raises(BadInput) as refused:
        trained.metrics("nosuch")
    assert "charts/episodic_return" in str(refused.value.hint)


def test_a_notebook_shows_a_curve_as_a_picture(trained: TrainingResult) -> None:
    curve = trained.curve()
    assert curve._repr_html_() == svg(curve) != ""
    assert repr(curve) == f"<the curve of {trained.id}, {curve.last_step:,} steps: ▁█>"
    empty = DrawnCurve("<x>", Line())
    assert "no returns yet" in ElementTree.fromstring(empty._repr_html_()).itertext().__next__()


def test_several_seeds_are_one_result() -> None:
    group = rl_orch.train("CartPole-v1", "ppo", name="seeded", seeds=3)
    assert len({run.seed for run in group.runs}) == 3
    assert group.eval is not None
    assert (group.eval.n, group.eval.unit) == (3, "training runs")
    assert {*group.metrics().seed} == {run.seed for run in group.runs}
    assert rl_orch.runs.get("seeded").id == group.id
    with pytest.raises(BadInput, match="a group of 3 runs"):
        _ = group.run
    ElementTree.fromstring(group._repr_html_())


def test_runs_are_compared_in_a_table(trained: TrainingResult, home: Path) -> None:
    rl_orch.train("CartPole-v1", "ppo", name="second", total_timesteps=100, lr=0.5)
    table = rl_orch.runs.compare("first", "second")
    assert [*table["name"]] == ["first", "second"]
    assert [*table["mean"]] == [20.0, 20.0]
    assert table["train.lr"][1] == 0.5
    assert "difference" not in table
    assert {*Runs(home).list(env="CartPole-v1")["name"]} == {"first", "second"}
    with pytest.raises(BadInput, match="two runs or more"):
        rl_orch.runs.compare("first")
    with pytest.raises(NotFound):
        rl_orch.runs.get("third")


FILTERS: list[dict[str, Any]] = [
    {"state": "succeeded"},
    {"state": ["failed", State.SUCCEEDED]},
    {"states": ("succeeded",)},
    {"tag": "kind=a"},
    {"tag": ["kind=a"]},
    {"tags": {"kind": "a"}},
    {"since": "1h"},
    {"since": timedelta(hours=1)},
    {"since": datetime.now() - timedelta(hours=1), "until": None},
    {"since": 0, "env": "CartPole-v1", "algo": "ppo", "name": "tagged"},
]


@pytest.fixture(scope="module")
def tagged_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one run, which has a tag."""
    home = tmp_path_factory.mktemp("tagged")
    with plugins.provided("runners", "local", lambda: FakeRunner(script)):
        rl_orch.train("CartPole-v1", name="tagged", tags={"kind": "a"}, home=home)
    return home


@pytest.mark.parametrize("filters", FILTERS)
def test_runs_are_listed_by_the_filters_of_the_command_line(
    tagged_home: Path, filters: dict[str, Any]
) -> None:
    (row,) = Runs(tagged_home).list(frame="plain", **filters)
    assert row["name"] == "tagged"


@pytest.mark.parametrize(
    "filters", [{"state": "failed"}, {"tag": "kind=b"}, {"until": "1h"}, {"parent": "none"}]
)
def test_runs_that_do_not_match_are_not_listed(tagged_home: Path, filters: dict[str, Any]) -> None:
    assert Runs(tagged_home).list(frame="plain", **filters) == []


@pytest.mark.parametrize(
    ("filters", "hint"),
    [
        ({"stat": "failed"}, "state"),
        ({"state": "suceeded"}, "succeeded"),
        ({"state": 7}, ""),
        ({"tag": "kind"}, ""),
        ({"tag": {"kind": 1}}, ""),
        ({"since": "soon"}, "12h"),
        ({"since": float("nan")}, ""),
        ({"since": [1]}, ""),
        ({"env": 7}, ""),
        ({"limit": "7"}, ""),
    ],
)
def test_a_filter_that_cannot_be_read_is_refused(
    tagged_home: Path, filters: dict[str, Any], hint: str
) -> None:
    with pytest.raises(BadInput) as refused:
        Runs(tagged_home).list(**filters)
    assert hint in str(refused.value.hint)


def test_a_near_miss_of_a_state_is_answered_with_its_word(tagged_home: Path) -> None:
    with pytest.raises(BadInput) as refused:
        Runs(tagged_home).list(state="succeded")
    assert refused.value.hint == "Did you mean 'succeeded'?"


def test_runs_of_any_home_are_found(tagged_home: Path) -> None:
    (row,) = rl_orch.runs.list(home=tagged_home, frame="plain")
    assert rl_orch.runs.get(row["run"], home=tagged_home).run.name == "tagged"
    same = rl_orch.runs.compare("tagged", "tagged", home=tagged_home, frame="plain")
    assert [each["name"] for each in same] == ["tagged"] * 2


def test_groups_are_compared_by_their_difference() -> None:
    for name in ("a", "b"):
        rl_orch.train("CartPole-v1", name=name, seeds=[1, 2])
    rows = rl_orch.runs.compare("a", "b", frame="plain")
    assert [row["difference"] for row in rows] == [None, 0.0]
    assert [row["seeds"] for row in rows] == [2, 2]


def test_groups_of_different_tasks_have_no_difference() -> None:
    rl_orch.train("CartPole-v1", name="a", seeds=[1, 2])
    rl_orch.train("CartPole-v1", name="b", seeds=[1, 2], env_max_episode_steps=100)
    rows = rl_orch.runs.compare("a", "b", frame="plain")
    assert [row["difference"] for row in rows] == [None, None]
    assert [row["env.max_episode_steps"] for row in rows] == [None, 100]


def test_a_metric_that_is_not_there_is_refused() -> None:
    for name in ("a", "b"):
        rl_orch.train("CartPole-v1", name=name)
    with pytest.raises(BadInput, match="metric is 'speed'; the final evaluations have: return"):
        rl_orch.runs.compare("a", "b", metric="speed")


def test_a_run_that_fails_raises_with_the_reason_and_the_next_step() -> None:
    with pytest.raises(RunFailed) as failed:
        rl_orch.train("CartPole-v1", name="broken")
    assert "rlctl logs broken" in str(failed.value.hint)
    result = rl_orch.train("CartPole-v1", name="broken again", raise_on_failure=False)
    assert result.state is State.FAILED
    assert "failed" in repr(result)


def test_frames_are_of_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    columns: dict[str, list[Any]] = {"a": [1, 2], "b": ["x", None]}
    plain = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert frames.framed(columns, "plain") == plain
    installed = {"pandas", "polars"}
    monkeypatch.setattr(frames, "find_spec", lambda name: name in installed or None)
    libraries = {name: SimpleNamespace(DataFrame=lambda _, own=name: own) for name in installed}
    monkeypatch.setattr(frames, "import_module", libraries.get)
    assert frames.framed(columns) == "pandas"
    installed.remove("pandas")
    assert frames.framed(columns) == "polars"
    installed.clear()
    assert frames.framed(columns) == plain
    with pytest.raises(MissingExtra, match="polars is not installed"):
        frames.framed(columns, "polars")
    with pytest.raises(BadInput, match="must be auto, pandas, polars or plain"):
        frames.framed(columns, "arrow")  # type: ignore[arg-type]


def test_a_curve_is_drawn_as_text_and_as_a_picture(trained: TrainingResult) -> None:
    assert sparkline([0.0, 1.0]) == "▁█"
    assert sparkline([]) == ""
    assert len(sparkline([float(n) for n in range(1000)])) == 32
    picture = ElementTree.fromstring(svg(trained.curve()))
    assert picture.find("{http://www.w3.org/2000/svg}polyline") is not None


def test_progress_is_shown_every_now_and_then_and_at_the_end(trained: TrainingResult) -> None:
    run, now, shown = trained.run, [0.0], list[list[str]]()
    active = run.model_copy(update={"state": State.RUNNING, "env_steps": 50})
    watch = RunProgress(lambda runs: shown.append([each.text for each in runs]), lambda: now[0])
    watch(active, [])
    watch(active, [])
    assert len(shown) == 1
    now[0] = 1.0
    watch(active, trained.home.events(run.id).events)
    assert "return 20.00" in shown[-1][0]
    watch(run, [])
    assert "succeeded" in shown[-1][0]


def test_the_kernel_of_a_notebook_is_told_from_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not showing.in_notebook()
    shells: list[Any] = [SimpleNamespace(kernel=None), SimpleNamespace(kernel=object())]
    module = SimpleNamespace(get_ipython=lambda: shells[0])
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert not showing.in_notebook()
    del shells[0]
    assert showing.in_notebook()
