"""Errors as RFC 9457 problem documents. `detail` is the very sentence that the CLI prints."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from rl_orch.errors import BadInput, RlctlError, SpecInvalid

MEDIA_TYPE = "application/problem+json"
SHOWN = 200
"""Characters of a refused value that are repeated to the caller."""

LINE = r"^[^\x00-\x1f\x7f]+$"
VISIBLE = r"^[\x21-\x7e]+$"
WHOLE_NUMBER = r"^[0-9]{1,15}$"
ABSOLUTE = r"^/[^\x00]*$"
RULES = {
    LINE: "must be text on one line",
    VISIBLE: "must be visible ASCII characters without spaces",
    ABSOLUTE: "must be an absolute path",
    WHOLE_NUMBER: "must be a whole number of at most 15 digits",
}
"""What each pattern of a parameter asks for, in words."""

SAFE_HEADERS = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; sandbox",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
}

LOG = logging.getLogger(__name__)


class ProblemItem(BaseModel):
    """One of several things that are wrong, and where."""

    path: str
    value: Any = None
    message: str
    hint: str | None = None


class ProblemDocument(BaseModel):
    """What went wrong (RFC 9457). `detail` is a sentence, `hint` what to do next."""

    model_config = ConfigDict(ser_json_inf_nan="strings", extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    code: str
    path: str | None = None
    hint: str | None = None
    problems: list[ProblemItem] | None = None


class HttpProblem(Exception):
    """An error whose answer says more than its class does: another status, headers, facts."""

    def __init__(
        self,
        error: RlctlError,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(error.message)
        self.error = error
        self.status = status
        self.headers = headers or {}
        self.facts = facts or {}


def respond(failure: RlctlError | HttpProblem, instance: str | None = None) -> Response:
    """The response that tells of an error."""
    answer = failure if isinstance(failure, HttpProblem) else HttpProblem(failure)
    return _response(document_of(answer, instance), answer.headers)


def document_of(answer: HttpProblem, instance: str | None = None) -> ProblemDocument:
    """The document that tells of an error."""
    error = answer.error
    fields: dict[str, Any] = {
        "type": f"urn:rlctl:{error.code}",
        "title": (type(error).__doc__ or error.code).strip().splitlines()[0],
        "status": answer.status or error.http_status,
        "detail": error.message,
        "instance": instance,
        "code": error.code,
        "path": error.path,
        "hint": error.hint,
    }
    if isinstance(error, SpecInvalid):
        fields["problems"] = [ProblemItem(**finding) for finding in error.findings()]
    return ProblemDocument(**(fields | dict(answer.facts)))


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problem responses of an operation, for its OpenAPI description."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    named: dict[int | str, dict[str, Any]] = {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }
    return named | {"default": {"description": "Any other problem", "content": content}}


def install(app: FastAPI) -> None:
    """Let the app answer with problem documents, whatever is raised."""
    app.add_exception_handler(RlctlError, _known)
    app.add_exception_handler(HttpProblem, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _unrouted)


class Safety:
    """The outermost layer: safe headers on everything, and no traceback to anyone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on; what is raised before an answer began becomes a problem document."""
        if scope["type"] != "http":
            inner = WebSocketClose() if scope["type"] == "websocket" else self._app
            await inner(scope, receive, send)
            return
        begun = False

        async def safely(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                given = {name.lower() for name, _ in message["headers"]}
                missing = [pair for pair in SAFE_HEADERS.items() if pair[0] not in given]
                message = {**message, "headers": [*message["headers"], *missing]}
            await send(message)

        try:
            await self._app(scope, receive, safely)
        except ClientDisconnect:
            return
        except Exception:
            LOG.exception("request failed: %s %r", scope["method"], scope["path"])
            if begun:
                raise
            failed = RlctlError(
                "the service failed at this; its log says why",
                hint="Try again; if it stays so, report it with the service's log.",
            )
            await respond(failed, scope["path"])(scope, receive, safely)


def _response(document: ProblemDocument, headers: Mapping[str, str]) -> Response:
    if document.status >= 500:
        LOG.error("answered %d: %r", document.status, document.detail)
    content = document.model_dump_json(exclude_none=True, fallback=str)
    return Response(content, document.status, dict(headers), MEDIA_TYPE)


async def _known(request: Request, error: Exception) -> Response:
    assert isinstance(error, RlctlError | HttpProblem)
    return respond(error, request.scope["path"])


async def _invalid(request: Request, error: Exception) -> Response:
    """Parameters and bodies that do not have the shape that the operation says."""
    assert isinstance(error, RequestValidationError)
    problems = [_shape_problem(detail) for detail in error.errors()]
    error_of_ours = BadInput(problems[0].message, path=problems[0].path)
    answer = HttpProblem(error_of_ours, facts={"problems": problems})
    return respond(answer, request.scope["path"])


def _shape_problem(detail: Mapping[str, Any]) -> ProblemItem:
    where = [str(part) for part in detail["loc"] if part not in ("body", "query", "path", "header")]
    path = ".".join(where) or "body"
    if detail["type"] == "missing":
        wrapped = '; wrap it in {"spec": …}' if path == "spec" else ""
        return ProblemItem(path=path, message=f"{path} is missing{wrapped}")
    if detail["type"] == "extra_forbidden":
        return ProblemItem(path=path, message=f"{path} is not known here; leave it out")
    value = detail.get("input")
    seen = value if isinstance(value, int | float | bool | None) else str(value)[:SHOWN]
    pattern = detail.get("ctx", {}).get("pattern")
    said = detail["msg"].removeprefix("Input ").replace("should", "must", 1)
    rule = RULES.get(pattern, said)
    return ProblemItem(path=path, value=seen, message=f"{path} is {seen!r}; {rule}")


async def _unrouted(request: Request, error: Exception) -> Response:
    """What the router itself refuses: no such path, or not with this method."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    headers = {"Allow": _methods(request)} if error.status_code == 405 else {}
    code = "not_found" if error.status_code == 404 else phrase.lower().replace(" ", "_")
    document = ProblemDocument(
        type=f"urn:rlctl:{code}",
        title=phrase,
        status=error.status_code,
        detail=f"there is no {request.method} {request.scope['path'][:SHOWN]}",
        instance=request.scope["path"],
        code=code,
        hint="GET /openapi.json lists what there is.",
    )
    return _response(document, headers)


def _methods(request: Request) -> str:
    """The methods that a path has. The router names only those of the first route that fits."""
    fitting = [
        route
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    ]
    return ", ".join(sorted({method for route in fitting for method in route.methods or ()}))
