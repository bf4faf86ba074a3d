"""Tokens: listing, making and revoking them."""

from typing import Annotated

from fastapi import Path, Response

from rl_orch.api.parts import Here
from rl_orch.api.schemas import MadeToken, NewToken, TokenList
from rl_orch.http.operations import json_response, operation, router
from rl_orch.http.problems import LINE
from rl_orch.records import Token

routes = router("tokens")


@routes.get("/tokens", **operation("listTokens", TokenList, "admin"))
def list_tokens(here: Here) -> Response:
    """Every token there has been, without the secrets, which nobody has."""
    return json_response(TokenList(tokens=here.tokens.list()))


@routes.post("/tokens", **operation("createToken", MadeToken, "admin", 409, 413, status=201))
def create_token(here: Here, body: NewToken) -> Response:
    """Make a token. Its text is in this answer and nowhere else."""
    token, secret = here.tokens.create(body.name, body.scope, lifetime_s=body.lifetime_s)
    return json_response(MadeToken(token=token, secret=secret), 201)


@routes.delete("/tokens/{id}", **operation("revokeToken", Token, "admin", 404))
def revoke_token(
    here: Here, id: Annotated[str, Path(max_length=64, pattern=LINE, examples=["9f2b61c4"])]
) -> Response:
    """Let a token count no more, by its id or its name."""
    return json_response(here.tokens.revoke(id))
