"""The server: where it listens, how it refuses to be open, and how it ends."""

import contextlib
import logging
import socket
import threading
from typing import Any

import httpx
import pytest

from rl_orch.core.store.tokens import Tokens
from rl_orch.errors import BadInput
from rl_orch.http.serving import serve
from rl_orch.testing import a_spec
from tests.api.conftest import OWNER, OWNER_LINE, Api
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_binding_beyond_loopback_without_a_token_is_refused(api: Api, host: str) -> None:
    with pytest.raises(BadInput, match=f"--host {host} is not loopback, and no token exists") as e:
        serve(api.app(), host, 0, until=threading.Event())
    assert "rlctl token create" in str(e.value.hint)


def test_a_revoked_token_is_none(api: Api) -> None:
    tokens = Tokens(api.orchestrator.store)
    tokens.revoke(tokens.create("old", "admin")[0].id)
    with pytest.raises(BadInput, match="no token exists"):
        serve(api.app(), "0.0.0.0", 0, until=threading.Event())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"allowed_hosts": ("localhost", "lab.example.org")}, "--allow-host lab.example.org"),
        ({"allowed_origins": ("https://lab.example.org",)}, "--allow-origin https://lab.example"),
    ],
)
def test_names_beyond_loopback_without_a_token_are_refused(
    api: Api, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadInput, match=f"{named}.* is not loopback, and no token exists"):
        serve(api.app(**changes), "127.0.0.1", 0, until=threading.Event())


def test_names_beyond_loopback_are_served_with_a_token_and_those_of_loopback_without(
    api: Api,
) -> None:
    with api.served(allowed_hosts=("127.0.0.2",), allowed_origins=("http://localhost:3000",)):
        pass
    api.token()
    with api.served(allowed_hosts=("lab.example.org",)):
        pass


def test_what_strangers_send_is_not_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with api.served() as server:
        for junk in (b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n"):
            with socket.create_connection(server.address, timeout=PATIENCE_S) as client:
                client.sendall(junk)
                assert client.recv(1000)
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def test_with_a_token_it_listens_everywhere_and_lets_nobody_in_without(api: Api) -> None:
    token, until, urls = api.token(), threading.Event(), list[str]()

    answers: list[int] = []

    def look() -> None:
        here = urls[0].replace("0.0.0.0", "127.0.0.1")
        answers.append(httpx.get(f"{here}/runs", timeout=PATIENCE_S).status_code)
        headers = {"Authorization": f"Bearer {token}"}
        answers.append(httpx.get(f"{here}/runs", headers=headers, timeout=PATIENCE_S).status_code)
        until.set()

    def ask(url: str) -> None:
        urls.append(url)
        threading.Thread(target=look).start()

    serve(api.app(host="0.0.0.0"), "0.0.0.0", 0, until=until, started=ask)
    assert answers == [401, 200]
    assert urls[0].startswith("http://0.0.0.0:")


def test_a_port_that_is_taken_is_named(api: Api) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=f"cannot listen on port {port} of 127.0.0.1"):
            serve(api.app(), "127.0.0.1", port, until=threading.Event())


def test_a_host_that_does_not_exist_is_named(api: Api) -> None:
    with pytest.raises(BadInput, match="--host is 'no such host'"):
        serve(api.app(), "no such host", 0, until=threading.Event())


def test_ipv6_loopback_is_loopback(api: Api) -> None:
    until, statuses = threading.Event(), list[int]()

    def ask(url: str) -> None:
        def look() -> None:
            statuses.append(httpx.get(f"{url}/runs", headers=OWNER, timeout=PATIENCE_S).status_code)
            until.set()

        threading.Thread(target=look).start()

    serve(api.app(), "::1", 0, until=until, started=ask)
    assert statuses == [200]


def test_it_ends_though_streams_are_open_and_clients_stalled(api: Api) -> None:
    (run,) = api.orchestrator.submit(a_spec()).runs
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(api.served(shutdown_s=2))
        for _ in range(5):
            client = stack.enter_context(socket.create_connection(server.address))
            head = f"GET /runs/{run.id}/events/stream HTTP/1.1\r\n{OWNER_LINE}Host: localhost:"
            client.sendall(f"{head}{server.address[1]}\r\n\r\n".encode())
            assert b"text/event-stream" in client.recv(1000)
        server.until.set()
        server.thread.join(PATIENCE_S)
        assert not server.thread.is_alive()
