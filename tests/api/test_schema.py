"""The API keeps to its own description, whatever it is sent: no answer is a failure."""

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import CheckFunction
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.testing import FakeRunner, a_spec, trains_to
from tests.api.conftest import Api

URL = "http://localhost:7311"
TOKEN = {"Authorization": "Bearer schema"}
RUN = "ended"
FEW = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
LEFT_OUT: list[CheckFunction] = [
    positive_data_acceptance,  # What a spec may hold is not in this description.
    negative_data_rejection,  # What comes in no parameter is ignored, as HTTP has it.
]


def described(home: Path) -> FastAPI:
    """An API in which streams end at once, since that of a run that waits would not end."""
    app = Api(Orchestrator(home, FakeRunner(trains_to([4.0, 5.0] * 6)))).app(own_token="schema")
    app.state.parts.hub.close()
    return app


def loaded(app: FastAPI, **phases: dict[str, bool]) -> Any:
    config = SchemathesisConfig.from_dict({"phases": phases})
    schema = schemathesis.openapi.from_dict(app.openapi(), config=config)
    schema.app = app
    return schema


DESCRIPTION = described(Path("nowhere"))
covered = loaded(DESCRIPTION)
fuzzed = loaded(DESCRIPTION, coverage={"enabled": False})


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """The API over a home with a run that has ended."""
    app = described(tmp_path_factory.mktemp("home"))
    app.state.parts.orchestrator.launch(a_spec(f"name={RUN}"))
    return app


@covered.parametrize()  # type: ignore[untyped-decorator]
@settings(FEW, max_examples=3)
def test_no_request_makes_the_service_fail_or_answer_otherwise_than_described(
    case: Case[Any], app: FastAPI
) -> None:
    """Every edge of every parameter; runs that are meant are there."""
    if case.method != "DELETE" and "ref" in case.path_parameters:
        case.path_parameters["ref"] = RUN
    case.call_and_validate(base_url=URL, headers=TOKEN, excluded_checks=LEFT_OUT, app=app)


@fuzzed.parametrize()  # type: ignore[untyped-decorator]
@settings(FEW, max_examples=4)
def test_neither_does_a_request_about_nothing_that_is_there(case: Case[Any], app: FastAPI) -> None:
    """Anything at all, and runs that are meant need not be there."""
    case.call_and_validate(base_url=URL, headers=TOKEN, excluded_checks=LEFT_OUT, app=app)
