"""Whether a service answers at all, found out within a time that is given."""

import socket
import time
from urllib.parse import urlsplit

QUESTION = "GET /health HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"


def answers(url: str, *, within_s: float) -> bool:
    """Whether a service says anything within so many seconds. One that was halted takes
    connections, as its system does that for it, and says nothing."""
    deadline = time.monotonic() + within_s
    try:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port), timeout=within_s) as line:
            line.sendall(QUESTION.format(parts.netloc).encode())
            line.settimeout(max(0.001, deadline - time.monotonic()))
            return bool(line.recv(1))
    except (OSError, ValueError):
        return False
