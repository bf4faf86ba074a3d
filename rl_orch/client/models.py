"""The verbs of the registry over HTTP: what `core.registry.verbs.ModelVerbs` does here, there."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from rl_orch.client.link import HttpLink
from rl_orch.core.registry import references
from rl_orch.core.registry.references import KnowsRuns
from rl_orch.records import (
    Alias,
    AliasChange,
    ModelVersion,
    ModelView,
    Pruning,
    StoredVerdict,
    Verification,
)
from rl_orch.records.queries import ModelQuery

if TYPE_CHECKING:
    from rl_orch.client.jobs import RemoteJobs

FILES_TIMEOUT_S = 3700.0
"""All files of a registry may take an hour to be read or removed."""


class RemoteModels:
    """What can be done with the models of a service."""

    def __init__(self, link: HttpLink, runs: KnowsRuns, jobs: "Callable[[], RemoteJobs]") -> None:
        self._link = link
        self._jobs = jobs
        self._runs = runs

    def list(self, query: ModelQuery | None = None) -> tuple[ModelVersion, ...]:
        """The models that a query asks for."""
        asked = query or ModelQuery()
        given = asdict(asked) | {"validated": asked.validated or None}
        answer = self._link.get("/models", given)
        return tuple(ModelVersion.model_validate(row) for row in answer["models"])

    def environments(self) -> tuple[str, ...]:
        """The environments that have a validated model, by name."""
        return tuple(self._link.get("/models/environments")["environments"])

    def get(self, reference: str | int) -> ModelVersion:
        """The model meant by an id, an alias, `best@ENV` or a run."""
        return self.show(reference).model

    def show(self, reference: str | int) -> ModelView:
        """A model with all verdicts on it, and every change of an alias that it was in."""
        return ModelView.model_validate(self._link.get(f"/models/{self._id(reference)}"))

    def aliases(self, *, env: str | None = None, alias: str | None = None) -> tuple[Alias, ...]:
        """The aliases that match."""
        answer = self._link.get("/aliases", {"env": env, "alias": alias})
        return tuple(Alias.model_validate(row) for row in answer["aliases"])

    def history(
        self, *, env: str | None = None, alias: str | None = None
    ) -> tuple[AliasChange, ...]:
        """Every change of an alias that matches, the newest first."""
        answer = self._link.get("/aliases/history", {"env": env, "alias": alias})
        return tuple(AliasChange.model_validate(row) for row in answer["history"])

    def validate(
        self,
        reference: str | int,
        *,
        min_return: float | None = None,
        episodes: int | None = None,
        fresh: bool = False,
    ) -> StoredVerdict:
        """Hold a model against the gate of its spec, and keep the verdict."""
        asked = {"min_return": min_return, "episodes": episodes, "fresh": fresh}
        verdict: StoredVerdict = self._jobs().ask("validate", model=self._id(reference), **asked)
        return verdict

    def verify(self, *, env: str | None = None) -> Verification:
        """What is missing or changed of the registry's files, by name."""
        answer = self._link.get("/registry/faults", {"env": env}, timeout_s=FILES_TIMEOUT_S)
        return Verification.model_validate(answer)

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
    ) -> AliasChange:
        """Give a model an alias, if its gate has passed it and it beats who has the alias now."""
        model = self._id(reference, only_run=True)
        references.place_of(to, env)
        asked = {"to": to, "env": env, "force": force, "reason": reason, "margin": margin}
        asked |= {"allow_equal": allow_equal, "episodes": episodes}
        change: AliasChange = self._jobs().ask("promote", model=model, **asked)
        return change

    def rollback(
        self, alias: str, *, env: str | None = None, reason: str | None = None
    ) -> AliasChange:
        """Give an alias back to the model that had it before, if that is still there."""
        return self._taken("/aliases/rollback", alias, env, reason)

    def unalias(
        self, alias: str, *, env: str | None = None, reason: str | None = None
    ) -> AliasChange:
        """Take an alias away, so that nobody has it."""
        return self._taken("/aliases/remove", alias, env, reason)

    def prune(
        self,
        *,
        keep_top_n: int | None = None,
        max_age: float | None = None,
        env: str | None = None,
        dry_run: bool = False,
    ) -> Pruning:
        """Let go of models beyond so many of each environment, or older than so many days."""
        limits = {"keep_top_n": keep_top_n, "max_age": max_age, "env": env, "dry_run": dry_run}
        answer = self._link.post("/registry/prune", limits, timeout_s=FILES_TIMEOUT_S)
        return Pruning.model_validate(answer)

    def _taken(self, path: str, alias: str, env: str | None, reason: str | None) -> AliasChange:
        references.place_of(alias, env)
        body = {"alias": alias, "env": env, "reason": reason}
        return AliasChange.model_validate(self._link.post(path, body))

    def _id(self, reference: str | int, *, only_run: bool = False) -> int:
        if isinstance(reference, int):
            return reference
        return references.model(self, self._runs, reference, only_run=only_run).id
