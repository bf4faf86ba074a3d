"""Addresses and names: which are this machine's own, and which name this service."""

import ipaddress
import re
from collections.abc import Iterable

from starlette.types import Scope

from rl_orch.http.settings import Settings

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
FORWARDED = frozenset(
    {
        b"cf-connecting-ip",
        b"forwarded",
        b"true-client-ip",
        b"via",
        b"x-client-ip",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-real-ip",
    }
)
"""Headers that a proxy adds, and nobody else."""

PEER_UID = "peer_uid"
"""Where the state of a request says whose process sent it; only a connection writes it."""

PLAIN_PORTS = {"http": 80, "https": 443}
AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:@/?#]+)(?::[0-9]{1,5})?", re.IGNORECASE)


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
    parsed = _parsed(address)
    return parsed is not None and parsed.is_loopback


def is_loopback_name(authority: str) -> bool:
    """Whether a name, with or without a port, can only be this machine's."""
    match = AUTHORITY.fullmatch(authority)
    name = "" if match is None else match[1].lower()
    return name == "localhost" or is_loopback(name.strip("[]"))


def is_loopback_origin(origin: str) -> bool:
    """Whether web pages of an origin come from this machine."""
    scheme, _, authority = origin.partition("://")
    return scheme in PLAIN_PORTS and is_loopback_name(authority)


def is_near(scope: Scope) -> bool:
    """Whether the caller is on this machine, knows it as that, and is no proxy for others.

    A name from elsewhere shows a proxy that adds no header, or a page that rebinds its own name.
    """
    if is_forwarded(scope):
        return False
    named = all(map(is_loopback_name, values(scope, b"host")))
    local = all(map(is_loopback_origin, values(scope, b"origin")))
    return named and local and is_loopback(peer(scope))


def is_forwarded(scope: Scope) -> bool:
    """Whether a proxy says that it asks for somebody else."""
    return any(name in FORWARDED for name, _ in scope["headers"])


def peer(scope: Scope) -> str:
    """The address that a request came from."""
    client = scope.get("client")
    if client is not None:
        return str(client[0])
    uid = peer_uid(scope)
    return "nobody" if uid is None else f"user {uid}"


def peer_uid(scope: Scope) -> int | None:
    """Whose process sent a request over the Unix socket, as the kernel says; None elsewhere."""
    uid: int | None = scope.get("state", {}).get(PEER_UID)
    return uid


def values(scope: Scope, name: bytes) -> list[str]:
    """Every value that a request has of a header."""
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1") for key, value in headers if key == name]


def _literal(name: str) -> str | None:
    """An address as it stands in a Host header: empty for the wildcard, None for a name."""
    parsed = _parsed(name)
    if parsed is None:
        return None
    if parsed.is_unspecified:
        return ""
    return f"[{parsed}]" if parsed.version == 6 else str(parsed)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address, the one of version 4 where it is wrapped into one of version 6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed
