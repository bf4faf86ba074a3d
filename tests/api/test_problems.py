"""Errors are problem documents with the sentences of the command line, and never say too much."""

import asyncio
import json
import logging
from collections.abc import MutableMapping
from typing import Any

import pytest

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.errors import Damaged, Problem, RlctlError, SpecInvalid
from rl_orch.records import Run
from tests.api.conftest import Api

SAFE = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}


class Broken(Orchestrator):
    """An orchestrator that fails in a way of its own."""

    failure: Exception

    def get(self, reference: str) -> Run:
        raise self.failure


def broken(api: Api, failure: Exception) -> Api:
    orchestrator = Broken(api.orchestrator.home, lambda name: pytest.fail(name))
    orchestrator.failure = failure
    return Api(orchestrator)


@pytest.mark.parametrize(
    ("path", "headers", "rule"),
    [
        ("/runs/a%0Ab", {}, "must be text on one line"),
        ("/runs?after=a%00b", {}, "must be text on one line"),
        ("/runs/x/events/stream", {"Last-Event-ID": "-1"}, "must be a whole number"),
    ],
)
def test_a_rule_is_told_in_words_and_not_as_a_pattern(
    api: Api, path: str, headers: dict[str, str], rule: str
) -> None:
    detail = api.client().get(path, headers=headers).json()["detail"]
    assert rule in detail
    assert "pattern" not in detail


def test_an_error_is_a_problem_document_with_the_sentence_of_the_command_line(api: Api) -> None:
    with pytest.raises(RlctlError) as raised:
        api.orchestrator.store.find("nobody")
    answer = api.client().get("/runs/nobody")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "urn:rlctl:not_found",
        "title": "There is no run, model or file of that name.",
        "status": 404,
        "detail": raised.value.message,
        "instance": "/runs/nobody",
        "code": "not_found",
        "hint": raised.value.hint,
    }


def test_every_problem_of_a_spec_is_listed(api: Api) -> None:
    spec = {"env": {"id": "CartPole-v1"}, "train": {"gamma": 1.2, "lrr": 1}}
    answer = api.client().post("/experiments", json={"spec": spec})
    assert answer.status_code == 400
    document = answer.json()
    assert document["code"] == "spec_invalid"
    assert {problem["path"] for problem in document["problems"]} == {"train.gamma", "train.lrr"}
    sentences = [problem["message"] for problem in document["problems"]]
    assert "train.gamma is 1.2; must be a finite number in (0, 1]" in sentences


def test_what_a_problem_holds_can_be_anything(api: Api) -> None:
    problems = [Problem("a", float("nan"), "m"), Problem("b", object, "n", "h")]
    answer = broken(api, SpecInvalid(problems)).client().get("/runs/x")
    assert answer.status_code == 400
    assert answer.json()["problems"][0]["value"] == "NaN"


def test_a_wrong_parameter_is_named_with_what_it_is_and_must_be(api: Api) -> None:
    answer = api.client().get("/runs?limit=0&state=asleep")
    assert answer.status_code == 400
    assert answer.json()["detail"] == "limit is '0'; must be greater than or equal to 1"
    assert [problem["path"] for problem in answer.json()["problems"]] == ["limit", "state.0"]


def test_a_failure_says_nothing_of_the_inside_and_is_logged(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    failing = broken(api, ZeroDivisionError("a secret path"))
    with caplog.at_level(logging.ERROR):
        answer = failing.client().get("/runs/x")
    assert answer.status_code == 500
    assert answer.json()["code"] == "failed"
    assert "secret" not in answer.text
    assert "ZeroDivisionError" not in answer.text
    assert "a secret path" in caplog.text


def test_a_known_failure_keeps_its_sentence_and_is_logged(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = broken(api, Damaged("'spec.yaml' cannot be read")).client().get("/runs/x")
    assert (answer.status_code, answer.json()["code"]) == (500, "damaged")
    assert "'spec.yaml' cannot be read" in caplog.text


def test_a_method_that_a_path_does_not_have_is_refused_with_those_that_it_has(api: Api) -> None:
    answer = api.client().put("/runs/x")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "DELETE, GET"
    assert answer.json()["code"] == "method_not_allowed"


def test_a_slash_at_the_end_is_another_path_and_no_redirect(api: Api) -> None:
    assert api.client().get("/runs/").status_code in (400, 404)


@pytest.mark.parametrize("path", ["/runs", "/health", "/runs/x", "/nothing", "/options"])
def test_every_answer_has_safe_headers(api: Api, path: str) -> None:
    headers = api.client().get(path).headers
    assert {name: headers[name] for name in SAFE} == SAFE
    assert "sandbox" in headers["content-security-policy"]
    assert "server" not in headers


def test_script_in_a_name_comes_back_as_json_and_nothing_else(api: Api) -> None:
    script = "<script>alert(1)</script>"
    spec = {"env": {"id": "CartPole-v1"}, "name": script}
    answer = api.client().post("/experiments", json={"spec": spec})
    assert answer.status_code == 201
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.text)["runs"][0]["name"] == script
    for path in (f"/runs/{script.replace('/', '%2F')}", "/runs/%3Cb%3E", "/%3Cscript%3E"):
        answer = api.client().get(path)
        assert answer.headers["content-type"] in ("application/json", "application/problem+json")
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_line_ends_in_a_path_or_a_key_reach_no_header(api: Api) -> None:
    client = api.client()
    answer = client.get("/runs/x%0d%0aSet-Cookie:%20a=b")
    assert answer.status_code == 400
    assert "set-cookie" not in answer.headers
    spec = {"env": {"id": "CartPole-v1"}}
    odd = client.post("/experiments", json={"spec": spec}, headers={"Idempotency-Key": "a b"})
    assert odd.status_code == 400


def test_a_web_socket_is_closed_before_anything_is_looked_at(api: Api) -> None:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(dict(message))

    scope = {"type": "websocket", "path": "/runs", "headers": [], "query_string": b""}
    asyncio.run(api.app()(scope, receive, send))
    assert [message["type"] for message in sent] == ["websocket.close"]
