"""What the registry holds: models, verdicts on them, aliases, and what became of them."""

from typing import Any, Literal

from pydantic import Field

from rl_orch.records.record import Record
from rl_orch.records.reports import Verdict


class ModelVersion(Record):
    """A policy the registry holds; the fields down to `validated` are the columns of `models`.

    `model_path` is its artefact, and `digest` that artefact's; `checkpoint_digest` is that of the
    checkpoint it was sealed from. One of an earlier release that was not used since is a
    checkpoint still. `hyperparams` is its resolved spec, `lineage` what it was made from. While it
    is `retiring`, its files are being deleted. `episodes` is how many its returns are over.
    `aliases` are its names in its environment.
    """

    id: int
    model_path: str
    algorithm: str
    env_id: str
    timestamp: int
    total_timesteps: int | None = None
    mean_reward: float | None = None
    std_reward: float | None = None
    mean_episode_length: float | None = None
    hyperparams: dict[str, Any] | None = None
    git_commit: str | None = None
    validated: bool = False
    run_id: str | None = None
    policy: str = "default"
    verdict: Verdict | None = None
    config_hash: str | None = None
    group: str | None = None
    lineage: dict[str, Any] = Field(default_factory=dict)
    digest: str | None = None
    source: Literal["run", "import"] = "run"
    retiring: bool = False
    episodes: int | None = None
    checkpoint_digest: str | None = None
    aliases: tuple[str, ...] = ()

    @property
    def digests(self) -> tuple[str | None, ...]:
        """The digests under which its files were played: its own, and its checkpoint's."""
        known = (self.digest, self.checkpoint_digest)
        return tuple(each for each in known if each is not None) or (None,)


class StoredVerdict(Record):
    """A verdict in the registry, with the rules that were asked and the report that was read.

    `baseline_id` is the model that the report was compared with, if it was. `digest` and
    `baseline_digest` are of the files that were played, over so many `episodes`.
    """

    id: int
    model_id: int
    baseline_id: int | None = None
    at: float
    passed: bool
    verdict: Verdict
    rules: tuple[dict[str, Any], ...] = ()
    report_path: str | None = None
    report_sha256: str | None = None
    digest: str | None = None
    baseline_digest: str | None = None
    episodes: int | None = None


class Alias(Record):
    """A name for one model of an environment, since when, and by which verdict."""

    env_id: str
    alias: str
    model_id: int
    since: float
    verdict_id: int | None = None


class AliasChange(Record):
    """One line of the audit trail: which model an alias was given, instead of which, by whom."""

    id: int
    env_id: str
    alias: str
    model_id: int | None
    previous_id: int | None
    action: Literal["promote", "rollback", "remove"]
    at: float
    who: str
    reason: str | None = None
    forced: bool = False
    verdict_id: int | None = None


class ModelView(Record):
    """A model with everything that gates have said of it and every change of alias it was in."""

    model: ModelVersion
    verdicts: tuple[StoredVerdict, ...] = ()
    history: tuple[AliasChange, ...] = ()


class RegistryFault(Record):
    """One thing in which the registry and the files do not agree."""

    model_id: int | None
    kind: Literal["missing", "damaged", "changed", "report", "alias", "retiring"]
    sentence: str


class Verification(Record):
    """What a look at every model and its files came to."""

    models: int
    faults: tuple[RegistryFault, ...]

    @property
    def ok(self) -> bool:
        """Whether all of it agrees."""
        return not self.faults


class Retirement(Record):
    """A model that retention lets go of, or leaves, and why."""

    model_id: int
    why: str


class Pruning(Record):
    """What retention has removed, or would if it were no `dry_run`; and what it would have removed
    but for an alias or a run that needs it."""

    removed: tuple[Retirement, ...]
    spared: tuple[Retirement, ...] = ()
    dry_run: bool = False
