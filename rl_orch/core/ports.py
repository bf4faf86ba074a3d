"""The seams that the orchestrator is extended at: how runs are executed, who plays models for a
gate. Who is told of them is a `Tracker`, in `io/trackers/pump.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rl_orch.errors import Warn, unheard
from rl_orch.io.run.gate_evidence import EvidenceRequest, GateEvidence
from rl_orch.records import EvalReport, ModelVersion
from rl_orch.spec.model import Spec
from rl_orch.spec.runner_traits import RunnerTraits


@dataclass(frozen=True, slots=True)
class Task:
    """Purpose of a run process: training an attempt, or judging a checkpoint.

    `gpus` are the only ones that it may see; None leaves it those that its starter sees. `spec` is
    the run's, where its starter has read it: `RunDir(directory, task.spec)` carries it on.
    """

    attempt: int
    checkpoint: str | None = None
    gpus: tuple[str, ...] | None = None
    spec: Spec | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Exit:
    """End of a run process; the code is None where nobody could see it."""

    code: int | None


class Runner(Protocol):
    """Execution of runs. A handle is an opaque string that outlives this process.

    Its class has the `traits`, so that they are known before there is one.
    """

    @property
    def traits(self) -> RunnerTraits:
        """What it can do, and what it asks for."""

    def check(self, spec: Spec, module_path: Sequence[str] = (), warn: Warn = unheard) -> Spec:
        """Raise if the spec could not be carried out; else what would be, with nothing left open.
        Changes nothing. Modules are searched for in the folders of `module_path` as well; `warn`
        hears of what will surprise."""

    def start(self, directory: Path, task: Task) -> str:
        """Start a run process in the run directory and return its handle."""

    def poll(self, handle: str) -> Exit | None:
        """None while the run process lives, whoever started it."""

    def stop(self, handle: str, *, force: bool) -> None:
        """Ask the run process to end soon, or make it."""

    def adopt(self, directory: Path) -> str | None:
        """The handle of a run process that lives in the directory, though nobody noted it."""

    def sweep(self, directory: Path, *, through: int) -> int:
        """End what is left of the run's attempts up to one; returns how many processes that was."""


class ModelEvaluator(Protocol):
    """Evaluator of models, which plays them anew, apart from any training.

    A gate can then read what came of it.
    """

    def assess(
        self, challenger: ModelVersion, champion: ModelVersion | None, episodes: int
    ) -> tuple[EvalReport, EvalReport | None]:
        """Reports on a model, and on another one over episodes of the same seeds.

        One that has verified every byte of the files it played names their `digest`; whoever
        judges then verifies them no more.
        """

    def gather(
        self, model: ModelVersion, report: EvalReport, wanted: EvidenceRequest
    ) -> GateEvidence:
        """Evidence on a model besides the report on it: champions play the same seeds."""
