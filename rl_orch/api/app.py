"""The app: its routes behind their layers. The outermost layer comes first at a request."""

from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core.core_schema import ModelSchema
from starlette.middleware.cors import CORSMiddleware

from rl_orch.api.feeds import FeedHub
from rl_orch.api.parts import Parts, ServiceStatus
from rl_orch.api.routes import (
    artifacts,
    experiments,
    health,
    jobs,
    metrics,
    models,
    runs,
    sessions,
    streams,
    tokens,
)
from rl_orch.core.jobs.queue import JobQueue
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.store.tokens import Tokens
from rl_orch.core.telemetry import Telemetry
from rl_orch.core.uploads import UploadRoom
from rl_orch.http import problems
from rl_orch.http.access import Access, Doorway
from rl_orch.http.codes import OneTimeCodes
from rl_orch.http.limits import HeldSlots
from rl_orch.http.settings import Settings
from rl_orch.records import Record
from rl_orch.records.jobs import JOBS
from rl_orch.spec.model import Spec

NOUNS = (health, experiments, runs, streams, metrics, artifacts, models, jobs, tokens, sessions)
TITLE = "RL Orchestrator"
ALLOWED_HEADERS = [
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-None-Match",
    "If-Range",
    "Last-Event-ID",
    "Range",
]
"""What pages of allowed origins may send."""

ABOUT = "The verbs of `rlctl` over HTTP. Errors are problem documents (RFC 9457)."


def create_app(
    orchestrator: Orchestrator,
    *,
    settings: Settings,
    service: ServiceStatus | None = None,
    telemetry: Telemetry | None = None,
    queue: JobQueue | None = None,
) -> FastAPI:
    """The API of one orchestrator; `service` is the scheduler beside it, where there is one."""
    app = _routed()
    app.state.parts = Parts(
        orchestrator=orchestrator,
        settings=settings,
        hub=FeedHub(orchestrator.get, poll_s=settings.poll_s),
        streams=HeldSlots(settings.streams_per_caller),
        codes=OneTimeCodes(),
        telemetry=telemetry or Telemetry(orchestrator),
        jobs=queue or JobQueue(orchestrator),
        upload_room=UploadRoom(orchestrator.home),
        service=service,
    )
    problems.install(app)
    _wrap(app, orchestrator, settings)
    return app


def description() -> dict[str, Any]:
    """The API in OpenAPI's words."""
    return _routed().openapi()


def _routed() -> FastAPI:
    """An app that has the routes, and nothing behind them."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for noun in NOUNS:
        # Not included as routers, so that the app's own routes are all that there are.
        app.router.routes.extend(noun.routes.routes)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    return app


def _described(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(title=TITLE, version="1", description=ABOUT, routes=app.routes)
        components = schema["components"]
        model = problems.ProblemDocument.model_json_schema(
            ref_template="#/components/schemas/{model}"
        )
        components["schemas"] |= model.pop("$defs") | {"ProblemDocument": model}
        schema["paths"]["/jobs"]["post"]["x-jobs"] = _jobs_described(components["schemas"])
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        app.openapi_schema = schema
    return app.openapi_schema


class _WithoutOptions(GenerateJsonSchema):
    """Schemas in which a spec is an object, whose options `GET /options` lists."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        """The schema of a record."""
        if schema["cls"] is Spec:
            return {"type": "object", "title": "Spec"}
        return super().model_schema(schema)


def _jobs_described(schemas: dict[str, Any]) -> dict[str, Any]:
    """The kinds of jobs: the scope that each needs, its arguments and its answer, whose schemas are
    put beside the others."""
    records: list[tuple[type[Record], Literal["validation", "serialization"]]] = []
    for kind in JOBS.values():
        records += [(kind, "validation"), (kind.answers, "serialization")]
    where = "#/components/schemas/{model}"
    references, document = models_json_schema(
        records, ref_template=where, schema_generator=_WithoutOptions
    )
    for name, described in document["$defs"].items():
        schemas.setdefault(name, described)
    return {
        kind.kind: {
            "scope": kind.needs,
            "arguments": references[kind, "validation"],
            "answer": references[kind.answers, "serialization"],
        }
        for kind in JOBS.values()
    }


def _wrap(app: FastAPI, orchestrator: Orchestrator, settings: Settings) -> None:
    """Put the layers around the routes, the innermost first."""
    app.add_middleware(Access, tokens=lambda: Tokens(orchestrator.store), settings=settings)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=["GET", "POST", "PATCH", "DELETE"],
            allow_headers=ALLOWED_HEADERS,
            expose_headers=["Retry-After", "WWW-Authenticate", "Content-Range", "ETag"],
        )
    app.add_middleware(Doorway, settings=settings)
    app.add_middleware(problems.Safety)
