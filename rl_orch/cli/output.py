"""How commands speak: one JSON document on standard output, or text for people.

Progress, warnings and errors go to standard error. What came from files or users is shown without
terminal escapes.
"""

import errno
import io
import json
import math
import os
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from rl_orch.errors import RlctlError
from rl_orch.printable import clean

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_UNREAD: set[int] = set()
"""The descriptors of standard streams whose reader has gone."""

_CLOSED = (errno.EPIPE, errno.EIO)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

PROBLEMS_SHOWN = 2
"""Each takes two lines; with one more for the rest, an error never passes five."""


class StandardStream(io.FileIO):
    """Standard output or error. Once its reader has gone, as `head` goes, or its disk is full, it
    drops what it gets."""

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write the data; a pipe or a terminal that is closed ends the output and nothing else, nor
        does a file that has no room."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in (*_CLOSED, *_FULL):
                raise
            if error.errno in _FULL and self.fileno() == 1 and not unread():
                warn(f"standard output cannot be written: {error.strerror}; the rest is left out")
            _UNREAD.add(self.fileno())
            return memoryview(data).nbytes


def outlast_readers() -> None:
    """Put standard streams in place that outlast their readers. What a terminal cannot show is
    escaped, as JSON would, and never an error."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__") and isinstance(stream, io.TextIOWrapper):
            raw = StandardStream(stream.fileno(), "w", closefd=False)
            text = io.TextIOWrapper(
                raw if stream.write_through else io.BufferedWriter(raw),
                stream.encoding,
                "backslashreplace",
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, text)


def unread() -> bool:
    """Whether the reader of standard output has gone."""
    return 1 in _UNREAD


def out() -> Console:
    """Where results for people go."""
    return Console(highlight=False, soft_wrap=not os.isatty(1))


def err() -> Console:
    """Where progress and errors go."""
    return Console(stderr=True, highlight=False)


def live() -> bool:
    """Whether a person is watching standard error, so that it may be redrawn."""
    return err().is_terminal and not os.environ.get("CI")


def print_json(document: Any) -> None:
    """Print the one document of a `--json` command, which may hold records; numbers that JSON lacks
    become text."""
    print(json.dumps(_plain(document), ensure_ascii=False, allow_nan=False))


def print_result(result: Any, text: str, *, as_json: bool) -> None:
    """Print what came of a command: as one document with `--json`, or else in words."""
    if as_json:
        print_json(result)
    else:
        out().print(text)


def safe(text: object) -> str:
    """Text that neither the terminal nor rich takes for anything but text."""
    return escape(clean(str(text)))


def warn(sentence: str) -> None:
    """Say something that is worth knowing and stops nothing."""
    err().print(f"[yellow]warning:[/yellow] {safe(sentence)}", soft_wrap=True)


def note(sentence: str) -> None:
    """Say something that explains what is done."""
    err().print(f"[dim]{safe(sentence)}[/dim]", soft_wrap=True)


def report_error(error: RlctlError, *, as_json: bool) -> int:
    """Show an error where its reader looks for it, and return its exit code."""
    if as_json:
        print_json(error.document())
        return error.exit_code
    console, findings = err(), error.findings()
    for finding in findings[:PROBLEMS_SHOWN]:
        console.print(f"[red]error:[/red] {_line(finding['message'])}", soft_wrap=True)
        if finding["hint"]:
            console.print(f"  {_line(finding['hint'])}", soft_wrap=True, style="dim")
    rest = [finding["path"] for finding in findings[PROBLEMS_SHOWN:]]
    if rest:
        console.print(f"  and {len(rest)} more: {_line(', '.join(rest))}", soft_wrap=True)
    return error.exit_code


def _line(text: str) -> str:
    return safe(" ".join(text.split()))


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump_json"):
        return _plain(json.loads(value.model_dump_json()))
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)
