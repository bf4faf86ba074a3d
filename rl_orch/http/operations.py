"""How an operation is declared: a stable id, the right it needs, and the problems it may answer.

A route that does not say which right it needs cannot be made.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from rl_orch.http.access import RIGHTS, Right, require
from rl_orch.http.limits import parsed
from rl_orch.http.problems import LINE, declared
from rl_orch.http.settings import Settings

Reference = Annotated[
    str,
    Path(
        description="An id, a unique beginning of one, a name, or `last`. Of several runs of a "
        "name the newest is read, and none is changed.",
        max_length=200,
        pattern=LINE,
        examples=["cartpole-k3m9xq"],
    ),
]
NO_OTHERS: Mapping[int | str, dict[str, Any]] = {}


class GuardedRoute(APIRoute):
    """A route that checks the caller's right before it reads anything else of the request."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, behind its guard."""
        handle = super().get_route_handler()
        needed = (self.openapi_extra or {}).get("x-scope")
        if needed not in RIGHTS:
            raise TypeError(f"route {self.path} does not say which right it needs")
        takes_body = self.body_field is not None

        async def guarded(request: Request) -> Response:
            require(request, needed)
            if takes_body:
                settings: Settings = request.app.state.parts.settings
                request = await parsed(request, settings.max_body_bytes)
            return await handle(request)

        return guarded


def router(tag: str) -> APIRouter:
    """A router for the operations of one noun."""
    return APIRouter(tags=[tag], route_class=GuardedRoute)


def operation(
    id: str,
    answer: Any,
    needed: Right,
    *problems: int,
    status: int | None = None,
    also: Mapping[int | str, dict[str, Any]] = NO_OTHERS,
) -> dict[str, Any]:
    """The arguments of a route's decorator: what it answers, what it needs, how it may fail.

    `also` are answers that are no problems, besides the usual one or in its place.
    """
    refusals = () if needed == "none" else (401, 403)
    return {
        "operation_id": id,
        "response_model": answer,
        "status_code": status,
        "openapi_extra": {
            "x-scope": needed,
            "security": [] if needed == "none" else [{"token": []}],
        },
        "responses": declared(*sorted({400, 421, 429, *refusals, *problems})) | dict(also),
    }


def json_response(record: BaseModel, status: int = 200) -> Response:
    """A record as it is, without a second look at it."""
    return Response(record.model_dump_json(), status, media_type="application/json")
