"""The registry over HTTP: what a caller may do there, and who is remembered."""

from pathlib import Path
from typing import Any

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


def test_a_promotion_is_refused_or_made_and_says_by_whom(
    shop: tuple[Api, list[ModelVersion]],
) -> None:
    api, (first, second, poor) = shop
    client = api.client(api.token("operate"))
    refusal = client.post(f"/models/{poor.id}/promote", json={"to": "production"})
    assert refusal.status_code == 409
    assert refusal.json()["code"] == "gate_refused"
    assert "at least 100 is asked" in refusal.json()["detail"]
    for model in (first, second):
        made = client.post(f"/models/{model.id}/promote", json={"to": "production"})
        assert (made.status_code, made.json()["who"]) == (200, "token 'operate-0'")
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
        made = client.post(
            f"/models/{first.id}/promote", json={"to": "production"}, headers=headers
        )
        assert made.json()["who"] == who
        gone = client.post("/aliases/remove", json=place, headers=headers)
        assert gone.json()["who"] == who


def test_a_verdict_that_fails_is_an_answer_and_no_error(
    shop: tuple[Api, list[ModelVersion]],
) -> None:
    api, (*_, poor) = shop
    client = api.client()
    for body in ({}, {"min_return": 40.0}):
        answer = client.post(f"/models/{poor.id}/validate", json=body)
        assert (answer.status_code, answer.json()["passed"]) == (200, bool(body))
    assert client.post(f"/models/{poor.id}/validate").status_code == 200
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
        "promote": client.post(f"/models/{first.id}/promote", json={"to": "production"}),
        "verify": client.get("/registry/faults"),
        "prune": client.post("/registry/prune", json={"keep_top_n": 5}),
    }
    assert {name for name, answer in answers.items() if answer.status_code == 200} == allowed


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
    answer = api.client().post(f"/models/{first.id}/promote", json=body)
    assert answer.status_code == 400
    assert api.client().get("/aliases").json() == {"aliases": []}
