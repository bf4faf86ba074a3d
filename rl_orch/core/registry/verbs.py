"""The verbs of the registry: list, show, validate, verify, promote, rollback, unalias, prune.

`client.models.RemoteModels` has the same ones over HTTP. What is allowed is decided in
`promotion.py`; what is written, in `models.py`, `aliases.py` and `model_retention.py`.
"""

from dataclasses import replace
from pathlib import Path
from typing import Protocol

from rl_orch.core.ports import ModelEvaluator
from rl_orch.core.registry import integrity, judging, promotion, references
from rl_orch.core.registry.aliases import LONGEST_REASON, Aliases, Change, returns_to
from rl_orch.core.registry.judging import ValidationRequest
from rl_orch.core.registry.model_retention import Retention, RetentionLimits
from rl_orch.core.registry.models import Registry, at_work
from rl_orch.core.registry.promotion import PromotionRule
from rl_orch.core.registry.references import KnowsRuns, PolicySource
from rl_orch.core.registry.sealing import as_artefact
from rl_orch.core.store.runs import Store
from rl_orch.errors import BadInput, Conflict, NotFound
from rl_orch.io.policies import artefacts
from rl_orch.io.processes.pids import somebody
from rl_orch.records import (
    Alias,
    AliasChange,
    ModelVersion,
    ModelView,
    Pruning,
    StoredVerdict,
    Verification,
)
from rl_orch.records.queries import ModelQuery, Query

EPISODES = 100
"""How many episodes a comparison plays, each model as many."""

FEWEST = 10
"""How few episodes may be asked for: fewer bound nothing."""


class RegistryHost(KnowsRuns, Protocol):
    """The verbs of runs, as far as the registry needs them."""

    @property
    def store(self) -> Store:
        """The database."""

    @property
    def exists(self) -> bool:
        """Whether there is a database yet."""


class ModelVerbs:
    """Operations on the models of one home."""

    def __init__(self, home: RegistryHost, assess: ModelEvaluator) -> None:
        self._home = home
        self._assess = assess

    def list(self, query: ModelQuery | None = None) -> tuple[ModelVersion, ...]:
        """The models that a query asks for."""
        if not self._home.exists:
            return ()
        return tuple(self._registry.find(query or ModelQuery()))

    def environments(self) -> tuple[str, ...]:
        """The environments that have a validated model, by name."""
        return tuple(self._registry.environments()) if self._home.exists else ()

    def get(self, reference: str | int, *, only_run: bool = False) -> ModelVersion:
        """The model meant by an id, an alias, `best@ENV` or a run; with `only_run`, of a name that
        no other run has."""
        if not self._home.exists:
            raise NotFound(f"no model {reference!r}: there are none here yet")
        if isinstance(reference, int):
            return self._registry.get(reference)
        return references.model(self, self._home, reference, only_run=only_run)

    def show(self, reference: str | int) -> ModelView:
        """A model with all verdicts on it and every change of its aliases."""
        model = self.get(reference)
        return ModelView(
            model=model,
            verdicts=tuple(self._registry.verdicts_on(model.id)),
            history=tuple(self._aliases.history(model_id=model.id)),
        )

    def aliases(self, *, env: str | None = None, alias: str | None = None) -> tuple[Alias, ...]:
        """The aliases that match."""
        return tuple(self._aliases.find(env=env, alias=alias)) if self._home.exists else ()

    def history(
        self, *, env: str | None = None, alias: str | None = None
    ) -> tuple[AliasChange, ...]:
        """Every change of an alias that matches, the newest first."""
        return tuple(self._aliases.history(env=env, alias=alias)) if self._home.exists else ()

    def validate(
        self,
        reference: str | int,
        *,
        min_return: float | None = None,
        episodes: int | None = None,
        fresh: bool = False,
    ) -> StoredVerdict:
        """Hold a model against the gate of its spec, and keep the verdict.

        The report is that of the final evaluation, if it was of this model; else, or where it is
        to be `fresh` or over so many episodes, the model is played anew by a process of its own.
        """
        _refuse_few(episodes)
        model = self.get(reference)
        self._refuse_at_work(model)
        self._home.store.refuse_unwritable()
        model = as_artefact(self._home.store, model)
        request = ValidationRequest(min_return, episodes, fresh)
        return judging.validate(self._registry, self._assess, model, request)

    def verify(self, *, env: str | None = None) -> Verification:
        """Faults of the registry's files by name, missing or changed."""
        if not self._home.exists:
            return Verification(models=0, faults=())
        return integrity.verify(self._home.store, env)

    def promote(
        self,
        reference: str | int,
        to: str,
        *,
        env: str | None = None,
        force: bool = False,
        reason: str | None = None,
        allow_equal: bool = False,
        margin: float = 0.0,
        episodes: int | None = None,
        who: str | None = None,
    ) -> AliasChange:
        """Give a model an alias, if it passed its gate and beats the holder.

        The holder is who has the alias now. By force neither is asked, but a reason is, and both
        stay in the history.
        """
        model = self.get(reference, only_run=True)
        alias, named = references.place_of(to, env)
        self._refuse_name_as_alias(alias)
        source = PolicySource(Path(model.model_path), "checkpoint", model)
        references.refuse_other_env(
            self, source, named, lambda word, env: f"rlctl promote {word} --to {alias}@{env}"
        )
        rule = PromotionRule(alias, allow_equal, margin)
        _refuse_reason(reason, needed=force, margin=margin)
        _refuse_few(episodes)
        if margin and not allow_equal:
            raise BadInput("margin is about not being worse", hint="Add --allow-equal.")
        seen = self._aliases.holder(model.env_id, alias)
        asked = Change(model.env_id, alias, model.id, seen, "promote", who or somebody(), reason)
        if seen == model.id:
            raise Conflict(f"model {model.id} is {asked.place} already")
        self._refuse_at_work(model)
        self._home.store.refuse_unwritable()
        model = as_artefact(self._home.store, model)
        if force:
            artefacts.verify(Path(model.model_path))
            return self._aliases.change(replace(asked, forced=True))
        verdict_id = self._deserved(model, asked, rule, episodes or EPISODES)
        return self._aliases.change(replace(asked, verdict_id=verdict_id))

    def rollback(
        self,
        alias: str,
        *,
        env: str | None = None,
        reason: str | None = None,
        who: str | None = None,
    ) -> AliasChange:
        """Give an alias back to the last model before that is still there."""
        taken = self._taking(alias, env, reason, who)
        changes = self._aliases.history(env=taken.env_id, alias=taken.alias)
        before = returns_to(reversed(changes), self._is_there)
        if before is None:
            raise Conflict(
                f"nobody who is still there was {taken.place} before model {taken.previous_id}",
                hint=f"rlctl registry history {taken.place}",
            )
        mine = (change for change in changes if change.model_id == before)
        then = next(change for change in mine if change.action == "promote")
        if then.forced:
            why = f"forced before: {then.reason}"
            reason = why if reason is None else f"{reason}; {why}"
        asked = replace(taken, model_id=before, action="rollback", reason=reason)
        return self._aliases.change(replace(asked, forced=then.forced, verdict_id=then.verdict_id))

    def unalias(
        self,
        alias: str,
        *,
        env: str | None = None,
        reason: str | None = None,
        who: str | None = None,
    ) -> AliasChange:
        """Take an alias away, so that nobody has it."""
        return self._aliases.change(self._taking(alias, env, reason, who))

    def prune(
        self,
        *,
        keep_top_n: int | None = None,
        max_age: float | None = None,
        env: str | None = None,
        dry_run: bool = False,
    ) -> Pruning:
        """Remove models beyond a number for each environment, or an age in days."""
        if not self._home.exists:
            return Pruning(removed=(), dry_run=dry_run)
        limits = RetentionLimits(keep_top_n, max_age)
        return Retention(self._home.store).prune(limits, env=env, dry_run=dry_run)

    @property
    def _registry(self) -> Registry:
        return Registry(self._home.store)

    def _refuse_name_as_alias(self, alias: str) -> None:
        """Raise if an alias that nobody has yet is the name of a run or a group."""
        store = self._home.store
        if self.aliases(alias=alias) or not (
            store.page(Query(limit=1, name=alias)).runs or store.find_group(alias)
        ):
            return
        raise BadInput(
            f"alias is {alias!r}, which is the name of a run",
            path="to",
            hint="Take another alias: where a policy is asked for, it would hide that run.",
        )

    @property
    def _aliases(self) -> Aliases:
        return Aliases(self._home.store)

    def _refuse_at_work(self, model: ModelVersion) -> None:
        """Raise if the run of a model is at work on its files."""
        run = references.run_of(self._home, model)
        if run is not None and run.active:
            raise at_work(model.id, run.id, run.state)

    def _deserved(
        self, model: ModelVersion, asked: Change, rule: PromotionRule, episodes: int
    ) -> int:
        """The id of the verdict by which the model may have the alias. Its files are verified on
        the way, by us, or by whoever plays them for that verdict."""
        registry, path = self._registry, Path(model.model_path)
        verdicts = registry.verdicts_on(model.id)
        if asked.previous_id is None:
            artefacts.verify(path)
            return promotion.validating(model, verdicts).id
        champion = as_artefact(self._home.store, registry.get(asked.previous_id))
        stored = promotion.decided(model, verdicts, champion, rule, episodes)
        if stored is not None:
            artefacts.verify(path)
        promotion.validating(model, verdicts)
        if stored is None:
            stored = judging.compare(registry, self._assess, model, champion, rule, episodes)
        promotion.refuse_beaten(model, champion.id, asked.place, stored)
        return stored.id

    def _taking(self, word: str, env: str | None, reason: str | None, who: str | None) -> Change:
        """The change that takes the one alias that is meant from who has it."""
        _refuse_reason(reason)
        alias, env_id = references.place_of(word, env)
        held = references.only(self.aliases(env=env_id, alias=alias), word)
        who = who or somebody()
        return Change(held.env_id, held.alias, None, held.model_id, "remove", who, reason)

    def _is_there(self, model_id: int) -> bool:
        try:
            return not self._registry.get(model_id).retiring
        except NotFound:
            return False


def _refuse_few(episodes: int | None) -> None:
    if episodes is not None and episodes < FEWEST:
        raise BadInput(
            f"episodes is {episodes}; a verdict needs at least {FEWEST}", path="episodes"
        )


def _refuse_reason(reason: str | None, *, needed: bool = False, margin: float = 0.0) -> None:
    if needed and not (reason or "").strip():
        raise BadInput(
            "--force passes over a gate, and needs a --reason that stays in the history",
            path="reason",
            hint='For example: --force --reason "the gate measures the old reward"',
        )
    if reason is not None and len(reason) > LONGEST_REASON:
        raise BadInput(f"reason has {len(reason)} characters; at most {LONGEST_REASON} are kept")
    if not 0 <= margin < float("inf"):
        raise BadInput(
            f"margin is {margin:g}; must be a finite number, zero or more", path="margin"
        )
