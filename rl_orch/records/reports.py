"""Numbers with their intervals, reports of evaluations, and what a gate says of them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from pydantic import Field

from rl_orch.records.record import Record

SUCCESS = "success_rate"
"""The metric of `info["is_success"]`: 1 for an episode that succeeded, else 0."""

SUCCESS_KEYS = ("is_success", "success")
"""Keys of info that say whether an episode succeeded."""

REWARD = "reward_"
"""How the names of reward terms begin, each summed over an episode."""

TERMS = "reward_terms"
"""The key of info with a dict of reward terms, each of which is a metric."""


def info_metric(key: str) -> str:
    """The name of the metric of a key of info."""
    return SUCCESS if key in SUCCESS_KEYS else key


def reward_term(name: str) -> str:
    """The name of the metric of a reward term."""
    return name if name.startswith(REWARD) else f"{REWARD}{name}"


def table_of(
    rows: Sequence[Mapping[str, float]], asked: Collection[str] = ()
) -> dict[str, tuple[float, ...]]:
    """The metrics of some episodes by name, where all of them have one.

    An episode that says nothing of success has none, and a reward term that it lacks is zero;
    but a key that was `asked` for has no value where it was not given.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        filled = name not in asked and (name == SUCCESS or name.startswith(REWARD))
        if filled or all(name in row for row in rows):
            columns[name] = tuple(row.get(name, 0.0) for row in rows)
    return columns


class Evaluation(Record):
    """The numbers of an evaluation: `ci95` bounds the mean; `unit` is what was replicated."""

    mean: float
    std: float
    iqm: float
    ci95: tuple[float, float]
    n: int
    unit: Literal["episodes", "training runs"] = "episodes"


class GroupEvaluation(Evaluation):
    """The numbers of a group: each replicate is the mean return of one training run.

    `ci95` bounds the mean, `iqm_ci95` the interquartile mean.
    """

    unit: Literal["training runs"] = "training runs"
    iqm_ci95: tuple[float, float]


class Estimate(Record):
    """A number made from a sample, and its 95 % interval."""

    value: float
    ci95: tuple[float, float]


class Stopping(Record):
    """How a comparison may end before its last pair of episodes: looks at equal distances, up to
    `n_max` pairs, and the chance `alpha` of a false promotion over all of them."""

    n_max: int
    looks: int
    alpha: float
    margin: float = 0.0


class Parity(Record):
    """How an exported policy compares with the one that it was made from, on `n` observations."""

    format: str
    n: int
    largest_difference: float
    passed: bool


class EvalReport(Record):
    """What an evaluation of one policy found, episode by episode.

    `seeds` are those of the episodes' resets, in the order of the returns; `metrics` are further
    numbers of each episode, by name. `model` names the policy among all: a model version, a run, a
    path; `digest` is that of the files that were played. `stopping` says that the episodes went on
    only until a comparison was decided; `cut`, how many the evaluation's own limit has ended.
    `shares` are metrics that were true or false in each episode, besides success.
    `missing` says of keys of info that were asked for why there is no metric of them.
    `step` is what the run counts; `env_steps`, where they are known, what it was trained for.
    """

    env_id: str
    policy: str = "default"
    step: int
    checkpoint: str | None = None
    seed: int
    deterministic: bool
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    summary: Evaluation
    seeds: tuple[int, ...] = ()
    metrics: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    shares: tuple[str, ...] = ()
    model: str | None = None
    digest: str | None = None
    stopping: Stopping | None = None
    cut: int = 0
    missing: dict[str, str] = Field(default_factory=dict)
    env_steps: int | None = None

    @property
    def trained_steps(self) -> int:
        """Environment steps that the policy was trained for."""
        return self.step if self.env_steps is None else self.env_steps

    @property
    def cut_sentence(self) -> str | None:
        """The episodes that the evaluation's own limit has ended, where it did."""
        if not self.cut:
            return None
        return (
            f"{self.cut} of {len(self.returns)} episodes were cut after {max(self.lengths):,} steps"
        )

    @property
    def mean_length(self) -> float:
        """The mean episode length in environment steps."""
        return sum(self.lengths) / len(self.lengths)


class Check(Record):
    """One rule of a gate and how the report stood against it."""

    rule: str
    passed: bool
    observed: float | None
    limit: float | None
    sentence: str


class Verdict(Record):
    """What a gate says of a report; it passed only if every check did."""

    passed: bool
    checks: tuple[Check, ...]

    @property
    def word(self) -> Literal["passed", "failed"]:
        """The verdict as the one word that every surface shows."""
        return "passed" if self.passed else "failed"


class Verdicts(Record):
    """How many of the runs that were judged have passed their gate."""

    passed: int
    n: int
