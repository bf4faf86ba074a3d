"""Small fakes and things to test with: a clock, a runner whose processes are functions, a spec."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from rl_orch.core.ports import Exit, Task
from rl_orch.core.runs.creation import record
from rl_orch.errors import Warn, unheard
from rl_orch.io.checkpoints import catalog
from rl_orch.io.files import sealed
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.records import EvalReport, EventKind, Run
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.spec.runner_traits import RunnerTraits
from rl_orch.stats import summarize

Script = Callable[[RunDir, Task], int]
"""What a fake run process does in its directory; returns the exit code."""


class FakeClock:
    """A clock that moves when it is told to."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@dataclass(slots=True)
class FakeRunner:
    """A runner whose run processes are functions. They end when `finish` is called, or at once."""

    traits: ClassVar[RunnerTraits] = RunnerTraits(resumes="never")

    script: Script
    at_once: bool = True
    started: list[Task] = field(default_factory=list)
    stopped: list[bool] = field(default_factory=list)
    _processes: dict[str, tuple[RunDir, Task]] = field(default_factory=dict)
    _exits: dict[str, Exit] = field(default_factory=dict)

    def check(self, spec: Spec, module_path: Sequence[str] = (), warn: Warn = unheard) -> Spec:
        """Every spec will do, as it is."""
        return spec

    def start(self, directory: Path, task: Task) -> str:
        """Note the task; its handle is its number."""
        handle = f"fake:{len(self.started)}"
        self.started.append(task)
        self._processes[handle] = (RunDir(directory), task)
        if self.at_once:
            self.finish()
        return handle

    def finish(self, code: int | None = None) -> None:
        """Let every run process run its script and end; a given code ends it without."""
        for handle, (directory, task) in self._processes.items():
            if handle not in self._exits:
                ended = self.script(directory, task) if code is None else code
                self._exits[handle] = Exit(ended)

    def poll(self, handle: str) -> Exit | None:
        """The way the run process ended, once it has."""
        return self._exits.get(handle, None if handle in self._processes else Exit(None))

    def stop(self, handle: str, *, force: bool) -> None:
        """Note that it was asked; a forced run process is gone."""
        self.stopped.append(force)
        if force:
            self._exits.setdefault(handle, Exit(-9))

    def adopt(self, directory: Path) -> str | None:
        """The run process that was started in the directory and has not ended."""
        for handle, (run, _) in self._processes.items():
            if run.path == directory and handle not in self._exits:
                return handle
        return None

    def sweep(self, directory: Path, *, through: int) -> int:
        """End the run processes of the directory; returns how many that was."""
        left = [
            handle
            for handle, (run, task) in self._processes.items()
            if run.path == directory and task.attempt <= through and handle not in self._exits
        ]
        self._exits.update(dict.fromkeys(left, Exit(-9)))
        return len(left)


def a_spec(*overrides: str, env_id: str = "CartPole-v1") -> Spec:
    """A small valid spec."""
    return resolve({"env": {"id": env_id}}, overrides=overrides)


def a_run(folder: Path, *overrides: str) -> Run:
    """The run that a small spec makes in a folder."""
    return record(a_spec(*overrides), run_id="run", path=folder, group=None, made_at=0.0)


def a_report(
    returns: Sequence[float], *, step: int = 100, checkpoint: str | None = None
) -> EvalReport:
    """A report with the given returns, each from an episode of ten steps."""
    return EvalReport(
        env_id="CartPole-v1",
        step=step,
        checkpoint=checkpoint,
        seed=0,
        deterministic=True,
        returns=tuple(returns),
        lengths=(10,) * len(returns),
        summary=summarize(returns),
    )


def seal_checkpoint(directory: RunDir, name: str) -> Path:
    """A checkpoint that nobody can load and everybody can verify."""
    path = directory.checkpoints / name
    data = directory.path.name.encode()
    tensor = {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}
    header = json.dumps({"policies/default/name": tensor}).encode()
    tensors = len(header).to_bytes(8, "little") + header + data
    files = {catalog.TENSORS: tensors, catalog.STATE: b"{}"}
    sealed.write(path, files, noun=catalog.NOUN)
    return path


def trains_to(returns: Sequence[float], *, checkpoint: str = "step_000000000100") -> Script:
    """A script that tells of a training to its end; it evaluates to the given returns."""

    def script(directory: RunDir, task: Task) -> int:
        if task.checkpoint is not None:
            directory.write_report("final", a_report(returns, checkpoint=task.checkpoint))
            return 0
        with EventWriter(directory.events, run=directory.path.name, attempt=task.attempt) as writer:
            writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
            if not (directory.checkpoints / checkpoint).exists():
                seal_checkpoint(directory, checkpoint)
            report = a_report(returns, checkpoint=checkpoint)
            directory.write_report(checkpoint, report)
            summary = report.summary.model_dump(mode="json")
            tags = {"summary": summary, "mean_length": report.mean_length}
            writer.emit(
                EventKind.EVAL, "eval/mean_return", report.summary.mean, step=100, tags=tags
            )
            tags = {"best": True, "evaluated": True, "removed": []}
            writer.emit(EventKind.CHECKPOINT, "saved", checkpoint, step=100, tags=tags)
            writer.emit(EventKind.STATE, "ended", "trained", step=100, tags={"reason": "trained"})
        return 0

    return script
