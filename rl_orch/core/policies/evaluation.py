"""Evaluations that somebody asks for: of one policy, or of two on the same episodes, which may end
as soon as they are decided. Where they are kept: in `evals/` of the run.
"""

import errno
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from rl_orch import stats
from rl_orch.core.policies.player_pool import (
    EvalResult,
    EvalWorkers,
    FractionCallback,
    joined,
    playing,
    worth,
)
from rl_orch.core.registry.references import PolicySource
from rl_orch.errors import BadInput
from rl_orch.io.machine import hardware
from rl_orch.io.policies import artefacts, bundles
from rl_orch.io.policies.episode_records import write_records
from rl_orch.io.policies.episode_tables import write_table
from rl_orch.io.run.directory import RunDir
from rl_orch.records import Estimate, EvalReport
from rl_orch.records.jobs import EvaluateJob, PairedComparison
from rl_orch.records.tasks import EvaluateTask, PolicyFiles

LOOKS = 5
"""How often a comparison that may end early is looked at."""

FEWEST = 2 * LOOKS
SEED_BITS = 31
TORCH = "torch"
EXPORTS = "exports"
FINAL = "final"
ASKED = re.compile(r"eval-([1-9][0-9]{0,8})\.json")
"""The reports of evaluations that somebody has asked for."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Result of an evaluation, with the comparison if there was one."""

    answer: EvalResult
    comparison: PairedComparison | None = None


def evaluate(
    source: PolicySource, against: PolicySource | None, asked: EvaluateJob, watch: FractionCallback
) -> Evaluated:
    """Play a policy, and another one on the same episodes; fresh ones, if no seed is given."""
    seed = secrets.randbits(SEED_BITS) if asked.seed is None else asked.seed
    task = EvaluateTask(
        challenger=named(source, asked.using),
        champion=None if against is None else named(against),
        seed=seed,
        deterministic=asked.deterministic if asked.using == TORCH else True,
        metrics=asked.metrics,
        actions=True,
    )
    processes = asked.processes or worth(asked.episodes, hardware.cores())
    with playing(processes) as players:
        if asked.sequential and against is not None:
            return _until_decided(players, task, asked, seed, watch)
        answer = players.play(task, 0, asked.episodes, watch)
    return Evaluated(answer, _compared(answer, asked))


def refuse(asked: EvaluateJob) -> None:
    """Raise if what is asked for does not go together."""
    if asked.using != TORCH and asked.deterministic is False:
        raise BadInput(f"--using is {asked.using!r}; graphs are greedy, only torch can sample")
    if asked.sequential and asked.episodes < FEWEST:
        raise BadInput(
            f"--episodes is {asked.episodes}; a comparison that may end early is looked at "
            f"{LOOKS} times, and needs at least {FEWEST}"
        )


def make_room(source: PolicySource, folder: Path | None = None) -> None:
    """Make the folder that `keep` writes into; raise before an episode is played where it could
    not."""
    directory = _directory(source, folder)
    if directory is not None:
        _writable(directory)


def keep(source: PolicySource, result: EvalResult, folder: Path | None = None) -> dict[str, Path]:
    """Write a report, its table and its records: into a folder, or into the run's own under the
    next free name. Nothing, where a policy belongs to no run and no folder is named."""
    directory = _directory(source, folder)
    if directory is None:
        return {}
    with new_files(directory) as (name, files):
        write_table(files["episodes"], result.report)
        write_records(files["records"], result.episodes[0] if result.episodes else {})
        directory.write_report(name, result.report)
    return files


@contextmanager
def new_files(directory: RunDir) -> Iterator[tuple[str, dict[str, Path]]]:
    """The next free name of an evaluation in a directory, and its files; nobody else takes it
    meanwhile."""
    with _alone(_writable(directory)):
        name = _free_name(directory)
        yield (
            name,
            {
                "report": directory.report_file(name),
                "episodes": directory.episodes_file(name),
                "records": directory.records_file(name),
            },
        )


def run_directory(source: PolicySource) -> RunDir | None:
    """The directory of the run that a policy belongs to: of a bundle, if it still is where its
    export has put it."""
    if source.kind == "bundle" and source.path.parent.name != EXPORTS:
        return None
    directory = RunDir(source.path.parents[1])
    known = directory.is_run or source.model is not None
    return directory if known else None


def name_of_newest(source: PolicySource) -> str | None:
    """The evaluation whose episodes are meant if none is named, of this very checkpoint: the final
    one of its run, or else the newest that somebody has asked for."""
    directory = run_directory(source)
    if directory is None:
        return None
    files = (directory.path / "evals").glob("eval-*.json")
    numbers = sorted(int(match[1]) for file in files if (match := ASKED.fullmatch(file.name)))
    names = [FINAL, *(f"eval-{number}" for number in reversed(numbers))]
    return next((name for name in names if _is_of(directory, name, source.path)), None)


def named(source: PolicySource, using: str = TORCH) -> PolicyFiles:
    """A policy as children are told of it."""
    model = None if source.model is None else source.model.id
    if source.kind == "bundle":
        return PolicyFiles(bundle=str(source.path), using=using, model=model)
    if using != TORCH:
        raise BadInput(
            f"--using is {using!r}, but {source.name} is no bundle",
            hint="`rlctl export` makes one; or leave --using out.",
        )
    directory = run_directory(source)
    if directory is None:
        raise BadInput(
            f"{str(source.path)!r} is not in the directory of a run, which says what to play",
            path=str(source.path),
            hint="Name a checkpoint where its run has it: RUN/checkpoints/step_000000100000.",
        )
    return PolicyFiles(
        directory=str(directory.path),
        checkpoint=f"{source.path.parent.name}/{source.path.name}",
        model=model,
        module_path=tuple(source.module_path),
    )


def target_of(source: PolicySource) -> float | None:
    """The return that the gate of a policy's spec asks for."""
    if source.kind == "bundle":
        return bundles.read_spec(source.path).gates.min_return
    return artefacts.spec_of(source.path).gates.min_return


def _is_of(directory: RunDir, name: str, checkpoint: Path) -> bool:
    """Whether an evaluation has recorded episodes of a checkpoint."""
    if not directory.records_file(name).is_file():
        return False
    report = directory.read_report(name)
    return report is not None and Path(report.checkpoint or "").name == checkpoint.name


def _until_decided(
    players: EvalWorkers,
    task: EvaluateTask,
    asked: EvaluateJob,
    seed: int,
    watch: FractionCallback,
) -> Evaluated:
    """Play from look to look, until the test says superior or not."""
    test = stats.plan(asked.episodes, looks=LOOKS, margin=asked.margin)
    parts: list[EvalResult] = []
    played = 0
    for size in test.sizes:

        def heard(done: float, share: int = size - played, before: int = played) -> None:
            watch((before + done * share) / asked.episodes)

        parts.append(players.play(task, played, size - played, heard))
        played = size
        result = joined(parts, seed)
        seen = test.look(_differences(result))
        if seen.decision != "go on":
            break
    ended = replace(result, report=result.report.model_copy(update={"stopping": test.stopping}))
    return Evaluated(ended, _compared(ended, asked, seen))


def _differences(result: EvalResult) -> list[float]:
    assert result.baseline is not None
    pairs = zip(result.report.returns, result.baseline.returns, strict=True)
    return [ours - theirs for ours, theirs in pairs]


def _compared(
    answer: EvalResult, asked: EvaluateJob, seen: stats.Look | None = None
) -> PairedComparison | None:
    if answer.baseline is None:
        return None
    ours, theirs, seed = answer.report.returns, answer.baseline.returns, answer.report.seed
    apart = stats.paired(ours, theirs, seed=seed)
    return PairedComparison(
        mean=apart.mean,
        ci95=apart.ci95 if seen is None else None,
        pairs=apart.n[0],
        improvement=stats.probability_of_improvement(ours, theirs, seed=seed),
        decision=None if seen is None else seen.decision,
        low=None if seen is None else seen.low,
        asked=asked.episodes,
    )


def _directory(source: PolicySource, folder: Path | None) -> RunDir | None:
    return RunDir(folder) if folder is not None else run_directory(source)


def _writable(directory: RunDir) -> Path:
    """The folder of evaluations, made if it is not there."""
    folder = directory.path / "evals"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise BadInput(
            f"evaluations cannot be kept in {str(folder)!r}: {error.strerror}",
            path=str(folder),
            hint="Name a folder that can be written to: --out FOLDER.",
        ) from None
    return folder


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock on a folder of evaluations, so that no two take one name.

    Whoever else keeps an evaluation there waits.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _free_name(directory: RunDir) -> str:
    names = (f"eval-{number}" for number in count(1))
    return next(name for name in names if not directory.report_file(name).exists())


def aggregates(report: EvalReport, target: float | None) -> dict[str, Estimate]:
    """Mean, median, interquartile mean and, against a target return, the optimality gap."""
    return stats.aggregates(report.returns, target=target, seed=report.seed)
