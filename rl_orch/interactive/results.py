"""`TrainingResult`: a run, or a group of seeds, with its numbers, its curve and its policy."""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from rl_orch import plugins
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.runs import curves
from rl_orch.core.runs.groups import RunOrGroup, of_runs
from rl_orch.errors import BadInput, RlctlError, RunFailed
from rl_orch.interactive.drawing import DrawnCurve, sparkline, svg
from rl_orch.interactive.frames import FrameKind, framed
from rl_orch.io.metrics import series
from rl_orch.records import EvalReport, Evaluation, Run, RunView, State, Verdict
from rl_orch.stats.text import bounds_text, figure

LEAST_POINTS = 5
FAILED = (State.FAILED, State.LOST)


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """A run, or the runs of one spec with several seeds, as they were when it was asked for."""

    home: Orchestrator
    subject: RunOrGroup

    @property
    def id(self) -> str:
        """The id of the run, or of the group."""
        return self.subject.id

    @property
    def run(self) -> Run:
        """The one run; an error where there are several seeds."""
        if self.subject.group is not None:
            raise BadInput(
                f"{self.id} is a group of {len(self.runs)} runs", hint="`runs` has each of them."
            )
        return self.runs[0]

    @property
    def runs(self) -> tuple[Run, ...]:
        """Every run, by seed."""
        return self.subject.runs

    @property
    def state(self) -> State:
        """What has become of it: succeeded, rejected by its gate, stopped, failed, lost; or what
        it is doing."""
        return self.subject.whole.state

    @property
    def succeeded(self) -> bool:
        """Whether every run was trained and passed every gate that was set."""
        return all(run.state is State.SUCCEEDED for run in self.runs)

    @property
    def eval(self) -> Evaluation | None:
        """The final evaluation: over episodes, or over training runs where there are several."""
        return self.subject.whole.eval

    @property
    def report(self) -> EvalReport | None:
        """The final evaluation of the one run, episode by episode."""
        return self._view(self.run).report

    @property
    def verdict(self) -> Verdict | None:
        """The gate's verdict on the one run; None if no gate was set."""
        models = self._view(self.run).models
        return next((model.verdict for model in models if model.id == self.run.model_id), None)

    def metrics(self, *keys: str, points: int | None = None, frame: FrameKind = "auto") -> Any:
        """Every number that was reported, or those of some keys, such as `charts/episodic_return`.

        A row for each: run, seed, step, metric, value. With `points`, each curve is thinned to so
        many, peaks kept. A key that no run has reported raises, with the nearest that is there.
        """
        counts = [_counts(Path(run.path)) for run in self.runs]
        _refuse_unknown(keys, {key for each in counts for key in each})
        names = ("run", "seed", "step", "metric", "value")
        columns: dict[str, list[Any]] = {name: [] for name in names}
        for run, reported in zip(self.runs, counts, strict=True):
            for curve in _curves(Path(run.path), keys, points, reported):
                count = len(curve.steps)
                columns["run"] += [run.id] * count
                columns["seed"] += [run.seed] * count
                columns["step"] += curve.steps
                columns["metric"] += [curve.key] * count
                columns["value"] += curve.values
        return framed(columns, frame)

    def policy(self, *, seed: int = 0) -> Any:
        """The policy that was evaluated last, or saved last, as `rl_orch.load_policy` has it."""
        loading: Any = plugins.part("policy loading")
        return loading.load_policy(self.run, home=self.home.home, seed=seed)

    def raise_if_failed(self) -> None:
        """Raise `RunFailed`, with the reason and what to do next, if a run failed or was lost."""
        failed = [run for run in self.runs if run.state in FAILED]
        if not failed:
            return
        first = failed[0]
        others = "" if len(failed) == 1 else f" (and {len(failed) - 1} more of its group)"
        raise RunFailed(
            f"run {first.id} {_ended(first)}{others}",
            hint=f"`rlctl logs {first.id}` has what it printed; once it is mended, "
            f"{self._way_on(first)}. `raise_on_failure=False` returns the result instead.",
        )

    def _way_on(self, run: Run) -> str:
        """What to do once the cause of a failure is mended."""
        with suppress(RlctlError, OSError):  # Its directory may be gone.
            if self._view(run).fails_again:
                return "train anew"
        return (
            f"`orchestrator.resume({run.id!r})` goes on from its newest checkpoint, if there is one"
        )

    def curve(self) -> DrawnCurve:
        """Returns over steps; of several seeds, their mean with its 95 % interval. A notebook shows
        it as a picture."""
        if self.subject.group is None:
            return DrawnCurve.of(curves.of_run(self.home.history(self.id), self.id))
        return DrawnCurve.of(curves.of_group(self.runs, self.home.history, self.id))

    def __repr__(self) -> str:
        bars = sparkline(self._drawn_returns())
        return f"<{self._sentence}{'; ' if bars else ''}{bars}>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(n)}</th><td>{escape(v)}</td></tr>" for n, v in self._rows)
        return f"<div><table>{rows}</table>{svg(self._drawn())}</div>"

    @property
    def _sentence(self) -> str:
        whole, kind = self.subject.whole, "run" if self.subject.group is None else "group"
        return f"{kind} {self.id}: {whole.algo} on {whole.env}, {_said(whole.eval, self.state)}"

    @property
    def _rows(self) -> Iterator[tuple[str, str]]:
        whole = self.subject.whole
        yield ("run" if self.subject.group is None else "group"), self.id
        yield "learns", f"{whole.algo} on {whole.env}"
        yield "state", "; ".join(dict.fromkeys(_ended(run) for run in self.runs))
        yield "steps", f"{whole.env_steps:,} of {whole.total_timesteps:,}"
        if self.eval is not None:
            yield "return", _return_text(self.eval)

    def _drawn(self) -> curves.Curve:
        try:
            return self.curve()
        except (OSError, BadInput):  # Its files are gone; what it was stays.
            return curves.Curve(self.id, curves.Line())

    def _drawn_returns(self) -> Sequence[float]:
        return self._drawn().training.returns

    def _view(self, run: Run) -> RunView:
        return self.home.show(run.id, checkpoints=False)


def result_of(home: Orchestrator, runs: Sequence[Run]) -> TrainingResult:
    """The result of one run, or of those of a group."""
    return TrainingResult(home, of_runs(tuple(sorted(runs, key=lambda run: run.seed))))


def _counts(path: Path) -> dict[str, int]:
    """How often each key was reported by a run."""
    return {each.key: each.count for each in series.keys_of_run(path)}


def _curves(
    path: Path, keys: Sequence[str], points: int | None, counts: Mapping[str, int]
) -> Iterator[series.Series]:
    """The curves of a run, whole or thinned; one at a time, since an answer has its limits."""
    for key in keys or counts:
        if key in counts:
            yield from series.of_run(path, [key], points or max(counts[key], LEAST_POINTS))


def _refuse_unknown(keys: Sequence[str], known: Collection[str]) -> None:
    """Raise if a key was not reported, though others were."""
    unknown = [key for key in keys if key not in known]
    if not unknown or not known:
        return
    near = difflib.get_close_matches(str(unknown[0]), known, n=3, cutoff=0.5)
    hint = (
        f"Did you mean {' or '.join(near)}?" if near else f"There are {', '.join(sorted(known))}."
    )
    raise BadInput(f"no metric {unknown[0]!r:.100} was reported", hint=hint)


def _said(evaluation: Evaluation | None, state: State) -> str:
    return str(state) if evaluation is None else f"{state}, return {_return_text(evaluation)}"


def _return_text(evaluation: Evaluation) -> str:
    bounds = bounds_text(evaluation.ci95)
    return f"{figure(evaluation.mean)} {bounds}, n = {evaluation.n} {evaluation.unit}"


def _ended(run: Run) -> str:
    return f"{run.state}: {run.reason}" if run.reason else str(run.state)
