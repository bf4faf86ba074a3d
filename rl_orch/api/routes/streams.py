"""Events and logs of runs as server-sent events. `id` is a byte offset: `Last-Event-ID` goes on.

What a superseded attempt wrote late is left out, as sinks leave it out.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from anyio import to_thread
from fastapi import Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from rl_orch.api.feeds import Encode, FeedHub, Part, StreamPosition
from rl_orch.api.parts import Here, Parts
from rl_orch.errors import BadInput
from rl_orch.http.access import Caller
from rl_orch.http.operations import Reference, operation, router
from rl_orch.http.problems import WHOLE_NUMBER
from rl_orch.io.files import regular
from rl_orch.io.run import logs
from rl_orch.io.run.events import is_start, parse
from rl_orch.printable import clean
from rl_orch.records import Run

MOST = 1 << 40
RETRY = format_sse_event(retry=1000)
STILL_HERE = format_sse_event(comment="still here")

routes = router("streams")


def _last_event_id(
    header: Annotated[
        str | None,
        Header(alias="Last-Event-ID", description="Go on after this event.", pattern=WHOLE_NUMBER),
    ] = None,
    last_event_id: Annotated[
        int | None,
        Query(description="As the header `Last-Event-ID`, which counts first.", ge=0, lt=MOST),
    ] = None,
) -> int:
    """The byte offset to go on from."""
    return int(header) if header is not None else last_event_id or 0


LastEventId = Annotated[int, Depends(_last_event_id)]


def stream_operation(id: str, what: str) -> dict[str, Any]:
    """How a route is declared that answers with a stream."""
    told = {
        "description": "Server-sent events, until it has ended and all is told",
        "content": {"text/event-stream": {"schema": {"type": "string", "description": what}}},
    }
    declared = operation(id, None, "read", 404, also={200: told})
    return declared | {"response_class": StreamingResponse}


@routes.get(
    "/runs/{ref}/events/stream",
    **stream_operation(
        "streamEvents", "`event` is the kind, `data` an Event; at the end `end`, a Run."
    ),
)
async def stream_events(
    ref: Reference, request: Request, here: Here, after: LastEventId
) -> Response:
    """Follow the events of a run from the beginning, or on from `Last-Event-ID`."""
    run, directory = await to_thread.run_sync(here.orchestrator.there, ref)
    follower = Follower(directory.events, run, event_frames, lambda _path, _place: b"")
    return await _stream(follower, after, request, here)


@routes.get(
    "/runs/{ref}/log/stream",
    **stream_operation(
        "streamLog", "`event` is `log`, `data` `{text, offset}`; at the end `end`, a Run."
    ),
)
async def stream_log(ref: Reference, request: Request, here: Here, after: LastEventId) -> Response:
    """Follow what the processes of a run print, without terminal escapes."""
    run, directory = await to_thread.run_sync(here.orchestrator.there, ref)
    follower = Follower(directory.log, run, log_frames, last_log_frame)
    return await _stream(follower, after, request, here)


class CountedStream(StreamingResponse):
    """A stream that its caller holds for as long as it lasts."""

    media_type = "text/event-stream"
    held: AbstractContextManager[None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, unless that is one too many."""
        with self.held:
            await super().__call__(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Follower:
    """What is followed: a file of a run, how its lines are told, and what is told at its end."""

    path: Path
    run: Run
    encode: Encode
    last: Callable[[Path, StreamPosition], bytes]

    async def told(
        self,
        hub: FeedHub,
        offset: int,
        still_welcome: Callable[[], Awaitable[bool]],
        every_s: float,
    ) -> AsyncIterator[bytes]:
        """Frames from an offset on, until the run has ended or the reader is no longer welcome.

        A run that was removed has no end to tell of: its stream just stops.
        """
        timer = asyncio.get_running_loop().time
        asked_at = timer()
        yield RETRY
        async with hub.follow(self.path, self.run, self.encode) as feed:
            place = await to_thread.run_sync(feed.starts.place, offset)
            while not hub.closing:
                # Both before the look: what changes after it is seen at the next one.
                changed, run, removed = feed.changed, feed.run, feed.removed
                part = await hub.part(feed, place)
                if part.frames:
                    yield part.frames
                elif part.place == place and removed:
                    return
                elif part.place == place and not run.active:
                    yield await to_thread.run_sync(self.last, self.path, place)
                    yield frame(place.offset, "end", run)
                    return
                elif part.place == place and not await _happens(changed, every_s):
                    yield STILL_HERE
                place = part.place
                if timer() - asked_at >= every_s:
                    asked_at = timer()
                    if not await still_welcome():
                        return


def event_frames(lines: Sequence[bytes], place: StreamPosition) -> Part:
    """The events on some lines, without those of superseded attempts."""
    offset, newest, frames = place.offset, place.attempt, []
    for line in lines:
        offset += len(line) + 1
        event = parse(line)
        if event is None:
            continue
        if is_start(event):
            newest = max(newest, event.attempt)
        if event.attempt >= newest:
            frames.append(frame(offset, event.kind, event))
    return Part(b"".join(frames), StreamPosition(offset, newest))


def log_frames(lines: Sequence[bytes], place: StreamPosition) -> Part:
    """Some lines of a log, in one frame."""
    data = b"\n".join(lines) + b"\n"
    offset = place.offset + len(data)
    text = clean(data.decode("utf-8", "replace"))
    part = logs.LogPart(text=text, offset=offset)
    return Part(frame(offset, "log", part), StreamPosition(offset))


def last_log_frame(path: Path, place: StreamPosition) -> bytes:
    """What stands after the last whole line of a log that nobody writes to any more."""
    rest = logs.part(path, place.offset, ended=True)
    return frame(rest.offset, "log", rest) if rest.text else b""


def frame(offset: int, event: str, data: BaseModel) -> bytes:
    """A server-sent event that holds a record."""
    return format_sse_event(data_str=data.model_dump_json(), event=event, id=str(offset))


async def _stream(follower: Follower, offset: int, request: Request, here: Parts) -> Response:
    await to_thread.run_sync(_refuse_beyond, follower.path, offset)
    still_welcome: Callable[[], Awaitable[bool]] = request.state.still_welcome
    frames = follower.told(here.hub, offset, still_welcome, here.settings.keep_alive_s)
    return counted(frames, request, here)


def counted(frames: AsyncIterator[bytes], request: Request, here: Parts) -> Response:
    """A stream of frames, one of so many that its caller may hold."""
    caller: Caller = request.state.caller
    response = CountedStream(frames, headers={"X-Accel-Buffering": "no"})
    response.held = here.streams.held(caller.share)
    return response


def _refuse_beyond(path: Path, offset: int) -> None:
    size = regular.size(path)
    if offset > size:
        raise BadInput(
            f"Last-Event-ID is {offset}, but there are {size} bytes",
            path="Last-Event-ID",
            hint="Leave it out to begin at the beginning.",
        )


async def _happens(event: asyncio.Event, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return False
