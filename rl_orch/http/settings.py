"""What the HTTP API is told when it is made: where it listens, whom it lets in, and its limits."""

from dataclasses import dataclass, field

PORT = 7311


@dataclass(frozen=True, slots=True)
class Settings:
    """How the API is set up. Times are in seconds.

    `allowed_hosts` are names that callers may use besides the loopback ones, with or without a
    port; `allowed_origins` are whole origins of web pages, as `https://console.example.org`.
    `own_token` counts as an admin's token while this process lives. Over a Unix socket, the users
    in `owner_uids` need none. `insecure_loopback` lets in as an admin whoever is on this machine.
    `allowed_modules` may be named by callers who are no admins.
    """

    host: str = "127.0.0.1"
    port: int = PORT
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    own_token: str | None = field(default=None, repr=False)
    owner_uids: frozenset[int] = frozenset()
    insecure_loopback: bool = False
    allowed_modules: tuple[str, ...] = ()
    max_body_bytes: int = 1 << 20
    max_upload_bytes: int = 4 << 30
    requests_per_s: float = 100.0
    burst: int = 200
    max_connections: int = 2000
    connections_per_peer: int = 512
    streams_per_caller: int = 256
    request_timeout_s: float = 10.0
    stall_timeout_s: float = 60.0
    idle_timeout_s: int = 15
    shutdown_s: int = 3
    keep_alive_s: float = 15.0
    poll_s: float = 0.2
