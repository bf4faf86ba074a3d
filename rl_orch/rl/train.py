"""The loop: collect → learn → evaluate → save, until budget, gate or command end it.

It tells a `TrainingRecorder` what happened and asks it for commands; files and sockets are behind
that.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch

from rl_orch import stats
from rl_orch.errors import BadInput
from rl_orch.gate import judge, rules_of_reports
from rl_orch.records import Clock, EvalReport, EventKind, Verdict
from rl_orch.rl.collect.collector import build_collector, settle
from rl_orch.rl.compile_time import COMPILING
from rl_orch.rl.data.batch import host_column, on_host, rows_of
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.envs import space_json
from rl_orch.rl.envs.state.capture import Method
from rl_orch.rl.evaluate import Evaluator, evaluation_seed
from rl_orch.rl.learn.engine import engine_for
from rl_orch.rl.learn.learner import Reconfigurable, algorithm, build_learner
from rl_orch.rl.learn.policy_copy import behaviour_state
from rl_orch.rl.metric_reports import MetricReports, chart_of
from rl_orch.rl.named_observers import Observers, observers_of
from rl_orch.rl.observe import Observer, Phase
from rl_orch.rl.policies.policy import (
    POLICY,
    Allocate,
    Setup,
    Traced,
    in_memory,
    load_module,
    module_state,
    untraced,
)
from rl_orch.rl.replay.buffer import segments_in
from rl_orch.rl.seeding import rng_state, seed_all, set_rng_state
from rl_orch.rl.snapshot import Resumption, TrainingSnapshot, assemble, parts_of
from rl_orch.rl.training_recorder import TrainingRecorder
from rl_orch.rl.warm_start import WarmStart, take
from rl_orch.spec.checks import is_learners
from rl_orch.spec.model import Spec

Reason: TypeAlias = Literal["budget", "solved", "gate_failed", "callback", "stopped"]


ASKED: Mapping[str, Any] = {"asked": True}
"""The mark of a snapshot that somebody asked for."""

UNMARKED: Mapping[str, Any] = {}

SEGMENT_BYTES = 32 << 20
"""New experience beyond this is handed over at once, so that no save has much of it to write."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The reason why training ended, and when, with a sentence for people."""

    reason: Reason
    clock: Clock
    detail: str


def train(
    spec: Spec,
    recorder: TrainingRecorder,
    *,
    resumption: Resumption | None = None,
    start: WarmStart | None = None,
    method: Method = "captured",
    pure_reset: bool = True,
    allocate: Allocate = in_memory,
) -> Outcome:
    """Carry out the training that the spec asks for, in a process of its own.

    `method` and `pure_reset` are what `envs.probe` has found out about the environment; `allocate`
    makes the arrays of a replay buffer.
    """
    torch.set_num_threads(spec.resources.threads)
    seed_all(spec.env.seed)
    made = Training(spec, recorder, method=method, pure_reset=pure_reset, allocate=allocate)
    with closing(made) as training:
        if resumption is not None:
            training.resume(resumption)
        elif start is not None:
            training.warm_start(start)
        return training.run()


class Training:
    """A training under way."""

    def __init__(
        self,
        spec: Spec,
        recorder: TrainingRecorder,
        *,
        method: Method = "captured",
        pure_reset: bool = True,
        allocate: Allocate = in_memory,
        clock: Callable[[], float] = COMPILING.training_clock,
        observers: Sequence[Observer] | None = None,
        traced: Traced = untraced,
    ) -> None:
        """Without `observers`, those that the spec names, and the finite checks."""
        self._spec = spec
        self._observers = Observers(observers_of(spec) if observers is None else observers)
        self._recorder = recorder
        self._clock = clock
        self.collector = build_collector(spec, method, traced)
        spaces = (self.collector.observation_space, self.collector.action_space)
        setup = Setup(spec, *spaces, allocate, traced)
        engine = engine_for(setup)
        if engine.traits.has_threads:
            torch.set_num_threads(1)
        self.learner = build_learner(setup)
        self.policy = self.learner.policy
        self.actor = engine.actor(self.policy)
        self._unit = algorithm(spec.agent.algorithm).traits.clock
        self._reports = MetricReports()
        self._evaluator = Evaluator(spec, keep_envs=pure_reset)
        self._rules = rules_of_reports(spec.gates)
        self._ending: Outcome | None = None
        self._failures = 0
        self._called_off: str | None = None
        self._saved_at: tuple[int, int] | None = None
        self._reported_at: int | None = None
        self._took, self._took_steps = 0.0, 0

    @property
    def env_steps(self) -> int:
        """Environment steps taken so far."""
        return self.collector.env_steps

    @property
    def clock(self) -> Clock:
        """How far training is: in what budget, intervals and checkpoints count."""
        return Clock(self._unit, self.step)

    @property
    def step(self) -> int:
        """The reading of the clock."""
        return self.collector.env_steps if self._unit == "env_steps" else self._updates()

    def run(self) -> Outcome:
        """Train until something ends it. Rollouts are whole: the last may pass the budget."""
        while self._goes_on():
            command = self._recorder.command()
            if command is not None:
                self._save(None, ASKED)
            # After the save: whoever goes on from that snapshot makes the change again.
            self._heed_change()
            spec = self._spec
            if command == "stop":
                return self._outcome(
                    "stopped",
                    f"asked to end at step {self.step:,}; a last checkpoint is saved",
                )

            before = self.step
            self.train_step()

            over = self.step >= spec.train.total_timesteps or self._called_off is not None
            due = self._crossed(before, spec.eval.every)
            if over or due:
                self.eval_step(unscheduled=None if due else self._listeners(before))
            elif self._crossed(before, spec.checkpoint.every):
                self._save(None)
        if self._reports:
            self._report()
        budget = Clock(self._unit, self._spec.train.total_timesteps)
        return self._ending or self._outcome("budget", f"trained for its budget of {budget}")

    def resume(self, resumption: Resumption) -> None:
        """Go on as if the snapshot had just been saved."""
        parts = parts_of(resumption.snapshot)
        loop = parts["loop"].document
        load_module(self.policy, parts["policy"], what="policy")
        if self.learner.replay is not None and resumption.replay:
            self.learner.replay.load(parts["replay"], resumption.segments)
        self.learner.load_state(parts["learner"])
        self._reports = MetricReports(loop["reports"])
        begun_anew = self.collector.load_state(parts["collector"])
        self._failures = int(loop["failed_evaluations"])
        self._observers.load_state(loop.get("observers", {}))
        self._called_off = loop.get("called_off")
        self._saved_at = (resumption.snapshot.step, self.env_steps)
        self._reported_at = None if resumption.report is None else resumption.snapshot.step
        # Last: making and driving environments may have drawn from them.
        set_rng_state(parts["rng"])
        if not loop.get("asked"):
            self._tell_saved(replace(resumption.snapshot, unit=self._unit))
        if begun_anew:
            self._recorder.mark_inexact("episodes could not be gone on with", step=self.step)
        if resumption.past_end:
            self._failures, self._called_off = 0, None
        elif resumption.report is not None:
            self._judge(resumption.report)

    def warm_start(self, start: WarmStart) -> None:
        """Begin with the weights of another training, which is not needed any more after this."""
        fitted = take(self.learner, start, self._spec)
        replay = [] if fitted.replay is None else ["replay"]
        told = {"taken": sorted([*fitted.taken, *replay]), "kept": sorted(fitted.kept)}
        self._emit(EventKind.STATE, "start", self._spec.start.digest, tags=told)
        self._save(None)

    def train_step(self) -> dict[str, float]:
        """Collect once and let the learner learn from it."""
        began, before, heard = self._clock(), self.step, self._observers
        self._begin("collect")
        steps = self._spec.rollout.steps
        batch = self.collector.collect(self.learner.behaviour, steps, self._weights)
        for hear in heard.collected:
            hear(batch, self.step)
        self._heed()
        self._begin("update")
        metrics = self.learner.update(batch)
        for hear in heard.updated:
            hear(metrics, self.step)
        self._heed()
        # Only now: actions, log-probabilities and the update must see one normalisation.
        if self._spec.obs.normalize != "none":
            valid = on_host(batch.column("valid"))
            self.policy.pipeline.update(rows_of(host_column(batch.observations), valid))
        self._hand_over(SEGMENT_BYTES)

        for episode in self.collector.drain_episodes():
            tags: dict[str, Any] = {"length": episode.length, "env": episode.env}
            if episode.metrics:
                tags["metrics"] = dict(episode.metrics)
                self._reports.count({chart_of(name): v for name, v in episode.metrics.items()})
            step = episode.step if self._unit == "env_steps" else self.step
            self._emit(EventKind.EPISODE, "charts/episodic_return", episode.ret, step, tags)
        self._reports.add(metrics)
        self._took += self._clock() - began
        self._took_steps += self.step - before
        if self._crossed(before, self._spec.train.report_every):
            self._report()
        return metrics

    def eval_step(self, *, unscheduled: Sequence[str] | None = None) -> dict[str, float]:
        """Evaluate the policy as it is; save it with the report, and hold it against the gate.

        Where only the end brought it, `unscheduled` are the observers that hear of it: a training
        with a larger budget would go on without.
        """
        options = self._spec.eval
        self._begin("evaluate")
        report = self._evaluator.evaluate(
            self.actor,
            episodes=options.episodes,
            seed=evaluation_seed(self._spec),
            deterministic=options.deterministic,
            step=self.step,
        ).model_copy(update={"env_steps": self.env_steps})
        for hear in self._observers.evaluated:
            hear(report, self.step)
        self._heed()
        mean = report.summary.mean
        tags: dict[str, Any] = {
            "summary": report.summary.model_dump(mode="json"),
            "mean_length": report.mean_length,
        }
        tags |= {"cut": report.cut} if report.cut else {}
        estimates = stats.metric_estimates(report.metrics, shares=report.shares, seed=report.seed)
        if estimates:
            tags["metrics"] = {n: each.model_dump(mode="json") for n, each in estimates.items()}
        self._emit(EventKind.EVAL, "eval/mean_return", mean, tags=tags)
        for name, estimate in estimates.items():
            self._emit(EventKind.METRIC, f"eval/{name}", estimate.value)
        self._save(report, {} if unscheduled is None else {"unscheduled": [*unscheduled]})
        self._judge(report)
        return {"eval/mean_return": mean, "eval/mean_length": report.mean_length}

    def snapshot(self, marks: Mapping[str, Any] = UNMARKED) -> TrainingSnapshot:
        """Everything training remembers now; copies. `marks` tell what it was made for."""
        self._hand_over(0)
        own = {
            "failed_evaluations": self._failures,
            "reports": self._reports.document(),
            "spaces": {POLICY: space_json.of_policy(self.policy)},
            **marks,
        }
        if self._observers.named:
            own |= {"observers": self._observers.state()}
        own |= {"called_off": self._called_off} if self._called_off is not None else {}
        buffer = self.learner.replay
        replay = StateTree({}, {"size": 0, "segments": []}) if buffer is None else buffer.state()
        parts = {
            "policy": module_state(self.policy),
            "learner": self.learner.state(),
            "collector": self.collector.state(),
            "replay": replay,
            "rng": rng_state(),
            "loop": StateTree({}, own),
        }
        return assemble(parts, clock=self.clock, segments=segments_in(replay))

    def close(self) -> None:
        """Close all environments."""
        self._evaluator.close()
        self.collector.close()

    def _goes_on(self) -> bool:
        """Whether there is more to train, also by a budget that was set in the last iteration."""
        if self._ending is None and self.step >= self._spec.train.total_timesteps:
            self._heed_change()
        return self._ending is None and self.step < self._spec.train.total_timesteps

    def _heed_change(self) -> None:
        """Go on by other options, with other weights, if somebody wants that."""
        if (change := self._recorder.change(self.step, self.env_steps)) is None:
            return
        if change.options:
            self._spec, self._rules = change.spec, rules_of_reports(change.spec.gates)
            if isinstance(self.learner, Reconfigurable):
                self.learner.reconfigure(change.spec)
            elif unread := [path for path in change.options if is_learners(path)]:
                name = change.spec.agent.algorithm
                raise BadInput(f"{name} cannot change {unread[0]} as it learns", path=unread[0])
            self._observers.reconfigure(change.spec)
            self._emit(EventKind.STATE, "set", None, tags={"set": dict(change.options)})
        if change.loads:
            settle(self.collector)
        for load in change.loads:
            if (told := load(self.learner)) is not None:
                self._emit(EventKind.STATE, "load", told["digest"], tags=told)

    def _updates(self) -> int:
        learner: Any = self.learner  # One that counts them, as its traits say.
        return int(learner.updates)

    def _begin(self, phase: Phase) -> None:
        if phase in ("evaluate", "save"):
            settle(self.collector)
        for hear in self._observers.before:
            hear(phase, self.step)

    def _heed(self) -> None:
        """Do what callbacks have asked for: report metrics, and end after the next evaluation."""
        for name, asked in self._observers.requests() if self._observers.named else ():
            for key, value in asked.metrics:
                self._emit(EventKind.METRIC, key, value)
            if asked.stop is not None and self._called_off is None:
                self._called_off = f"{name} ended it at step {self.step:,}: {asked.stop}"

    def _weights(self) -> StateTree:
        return behaviour_state(self.learner)

    def _hand_over(self, least_bytes: int) -> None:
        """Give new experience to the recorder, once there is more of it than that."""
        replay = self.learner.replay
        if replay is None or replay.unsealed_bytes <= least_bytes:
            return
        segment = replay.seal()
        if segment is not None:
            self._recorder.add_segment(segment)

    def _report(self) -> None:
        """Emit what the updates since the last report were like, and how fast they came."""
        for key, value in self._reports.drain().items():
            self._emit(EventKind.METRIC, key, value)
        if self._took_steps:
            steps_per_second = self._took_steps / max(self._took, 1e-9)
            self._emit(EventKind.LOG, "charts/SPS", round(steps_per_second, 1))
        self._took, self._took_steps = 0.0, 0

    def _judge(self, report: EvalReport) -> None:
        """Hold a saved evaluation against the gate, which may end the training.

        After the save: whoever goes on from that snapshot does this again.
        """
        verdict = judge(report, None, self._rules, env_steps=self.env_steps)
        failed = verdict is not None and not verdict.passed
        self._failures = self._failures + 1 if failed else 0
        self._ending = None if verdict is None else self._ended_by(verdict)
        if self._ending is None and self._called_off is not None:
            self._ending = self._outcome("callback", self._called_off)

    def _ended_by(self, verdict: Verdict) -> Outcome | None:
        gates, step = self._spec.gates, self.step
        if verdict.passed:
            if not gates.stop_when_solved:
                return None
            return self._outcome("solved", f"solved at step {step:,}")
        if gates.patience is None or self._failures < gates.patience:
            return None
        why = next(check.sentence for check in verdict.checks if not check.passed)
        return self._outcome(
            "gate_failed",
            f"{self._failures} evaluations in a row failed the gate; at step {step:,}, {why}",
        )

    def _listeners(self, before: int) -> list[str]:
        """The observers that hear more of an evaluation than of the save that is due, if any."""
        hooks = ["before", "evaluated"]
        if not self._crossed(before, self._spec.checkpoint.every):
            hooks.append("saved")
        return self._observers.hearing(*hooks)

    def _crossed(self, before: int, every: int | None) -> bool:
        """Whether this iteration reached or passed a multiple of `every`."""
        return every is not None and before // every < self.step // every

    def _save(self, report: EvalReport | None, marks: Mapping[str, Any] = UNMARKED) -> None:
        """Save what has come since the last save: a snapshot without a report never takes the place
        of one with it, but may take that of another, where a clock of updates stands still.

        Observers do not hear of one that was asked for: undisturbed, it would not be made.
        """
        reading = (self.step, self.env_steps)
        if report is None and (self._saved_at == reading or self._reported_at == self.step):
            return
        if marks is ASKED:
            settle(self.collector)
        else:
            self._begin("save")
            self._heed()
        snapshot = self.snapshot(marks)
        why = snapshot.document["trainer_state"]["collector"]["envs"]["why"]
        if why is not None:
            self._recorder.mark_inexact(why, step=self.step)
        for name in self._observers.forgetful() if self._observers.named else ():
            why = f"the observer {name} remembers something, and has no state() and load_state()"
            self._recorder.mark_inexact(why, step=self.step)
        self._recorder.save(snapshot, report)
        self._saved_at = reading
        self._reported_at = self._reported_at if report is None else self.step
        if marks is not ASKED:
            self._tell_saved(snapshot)

    def _tell_saved(self, snapshot: TrainingSnapshot) -> None:
        """After the snapshot, which knows nothing of it: who goes on from it does this again."""
        for hear in self._observers.saved:
            hear(snapshot, snapshot.step)
        if self._observers.named:
            self._observers.refuse_requests()

    def _emit(
        self,
        kind: EventKind,
        key: str,
        value: Any,
        step: int | None = None,
        tags: dict[str, Any] | None = None,
    ) -> None:
        self._recorder.emit(kind, key, value, step=self.step if step is None else step, tags=tags)

    def _outcome(self, reason: Reason, detail: str) -> Outcome:
        return Outcome(reason, self.clock, detail)
