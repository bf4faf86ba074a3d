"""The registry: listing models, taking aliases back, letting go of them. To judge and to promote
them are jobs."""

import re
from typing import Annotated

from fastapi import Path, Request, Response
from fastapi import Query as Parameter

from rl_orch.api.parts import Here
from rl_orch.api.schemas import (
    AliasHistory,
    AliasList,
    EnvironmentList,
    Holder,
    ModelList,
    Prune,
)
from rl_orch.http.operations import json_response, operation, router
from rl_orch.http.problems import LINE
from rl_orch.http.threads import slow_reads
from rl_orch.records import AliasChange, ModelView, Pruning, Verification
from rl_orch.records.queries import LARGEST_PAGE, ModelQuery

PERSON = re.compile(r"[!-~]{1,100}")
"""A user at a machine, as clients may call themselves."""

routes = router("models")

Id = Annotated[int, Path(description="The id of a model.", ge=1, le=2**31 - 1, examples=[12])]
Word = Annotated[str | None, Parameter(max_length=200, pattern=LINE)]


@routes.get("/models", **operation("listModels", ModelList, "read"))
def list_models(
    here: Here,
    validated: bool = False,
    top_n: Annotated[int | None, Parameter(ge=1, le=LARGEST_PAGE)] = None,
    env: Word = None,
    algo: Word = None,
    alias: Word = None,
    run: Word = None,
    limit: Annotated[int, Parameter(ge=1, le=LARGEST_PAGE)] = 1000,
) -> Response:
    """Models that match all that is given, the newest first; with `top_n`, the best so many of each
    environment, by environment."""
    query = ModelQuery(validated, top_n, env, algo, alias, run, limit)
    return json_response(ModelList(models=here.orchestrator.models.list(query)))


@routes.get("/models/environments", **operation("listModelEnvironments", EnvironmentList, "read"))
def list_environments(here: Here) -> Response:
    """The environments that have a validated model, by name."""
    environments = here.orchestrator.models.environments()
    return json_response(EnvironmentList(environments=environments))


@routes.get("/models/{id}", **operation("getModel", ModelView, "read", 404))
def get_model(id: Id, here: Here) -> Response:
    """A model with all verdicts on it, and every change of an alias that it was in."""
    return json_response(here.orchestrator.models.show(id))


@routes.get("/aliases", **operation("listAliases", AliasList, "read"))
def list_aliases(here: Here, env: Word = None, alias: Word = None) -> Response:
    """Aliases that match, each with the model that has it."""
    aliases = here.orchestrator.models.aliases(env=env, alias=alias)
    return json_response(AliasList(aliases=aliases))


@routes.get("/aliases/history", **operation("getAliasHistory", AliasHistory, "read"))
def get_alias_history(here: Here, env: Word = None, alias: Word = None) -> Response:
    """Every change of an alias that matches, the newest first."""
    changes = here.orchestrator.models.history(env=env, alias=alias)
    return json_response(AliasHistory(history=changes))


@routes.post(
    "/aliases/rollback", **operation("rollbackAlias", AliasChange, "operate", 404, 409, 413)
)
def rollback_alias(request: Request, here: Here, body: Holder) -> Response:
    """Give an alias back to the model that had it before."""
    change = here.orchestrator.models.rollback(**body.model_dump(), who=who(request))
    return json_response(change)


@routes.post("/aliases/remove", **operation("removeAlias", AliasChange, "operate", 404, 409, 413))
def remove_alias(request: Request, here: Here, body: Holder) -> Response:
    """Take an alias away, so that nobody has it."""
    change = here.orchestrator.models.unalias(**body.model_dump(), who=who(request))
    return json_response(change)


@routes.get("/registry/faults", **operation("verifyRegistry", Verification, "operate"))
async def verify_registry(here: Here, env: Word = None) -> Response:
    """What is missing or changed of the models' files. Reads every byte of them."""
    return await slow_reads(lambda: json_response(here.orchestrator.models.verify(env=env)))


@routes.post("/registry/prune", **operation("pruneRegistry", Pruning, "admin", 409, 413))
async def prune_registry(here: Here, body: Prune) -> Response:
    """Let go of models beyond some limits, but for those that an alias or a run needs."""
    done = await slow_reads(here.orchestrator.models.prune, **body.model_dump())
    return json_response(done)


def who(request: Request) -> str:
    """Who asks, for the history: by what they were let in, and who they say that they are."""
    name: str = request.state.caller.name
    said = request.headers.get("x-rlctl-user", "")
    return f"{name} ({said})" if PERSON.fullmatch(said) else name
