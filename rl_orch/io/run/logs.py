"""The log of a run, a part at a time: whole lines, made safe to show."""

from pathlib import Path

from rl_orch.io.files import regular
from rl_orch.printable import clean
from rl_orch.records import Record

PART_BYTES = 256 << 10


class LogPart(Record):
    """Some lines of a log, and the byte offset after them."""

    text: str
    offset: int


def part(path: Path, offset: int = 0, *, ended: bool = False) -> LogPart:
    """The lines after an offset, as far as 256 KiB go. A longer line comes in pieces.

    A line that is still being written is left for later, unless all writers have ended.
    """
    data = regular.part(path, offset, PART_BYTES)
    full = len(data) == PART_BYTES
    if full and not data.strip(b"\0"):  # A hole, in which there is nothing to show.
        after = offset + len(data)
        return LogPart(text="", offset=max(after, regular.next_data(path, after)))
    end = len(data) if ended and not full else data.rfind(b"\n") + 1
    end = len(data) if full and end == 0 else end
    return LogPart(text=clean(data[:end].decode("utf-8", "replace")), offset=offset + end)
