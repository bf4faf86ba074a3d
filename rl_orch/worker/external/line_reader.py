"""Lines that another program appends to a file, as they come in. What they say is not known."""

import os
from pathlib import Path

from rl_orch.io.files import regular

LINE_BYTES = 1 << 20
CHUNK_BYTES = 4 << 20


class LineReader:
    """The lines of a file that somebody else writes; `skipped` counts those of more than 1 MiB.

    A file that is not there is empty. One that got shorter was written anew, and is read again
    from its beginning. `behind` says whether the last reading may have left whole lines unread.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._within_skipped = False
        self.skipped = 0
        self.behind = False

    def read(self) -> list[bytes]:
        """The whole lines that are new, as far as 4 MiB go; empty once there are no more."""
        while chunk := self._chunk():
            end = chunk.rfind(b"\n") + 1
            if not end and len(chunk) < CHUNK_BYTES:
                return []
            self._offset += end or len(chunk)
            lines = self._kept(chunk[:end], chunk[end:])
            if lines:
                return lines
        return []

    def rest(self) -> bytes:
        """Bytes after the last whole line: a line that is still being written, or never will."""
        chunk = b"" if self._within_skipped else self._chunk()
        return chunk if len(chunk) <= LINE_BYTES and b"\n" not in chunk else b""

    def _kept(self, whole: bytes, rest: bytes) -> list[bytes]:
        """The lines of a part that are not too long. A line may be too long for the part itself."""
        lines = whole.split(b"\n")[:-1]
        if lines and self._within_skipped:
            self._within_skipped = False
            del lines[0]
        kept = [line for line in lines if len(line) <= LINE_BYTES]
        self.skipped += len(lines) - len(kept)
        if not whole and rest and not self._within_skipped:
            self._within_skipped = True
            self.skipped += 1
        return kept

    def _chunk(self) -> bytes:
        self.behind = False
        try:
            if os.stat(self._path).st_size == self._offset:
                return b""
            reader = regular.reader(self._path)
        except OSError:
            return b""
        with reader as file:
            if os.fstat(file.fileno()).st_size < self._offset:
                self._offset, self._within_skipped = 0, False
            file.seek(self._offset)
            chunk = file.read(CHUNK_BYTES)
        self.behind = len(chunk) == CHUNK_BYTES
        return chunk
