"""Who may come in: names and origins by exact match, then bearer tokens and what they allow.

Loopback is not a user: who calls from this machine shows a token as well, or comes by way of the
Unix socket in the home, where the kernel says whose process it is.
"""

import hashlib
import hmac
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from rl_orch.core.store.tokens import Tokens
from rl_orch.errors import BadInput, Refused, RlctlError, TooMany, Unauthorized
from rl_orch.http.addresses import (
    PLAIN_PORTS,
    allowed_names,
    is_forwarded,
    is_near,
    peer,
    peer_uid,
    values,
)
from rl_orch.http.limits import Buckets
from rl_orch.http.problems import HttpProblem, respond
from rl_orch.http.settings import Settings
from rl_orch.http.threads import admissions
from rl_orch.io.service_note import SOCKET
from rl_orch.spec.code import NamedCode

Right = Literal["none", "read", "operate", "admin"]
RIGHTS: tuple[Right, ...] = ("none", "read", "operate", "admin")
"""What an operation needs and what a token gives, each with all before it."""

OPEN_PATHS = frozenset({"/health", "/ready", "/sessions"})
"""What answers without a secret: that it lives, and the exchange of a one-time code."""

BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/=-]{1,200})", re.IGNORECASE)
MOST_KNOWN = 1000
"""Tokens that counted lately, by their digests."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: a name for messages, what they may do, and whose share of requests they use.

    An owner has the service's own token, or is its user at the Unix socket.
    """

    name: str
    right: Right
    share: str | None
    is_owner: bool = False


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
        hosts, origins = values(scope, b"host"), values(scope, b"origin")
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
        self._settings = settings
        self._own = None if settings.own_token is None else _digest(settings.own_token)
        self._buckets = Buckets(settings.requests_per_s, settings.burst)
        self._clock = clock
        self._known: OrderedDict[bytes, None] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on with the caller in the scope's state, or refuse."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        try:
            state["caller"] = await self._admitted(scope)
        except (RlctlError, HttpProblem) as error:
            await respond(error, scope["path"])(scope, receive, send)
            return
        state["still_welcome"] = partial(self._is_still_welcome, scope)
        await self._app(scope, receive, send)

    async def _is_still_welcome(self, scope: Scope) -> bool:
        """Whether a request that lasts would be let in now as well."""
        given = values(scope, b"authorization")
        try:
            return bool(self._owner(given, scope) or await admissions(self.caller, given, scope))
        except HttpProblem:
            return False
        except RlctlError:  # A database that is away says nothing about the caller.
            return True

    async def _admitted(self, scope: Scope) -> Caller:
        address = peer(scope)
        if scope["path"] in OPEN_PATHS:
            self._count(address)
            return Caller("anyone", "none", address)
        given = values(scope, b"authorization")
        owner = self._owner(given, scope)
        if owner is not None:
            return owner
        self._refuse_guessing(address, given)
        try:
            caller = await admissions(self.caller, given, scope)
        except HttpProblem:
            self._known.pop(_digest_of(given) or b"", None)
            self._count(address)
            raise
        self._remember(given)
        if caller.share is not None:
            self._count(caller.share)
        return caller

    def _refuse_guessing(self, address: str, given: list[str]) -> None:
        """Raise before the database is asked, if too much that is wrong came from an address.

        A token that counted lately is not held up by what others at its address guess.
        """
        wait_s = 0.0 if _digest_of(given) in self._known else self._buckets.wait_s(address)
        if wait_s > 0.0:
            raise _too_many(wait_s)

    def _remember(self, given: list[str]) -> None:
        digest = _digest_of(given)
        if digest is not None:
            self._known[digest] = None
            self._known.move_to_end(digest)
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)

    def caller(self, given: list[str], scope: Scope) -> Caller:
        """Who asks, by the database."""
        if not given:
            if self._settings.insecure_loopback and is_near(scope):
                return Caller("loopback", "admin", peer(scope))
            raise _no_token()
        secret = _secret(given)
        token = None if secret is None else self._tokens().check(secret, self._clock())
        if token is None:
            raise _wrong_token()
        return Caller(f"token {token.name!r}", token.scope, f"token {token.id}")

    def _owner(self, given: list[str], scope: Scope) -> Caller | None:
        """Whose service it is, if it is they who ask: by the own token, or by the Unix socket."""
        uid, digest = peer_uid(scope), _digest_of(given)
        # Not one who asks as a proxy for others.
        if not given and uid in self._settings.owner_uids and not is_forwarded(scope):
            return Caller(f"user {uid}", "admin", None, is_owner=True)
        if self._own and digest and hmac.compare_digest(digest, self._own):
            return Caller("the service's own token", "admin", None, is_owner=True)
        return None

    def _count(self, share: str) -> None:
        wait_s = self._buckets.take(share)
        if wait_s > 0.0:
            raise _too_many(wait_s)


def require(request: Request, needed: Right) -> None:
    """Raise if the caller may not do what needs this right."""
    caller: Caller = request.state.caller
    if RIGHTS.index(caller.right) < RIGHTS.index(needed):
        error = Refused(
            f"{caller.name} has the scope {caller.right}; this needs {needed}",
            hint=f"`rlctl token create --scope {needed}` makes a token that may.",
        )
        raise _challenged(error, f'Bearer error="insufficient_scope", scope="{needed}"')


def require_code(request: Request, named: Iterable[NamedCode]) -> None:
    """Raise if the caller may not have such code imported or run: the one check of it.

    An admin may, who can run any program anyway; others only what is on the allow-list.
    """
    caller: Caller = request.state.caller
    allowed = request.app.state.parts.settings.allowed_modules
    refused = [code for code in named if not code.is_within(allowed)]
    if caller.right != "admin" and refused:
        raise _code_refused(caller, refused[0])


def require_owner(request: Request, folders: Sequence[str]) -> None:
    """Raise if folders are to be searched for modules, and it is not the service's user who asks:
    others know none of this machine."""
    caller: Caller = request.state.caller
    if folders and not caller.is_owner:
        raise Refused(
            f"module_path is {list(folders)!r}; only the service's own user may name folders of "
            f"its machine, and {caller.name} is not them",
            path="module_path",
            hint="Leave it out; `rlctl up --module-path FOLDER` lets all be searched there.",
        )


def _code_refused(caller: Caller, code: NamedCode) -> HttpProblem:
    allow = f"`rlctl up --allow-modules {code.module}` allows that module to all who may operate; "
    error = Refused(
        f"{code.path} is {code.value!r}, which is code of the caller's choosing; {caller.name} has "
        f"the scope {caller.right}, and that needs admin",
        path=code.path,
        hint=f"{allow if code.module else ''}`rlctl token create --scope admin` makes a token that "
        "may run any code.",
    )
    return _challenged(error, 'Bearer error="insufficient_scope", scope="admin"')


def _secret(given: list[str]) -> str | None:
    match = BEARER.fullmatch(given[0].strip()) if len(given) == 1 else None
    return None if match is None else match.group(1)


def _digest_of(given: list[str]) -> bytes | None:
    secret = _secret(given)
    return None if secret is None else _digest(secret)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _no_token() -> HttpProblem:
    error = Unauthorized(
        "this needs a token: for rlctl in RLCTL_TOKEN, else `Authorization: Bearer rlctl_…`",
        hint="`rlctl token create` makes one; the service's own user needs none at its socket: "
        f"curl --unix-socket HOME/{SOCKET}.",
    )
    return _challenged(error, "Bearer")


def _wrong_token() -> HttpProblem:
    error = Unauthorized(
        "the token is unknown, expired or revoked",
        hint="`rlctl token create` makes one.",
    )
    return _challenged(error, 'Bearer error="invalid_token"')


def wrong_code() -> HttpProblem:
    """The answer to a one-time code that does not count."""
    error = Unauthorized(
        "the code is unknown, was used already, or is older than five minutes",
        path="code",
        hint="`rlctl token code` shows a new one, on the terminal of the service's own user.",
    )
    return _challenged(error, "Bearer")


def _challenged(error: Refused, challenge: str) -> HttpProblem:
    return HttpProblem(error, headers={"WWW-Authenticate": challenge})


def _too_many(wait_s: float) -> HttpProblem:
    seconds = math.ceil(wait_s)
    error = TooMany(f"too many requests; the next one is welcome in {seconds} s")
    return HttpProblem(error, headers={"Retry-After": str(seconds)})


def _foreign_host(hosts: list[str]) -> HttpProblem:
    seen = f"{hosts[0][:100]!r}" if len(hosts) == 1 else f"given {len(hosts)} times"
    error = BadInput(
        f"the header Host is {seen}, which is no name of this service",
        path="Host",
        hint="Use localhost, or let the service know the name: rlctl up --allow-host NAME.",
    )
    return HttpProblem(error, status=421)


def _foreign_origin(origins: list[str]) -> Refused:
    return Refused(
        f"pages from {origins[0][:100]!r} may not use this service",
        path="Origin",
        hint="Let the service know the origin: rlctl up --allow-origin ORIGIN.",
    )
