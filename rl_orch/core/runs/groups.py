"""Groups: runs of one spec with different seeds, folded into one record. Pure; reads nothing."""

import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rl_orch import stats
from rl_orch.errors import Ambiguous
from rl_orch.records import Group, GroupEvaluation, Run, State, Verdicts
from rl_orch.spec.groups import LAST

WORST_FIRST = (State.FAILED, State.STOPPED, State.REJECTED)
"""A group whose runs have all ended is in the first of these states that any of them is in."""

JUDGED = (State.SUCCEEDED, State.REJECTED)
"""The states of a run that has had its final evaluation."""

NAMED = 10
"""How many of those that could be meant an error names."""


@dataclass(frozen=True, slots=True)
class RunOrGroup:
    """A run, or a group and its runs by seed: what a word on a command line may mean."""

    runs: tuple[Run, ...]
    group: Group | None = None

    @property
    def id(self) -> str:
        """The id of the group, or of the one run."""
        return self.runs[0].id if self.group is None else self.group.id

    @property
    def whole(self) -> Run | Group:
        """The group, or the one run."""
        return self.group or self.runs[0]


def of_runs(runs: tuple[Run, ...]) -> RunOrGroup:
    """One run by itself, or those of a group."""
    return RunOrGroup(runs) if runs[0].group is None else RunOrGroup(runs, fold(runs))


def fold(runs: Sequence[Run]) -> Group:
    """The group that some runs make, in the order in which they are given."""
    if not runs or len({run.group for run in runs}) != 1 or runs[0].group is None:
        raise ValueError(f"not the runs of one group: {[(run.id, run.group) for run in runs]}")
    first, verdicts = runs[0], [run.verdict for run in runs if run.verdict is not None]
    return Group(
        id=runs[0].group,
        name=first.name,
        env=first.env,
        algo=first.algo,
        config_hash=first.config_hash,
        state=folded_state([run.state for run in runs]),
        counts=dict(Counter(run.state for run in runs)),
        seeds=tuple(run.seed for run in runs),
        env_steps=sum(run.env_steps for run in runs),
        total_timesteps=sum(run.total_timesteps for run in runs),
        eval=_evaluation(runs),
        verdicts=Verdicts(passed=verdicts.count("passed"), n=len(verdicts)),
        created_at=min(run.created_at for run in runs),
        updated_at=max(run.updated_at for run in runs),
        runs=tuple(run.id for run in runs),
        clock=first.clock,
        asked=max((run.group_size for run in runs if run.group_size is not None), default=None),
    )


def rows(runs: Sequence[Run]) -> list[RunOrGroup]:
    """Runs by themselves and groups of them, in the order of the first of each."""
    members: dict[str, list[Run]] = {}
    for run in runs:
        members.setdefault(run.group or run.id, []).append(run)
    return [of_runs(tuple(sorted(each, key=lambda run: run.seed))) for each in members.values()]


def only(
    reference: str,
    namesakes: Sequence[Run | Group],
    *,
    active: bool = False,
    states: Collection[State] = (),
) -> Run | Group | None:
    """The only one of those that have a name, None if nobody has. Raises if several `candidates`
    could be meant."""
    if reference == LAST:
        return None
    namesakes = candidates(namesakes, active=active, states=states)
    if len(namesakes) > 1:
        named = ", ".join(f"{each.id} ({each.state})" for each in namesakes[:NAMED])
        more = f" and {len(namesakes) - NAMED} more" if len(namesakes) > NAMED else ""
        raise Ambiguous(
            f"{reference!r} could be any of: {named}{more}",
            hint="Name the one that is meant by its id.",
        )
    return namesakes[0] if namesakes else None


def candidates(
    namesakes: Sequence[Run | Group], *, active: bool = False, states: Collection[State] = ()
) -> Sequence[Run | Group]:
    """Those of one name that can be meant, given newest first, as they are.

    Where something `active` is meant, what has ended is not. Where something in one of these
    states is, nothing else is; without any, what is active. The newest, if there is none of them.
    """
    at_work = [each for each in namesakes if each.active]
    if active:
        return at_work or namesakes[:1]
    if states:
        found = [each for each in namesakes if not states_of(each).isdisjoint(states)]
        return found or at_work or namesakes[:1]
    return namesakes


def states_of(subject: Run | Group) -> set[State]:
    """The state of a run, or those of a group's runs."""
    return {subject.state} if isinstance(subject, Run) else {*subject.counts}


def shortfall(group: Group, runs: Sequence[Run]) -> str | None:
    """Sentence on a group with fewer runs than it was to have; None of any other."""
    if not group.is_smaller:
        return None
    spec = shlex.quote(f"{runs[0].path}/spec.yaml")
    return (
        f"{len(runs)} of {group.asked} runs are here: the launcher ended while creating them, or "
        f"others were removed since; to have all: rlctl launch -f {spec} --seeds {group.asked}"
    )


def folded_state(states: Sequence[State]) -> State:
    """State of a group, from those of its runs.

    `queued` while all of them are, `running` while any has yet to end; then `failed` if any failed
    or was lost, `stopped` if any was stopped, `rejected` if any was rejected, and `succeeded` if
    all of them did.
    """
    if set(states) == {State.QUEUED}:
        return State.QUEUED
    ended = {*JUDGED, State.FAILED, State.STOPPED, State.LOST}
    if not ended.issuperset(states):
        return State.RUNNING
    seen = {State.FAILED if state is State.LOST else state for state in states}
    return next((state for state in WORST_FIRST if state in seen), State.SUCCEEDED)


def _evaluation(runs: Sequence[Run]) -> GroupEvaluation | None:
    """The statistics over training runs; a run counts by the mean of its final evaluation.

    None where runs are of different specs: there is nothing that they could be replicates of.
    """
    if len({run.config_hash for run in runs}) > 1:
        return None
    judged = final_returns(runs)
    return stats.summarize_runs(judged) if judged else None


def final_returns(runs: Sequence[Run]) -> list[float]:
    """The mean return of each run that has had its final evaluation."""
    return [run.eval.mean for run in runs if run.eval is not None and run.state in JUDGED]
