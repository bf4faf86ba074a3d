"""The numbers of runs: whole curves, thinned so that no peak is lost, and the newest ones."""

from typing import Annotated

from fastapi import Query, Response

from rl_orch.api.parts import Here
from rl_orch.api.schemas import RecentSteps, SeriesList
from rl_orch.http.operations import Reference, json_response, operation, router
from rl_orch.http.threads import slow_reads
from rl_orch.io.metrics.recent import MOST
from rl_orch.io.metrics.series import POINTS

LEAST_POINTS = 5
MOST_POINTS = 100_000
MOST_KEYS = 200
LAST_STEP = (1 << 53) - 1

routes = router("metrics")

Keys = Annotated[
    list[Annotated[str, Query(max_length=200)]],
    Query(
        alias="key",
        description="Only these curves.",
        max_length=MOST_KEYS,
        examples=[["losses/value_loss"]],
    ),
]
Step = Annotated[int | None, Query(ge=0, le=LAST_STEP)]


@routes.get("/runs/{ref}/metrics", **operation("getMetrics", SeriesList, "read", 404))
async def get_metrics(
    ref: Reference,
    here: Here,
    key: Keys = [],  # noqa: B006
    points: Annotated[int, Query(ge=LEAST_POINTS, le=MOST_POINTS)] = POINTS,
    first: Annotated[Step, Query(alias="from", description="The first step wanted.")] = None,
    last: Annotated[Step, Query(alias="to", description="The last step wanted.")] = None,
) -> Response:
    """The curves of a run, each with at most so many points; minima and maxima are kept."""

    def curves() -> Response:
        series = here.telemetry.series(ref, key, points=points, from_step=first, to_step=last)
        return json_response(SeriesList(series=series))

    return await slow_reads(curves)


@routes.get("/runs/{ref}/metrics/recent", **operation("getRecentMetrics", RecentSteps, "read", 404))
async def get_recent_metrics(
    ref: Reference,
    here: Here,
    count: Annotated[int, Query(ge=1, le=MOST)] = 100,
    key: Keys = [],  # noqa: B006
) -> Response:
    """The newest numbers that a run has told, oldest first."""

    def newest() -> Response:
        return json_response(RecentSteps(metrics=here.telemetry.recent_metrics(ref, count, key)))

    return await slow_reads(newest)
