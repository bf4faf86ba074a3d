"""`rl_orch.runs`: the runs of a home, found by name and compared as a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.runs.comparison import RETURN, Compared, effects, gathered
from rl_orch.core.runs.groups import RunOrGroup
from rl_orch.errors import BadInput
from rl_orch.interactive.filters import RunFilters, query_of
from rl_orch.interactive.frames import FrameKind, framed
from rl_orch.interactive.results import TrainingResult, result_of
from rl_orch.orchestrator import connect
from rl_orch.records import Evaluation, Group
from rl_orch.spec.difference import differences


class Runs:
    """The runs of a home: RLCTL_HOME, or `./rlruns`, unless another is named, here
    or in a call."""

    def __init__(self, home: str | Path | None = None) -> None:
        self._home = home

    def __repr__(self) -> str:
        return f"<the runs in {self._connected().home}>"

    def get(self, reference: str, *, home: str | Path | None = None) -> TrainingResult:
        """A run or a group, by id, the beginning of one, name, or `last`; as it is now."""
        here = self._connected(home)
        group = here.group(reference)
        members = (here.get(reference),) if group is None else here.group_runs(group.id)
        return result_of(here, members)

    def list(
        self,
        limit: int = 50,
        *,
        frame: FrameKind = "auto",
        home: str | Path | None = None,
        **filters: Unpack[RunFilters],
    ) -> Any:
        """The newest runs, a row each, of those that match every filter, as `rlctl ls` has them.

        `env`, `algo`, `name`, `parent`, `role` and `group` are text; `state` is one or several;
        `tag` is `"name=value"`, several of them or a mapping; `since` and `until` are `"12h"` (so
        long ago), a date and a time, a datetime, a timedelta or seconds since the epoch.
        """
        found = self._connected(home).ls(query_of(limit, filters)).runs
        return framed(_table([RunOrGroup((run,)) for run in found]), frame)

    def compare(
        self,
        *references: str,
        metric: str = RETURN,
        frame: FrameKind = "auto",
        home: str | Path | None = None,
    ) -> Any:
        """Runs or groups side by side, a row each: final returns with their 95 % interval, and
        every option in which their specs differ. Where there are groups, `difference` is the mean
        return less that of the first, with its interval over training runs; None where the two
        play different tasks. `metric` is another number of the final evaluation that all of these
        are of, such as `success_rate`."""
        if len(references) < 2:
            raise BadInput("compare needs two runs or more", hint="runs.compare('first', 'second')")
        here = self._connected(home)
        subjects = [self.get(reference, home=home).subject for reference in references]
        compared = gathered(here, subjects, metric)
        columns = _table(subjects) | _summaries([each.eval for each in compared])
        columns |= _differences(compared) | _options(compared)
        return framed(columns, frame)

    def _connected(self, home: str | Path | None = None) -> Orchestrator:
        return connect(self._home if home is None else home)


runs = Runs()


def _table(subjects: Sequence[RunOrGroup]) -> dict[str, list[Any]]:
    wholes = [subject.whole for subject in subjects]
    columns: dict[str, list[Any]] = {
        "run": [subject.id for subject in subjects],
        "name": [whole.name for whole in wholes],
        "algo": [whole.algo for whole in wholes],
        "env": [whole.env for whole in wholes],
        "state": [str(whole.state) for whole in wholes],
        "seeds": [len(w.seeds) if isinstance(w, Group) else 1 for w in wholes],
        "steps": [whole.env_steps for whole in wholes],
    }
    return columns | _summaries([whole.eval for whole in wholes])


def _summaries(evals: Sequence[Evaluation | None]) -> dict[str, list[Any]]:
    return {
        "mean": [None if seen is None else seen.mean for seen in evals],
        "low": [None if seen is None else seen.ci95[0] for seen in evals],
        "high": [None if seen is None else seen.ci95[1] for seen in evals],
        "n": [None if seen is None else seen.n for seen in evals],
        "unit": [None if seen is None else seen.unit for seen in evals],
    }


def _differences(compared: Sequence[Compared]) -> dict[str, list[Any]]:
    """Mean returns less that of the first, which has none; nothing where all are single runs."""
    apart = effects(compared)
    if not apart:
        return {}
    found = [None, *(effect.found and effect.found.turned for effect in apart)]
    return {
        "difference": [each and each.mean for each in found],
        "difference_low": [each and each.ci95[0] for each in found],
        "difference_high": [each and each.ci95[1] for each in found],
    }


def _options(compared: Sequence[Compared]) -> dict[str, list[Any]]:
    found = differences([each.spec for each in compared])
    if any(each.subject.group for each in compared):
        found.pop("env.seed", None)
    return found
