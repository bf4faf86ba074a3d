"""One-time codes, by which a browser comes to a token that nobody had to type.

A code is shown on the terminal of whoever may make one, counts once and for minutes, and is kept
as a digest in memory: it is in no file and no log, and ends with the service.
"""

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from rl_orch.core.store.tokens import Scope

LIFETIME_S = 300.0
MOST_OPEN = 16
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base 32: no letter that is taken for a digit, or for another letter."""

LENGTH = 12
"""Sixty bits: at a hundred guesses a second, a code is hit in none of a thousand lifetimes."""

READ_AS = str.maketrans("OIL", "011", "- ")


class OneTimeCodes:
    """The codes that are open. `timer` is monotonic."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._lock = threading.Lock()
        self._open: OrderedDict[bytes, tuple[Scope, float]] = OrderedDict()

    def create(self, scope: Scope) -> str:
        """A new code, as `K7QM-93TX-B4DZ`. Of too many that are open, the oldest ends."""
        code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
        with self._lock:
            self._open[_digest(code)] = (scope, self._timer() + LIFETIME_S)
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
        return "-".join(code[at : at + 4] for at in range(0, LENGTH, 4))

    def redeem(self, code: str) -> Scope | None:
        """What a code allows, this once; None if it is unknown, used or too old."""
        with self._lock:
            scope, until = self._open.pop(_digest(code), (None, 0.0))
        return scope if until > self._timer() else None


def _digest(code: str) -> bytes:
    """The digest of a code, in whichever way it was typed."""
    return hashlib.sha256(code.upper().translate(READ_AS).encode()).digest()
