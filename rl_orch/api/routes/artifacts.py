"""The files in a run's directory: a list of them, and each of them or a range of its bytes.

Only plain files with one name, reached without any link; nothing that a browser would execute.
"""

import contextlib
import errno
import os
import re
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO
from urllib.parse import quote

from fastapi import Header, Response
from fastapi import Path as Segment
from fastapi.responses import StreamingResponse

from rl_orch.api.parts import Here
from rl_orch.api.schemas import Artifact, ArtifactList
from rl_orch.errors import BadInput, NotFound
from rl_orch.http.operations import Reference, json_response, operation, router
from rl_orch.http.problems import HttpProblem
from rl_orch.http.threads import slow_reads

MOST_LISTED = 10_000
MOST_SEEN = 100_000
DEEPEST = 32
"""Folders inside each other that are listed; what is deeper can be had by its path."""

BLOCK_BYTES = 256 << 10
HIDDEN = frozenset({"lock", "control.sock"})
TEXT = frozenset({".txt", ".log", ".yaml", ".yml", ".json", ".jsonl", ".csv", ".md", ".toml"})
RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
ENTITY_TAG = re.compile(r'[ \t,]*(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")[ \t]*(?=,|$)')
SANDBOX = "default-src 'none'; frame-ancestors 'none'; sandbox"

routes = router("artifacts")


@routes.get("/runs/{ref}/artifacts", **operation("listArtifacts", ArtifactList, "read", 404))
async def list_artifacts(ref: Reference, here: Here) -> Response:
    """The files in a run's directory."""
    return await slow_reads(lambda: json_response(listing(here.orchestrator.there(ref)[1].path)))


Range = Annotated[str | None, Header(max_length=100, examples=["bytes=0-99"])]
IfRange = Annotated[str | None, Header(max_length=100)]
IfNoneMatch = Annotated[list[str] | None, Header(examples=[['"18b3c5d2e4f-1a2b"']])]


def file_operation(id: str, *statuses: int) -> dict[str, Any]:
    """How a route is declared that answers with a file, or with one of further statuses."""
    content = {
        kind: {"schema": {"type": "string", "format": "binary"}}
        for kind in ("application/octet-stream", "text/plain")
    }
    also: dict[int | str, dict[str, Any]] = {
        200: {"description": "The file", "content": content},
        206: {"description": "A range of its bytes", "content": content},
        304: {"description": "It is what the caller has already"},
    }
    declared = operation(id, None, "read", 404, *statuses, 416, also=also)
    return declared | {"response_class": StreamingResponse}


@routes.get("/runs/{ref}/artifacts/{path:path}", **file_operation("getArtifact"))
async def get_artifact(
    ref: Reference,
    here: Here,
    path: Annotated[str, Segment(max_length=1000, examples=["spec.yaml"])],
    range: Range = None,
    if_range: IfRange = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """One file, or a single range of its bytes. It is offered for download, never for display.
    With `If-None-Match` it is sent only where it has changed since."""
    parts_of(path)
    _, directory = await slow_reads(here.orchestrator.there, ref)
    return await sent(directory.path, path, range, if_range, if_none_match)


async def sent(
    root: Path, path: str, range: str | None, if_range: str | None, if_none_match: list[str] | None
) -> Response:
    """A file in a folder, as it is asked for."""
    parts = parts_of(path)
    file = await slow_reads(opened, root, parts)
    facts = os.fstat(file.fileno())
    tag = f'"{facts.st_mtime_ns:x}-{facts.st_size:x}"'
    if has_tag(",".join(if_none_match or ()), tag):
        file.close()
        return Response(status_code=304, headers={"ETag": tag})
    return _served(file, parts[-1], facts.st_size, tag, range if if_range in (None, tag) else None)


def parts_of(path: str) -> list[str]:
    """The parts of a path that stays inside; anything else is refused before it is looked at."""
    parts = path.split("/")
    odd = "\0" in path or "\\" in path or any(part in ("", ".", "..") for part in parts)
    if odd or any(len(os.fsencode(part)) > 255 for part in parts):
        raise BadInput(
            f"path is {path[:100]!r}; must lead from the run's directory to a file inside it",
            path="path",
        )
    if any(_is_hidden(part) for part in parts):
        raise NotFound(f"no file {path!r} in the run's directory")
    return parts


def opened(root: Path, parts: list[str]) -> BinaryIO:
    """The open file. Each part of the way is opened in the one before it, and none may be a link,
    so that nothing can be changed for something else in between."""
    with _folder(root, parts[:-1]) as folder:
        fd = _open(parts[-1], os.O_NONBLOCK, folder)
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
        os.close(fd)
        raise _no_plain_file("/".join(parts))
    return os.fdopen(fd, "rb", buffering=0)


def listing(root: Path) -> ArtifactList:
    """The files that can be had, by name. What goes away meanwhile is left out."""
    walk = _Walk()
    folders: deque[tuple[str, ...]] = deque([()])
    while folders and not walk.is_full:
        parts = folders.popleft()
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(_folder(root, parts))
            except BadInput:
                if not parts:
                    raise
                continue
            folders.extend(walk.look(parts, folder))
    kept = sorted(walk.artifacts[:MOST_LISTED], key=lambda artifact: artifact.path)
    return ArtifactList(artifacts=kept, truncated=walk.is_full or walk.left_out)


@dataclass(slots=True)
class _Walk:
    """What was found on a way through the folders of a run, the nearest first."""

    artifacts: list[Artifact] = field(default_factory=list)
    seen: int = 0
    left_out: bool = False

    @property
    def is_full(self) -> bool:
        """Whether there is no more to be looked at."""
        return len(self.artifacts) > MOST_LISTED or self.seen > MOST_SEEN

    def look(self, parts: tuple[str, ...], folder: int) -> list[tuple[str, ...]]:
        """Take the files of an open folder, and return the folders in it."""
        inner: list[tuple[str, ...]] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self.seen += 1
                if self.is_full:
                    break
                if _is_hidden(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    inner.append((*parts, entry.name))
                elif (listed := _listed((*parts, entry.name), folder)) is not None:
                    self.artifacts.append(listed)
        if len(parts) >= DEEPEST:
            self.left_out = self.left_out or bool(inner)
            return []
        return inner


def span_of(header: str | None, size: int) -> range | None:
    """The bytes that a Range header asks for; None for all of them.

    What is not a single range of bytes is ignored, as RFC 9110 has it; one that lies outside the
    file is refused.
    """
    match = RANGE.fullmatch(header.replace(" ", "")) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        span = range(max(0, size - int(last)), size)
    else:
        span = range(int(first), min(size, int(last) + 1) if last else size)
        if last and int(last) < int(first):
            return None
    if span.start >= span.stop:
        error = BadInput(f"range is {header!r}, but the file has {size} bytes", path="Range")
        raise HttpProblem(error, status=416, headers={"Content-Range": f"bytes */{size}"})
    return span


def has_tag(header: str, tag: str) -> bool:
    """Whether an If-None-Match header names an entity tag, weak or strong. One that is no list of
    tags names none."""
    if header.strip() == "*":
        return True
    at, tags = 0, set()
    while match := ENTITY_TAG.match(header, at):
        at = match.end()
        tags.add(match[1])
    return tag in tags and not header[at:].strip(" \t,")


def _served(file: BinaryIO, name: str, size: int, tag: str, asked: str | None) -> Response:
    try:
        span = span_of(asked, size)
    except HttpProblem:
        file.close()
        raise
    sent = span or range(0, size)
    is_text = Path(name).suffix.lower() in TEXT
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Length": str(sent.stop - sent.start),
        "Content-Security-Policy": SANDBOX,
        "ETag": tag,
    }
    if span is not None:
        headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{size}"
    kind = "text/plain; charset=utf-8" if is_text else "application/octet-stream"
    return StreamingResponse(_blocks(file, sent), 206 if span else 200, headers, kind)


def _blocks(file: BinaryIO, span: range) -> Iterator[bytes]:
    with file:
        file.seek(span.start)
        left = span.stop - span.start
        while left and (block := file.read(min(left, BLOCK_BYTES))):
            left -= len(block)
            yield block


def _listed(parts: tuple[str, ...], folder: int) -> Artifact | None:
    """A file as it is listed, if it is one that can be had and its name is text."""
    path = "/".join(parts)
    try:
        facts = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
        path.encode()
    except (OSError, UnicodeEncodeError):
        return None
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
        return None
    return Artifact(path=path, bytes=facts.st_size, modified_at=facts.st_mtime)


@contextlib.contextmanager
def _folder(root: Path, parts: Sequence[str]) -> Iterator[int]:
    """An open folder of a run's directory, come to without any link."""
    folder = _open_root(root)
    try:
        for part in parts:
            inner = _open(part, os.O_DIRECTORY, folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _open_root(root: Path) -> int:
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        raise NotFound(f"the run's directory is gone, or is a link: {str(root)!r}") from None


def _open(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        if _is_link(name, folder):
            raise _no_plain_file(name) from None
        raise NotFound(f"no file {name!r} in the run's directory") from None
    except OSError:
        raise _no_plain_file(name) from None


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _is_hidden(name: str) -> bool:
    """Whether a file is how processes keep out of each other's way, or half-written."""
    return name in HIDDEN or name.startswith(".")


def _no_plain_file(path: str) -> BadInput:
    return BadInput(f"{path!r} is no plain file of the run's own", path="path")
