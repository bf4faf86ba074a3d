"""Where requests end among the bytes of a connection, so that each can be measured by itself.

Nothing is understood or refused here: that is the parser's, which takes no other ends than these.
"""

from collections.abc import Iterator, Sequence

END = b"\r\n\r\n"
"""What every head ends with, and every body that comes in chunks."""


class Framing:
    """The bytes of a connection in parts, none of which has bytes of two heads or bodies.

    `body_left` is how many bytes of a body of a known length are still to come; the caller sets
    it with each head.
    """

    def __init__(self) -> None:
        self.body_left = 0
        self._tail = b""

    def parts(self, data: bytes) -> Iterator[bytes]:
        """What has arrived, cut wherever a head or a body may end."""
        seen = self._tail + data
        start = len(self._tail)
        self._tail = seen[-len(END) + 1 :]
        while start < len(seen):
            end = self._next_end(seen, start)
            yield seen[start:end]
            start = end

    def _next_end(self, seen: bytes, start: int) -> int:
        if self.body_left:
            end = min(len(seen), start + self.body_left)
            self.body_left -= end - start
            return end
        at = seen.find(END, max(0, start - len(END) + 1))
        return len(seen) if at < 0 else at + len(END)


def length_of_body(headers: Sequence[tuple[bytes, bytes]]) -> int:
    """The length that a head names, which the parser has read already; 0 where it names none."""
    return next((int(value) for name, value in headers if name == b"content-length"), 0)
