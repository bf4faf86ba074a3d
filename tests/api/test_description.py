"""The description of the API: stored as it is, with names that clients can be made from."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from rl_orch.api.app import description
from rl_orch.api.schemas import (
    Command,
    Experiment,
    Holder,
    NewJob,
    NewToken,
    Prune,
)
from rl_orch.http.access import RIGHTS
from rl_orch.http.connections import HEAD_BYTES, MOST_HEADERS
from rl_orch.http.settings import Settings
from rl_orch.records.jobs import JOBS
from rl_orch.spec.reader import MAX_VALUES
from rl_orch.spec.spelling import MAX_DEPTH
from tests.api.conftest import Api

STORED = Path(__file__).parents[2] / "docs" / "openapi.json"
DESCRIPTION = description()
OPERATIONS: list[tuple[str, str, dict[str, Any]]] = [
    (method.upper(), path, operation)
    for path, operations in DESCRIPTION["paths"].items()
    for method, operation in operations.items()
]
IDS = [
    "getHealth", "getReadiness", "listServices", "listOptions", "listRunners", "submitExperiment",
    "checkExperiment", "listRuns", "listRows", "getRun", "viewRun", "getHistory", "getGroup",
    "stopRun", "resumeRun", "commandRun", "tagRun", "noteRun", "removeRun", "getEvents", "getLog",
    "listCheckpoints",
    "streamEvents", "streamLog", "getMetrics", "getRecentMetrics", "listArtifacts", "getArtifact",
    "listTokens", "createToken", "revokeToken", "listModels", "getModel",
    "listAliases", "getAliasHistory", "rollbackAlias", "removeAlias",
    "verifyRegistry", "pruneRegistry", "listModelEnvironments",
    "createCode", "createSession", "submitJob", "listJobs", "getJob", "cancelJob", "retryJob",
    "removeJob", "streamJob", "listJobArtifacts", "getJobArtifact", "upload",
]  # fmt: skip


def test_the_stored_description_is_that_of_the_app() -> None:
    assert json.loads(STORED.read_text("utf-8")) == DESCRIPTION, "stale: run `make docs`"


def test_every_kind_of_job_is_described_with_its_scope_and_told_of() -> None:
    described = DESCRIPTION["paths"]["/jobs"]["post"]["x-jobs"]
    page = (STORED.parent / "api.md").read_text("utf-8")
    assert described.keys() == JOBS.keys()
    for kind, request in JOBS.items():
        name = described[kind]["arguments"]["$ref"].rpartition("/")[2]
        schema = DESCRIPTION["components"]["schemas"][name]
        assert schema["properties"].keys() == request.model_fields.keys()
        assert described[kind]["scope"] == request.needs
        assert (
            described[kind]["answer"]["$ref"].rpartition("/")[2]
            in DESCRIPTION["components"]["schemas"]
        )
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{kind}` | ")]
        assert all(f"`{name}`" in row for name in request.model_fields if name != "out")


def test_the_app_serves_the_same_description(api: Api) -> None:
    assert api.client().get("/openapi.json").json() == DESCRIPTION


def test_operation_ids_stay_what_they_are() -> None:
    assert sorted(operation["operationId"] for *_, operation in OPERATIONS) == sorted(IDS)


@pytest.mark.parametrize(
    ("method", "path", "operation"), OPERATIONS, ids=[f"{m} {p}" for m, p, _ in OPERATIONS]
)
def test_every_operation_is_described_in_full(
    method: str, path: str, operation: dict[str, Any]
) -> None:
    assert operation["tags"]
    assert operation["description"].endswith(".")
    assert operation["x-scope"] in RIGHTS
    assert bool(operation["security"]) == (operation["x-scope"] != "none")
    responses = operation["responses"]
    for status, response in responses.items():
        if status == "304":
            assert "content" not in response
            continue
        is_problem = status == "default" or int(status) >= 400
        kinds = set(response["content"])
        says_unready = (path, status) == ("/ready", "503")
        assert (kinds == {"application/problem+json"}) == (is_problem and not says_unready)
        schemas = [kind["schema"] for kind in response["content"].values()]
        assert all(schema for schema in schemas), f"{method} {path} {status} says nothing"
    assert "422" not in responses


@pytest.mark.parametrize("body", [Experiment, Command, NewToken, NewJob, Holder, Prune])
def test_examples_are_what_they_are_examples_of(body: type[Any]) -> None:
    schema = DESCRIPTION["components"]["schemas"][body.__name__]
    for example in schema["examples"]:
        TypeAdapter(body).validate_python(example)


def test_nothing_is_fetched_from_elsewhere_to_read_about_the_api(api: Api) -> None:
    for path in ("/docs", "/redoc"):
        assert api.client().get(path).status_code == 404


def test_the_page_about_the_api_names_every_path_and_the_limits_as_they_are() -> None:
    page = (STORED.parent / "api.md").read_text("utf-8")
    for path in DESCRIPTION["paths"]:
        short = path.replace("/runs/{ref}", "…") if path != "/runs/{ref}" else path
        assert f"{path}`" in page or f"{short}`" in page, path
    settings = Settings()
    for said in (
        f"{settings.max_body_bytes >> 20} MiB of UTF-8 JSON, at most {MAX_DEPTH} levels deep",
        f"{MAX_VALUES:,} values",
        f"{HEAD_BYTES >> 10} KiB, {MOST_HEADERS} headers",
        f"{settings.request_timeout_s:.0f} s, head and body each",
        f"{settings.requests_per_s:.0f} a second for each token or address, {settings.burst} at",
        f"{settings.max_connections:,}, or as many files",
        f"cut off after {settings.stall_timeout_s:.0f} s",
        f"every {settings.keep_alive_s:.0f} seconds",
        f"http://127.0.0.1:{settings.port}",
    ):
        assert said in page, said
