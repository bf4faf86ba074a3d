"""`python -m rl_orch.worker.train DIRECTORY ATTEMPT`: one attempt at a run, from spec to end.

The run process of a native run: it holds the directory's lock, appends to its event file and obeys
its command socket. Whatever happens, its last event says how it ended.
"""

import sys
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rl_orch import plugins
from rl_orch.errors import Diverged, RlctlError
from rl_orch.io.checkpoints.replay_segments import SegmentStore, allocator
from rl_orch.io.files import private
from rl_orch.io.processes import import_path
from rl_orch.io.processes.signals import hear_signals
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.io.run.heartbeat import Pulse
from rl_orch.io.run.sources import Sources
from rl_orch.records import ClockUnit, EventKind
from rl_orch.rl.compile_time import COMPILING
from rl_orch.rl.envs.state.probe import Proof
from rl_orch.rl.learn.learner import algorithm
from rl_orch.rl.measure.precompile import compile_updates
from rl_orch.rl.train import train
from rl_orch.rl.warm_start import WarmStart
from rl_orch.spec.model import Spec
from rl_orch.worker import log
from rl_orch.worker.attempt.commands import PendingCommands
from rl_orch.worker.attempt.lifecycle import End, carried_out, failure, served, signals_stop
from rl_orch.worker.attempt.live_changes import LiveChanges
from rl_orch.worker.attempt.recorder import FileRecorder
from rl_orch.worker.attempt.start import ResumePoint, exactness, find, meta_of, runtime_fingerprint
from rl_orch.worker.policies.snapshots import warm_start
from rl_orch.worker.warm.precompile import precompiling


def run_attempt(directory: RunDir, attempt: int) -> int:
    """Train in the directory; the exit code is 0 where training ended as it should."""

    pulse = Pulse(attempt)

    def carry_out(beginning: ResumePoint, writer: EventWriter) -> End:
        return TrainingAttempt(directory, attempt, writer, beginning, pulse).carry_out()

    return carried_out(directory, attempt, partial(find, directory, attempt), carry_out, pulse)


@dataclass(frozen=True, slots=True)
class TrainingAttempt:
    """An attempt that knows where it begins."""

    directory: RunDir
    number: int
    writer: EventWriter
    beginning: ResumePoint
    pulse: Pulse

    def carry_out(self) -> End:
        """Carry the attempt out, and return how it ended."""
        beginning = self.beginning
        changes = LiveChanges(self.directory, self.number, beginning.step, beginning.env_steps)
        spec = changes.spec
        where = {"env": spec.env.id, "seed": spec.env.seed, "step": beginning.step}
        log.info("attempt started", attempt=self.number, **where)
        for problem in beginning.passed_over:
            log.warning("checkpoint passed over", why=problem)
        # Before anybody can ask for a change, which is noted in the manifest as well.
        self._tell_clock(algorithm(spec.agent.algorithm).traits.clock)
        orders = PendingCommands(changes)
        stop = partial(orders.give, "stop")
        with signals_stop(stop), served(self.directory, orders.handle):
            folders = [*self.directory.module_path(), *import_path.searched()]
            sources = Sources(spec, folders, beginning.fingerprint)
            fingerprint = runtime_fingerprint(spec, sources)
            proof = exactness(self.directory, spec, beginning, fingerprint)
            sources.take_in_loaded()  # By the probe: from here on, files may be edited.
            meta = meta_of(self.directory, self.number, proof, fingerprint)
            kept = beginning.kept_on(self.directory, proof)
            store = SegmentStore(self.directory.replay, beginning.segments)
            recorder = FileRecorder(
                self.directory,
                spec,
                self.writer,
                orders,
                meta=meta,
                kept=kept,
                store=store,
                changes=changes,
                sources=sources,
                pulse=self.pulse,
            )
            with closing(recorder):
                recorder.tell_exactness(step=beginning.step)
                if beginning.checkpoint is not None:
                    known = beginning.checkpoint
                    recorder.announce(known.path.name, known.step, known.document["meta"])
                start = None
                if beginning.checkpoint is None:
                    start = warm_start(spec, store, home=self.directory.home)
                return self._trained(spec, recorder, proof, start, orders)

    def _tell_clock(self, unit: ClockUnit) -> None:
        """Say what the run counts, where its manifest could not know."""
        if unit != "env_steps":
            self.directory.write_manifest(self.directory.manifest() | {"clock": unit})
            self.writer.emit(EventKind.STATE, "clock", unit, step=self.beginning.step)

    def _trained(
        self,
        spec: Spec,
        recorder: FileRecorder,
        proof: Proof,
        start: WarmStart | None,
        orders: PendingCommands,
    ) -> End:
        COMPILING.on_compile = partial(self._tell_of_compiling, recorder)
        try:
            outcome = train(
                spec,
                recorder,
                resumption=self.beginning.resumption,
                start=start,
                method=proof.method,
                pure_reset=proof.pure_reset,
                allocate=allocator(self.directory.replay, spec.buffer.memory_share),
            )
        except (Exception, SystemExit) as error:
            counts_steps = algorithm(spec.agent.algorithm).traits.clock == "env_steps"
            at = error.step if counts_steps and isinstance(error, Diverged) else 0
            end = failure(error, max(recorder.step, at))
            begins = end.step <= self.beginning.step
            if begins and orders.stopping:  # A helper of the environment may have been, too.
                return End("stopped", end.step, f"stopped as it began; {end.why}")
            return end
        finally:
            recorder.end_changes()
            COMPILING.on_compile = None
        how = "stopped" if outcome.reason == "stopped" else "trained"
        return End(how, outcome.clock.value, outcome.detail)

    def _tell_of_compiling(self, recorder: FileRecorder) -> None:
        """Say it at once: the first update may be a while."""
        is_kept = plugins.part("kernel compiler").note_of("") is not None
        what = "kernels, once on this machine" if is_kept else "kernels"
        step = max(recorder.step, self.beginning.step)
        self.writer.emit(EventKind.LOG, "compiling", what, step=step)
        self.writer.flush()


def main() -> int:
    """Carry the attempt out, or say in the log why it could not even begin."""
    directory = RunDir(Path(sys.argv[1]))
    import_path.search()
    import_path.search(directory.module_path())
    with suppress(RlctlError):  # A spec that cannot be read is for the attempt to tell of.
        directory = directory.opened()
    try:
        private.keep_within(directory.path)
        with _precompiling(directory):
            return run_attempt(directory, int(sys.argv[2]))
    except RlctlError as error:
        log.error(error.message)
        return error.exit_code


def _precompiling(directory: RunDir) -> AbstractContextManager[None]:
    spec = directory.carried_spec
    return nullcontext() if spec is None else precompiling(spec, compile_updates)


if __name__ == "__main__":
    hear_signals()
    log.configure()
    sys.exit(main())
