"""`python -m rl_orch.worker.evaluate DIRECTORY CHECKPOINT`: judge a checkpoint from its files.

A process apart from training: what is evaluated is what was saved, on episodes that training
never used to choose it.
"""

import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import torch

from rl_orch.errors import BadInput, RlctlError, with_place
from rl_orch.io.files import private, sealed
from rl_orch.io.policies.episode_records import read_records, write_records
from rl_orch.io.policies.episode_tables import write_table
from rl_orch.io.processes import import_path
from rl_orch.io.processes.signals import hear_signals
from rl_orch.io.run import events, gate_evidence
from rl_orch.io.run.directory import RunDir, write_text
from rl_orch.io.run.heartbeat import beating
from rl_orch.records import EventKind
from rl_orch.rl.evaluate import Evaluator, extras_of, final_evaluation_seed, report
from rl_orch.spec.model import Spec
from rl_orch.spec.part_traits import engine_traits
from rl_orch.worker import log
from rl_orch.worker.policies.load import opened
from rl_orch.worker.policies.recording import notable
from rl_orch.worker.policies.rendering import prepare
from rl_orch.worker.policies.video import show
from rl_orch.worker.tasks.gather import Judged, gather, said

FINAL = "final"
PROBLEM = "problem.txt"
"""Beside the reports: why there is no final one, in a sentence."""

TELL_EVERY_S = 1.0


def run_evaluation(directory: RunDir, checkpoint: str) -> int:
    """Write `evals/final.json` for a checkpoint of the run, whose directory it holds meanwhile."""
    with directory.locked(), beating(directory.heartbeat):
        problem = directory.report_file(FINAL).with_name(PROBLEM)
        problem.unlink(missing_ok=True)
        gate_evidence.say(directory, None)
        try:
            return _evaluated(directory, checkpoint)
        # An environment is somebody else's code: stepping it may raise anything.
        except (Exception, SystemExit) as error:
            why = said(error) if isinstance(error, RlctlError) else with_place(error)
            with suppress(RlctlError):  # On a full disk, the log has to do.
                write_text(problem, f"{why}\n")
            raise


def _evaluated(directory: RunDir, checkpoint: str) -> int:
    spec = directory.spec()
    has_threads = engine_traits(spec.train.engine).has_threads
    torch.set_num_threads(1 if has_threads else spec.resources.threads)
    if spec.eval.video:
        prepare(spec)
    path = directory.checkpoints / Path(checkpoint).name
    digest = sealed.manifest_digest(path)
    seed, deterministic = final_evaluation_seed(spec), spec.eval.deterministic
    with opened(spec, directory, path) as (policy, step):
        with closing(Evaluator(spec)) as evaluator:
            played = evaluator.play(
                policy,
                episodes=spec.eval.final_episodes,
                seed=seed,
                deterministic=deterministic,
                extras=extras_of(spec.eval.metrics, actions=True),
                tell=_teller(directory, spec.eval.final_episodes),
            )
        gate_evidence.say(directory, None)
        names = {"step": step, "checkpoint": checkpoint, "digest": digest}
        names |= {"env_steps": _env_steps(directory, checkpoint)}
        final = report(played, spec, seed=seed, deterministic=deterministic)
        final = final.model_copy(update=names)
        write_table(directory.episodes_file(FINAL), final)
        write_records(directory.records_file(FINAL), notable(played))
        evidence = None
        wanted = gate_evidence.asked(directory, checkpoint)
        if wanted.anything:
            judged = Judged(directory, path, spec, final, policy)
            evidence = gather(judged, wanted, partial(_tell, directory))
            gate_evidence.say(directory, None)
    gate_evidence.write(directory, FINAL, final, evidence)
    if spec.eval.video:
        _film(directory, spec)
    _tell_of_files(directory, step)
    log.info("checkpoint evaluated", name=checkpoint, mean=f"{final.summary.mean:.2f}")
    return 0


def _env_steps(directory: RunDir, checkpoint: str) -> int | None:
    """Environment steps before a checkpoint, as training's own report on it says."""
    with suppress(RlctlError):
        trained = directory.read_report(Path(checkpoint).name)
        return None if trained is None else trained.env_steps
    return None


def _teller(
    directory: RunDir, episodes: int, now: Callable[[], float] = time.monotonic
) -> Callable[[int], None]:
    """Says now and then, to whoever supervises, how many episodes are done. That this fails never
    costs a verdict."""
    said_at = now()

    def tell(done: int) -> None:
        nonlocal said_at
        if now() - said_at < TELL_EVERY_S:
            return
        said_at = now()
        with suppress(RlctlError, OSError):
            gate_evidence.say(directory, f"{done:,} of {episodes:,} episodes evaluated")

    return tell


def _tell(directory: RunDir, doing: str, _done: float) -> None:
    """Say what is being gathered, to the log and to whoever supervises."""
    log.info("evidence", doing=doing)
    gate_evidence.say(directory, doing)


def _tell_of_files(directory: RunDir, step: int) -> None:
    """Tell of the files of the evaluation. That this fails never costs a verdict."""
    files = {
        "report": directory.report_file(FINAL),
        "episodes": directory.episodes_file(FINAL),
        "video": directory.film_file(f"{FINAL}-best"),
    }
    try:
        with events.appended(directory.events, run=directory.path.name) as writer:
            for key, file in files.items():
                if file.exists():
                    value = file.relative_to(directory.path).as_posix()
                    writer.emit(EventKind.ARTIFACT, key, value, step=step)
    except (RlctlError, OSError) as error:
        log.warning("trackers are not told of the evaluation", why=error)


def _film(directory: RunDir, spec: Spec) -> None:
    """Film the best episode. That there is no film never costs a run its verdict."""
    best = read_records(directory.records_file(FINAL)).get("best")
    try:
        if best is None:
            raise BadInput(
                f"env.backend {spec.env.backend!r} does not say how episodes were seeded"
            )
        show(spec, best, directory.film_file(f"{FINAL}-best"))
    except RlctlError as error:
        log.warning("best episode not filmed", why=error.message)


def main() -> int:
    """Evaluate, or say in the log why not."""
    directory = RunDir(Path(sys.argv[1]))
    import_path.search()
    import_path.search(directory.module_path())
    try:
        private.keep_within(directory.path)
        return run_evaluation(directory, sys.argv[2])
    except RlctlError as error:
        log.error(error.message, **({"hint": error.hint} if error.hint else {}))
        return error.exit_code


if __name__ == "__main__":
    hear_signals()
    log.configure()
    sys.exit(main())
