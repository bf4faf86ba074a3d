"""Trackers that need not be installed: in processes of their own, whatever they do there."""

from contextlib import closing
from pathlib import Path

import pytest

from rl_orch.core.runs import tracking
from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.processes.task_worker import TaskEnded
from rl_orch.io.trackers import sink_process
from rl_orch.io.trackers.sink_process import SinkProcess
from rl_orch.records import Event, EventKind, Run
from rl_orch.testing import a_spec
from rl_orch.testing.fakes import a_run

SOURCE = """
import os, pathlib

class T:
    mark = {mark!r}

    def __init__(self, run, spec, options):
        self.folder, self.lines = pathlib.Path(run.path), []

    @staticmethod
    def check(options):
        pass

    def write(self, batch):
        self.lines += [f"{{self.mark}} {{event.seq}}" for event in batch]

    def flush(self):
        once = self.folder / "once"
        if once.exists():
            once.unlink()
            {fails}
        with open(self.folder / "told", "a") as file:
            file.writelines(line + chr(10) for line in self.lines)
        self.lines.clear()

    def close(self, end=None):
        pass
"""


def a_module(folder: Path, mark: str, fails: str = "pass") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "its_tracker.py").write_text(SOURCE.format(mark=mark, fails=fails))
    return folder


def an_event(seq: int) -> Event:
    return Event(
        seq=seq, attempt=1, ts=0.0, run="r", step=seq, kind=EventKind.METRIC, key="k", value=1.0
    )


def a_sink(run: Run, folder: Path) -> SinkProcess:
    return SinkProcess("its_tracker:T", run, a_spec(), {}, [str(folder)])


def made_run(folder: Path) -> Run:
    folder.mkdir()
    return a_run(folder)


def told(run: Run) -> list[str]:
    return (Path(run.path) / "told").read_text().split("\n")[:-1]


def test_runs_have_the_modules_of_their_own_folders(tmp_path: Path) -> None:
    for mark in "ab":
        run = made_run(tmp_path / f"run {mark}")
        with closing(a_sink(run, a_module(tmp_path / mark, mark))) as sink:
            sink.write([an_event(1)])
            sink.flush()
        assert told(run) == [f"{mark} 1"]


@pytest.mark.parametrize(
    ("fails", "raised"),
    [
        ("os._exit(3)", TaskEnded),
        ("raise SystemExit(3)", RlctlError),
        ("raise ValueError", RlctlError),
    ],
)
def test_one_that_dies_or_raises_is_asked_again_and_misses_nothing(
    tmp_path: Path, fails: str, raised: type[Exception]
) -> None:
    run = made_run(tmp_path / "run")
    with closing(a_sink(run, a_module(tmp_path / "a", "a", fails))) as sink:
        sink.write([an_event(1), an_event(2)])
        (Path(run.path) / "once").touch()
        with pytest.raises(raised):
            sink.flush()
        sink.flush()
        sink.write([an_event(3)])
        sink.flush()
    assert told(run) == ["a 1", "a 2", "a 3"]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("its_tracker:T", "import os; os._exit(3)"),
        ("its_tracker:T", "raise SystemExit(3)"),
        ("its_tracker:T", "raise RuntimeError"),
        ("its_tracker:T", "T = 7"),
        ("its_tracker:T", "class T: pass"),
        ("its_tracker:T", "class T:\n    @staticmethod\n    def check(options): raise ValueError"),
        ("its_tracker:Nosuch", "T = 7"),
        ("sys:exit", ""),
    ],
)
def test_what_is_no_tracker_is_refused_whatever_it_does(
    tmp_path: Path, name: str, source: str
) -> None:
    (tmp_path / "its_tracker.py").write_text(source)
    with pytest.raises(BadInput) as refused:
        tracking.check(a_spec(f"store.trackers=['{name}']"), [str(tmp_path)])
    assert refused.value.path == "store.trackers"


def test_one_that_never_returns_is_refused_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_process, "CHECKED_WITHIN_S", 3.0)
    (tmp_path / "its_tracker.py").write_text("import time\nwhile True: time.sleep(1)")
    with pytest.raises(BadInput, match="longer than"):
        sink_process.check("its_tracker:T", {}, [str(tmp_path)])
