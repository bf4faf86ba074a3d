"""Who is let in: every route, every kind of token, foreign names and origins, and how often."""

import time
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from rl_orch.api.app import create_app
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.store.tokens import Scope, Tokens
from rl_orch.http.access import Right
from rl_orch.http.addresses import (
    allowed_names,
    is_loopback,
    is_loopback_name,
    is_loopback_origin,
)
from rl_orch.http.operations import operation, router
from rl_orch.http.settings import Settings
from rl_orch.records import Token
from rl_orch.testing import FakeRunner, trains_to
from tests.api.conftest import Api

NEEDED: dict[tuple[str, str], Right] = {
    ("GET", "/health"): "none",
    ("GET", "/ready"): "none",
    ("GET", "/openapi.json"): "read",
    ("GET", "/services"): "read",
    ("GET", "/options"): "read",
    ("GET", "/runners"): "read",
    ("PATCH", "/runs/{ref}/tags"): "operate",
    ("PATCH", "/runs/{ref}/note"): "operate",
    ("POST", "/experiments"): "operate",
    ("POST", "/experiments/check"): "operate",
    ("GET", "/runs"): "read",
    ("GET", "/rows"): "read",
    ("GET", "/groups/{ref}"): "read",
    ("GET", "/runs/{ref}"): "read",
    ("DELETE", "/runs/{ref}"): "admin",
    ("GET", "/runs/{ref}/view"): "read",
    ("GET", "/runs/{ref}/history"): "read",
    ("POST", "/runs/{ref}/stop"): "operate",
    ("POST", "/runs/{ref}/resume"): "operate",
    ("POST", "/runs/{ref}/command"): "operate",
    ("GET", "/runs/{ref}/events"): "read",
    ("GET", "/runs/{ref}/events/stream"): "read",
    ("GET", "/runs/{ref}/log"): "read",
    ("GET", "/runs/{ref}/log/stream"): "read",
    ("GET", "/runs/{ref}/metrics"): "read",
    ("GET", "/runs/{ref}/metrics/recent"): "read",
    ("GET", "/runs/{ref}/checkpoints"): "read",
    ("GET", "/runs/{ref}/artifacts"): "read",
    ("GET", "/runs/{ref}/artifacts/{path:path}"): "read",
    ("GET", "/models"): "read",
    ("GET", "/models/environments"): "read",
    ("GET", "/models/{id}"): "read",
    ("GET", "/aliases"): "read",
    ("GET", "/aliases/history"): "read",
    ("POST", "/aliases/rollback"): "operate",
    ("POST", "/aliases/remove"): "operate",
    ("GET", "/registry/faults"): "operate",
    ("POST", "/registry/prune"): "admin",
    ("POST", "/jobs"): "operate",
    ("GET", "/jobs"): "read",
    ("GET", "/jobs/{id}"): "read",
    ("DELETE", "/jobs/{id}"): "admin",
    ("POST", "/jobs/{id}/cancel"): "operate",
    ("POST", "/jobs/{id}/retry"): "operate",
    ("GET", "/jobs/{id}/events"): "read",
    ("GET", "/jobs/{id}/artifacts"): "read",
    ("GET", "/jobs/{id}/artifacts/{path:path}"): "read",
    ("POST", "/uploads"): "operate",
    ("GET", "/tokens"): "admin",
    ("POST", "/tokens"): "admin",
    ("DELETE", "/tokens/{id}"): "admin",
    ("POST", "/sessions"): "none",
    ("POST", "/sessions/codes"): "admin",
}
SCOPES: tuple[Scope, ...] = ("read", "operate", "admin")


def routes() -> list[BaseRoute]:
    home = Path("nowhere")
    return create_app(Orchestrator(home, FakeRunner(trains_to([1.0]))), settings=Settings()).routes


def operations() -> list[tuple[str, str]]:
    """Every method and path of the app. One that is no API route has no scope to be checked by."""
    found = []
    for route in routes():
        assert isinstance(route, APIRoute), route
        found += [(method, route.path) for method in sorted(route.methods or ())]
    return found


GUARDED = [
    pytest.param(*pair, id=" ".join(pair)) for pair in operations() if NEEDED[pair] != "none"
]


def address(path: str) -> str:
    return path.replace("{ref}", "last").replace("{path:path}", "spec.yaml").replace("{id}", "x")


def test_every_route_needs_what_it_was_meant_to_need() -> None:
    seen = {
        (method, route.path): (route.openapi_extra or {})["x-scope"]
        for route in routes()
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    assert seen == NEEDED


def test_to_delete_needs_an_admin_whatever_it_is() -> None:
    assert {scope for (method, _), scope in NEEDED.items() if method == "DELETE"} == {"admin"}


def test_a_route_that_does_not_say_what_it_needs_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="does not say which right it needs"):
        router("careless").get("/careless")(lambda: None)


@pytest.fixture(scope="module")
def tokenless(tmp_path_factory: pytest.TempPathFactory) -> Api:
    return Api(Orchestrator(tmp_path_factory.mktemp("home"), FakeRunner(trains_to([1.0]))))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Api, dict[str, str]]:
    """An API with tokens of every kind, by what they are."""
    api = Api(Orchestrator(tmp_path_factory.mktemp("home"), FakeRunner(trains_to([1.0]))))
    tokens = Tokens(api.orchestrator.store)
    texts: dict[str, str] = {scope: tokens.create(scope, scope)[1] for scope in SCOPES}
    yesterday = Tokens(api.orchestrator.store, clock=lambda: time.time() - 86_400)
    texts["expired"] = yesterday.create("expired", "admin", lifetime_s=60)[1]
    revoked, texts["revoked"] = tokens.create("revoked", "admin")
    tokens.revoke(revoked.id)
    last = texts["admin"][-1]
    texts["wrong"] = texts["admin"][:-1] + ("A" if last != "A" else "B")
    texts |= {"cut short": "rlctl_", "too long": "x" * 300, "not ASCII": "ä"}
    return api, texts


@pytest.mark.parametrize(("method", "path"), GUARDED)
class TestEveryRoute:
    """Parametrised over the app's own routes, so that a new one cannot be forgotten."""

    def test_refuses_callers_without_a_token(
        self, keys: tuple[Api, dict[str, str]], method: str, path: str
    ) -> None:
        answer = keys[0].client(None).request(method, address(path))
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "unauthorized"

    def test_refuses_callers_from_anywhere_even_while_no_token_exists(
        self, tokenless: Api, method: str, path: str
    ) -> None:
        for peer in ("127.0.0.1", "::1", "192.0.2.7"):
            answer = tokenless.client(None, peer=peer).request(method, address(path))
            assert answer.status_code == 401, peer

    def test_refuses_wrong_expired_and_revoked_tokens(
        self, keys: tuple[Api, dict[str, str]], method: str, path: str
    ) -> None:
        api, texts = keys
        client = api.client(None)
        for kind in texts.keys() - SCOPES:
            header = {b"Authorization": f"Bearer {texts[kind]}".encode("latin-1")}
            answer = client.request(method, address(path), headers=header)
            assert answer.status_code == 401, kind
            assert "invalid_token" in answer.headers["www-authenticate"]

    def test_refuses_tokens_that_allow_less_and_lets_in_those_that_allow_it(
        self, keys: tuple[Api, dict[str, str]], method: str, path: str
    ) -> None:
        api, texts = keys
        enough = [str(scope) for scope in SCOPES].index(NEEDED[method, path])
        for place, scope in enumerate(SCOPES):
            answer = api.client(texts[scope]).request(method, address(path))
            assert (answer.status_code == 403) == (place < enough), scope
            assert answer.status_code != 401
            assert answer.status_code < 500
            challenge = answer.headers.get("www-authenticate", "")
            assert ("insufficient_scope" in challenge) == (place < enough)


def test_paths_that_do_not_exist_are_no_way_around_the_tokens(api: Api) -> None:
    token = api.token("read")
    assert api.client(None).get("/nothing").status_code == 401
    answer = api.client(token).get("/nothing")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_token_opens_until_it_is_revoked(api: Api) -> None:
    made = api.client().post("/tokens", json={"name": "first", "scope": "admin"}).json()
    client = api.client(made["secret"])
    assert client.get("/tokens").json()["tokens"] == [made["token"]]
    assert client.delete("/tokens/first").status_code == 200
    assert client.get("/tokens").status_code == 401


class TestInsecureLoopback:
    """The old way, for those who ask for it: whoever is on this machine is an admin."""

    def test_lets_in_whoever_is_on_this_machine_whether_tokens_exist_or_not(self, api: Api) -> None:
        client = api.client(None, insecure_loopback=True)
        assert client.get("/tokens").status_code == 200
        api.token()
        assert client.get("/tokens").status_code == 200

    def test_lets_in_nobody_from_elsewhere_and_no_wrong_token(self, api: Api) -> None:
        far = api.client(None, peer="192.0.2.7", insecure_loopback=True)
        assert far.get("/runs").status_code == 401
        assert api.client("wrong", insecure_loopback=True).get("/runs").status_code == 401

    @pytest.mark.parametrize(
        "header",
        ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "X-Forwarded-Host",
         "X-Forwarded-Proto", "X-Client-IP", "CF-Connecting-IP", "True-Client-IP"],
    )  # fmt: skip
    def test_a_proxy_does_not_make_its_callers_loopback(self, api: Api, header: str) -> None:
        client = api.client(None, insecure_loopback=True)
        assert client.get("/runs", headers={header: "127.0.0.1"}).status_code == 401

    def test_who_uses_another_name_or_comes_from_another_page_needs_a_token(self, api: Api) -> None:
        """A proxy on this machine that adds no header is known by the name that it passes on."""
        names = ("lab.example.org",)
        pages = ("https://console.example.org", "http://localhost:3000")
        client = api.client(
            None, insecure_loopback=True, allowed_hosts=names, allowed_origins=pages
        )
        assert client.get("/runs").status_code == 200
        assert client.get("/runs", headers={"Host": "lab.example.org"}).status_code == 401
        assert client.get("/runs", headers={"Origin": pages[0]}).status_code == 401
        assert client.get("/runs", headers={"Origin": "http://lab.example.org"}).status_code == 401
        assert client.get("/runs", headers={"Origin": pages[1]}).status_code == 200


def test_the_services_own_token_counts_as_an_admins_whether_others_exist_or_not(api: Api) -> None:
    client = api.client("mine-0123", own_token="mine-0123", peer="192.0.2.7")
    assert client.get("/tokens").status_code == 200
    api.token()
    assert client.get("/tokens").status_code == 200
    other = api.client("mine-0124", own_token="mine-0123")
    assert other.get("/tokens").status_code == 401


def test_only_the_header_counts_and_only_once(api: Api) -> None:
    token = api.token()
    client = api.client(None)
    assert client.get(f"/runs?token={token}&access_token={token}").status_code == 401
    assert client.get("/runs", headers={"Authorization": f"Basic {token}"}).status_code == 401
    assert client.get("/runs", headers={"Authorization": f"bearer  {token}"}).status_code == 200
    twice = [("Authorization", f"Bearer {token}"), ("Authorization", "Bearer x")]
    assert client.get("/runs", headers=twice).status_code == 401


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_health_and_readiness_need_no_token(api: Api, path: str) -> None:
    api.token()
    assert api.client(None, peer="192.0.2.7").get(path).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:7311", "localhost.evil.example:7311", "localhost:7312",
     "localhost", "127.0.0.1:80", "localhost:7311@evil.example", "", "127.0.0.1:7311, x"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/runs", "/health"])
def test_a_foreign_host_is_refused(api: Api, host: str, path: str) -> None:
    answer = api.client().get(path, headers={"Host": host})
    assert answer.status_code == 421
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "host", ["localhost:7311", "127.0.0.1:7311", "[::1]:7311", "LOCALHOST:7311"]
)
def test_loopback_names_with_the_port_are_known(api: Api, host: str) -> None:
    assert api.client().get("/runs", headers={"Host": host}).status_code == 200


def test_configured_hosts_are_known_with_and_without_the_port(api: Api) -> None:
    client = api.client(api.token(), allowed_hosts=("lab.example.org",))
    for host in ("lab.example.org", "lab.example.org:7311"):
        assert client.get("/runs", headers={"Host": host}).status_code == 200
    assert client.get("/runs", headers={"Host": "lab.example.org:80"}).status_code == 421


@pytest.mark.parametrize(
    ("name", "expected"),
    [("localhost", True), ("LOCALHOST:7311", True), ("127.0.0.1", True), ("127.8.8.8:80", True),
     ("[::1]:7311", True), ("[::ffff:127.0.0.1]", True), ("localhost.example.org", False),
     ("localhost:80@example.org", False), ("127.0.0.1.example.org", False), ("", False),
     ("10.0.0.1:80", False), ("[::2]", False), ("localhost:", False), ("localhost:80:80", False)],
)  # fmt: skip
def test_a_loopback_name_can_only_be_this_machines(name: str, expected: bool) -> None:
    assert is_loopback_name(name) is expected
    assert is_loopback_origin(f"http://{name}") is expected
    assert not is_loopback_origin(f"file://{name}")


def test_an_address_of_version_4_is_known_where_it_comes_wrapped_into_one_of_version_6() -> None:
    scope = {"server": ("::ffff:192.0.2.1", 7311), "scheme": "http"}
    assert "192.0.2.1:7311" in allowed_names(Settings(host="::"), scope)


def test_the_address_that_a_connection_came_in_at_is_known_and_the_wildcard_is_not() -> None:
    scope = {"server": ("192.0.2.1", 7311), "scheme": "http"}
    names = allowed_names(Settings(host="0.0.0.0"), scope)
    assert "192.0.2.1:7311" in names
    assert "0.0.0.0:7311" not in names
    assert "box:7311" in allowed_names(Settings(host="box"), scope)


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://localhost:7312", "https://localhost.evil.example:7311",
     "file://", "localhost:7311", "http://localhost:7311.evil.example"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
def test_a_foreign_origin_is_refused_and_gets_no_cors_headers(
    api: Api, origin: str, method: str
) -> None:
    client = api.client(allowed_origins=("https://console.example.org",))
    answer = client.request(method, "/runs", headers={"Origin": origin})
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_pages_of_the_service_itself_and_of_allowed_origins_are_welcome(api: Api) -> None:
    console = "https://console.example.org"
    client = api.client(allowed_origins=(console,))
    own = client.get("/runs", headers={"Origin": "http://localhost:7311"})
    assert own.status_code == 200
    answer = client.get("/runs", headers={"Origin": console})
    assert answer.headers["access-control-allow-origin"] == console
    asked = {"Origin": console, "Access-Control-Request-Method": "POST"}
    assert client.options("/experiments", headers=asked).status_code == 200


def test_callers_have_a_share_of_requests_and_are_told_when_to_come_back(api: Api) -> None:
    client = api.client(api.token("read"), requests_per_s=0.001, burst=3)
    assert [client.get("/runs").status_code for _ in range(4)] == [200, 200, 200, 429]
    refused = client.get("/runs")
    assert refused.json()["code"] == "too_many_requests"
    assert 0 < int(refused.headers["retry-after"]) <= 1000


def test_each_token_has_a_share_of_its_own_and_the_service_has_no_limit(api: Api) -> None:
    first, second = api.token("read"), api.token("read")
    client = api.client(own_token="own", requests_per_s=0.001, burst=2)

    def statuses(token: str) -> list[int]:
        headers = {"Authorization": f"Bearer {token}"}
        return [client.get("/options", headers=headers).status_code for _ in range(3)]

    assert statuses(first) == [200, 200, 429]
    assert statuses(second) == [200, 200, 429]
    assert statuses("wrong") == [401, 401, 429]
    assert statuses("own") == [200, 200, 200]


def test_who_guesses_tokens_is_refused_before_the_database_is_asked_and_holds_up_no_other(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    check = Tokens.check

    def noted(tokens: Tokens, text: str, now: float) -> Token | None:
        asked.append(text)
        return check(tokens, text, now)

    monkeypatch.setattr(Tokens, "check", noted)
    token = api.token("read")
    client = api.client(requests_per_s=0.001, burst=3)

    def status(text: str) -> int:
        return client.get("/options", headers={"Authorization": f"Bearer {text}"}).status_code

    assert status(token) == 200
    assert [status(f"guess{n}") for n in range(6)] == [401, 401, 401, 429, 429, 429]
    assert asked == [token, "guess0", "guess1", "guess2"]
    assert status(token) == 200


def test_loopback_is_recognised_in_every_spelling() -> None:
    near = ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1")
    assert [is_loopback(address) for address in near] == [True] * 4
    far = ("10.0.0.1", "::ffff:10.0.0.1", "0.0.0.0", "::", "localhost", "nobody", "")
    assert not any(map(is_loopback, far))


def test_an_operation_that_needs_nothing_is_declared_without_security() -> None:
    assert operation("x", None, "none")["openapi_extra"]["security"] == []
    assert 401 not in operation("x", None, "none")["responses"]
