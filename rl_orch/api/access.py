"""Who may come in: names and origins by exact match, then bearer tokens and what they allow.

Loopback callers need no token while none exists; everybody else always needs one.
"""

import hashlib
import hmac
import ipaddress
import math
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from anyio import to_thread
from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from rl_orch.api.limits import Buckets
from rl_orch.api.problems import Answer, respond
from rl_orch.api.settings import Settings
from rl_orch.core.tokens import Tokens
from rl_orch.errors import BadInput, Refused, RlctlError, TooMany, Unauthorized

Right = Literal["none", "read", "operate", "admin"]
RIGHTS: tuple[Right, ...] = ("none", "read", "operate", "admin")
"""What an operation needs and what a token gives, each with all before it."""

OPEN_PATHS = frozenset({"/health", "/ready"})
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip"})
PLAIN_PORTS = {"http": 80, "https": 443}
BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/=-]{1,200})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: a name for messages, what they may do, and whose share of requests they use."""

    name: str
    right: Right
    share: str | None


class Doorway:
    """Lets in only requests that name this service, and only from pages that are allowed to.

    A foreign name is how a web page that rebinds its own name would reach a service on loopback.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or refuse."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        hosts, origins = _all(scope, b"host"), _all(scope, b"origin")
        names = allowed_names(self._settings, scope)
        if len(hosts) != 1 or hosts[0].lower() not in names:
            await respond(_foreign_host(hosts))(scope, receive, send)
        elif any(not self._welcomes(origin, names) for origin in origins):
            await respond(_foreign_origin(origins))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _welcomes(self, origin: str, names: frozenset[str]) -> bool:
        scheme, _, name = origin.partition("://")
        if origin in self._settings.allowed_origins:
            return True
        return scheme in PLAIN_PORTS and name in names


class Access:
    """Says who asks, or refuses them, and counts how much they ask."""

    def __init__(
        self,
        app: ASGIApp,
        tokens: Callable[[], Tokens],
        settings: Settings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._own = None if settings.own_token is None else _digest(settings.own_token)
        self._buckets = Buckets(settings.requests_per_s, settings.burst)
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on with the caller in the scope's state, or refuse."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        try:
            state["caller"] = await self._admitted(scope)
        except (RlctlError, Answer) as error:
            await respond(error, scope["path"])(scope, receive, send)
            return
        state["still_welcome"] = partial(self._is_still_welcome, scope)
        await self._app(scope, receive, send)

    async def _is_still_welcome(self, scope: Scope) -> bool:
        """Whether a request that lasts would be let in now as well."""
        given = _all(scope, b"authorization")
        try:
            return self._is_own(given) or bool(await to_thread.run_sync(self.caller, given, scope))
        except Answer:
            return False
        except RlctlError:  # A database that is away says nothing about the caller.
            return True

    async def _admitted(self, scope: Scope) -> Caller:
        peer = _peer(scope)
        if scope["path"] in OPEN_PATHS:
            self._count(peer)
            return Caller("anyone", "none", peer)
        given = _all(scope, b"authorization")
        if self._is_own(given):
            return Caller("the service's own token", "admin", None)
        try:
            caller = await to_thread.run_sync(self.caller, given, scope)
        except Answer:
            self._count(peer)
            raise
        if caller.share is not None:
            self._count(caller.share)
        return caller

    def caller(self, given: list[str], scope: Scope) -> Caller:
        """Who asks, by the database."""
        tokens = self._tokens()
        if not given:
            if _is_near(scope) and not tokens.any():
                return Caller("loopback", "admin", _peer(scope))
            raise _no_token()
        secret = _secret(given)
        token = None if secret is None else tokens.check(secret, self._clock())
        if token is None:
            raise _wrong_token()
        return Caller(f"token {token.name!r}", token.scope, f"token {token.id}")

    def _is_own(self, given: list[str]) -> bool:
        secret = _secret(given)
        if self._own is None or secret is None:
            return False
        return hmac.compare_digest(_digest(secret), self._own)

    def _count(self, share: str) -> None:
        wait_s = self._buckets.take(share)
        if wait_s > 0.0:
            raise _too_many(wait_s)


def require(request: Request, needed: Right) -> None:
    """Raise if the caller may not do what needs this right."""
    if needed == "none":
        return
    caller: Caller = request.state.caller
    if RIGHTS.index(caller.right) < RIGHTS.index(needed):
        error = Refused(
            f"{caller.name} has the scope {caller.right}; this needs {needed}",
            hint=f"`rlctl token create --scope {needed}` makes a token that may.",
        )
        raise _challenged(error, f'Bearer error="insufficient_scope", scope="{needed}"')


def allowed_names(settings: Settings, scope: Scope) -> frozenset[str]:
    """The values of a Host header that name this service, for one connection.

    Besides the configured ones: the loopback names and the address that the connection came in
    at, with its port. An address cannot be rebound.
    """
    address, port = scope.get("server") or (settings.host, settings.port)
    bound = settings.host if _literal(settings.host) is None else _literal(settings.host)
    own = [*LOOPBACK_NAMES, bound, _literal(address)]
    names = {name.lower() for name in (*own, *settings.allowed_hosts) if name}
    plain = port is None or port == PLAIN_PORTS.get(scope.get("scheme", "http"))
    bare = names if plain else {name.lower() for name in settings.allowed_hosts}
    return frozenset(bare | {f"{name}:{port}" for name in names if port is not None})


def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def _literal(name: str) -> str | None:
    """An address as it stands in a Host header: empty for the wildcard, None for a name."""
    try:
        parsed = ipaddress.ip_address(name)
    except ValueError:
        return None
    if parsed.is_unspecified:
        return ""
    return f"[{parsed}]" if parsed.version == 6 else str(parsed)


def _is_near(scope: Scope) -> bool:
    """Whether the caller is on this machine, and not behind a proxy that is."""
    if any(name in FORWARDED for name, _ in scope["headers"]):
        return False
    return is_loopback(_peer(scope))


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "nobody"


def _all(scope: Scope, name: bytes) -> list[str]:
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1") for key, value in headers if key == name]


def _secret(given: list[str]) -> str | None:
    found = BEARER.fullmatch(given[0].strip()) if len(given) == 1 else None
    return None if found is None else found.group(1)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _no_token() -> Answer:
    error = Unauthorized(
        "this needs a token, in the header `Authorization: Bearer rlctl_…`",
        hint="`rlctl token create` makes one.",
    )
    return _challenged(error, "Bearer")


def _wrong_token() -> Answer:
    error = Unauthorized(
        "the token is unknown, expired or revoked",
        hint="`rlctl token create` makes one.",
    )
    return _challenged(error, 'Bearer error="invalid_token"')


def _challenged(error: Refused, challenge: str) -> Answer:
    return Answer(error, headers={"WWW-Authenticate": challenge})


def _too_many(wait_s: float) -> Answer:
    seconds = math.ceil(wait_s)
    error = TooMany(f"too many requests; the next one is welcome in {seconds} s")
    return Answer(error, headers={"Retry-After": str(seconds)})


def _foreign_host(hosts: list[str]) -> Answer:
    seen = f"{hosts[0][:100]!r}" if len(hosts) == 1 else f"given {len(hosts)} times"
    error = BadInput(
        f"the header Host is {seen}, which is no name of this service",
        path="Host",
        hint="Use localhost, or let the service know the name: rlctl up --allow-host NAME.",
    )
    return Answer(error, status=421)


def _foreign_origin(origins: list[str]) -> Refused:
    return Refused(
        f"pages from {origins[0][:100]!r} may not use this service",
        path="Origin",
        hint="Let the service know the origin: rlctl up --allow-origin ORIGIN.",
    )
