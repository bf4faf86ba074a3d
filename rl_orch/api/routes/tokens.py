"""Tokens: listing, making and revoking them."""

from typing import Annotated

from fastapi import Path, Response

from rl_orch.api.parts import Here
from rl_orch.api.schemas import MadeToken, NewToken, TokenList
from rl_orch.core.store.tokens import Tokens
from rl_orch.http.operations import json_response, operation, router
from rl_orch.http.problems import LINE
from rl_orch.records import Token

routes = router("tokens")


@routes.get("/tokens", response_model=TokenList, **operation("listTokens", "admin"))
def list_tokens(here: Here) -> Response:
    """Every token there has been, without the secrets, which nobody has."""
    return json_response(TokenList(tokens=Tokens(here.orchestrator.store).list()))


@routes.post(
    "/tokens",
    response_model=MadeToken,
    status_code=201,
    **operation("createToken", "admin", 409, 413),
)
def create_token(here: Here, body: NewToken) -> Response:
    """Make a token. Its text is in this answer and nowhere else."""
    tokens = Tokens(here.orchestrator.store)
    token, secret = tokens.create(body.name, body.scope, lifetime_s=body.lifetime_s)
    return json_response(MadeToken(token=token, secret=secret), 201)


@routes.delete("/tokens/{id}", response_model=Token, **operation("revokeToken", "admin", 404))
def revoke_token(
    here: Here, id: Annotated[str, Path(max_length=64, pattern=LINE, examples=["9f2b61c4"])]
) -> Response:
    """Let a token count no more, by its id or its name."""
    return json_response(Tokens(here.orchestrator.store).revoke(id))
