"""The registry over HTTP: what a caller may do there, and who is remembered."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.store.tokens import Scope
from rl_orch.records import ModelVersion
from rl_orch.testing import FakeRunner, trains_to
from tests.api.conftest import Api
from tests.models import PlayedAs, Shop


@pytest.fixture
def shop(tmp_path: Path) -> tuple[Api, list[ModelVersion]]:
    """An API over two models that a gate has passed, and one that it has not."""
    player = PlayedAs({1: 500.0, 2: 510.0, 3: 50.0})
    made = Orchestrator(tmp_path / "home", FakeRunner(trains_to([1.0])), assess=player)
    rows = Shop(made.home, made.store)
    models = [rows.a_model(f"r-{n}", mean) for n, mean in enumerate((500.0, 510.0, 50.0))]
    return Api(made), models


def body_of(kind: str, model: ModelVersion, **arguments: Any) -> dict[str, Any]:
    """A job about a model."""
    return {"kind": kind, "arguments": {"model": str(model.id), **arguments}}


def ended(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """A job once it has ended."""
    client.get(f"/jobs/{job_id}/events")
    job: dict[str, Any] = client.get(f"/jobs/{job_id}").json()
    return job


def asked(
    client: httpx.Client,
    kind: str,
    model: ModelVersion,
    headers: Any = None,
    **arguments: Any,
) -> dict[str, Any]:
    """What became of a job about a model."""
    answer = client.post("/jobs", json=body_of(kind, model, **arguments), headers=headers)
    return ended(client, answer.json()["id"])


def test_a_promotion_is_refused_or_made_and_says_by_whom(
    shop: tuple[Api, list[ModelVersion]],
) -> None:
    api, (first, second, poor) = shop
    client = api.client(api.token("operate"))
    refusal = asked(client, "promote", poor, to="production")
    assert refusal["error"]["code"] == "gate_refused"
    assert "at least 100 is asked" in refusal["reason"]
    for model in (first, second):
        made = asked(client, "promote", model, to="production")
        assert (made["state"], made["answer"]["who"]) == ("succeeded", "token 'operate-0'")
    back = client.post("/aliases/rollback", json={"alias": "production", "reason": "slow"})
    assert back.json()["model_id"] == first.id
    history = client.get("/aliases/history", params={"alias": "production"}).json()["history"]
    assert [change["action"] for change in history] == ["rollback", "promote", "promote"]
    assert client.get("/aliases").json()["aliases"][0]["model_id"] == first.id
    listed = client.get("/models", params={"alias": "production"}).json()["models"]
    assert [(model["id"], model["aliases"]) for model in listed] == [(first.id, ["production"])]


def test_who_asks_is_kept_beside_what_let_them_in(shop: tuple[Api, list[ModelVersion]]) -> None:
    api, (first, *_) = shop
    client, place = api.client(api.token("operate")), {"alias": "production"}
    told = {"ann@box": "token 'operate-0' (ann@box)", "two words": "token 'operate-0'"}
    for said, who in told.items():
        headers = {"X-Rlctl-User": said}
        made = asked(client, "promote", first, headers=headers, to="production")
        assert made["answer"]["who"] == who
        gone = client.post("/aliases/remove", json=place, headers=headers)
        assert gone.json()["who"] == who


def test_a_verdict_that_fails_is_an_answer_and_no_error(
    shop: tuple[Api, list[ModelVersion]],
) -> None:
    api, (*_, poor) = shop
    client = api.client()
    for body in ({}, {"min_return": 40.0}):
        answer = asked(client, "validate", poor, **body)
        assert (answer["state"], answer["answer"]["passed"]) == ("succeeded", bool(body))
    assert asked(client, "validate", poor)["state"] == "succeeded"
    view = client.get(f"/models/{poor.id}").json()
    assert [stored["passed"] for stored in view["verdicts"]] == [False, True, False]


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("read", set[str]()),
        ("operate", {"promote", "verify"}),
        ("admin", {"promote", "verify", "prune"}),
    ],
)
def test_what_a_token_may_do(
    shop: tuple[Api, list[ModelVersion]], scope: Scope, allowed: set[str]
) -> None:
    api, (first, *_) = shop
    client = api.client(api.token(scope))
    assert client.get("/models").status_code == 200
    answers = {
        "promote": client.post("/jobs", json=body_of("promote", first, to="production")),
        "verify": client.get("/registry/faults"),
        "prune": client.post("/registry/prune", json={"keep_top_n": 5}),
    }
    assert {name for name, answer in answers.items() if answer.is_success} == allowed


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"to": 7},
        {"to": "two\nlines"},
        {"to": "production", "margin": -1},
        {"to": "production", "episodes": 1},
        {"to": "production", "who": "the boss"},
        {"to": "Production"},
        {"to": "production", "force": True},
    ],
)
def test_a_promotion_that_cannot_be_understood_is_refused(
    shop: tuple[Api, list[ModelVersion]], body: dict[str, Any]
) -> None:
    api, (first, *_) = shop
    client = api.client()
    answer = client.post("/jobs", json=body_of("promote", first, **body))
    if answer.is_success:
        assert ended(client, answer.json()["id"])["error"]["code"] == "bad_input"
    else:
        assert answer.status_code == 400
    assert api.client().get("/aliases").json() == {"aliases": []}
