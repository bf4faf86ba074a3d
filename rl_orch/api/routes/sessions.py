"""Sessions: how a browser exchanges a one-time code for a token of its own.

The token is in the answer, never in a cookie, which would reach every port of this machine.
"""

import secrets

from fastapi import Response

from rl_orch.api.parts import Here
from rl_orch.api.schemas import MadeToken, NewCode, NewSession, OneTimeCode
from rl_orch.http.access import wrong_code
from rl_orch.http.codes import LIFETIME_S
from rl_orch.http.operations import json_response, operation, router

SESSION_S = 12 * 3600.0

routes = router("sessions")


@routes.post("/sessions/codes", **operation("createCode", OneTimeCode, "admin", 413, status=201))
def create_code(here: Here, body: NewCode) -> Response:
    """Make a code that can be exchanged once, within minutes, for a token of that scope."""
    code = here.codes.create(body.scope)
    return json_response(OneTimeCode(code=code, scope=body.scope, lifetime_s=LIFETIME_S), 201)


@routes.post("/sessions", **operation("createSession", MadeToken, "none", 401, 413, status=201))
def create_session(here: Here, body: NewSession) -> Response:
    """Exchange a one-time code for a token that counts for twelve hours.

    Answers without a token, as only `/health` and `/ready` do besides.
    """
    scope = here.codes.redeem(body.code)
    if scope is None:
        raise wrong_code()
    name = f"browser-{secrets.token_hex(4)}"
    token, secret = here.tokens.create(name, scope, lifetime_s=SESSION_S)
    return json_response(MadeToken(token=token, secret=secret), 201)
