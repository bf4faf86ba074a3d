"""How much a caller may send and ask: bounded bodies, bounded JSON, and a share of requests."""

import math
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import Request

from rl_orch.errors import BadInput, TooLarge, TooMany
from rl_orch.spec.reader import MAX_VALUES, parse_json

SHARES_KEPT = 10_000
MOST_MARKS = 10 * MAX_VALUES
"""Far more than any document may hold, counted before it is parsed, which is what takes time:
each value has one mark, and the rest are in texts."""

SURROGATE = re.compile("[\ud800-\udfff]")


class Buckets:
    """A token bucket for each caller: `per_s` requests a second, and `burst` at once.

    Only so many callers are remembered; the one that was quiet the longest is forgotten first.
    """

    def __init__(
        self, per_s: float, burst: int, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = burst
        self._timer = timer
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, share: str) -> float:
        """Take one request; 0 if there was one, or else the seconds until there is."""
        now, level = self._timer(), self._level(share)
        wait_s = self._until_one(level)
        self._levels[share] = (level if wait_s else level - 1.0, now)
        self._levels.move_to_end(share)
        if len(self._levels) > SHARES_KEPT:
            self._levels.popitem(last=False)
        return wait_s

    def wait_s(self, share: str) -> float:
        """What `take` would say, without taking anything."""
        return self._until_one(self._level(share))

    def _level(self, share: str) -> float:
        now = self._timer()
        level, seen = self._levels.get(share, (float(self._burst), now))
        return min(float(self._burst), level + (now - seen) * self._per_s)

    def _until_one(self, level: float) -> float:
        return 0.0 if level >= 1.0 else (1.0 - level) / self._per_s


class HeldSlots:
    """What callers hold at a time, such as open streams: so many each."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[str] = Counter()

    @contextmanager
    def held(self, share: str | None) -> Iterator[None]:
        """Hold one more for as long as the context lasts; who has no share is not counted."""
        if share is None:
            yield
            return
        if self._held[share] >= self._most:
            raise TooMany(
                f"there are {self._held[share]} streams of yours already; at most {self._most}",
                hint="Close one first.",
            )
        self._held[share] += 1
        try:
            yield
        finally:
            self._held[share] -= 1
            if not self._held[share]:
                del self._held[share]


class ParsedRequest(Request):
    """A request whose body has been read and parsed within the limits."""

    raw: bytes
    document: Any

    async def body(self) -> bytes:
        """The body, as it came."""
        return self.raw

    async def json(self) -> Any:
        """What the body says."""
        return self.document


async def parsed(request: Request, max_bytes: int) -> ParsedRequest:
    """The request with its JSON body, or a BadInput or TooLarge that says what is wrong with it."""
    read = ParsedRequest(request.scope, request.receive)
    read.raw = await _body(request, max_bytes)
    read.document = _document(request, read.raw) if read.raw else None
    return read


async def _body(request: Request, max_bytes: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > max_bytes:
        raise _too_large(max_bytes)
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
    return bytes(data)


def _document(request: Request, body: bytes) -> Any:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise BadInput(
            f"the request body is {kind or 'of no type'!r}; must be 'application/json'",
            path="Content-Type",
            hint="With curl: -H 'Content-Type: application/json'.",
        )
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise BadInput("the request body is not UTF-8 text") from None
    if sum(map(text.count, ",[{")) > MOST_MARKS:
        raise BadInput(f"the request body holds more than {MOST_MARKS:,} commas and brackets")
    document = parse_json(text, source="the request body")
    _refuse_odd(document)
    return document


def _refuse_odd(value: Any) -> None:
    """Raise at a number that is not finite, and at text that is not Unicode."""
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"the request body holds the number {value}; must be finite")
    if isinstance(value, str) and SURROGATE.search(value):
        raise BadInput("the request body holds half of a surrogate pair, which is no text")
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_odd(key)
            _refuse_odd(inner)
    elif isinstance(value, list):
        for inner in value:
            _refuse_odd(inner)


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"the request body is too large; at most {max_bytes:,} bytes are read")
