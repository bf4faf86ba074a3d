"""Runs inside the calling process, one after the other: for debuggers, not for production."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from rl_orch.core.ports import Exit, Task
from rl_orch.errors import Warn, unheard
from rl_orch.io.run.directory import RunDir
from rl_orch.rl.engine import resolve_auto
from rl_orch.rl.envs.describe import describe, named, problems
from rl_orch.rl.envs.trial import EnvTrial, try_out
from rl_orch.rl.seeding import rng_state, set_rng_state
from rl_orch.runners.spec_check import heed
from rl_orch.spec.model import Spec
from rl_orch.spec.runner_traits import BUILT_IN
from rl_orch.worker.checks import encoder, warm_start
from rl_orch.worker.evaluate import run_evaluation
from rl_orch.worker.train import run_attempt


class InlineRunner:
    """Carries each task out before `start` returns; a handle is the number of the task."""

    traits = BUILT_IN["inline"]

    def __init__(self) -> None:
        self._exits: list[Exit] = []

    def check(self, spec: Spec, module_path: Sequence[str] = (), warn: Warn = unheard) -> Spec:
        """Make the environment here and look at it."""
        with _undisturbed():
            env = describe(spec)
            spec, warnings = named(spec, env)
            found = problems(spec, env)
            trial = EnvTrial() if found else try_out(spec)
            found += trial.problems
            found += [] if found else encoder.problems(spec)
            found += [] if found else warm_start.problems(spec)
        heed(found, [*warnings, *trial.warnings], warn)
        return resolve_auto(spec, env.leaves, env.action.kind)

    def start(self, directory: Path, task: Task) -> str:
        """Do all of the task's work, then return."""
        run = RunDir(directory, task.spec)
        with _undisturbed():
            if task.checkpoint is None:
                code = run_attempt(run, task.attempt)
            else:
                code = run_evaluation(run, task.checkpoint)
        self._exits.append(Exit(code))
        return str(len(self._exits) - 1)

    def poll(self, handle: str) -> Exit | None:
        """The way the task ended; it always has."""
        known = handle.isdigit() and int(handle) < len(self._exits)
        return self._exits[int(handle)] if known else Exit(None)

    def stop(self, handle: str, *, force: bool) -> None:
        """Do nothing: nothing runs between calls, so there is nothing to stop."""

    def adopt(self, directory: Path) -> str | None:
        """None: nothing outlives `start`."""
        return None

    def sweep(self, directory: Path, *, through: int) -> int:
        """0: nothing is left of what never was a process."""
        return 0


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Give the caller its process-wide generators and torch's threads back as they were."""
    generators, threads = rng_state(), torch.get_num_threads()
    try:
        yield
    finally:
        set_rng_state(generators)
        torch.set_num_threads(threads)
