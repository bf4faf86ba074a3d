"""Requests to the children that load torch or the code of others, and their answers.

One record each way for every task: `core/` asks with it, and `worker/` reads the very same.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rl_orch.errors import Problem
from rl_orch.records.events import Event
from rl_orch.records.record import Record
from rl_orch.records.reports import EvalReport, Evaluation
from rl_orch.records.runs import Run
from rl_orch.spec.model import Spec


class Recorded(BaseModel):
    """An episode that can be driven again: the seed of its reset, and its actions."""

    model_config = ConfigDict(frozen=True)

    number: int
    seed: int
    ret: float
    length: int
    actions: list[Any]


class PolicyFiles(Record):
    """Files of a policy: a checkpoint in the directory of its run, or a bundle and what computes.

    Modules that its spec names are searched for in the folders of `module_path`.
    """

    directory: str = ""
    checkpoint: str = ""
    bundle: str | None = None
    using: str = "torch"
    model: int | None = None
    module_path: tuple[str, ...] = ()


class EvaluateTask(Record):
    """Policies to play over numbered episodes of the same seeds, and how.

    A seed of None is a fresh one, which the report names; without a word on whether actions are
    sampled, the challenger's spec decides.
    """

    challenger: PolicyFiles
    champion: PolicyFiles | None = None
    seed: int | None = None
    deterministic: bool | None = None
    metrics: tuple[str, ...] = ()
    actions: bool = False
    first: int = 0
    episodes: int = 0


class EvaluateAnswer(Record):
    """Reports on the policies that were played, and notable episodes of each."""

    report: EvalReport
    baseline: EvalReport | None = None
    episodes: tuple[tuple[Recorded, ...], ...] = ()


class ExportTask(Record):
    """A policy to write out; `report` is one on it that is in no file yet."""

    source: str
    format: str
    out: str
    module_path: tuple[str, ...] = ()
    int8: bool = False
    rows: int | None = None
    replace: bool = False
    lineage: dict[str, Any] = Field(default_factory=dict)
    report: EvalReport | None = None


class ExportAnswer(Record):
    """An export that was written, and how near its graphs are to torch, by format."""

    path: str
    format: str
    bytes: int
    digest: str | None = None
    eval: Evaluation | None = None
    inputs: tuple[dict[str, Any], ...]
    outputs: tuple[dict[str, Any], ...]
    parity: dict[str, dict[str, Any]]
    int8: dict[str, Any] | None = None


class InferTask(Record):
    """Observations for a policy to act on: a file of them, or one by itself."""

    source: str
    module_path: tuple[str, ...] = ()
    input: str | None = None
    output: str | None = None
    observation: Any = None
    sample: bool = False
    seed: int = 0
    using: str = "torch"


class InferAnswer(Record):
    """Actions of a policy: of one observation, of several, or in a file."""

    rows: int
    action: Any = None
    actions: tuple[Any, ...] | None = None
    path: str | None = None


class FilmTask(Record):
    """An episode to drive again: a recorded one, or that of a number, which is played first."""

    policy: PolicyFiles
    episode: Recorded | None = None
    number: int = 0
    seed: int = 0
    deterministic: bool = True
    film: str | None = None


class FilmAnswer(Record):
    """An episode that was driven again, beside what had been recorded of it."""

    number: int
    seed: int
    ret: float
    length: int
    recorded_return: float
    same: bool
    film: str | None


class ProfileTask(Record):
    """A spec with nothing left open to train for a while; its answer is a `Profile`."""

    spec: Spec
    seconds: float | None = None
    steps: int | None = None


class ReadForeignTask(Record):
    """A file of another library in the folder of the child, and what is known of it."""

    file: str
    called: str
    tensors: str
    algorithm: str | None = None
    normalizer: str | None = None
    normalizer_called: str | None = None


class ReadForeignAnswer(Record):
    """A policy of another library, but for its tensors, which are in a file."""

    format: str
    algorithm: str
    options: dict[str, Any]
    notes: tuple[str, ...]
    step: int
    stretched: dict[str, tuple[float, ...]]
    confined: bool


class FitForeignTask(Record):
    """Tensors under our names to hold against a spec; `out` is for those of the whole policy."""

    spec: Spec
    tensors: str
    out: str
    stretched: dict[str, tuple[float, ...]] = Field(default_factory=dict)


class FitForeignAnswer(Record):
    """Options that were left open, settled; the tensors that the policy begins without; its spaces
    by policy name."""

    settled: dict[str, str]
    missing: tuple[str, ...]
    spaces: dict[str, Any] = Field(default_factory=dict)


class CheckTask(Record):
    """A spec whose environment is to be made, and folders that modules are searched for in."""

    spec: Spec
    module_path: tuple[str, ...] = ()


class CheckAnswer(Record):
    """Problems and warnings that only the environment itself can tell of; and what was left open,
    settled."""

    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    settled: dict[str, str] = Field(default_factory=dict)


class TrackTask(Record):
    """A step of a tracker in a process of its own: for which run, with which events.

    `check` and `open` name it; the run of `close` is the one that has ended, if it has.
    """

    do: Literal["check", "open", "write", "flush", "close"]
    name: str = ""
    run: Run | None = None
    spec: Spec | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    module_path: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()


class TrackAnswer(Record):
    """The word that a step of a tracker is done."""


class DeviceTask(Record):
    """A device that a policy is to live on; None asks which there are."""

    name: str | None = None


class DeviceAnswer(Record):
    """Devices that torch can use, and why not the one that is meant."""

    torch: str
    cuda_build: str | None = None
    cuda: tuple[str, ...] = ()
    mps: bool = False
    problem: str | None = None
