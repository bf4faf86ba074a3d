"""One-time codes: a browser's way to a token, once and within minutes."""

import logging

import pytest

from rl_orch.http import codes
from rl_orch.http.codes import OneTimeCodes
from tests.api.conftest import Api


class Clock:
    """A timer that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_code_counts_once() -> None:
    open_codes = OneTimeCodes()
    code = open_codes.create("operate")
    assert open_codes.redeem(code) == "operate"
    assert open_codes.redeem(code) is None


def test_a_code_counts_for_minutes() -> None:
    timer = Clock()
    open_codes = OneTimeCodes(timer)
    early, late = open_codes.create("read"), open_codes.create("read")
    timer.now = codes.LIFETIME_S - 1.0
    assert open_codes.redeem(early) == "read"
    timer.now = codes.LIFETIME_S
    assert open_codes.redeem(late) is None


def test_a_code_is_read_however_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "ALPHABET", "01")
    open_codes = OneTimeCodes()
    code = open_codes.create("read")
    typed = code.lower().replace("-", " ").replace("0", "o").replace("1", "l")
    assert open_codes.redeem(f" {typed} ") == "read"


def test_only_so_many_codes_are_open_and_the_newest_count() -> None:
    open_codes = OneTimeCodes()
    made = [open_codes.create("read") for _ in range(codes.MOST_OPEN + 3)]
    assert [open_codes.redeem(code) for code in made].count(None) == 3
    assert open_codes.redeem(made[0]) is None


def test_a_browser_exchanges_a_code_for_a_token_of_its_scope(api: Api) -> None:
    app = api.client()
    code = app.post("/sessions/codes", json={"scope": "operate"}).json()["code"]
    del app.headers["Authorization"]
    answer = app.post("/sessions", json={"code": code})
    assert answer.status_code == 201
    assert "set-cookie" not in answer.headers
    made = answer.json()
    assert made["token"]["scope"] == "operate"
    lifetime_s = made["token"]["expires_at"] - made["token"]["created_at"]
    assert lifetime_s == pytest.approx(12 * 3600)
    browser = api.client(made["secret"])
    assert browser.get("/runs").status_code == 200
    assert browser.get("/tokens").status_code == 403
    again = app.post("/sessions", json={"code": code})
    assert (again.status_code, again.json()["path"]) == (401, "code")
    api.client().delete(f"/tokens/{made['token']['id']}")
    assert browser.get("/runs").status_code == 401


def test_a_wrong_code_opens_nothing_and_is_in_no_log(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = api.client()
    code = client.post("/sessions/codes", json={"scope": "read"}).json()["code"]
    del client.headers["Authorization"]
    for wrong in ("0000-0000-0000", "x" * 64, "é"):
        assert client.post("/sessions", json={"code": wrong}).status_code == 401
    assert client.post("/sessions", json={"code": ""}).status_code == 400
    assert client.post("/sessions", json={"code": code}).status_code == 201
    assert code not in caplog.text


def test_codes_are_not_guessed_at_will(api: Api) -> None:
    client = api.client(None, requests_per_s=0.001, burst=3)
    tries = [client.post("/sessions", json={"code": "0000-0000-0000"}) for _ in range(4)]
    assert [answer.status_code for answer in tries] == [401, 401, 401, 429]
