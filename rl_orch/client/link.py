"""One service, spoken to in JSON: requests that may be repeated are, and a problem document becomes
the very error that the orchestrator would have raised.
"""

import ipaddress
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import httpx

from rl_orch.errors import (
    BadInput,
    Problem,
    RlctlError,
    SpecInvalid,
    TooMany,
    Unavailable,
    kind_of,
)
from rl_orch.io.processes.pids import somebody

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0
USER = "X-Rlctl-User"
"""The header that says who asks. Nobody is let in by it; it is kept beside the token's name."""

BLOCK_BYTES = 1 << 20
LONG_S = 120.0
"""How long a service may say nothing on a connection that lasts."""

SAID = 200
"""Characters of an answer that is not ours that an error repeats."""

NONE: Mapping[str, Any] = {}


class HttpLink:
    """Requests to one address, with one token. Redirects are not followed."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        timeout_s: float,
        patience_s: float,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = checked(url)
        self._patience_s = patience_s
        self._http = httpx.Client(
            base_url=self.url,
            headers={USER: somebody().encode("ascii", "replace").decode()}
            | ({} if token is None else {"Authorization": f"Bearer {_sendable(token)}"}),
            timeout=timeout_s,
            follow_redirects=False,
            # A proxy has no business with what stays on this machine.
            trust_env=not is_loopback(self.url),
            transport=transport,
        )

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def get(
        self, path: str, parameters: Mapping[str, Any] = NONE, *, timeout_s: float | None = None
    ) -> Any:
        """What the service has there; parameters that are None are left out."""
        return self._asked("GET", path, timeout_s, params=_given(parameters))

    def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        key: str | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """What comes of it; what is None in the body is left out. Repeated after a broken
        connection only where a key makes that safe."""
        headers = {} if key is None else {"Idempotency-Key": key}
        return self._asked("POST", path, timeout_s, json=_given(body), headers=headers)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """What was changed, as it is then."""
        return self._asked("PATCH", path, json=_given(body))

    def delete(self, path: str) -> Any:
        """What was deleted."""
        return self._asked("DELETE", path)

    def send(self, path: str, file: BinaryIO, size: int) -> Any:
        """What comes of sending the bytes of a file."""
        headers = {"Content-Length": str(size), "Content-Type": "application/x-tar"}
        blocks = iter(lambda: file.read(BLOCK_BYTES), b"")
        return self._asked("POST", path, LONG_S, content=blocks, headers=headers)

    def fetch(self, path: str, target: Path) -> None:
        """Write a file of the service to a path, whole or not at all."""
        partial = target.with_name(f".{target.name}.part")
        try:
            with self._streamed(path) as response, partial.open("wb") as file:
                for block in response.iter_bytes():
                    file.write(block)
            partial.replace(target)
        except OSError as error:
            raise RlctlError(f"{str(target)!r} cannot be written: {error.strerror}") from None
        finally:
            partial.unlink(missing_ok=True)

    def stream(self, path: str) -> Iterator[tuple[str, str]]:
        """The server-sent events of a path: name and data of each, until there are no more."""
        with self._streamed(path) as response:
            event = ""
            for line in response.iter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    event = value
                elif name == "data":
                    yield event, value

    @contextmanager
    def _streamed(self, path: str) -> Iterator[httpx.Response]:
        try:
            with self._http.stream("GET", path, timeout=LONG_S) as response:
                if not response.is_success:
                    response.read()
                    _content(response, self.url)
                yield response
        except httpx.RequestError as error:
            raise _unavailable(self.url, error) from error

    def _asked(self, method: str, path: str, timeout_s: float | None = None, **content: Any) -> Any:
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else timeout_s
        request = self._http.build_request(method, path, timeout=timeout, **content)
        again = method == "GET" or "Idempotency-Key" in request.headers
        pauses = self._pauses() if again else iter(())
        while True:
            try:
                return _content(self._http.send(request), self.url)
            except httpx.TimeoutException as error:
                raise _unavailable(self.url, error) from error
            except (httpx.RequestError, Unavailable, TooMany) as error:
                pause = next(pauses, None)
                if pause is None and isinstance(error, httpx.RequestError):
                    raise _unavailable(self.url, error) from error
                if pause is None:
                    raise
            time.sleep(pause)

    def _pauses(self) -> Iterator[float]:
        """How long to wait before each further try, as far as the patience goes."""
        deadline, pause = time.monotonic() + self._patience_s, FIRST_PAUSE_S
        while time.monotonic() + pause < deadline:
            yield pause
            pause = min(2 * pause, LONGEST_PAUSE_S)


def checked(url: str) -> str:
    """The address without a slash at its end, if it is one that a service can have."""
    if "@" in url:
        raise BadInput(
            "the address of a service holds no user and no password",
            hint="Give a token instead: RLCTL_TOKEN.",
        )
    try:
        parts, _ = urlsplit(url), httpx.URL(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        good = False
    if not good or parts.query or parts.fragment or " " in url:
        raise BadInput(
            f"{url!r} is not the address of a service", hint="For example: http://127.0.0.1:7311"
        )
    return url.rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether an address is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def error_from(status: int, document: Mapping[str, Any]) -> RlctlError:
    """The error that a problem document tells of."""
    problems = [_problem(row) for row in document.get("problems") or () if isinstance(row, dict)]
    kind = kind_of(str(document.get("code")), status)
    if kind is SpecInvalid and problems:
        return SpecInvalid(problems)
    if kind is SpecInvalid:
        kind = BadInput
    detail = document.get("detail") or document.get("title") or f"the service answered {status}"
    return kind(str(detail), path=_text(document.get("path")), hint=_text(document.get("hint")))


def refusal_from(rows: Sequence[Mapping[str, Any]]) -> RlctlError:
    """The error that the findings of a check tell of. Older services do not say its code."""
    code = str(rows[0].get("code") or ("bad_input" if rows[0].get("path") is None else ""))
    if code in ("", SpecInvalid.code):
        return SpecInvalid([_problem(row) for row in rows])
    return error_from(BadInput.http_status, {**rows[0], "code": code, "detail": rows[0]["message"]})


def _sendable(token: str) -> str:
    """The token, if a header can hold it. It is never repeated."""
    if not token or not all("!" <= character <= "~" for character in token):
        raise BadInput(
            "the token is empty, or has characters in it that no token has, such as line ends",
            hint="RLCTL_TOKEN is the line that `rlctl token create` has printed, and no more.",
        )
    return token


def _content(response: httpx.Response, url: str) -> Any:
    """What a good answer holds. Any other is raised as the error that it tells of."""
    try:
        document = response.json()
    except ValueError:
        raise _foreign(response, url) from None
    if response.is_success:
        return document
    if not isinstance(document, dict) or "detail" not in document or response.is_redirect:
        raise _foreign(response, url)
    raise error_from(response.status_code, document)


def _foreign(response: httpx.Response, url: str) -> RlctlError:
    """An answer that no service of ours gives."""
    if response.is_redirect:
        where = response.headers.get("location", "nowhere")
        return BadInput(
            f"{url} sends its callers on to {where}, and redirects are not followed",
            hint="Give the address of the service itself.",
        )
    said = " ".join(response.text.split())[:SAID]
    message = f"{url} answered {response.status_code} with what is no answer of ours: {said!r}"
    if response.status_code in (502, 503, 504):
        return Unavailable(message)
    return RlctlError(message, hint="Is that the address of an rlctl service?")


def _unavailable(url: str, failure: httpx.RequestError) -> Unavailable:
    if isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout):
        return Unavailable(
            f"no service answers at {url}: {failure}",
            hint="`rlctl up` starts one; --server or RLCTL_SERVER says which to use.",
        )
    if isinstance(failure, httpx.TimeoutException):
        return Unavailable(f"the service at {url} did not answer in time")
    return Unavailable(f"the connection to {url} broke: {failure or type(failure).__name__}")


def _problem(row: Mapping[str, Any]) -> Problem:
    path, message = str(row.get("path") or ""), str(row.get("message", ""))
    return Problem(path, row.get("value"), message, _text(row.get("hint")))


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
