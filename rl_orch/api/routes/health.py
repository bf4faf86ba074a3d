"""Whether the service works, which services and runners there are, and what a spec may hold."""

from functools import cache

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from rl_orch.api.parts import Here, Parts
from rl_orch.api.schemas import Health, OptionList, Readiness, RunnerList, ServiceList
from rl_orch.errors import RlctlError
from rl_orch.http.operations import json_response, operation, router
from rl_orch.http.threads import admissions
from rl_orch.spec.options import table

routes = router("service")


@routes.get("/health", **operation("getHealth", Health, "none"))
async def get_health() -> Response:
    """The process answers."""
    return json_response(Health())


UNREADY = {"model": Readiness, "description": "A part does not work"}


@routes.get("/ready", **operation("getReadiness", Readiness, "none", also={503: UNREADY}))
async def get_readiness(here: Here) -> Response:
    """Whether database and scheduler work: 200 if they do, 503 if not."""
    database = await admissions(_answers, here)
    scheduler = here.service is not None and here.service.ready
    ready = database and (scheduler or here.service is None)
    readiness = Readiness(ready=ready, database=database, scheduler=scheduler)
    return json_response(readiness, 200 if ready else 503)


@routes.get("/services", **operation("listServices", ServiceList, "read"))
def list_services(here: Here) -> Response:
    """The services that share the database, and what this one is doing."""
    status = None if here.service is None else here.service.status()
    return json_response(ServiceList(services=here.orchestrator.services.list(), here=status))


@routes.get("/runners", **operation("listRunners", RunnerList, "read"))
def list_runners(here: Here) -> Response:
    """The runners that a spec may name, and what each can do."""
    return json_response(RunnerList(runners=here.orchestrator.runners()))


@routes.get("/options", **operation("listOptions", OptionList, "read"))
def list_options() -> Response:
    """Every option of a spec."""
    return Response(_options(), media_type="application/json")


@routes.get("/openapi.json", include_in_schema=False, **operation("getDescription", None, "read"))
def get_description(request: Request) -> Response:
    """This API, described."""
    return JSONResponse(request.app.openapi())


@cache
def _options() -> str:
    options = [option.document() for option in table().values()]
    return OptionList(options=options).model_dump_json()


def _answers(here: Parts) -> bool:
    try:
        with here.orchestrator.store.reading() as connection:
            connection.exec_driver_sql("SELECT 1")
    except RlctlError:
        return False
    return True
