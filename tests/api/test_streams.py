"""Streams: in order, from where one left off, to the end, and nobody waits for a slow reader."""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.stream_clients import Load, measure
from rl_orch.api.feeds import LONGEST_LINE, PART_BYTES, FeedHub, Starts, StreamPosition
from rl_orch.api.routes.streams import event_frames, log_frames
from rl_orch.core.store.tokens import Tokens
from rl_orch.errors import Damaged
from rl_orch.http.connections import Connection
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.records import EventKind, Run, State
from rl_orch.testing import a_spec
from tests.api.conftest import OWNER, OWNER_LINE, Api
from tests.waiting import PATIENCE_S


@dataclass(frozen=True)
class Told:
    """One server-sent event."""

    id: int
    event: str
    data: Any


def told(lines: Iterator[str]) -> Iterator[Told]:
    """The server-sent events on some lines."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            fields[name] = value
        elif "data" in fields:
            yield Told(int(fields["id"]), fields["event"], json.loads(fields["data"]))
            fields = {}
        else:
            fields = {}


def whole(api: Api, run: Run, part: str = "events", **headers: str) -> list[Told]:
    """The whole stream of a run that has ended."""
    answer = api.client().get(f"/runs/{run.id}/{part}/stream", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    return list(told(iter(answer.text.split("\n"))))


@pytest.fixture
def ended(api: Api) -> Run:
    """A run that has been carried out."""
    return api.carried_out(a_spec())


@pytest.fixture
def queued(api: Api) -> Run:
    """A run that waits."""
    return api.orchestrator.submit(a_spec()).runs[0]


def writer(run: Run, attempt: int = 1) -> EventWriter:
    return EventWriter(RunDir.of(run).events, run=run.id, attempt=attempt)


def test_a_stream_has_every_event_and_ends_with_the_run(api: Api, ended: Run) -> None:
    frames = whole(api, ended)
    events = api.client().get(f"/runs/{ended.id}/events").json()["events"]
    assert [frame.data for frame in frames[:-1]] == events
    assert [frame.event for frame in frames[:-1]] == [event["kind"] for event in events]
    assert frames[-1].event == "end"
    assert Run.model_validate(frames[-1].data) == ended


def test_a_stream_goes_on_after_any_event_by_header_or_parameter(api: Api, ended: Run) -> None:
    frames = whole(api, ended)
    for number, frame in enumerate(frames[:-1]):
        rest = whole(api, ended, **{"Last-Event-ID": str(frame.id)})
        assert rest == frames[number + 1 :]
    url = f"/runs/{ended.id}/events/stream?last_event_id={frames[0].id}"
    assert list(told(iter(api.client().get(url).text.split("\n")))) == frames[1:]


@pytest.mark.parametrize("odd", ["-1", "x", "1e9", "999999999", "9" * 30])
def test_a_place_that_is_not_in_the_file_is_refused(api: Api, ended: Run, odd: str) -> None:
    url = f"/runs/{ended.id}/events/stream"
    assert api.client().get(url, headers={"Last-Event-ID": odd}).status_code == 400
    assert api.client().get(url, params={"last_event_id": odd}).status_code == 400


def test_what_a_superseded_attempt_writes_late_is_left_out_wherever_one_begins(
    api: Api, ended: Run
) -> None:
    RunDir.of(ended).events.write_bytes(b"")
    with writer(ended, 1) as old, writer(ended, 2) as new:
        old.emit(EventKind.STATE, "started", step=0, tags={"after": None})
        old.emit(EventKind.METRIC, "old", 1.0, step=1)
        old.flush()
        new.emit(EventKind.STATE, "started", step=1, tags={"after": {"attempt": 1, "seq": 2}})
        new.flush()
        old.emit(EventKind.METRIC, "late", 1.0, step=2)
        old.flush()
        new.emit(EventKind.METRIC, "new", 1.0, step=2)
    frames = whole(api, ended)[:-1]
    assert [frame.data["key"] for frame in frames] == ["started", "old", "started", "new"]
    rest = whole(api, ended, **{"Last-Event-ID": str(frames[2].id)})[:-1]
    assert [frame.data["key"] for frame in rest] == ["new"]


def test_lines_that_are_no_events_are_passed_over_and_cannot_end_a_frame(
    api: Api, ended: Run
) -> None:
    good = {"v": 1, "seq": 1, "attempt": 1, "ts": 1.0, "run": "r", "step": 1, "kind": "log"}
    lines = [
        b"not json",
        b'{"v":1}',
        b"\xff\xfe",
        json.dumps({**good, "key": "a\r\n\r\nevent: end\r\ndata: {}"}).encode(),
        json.dumps({**good, "key": "\u2028\x85"}, ensure_ascii=False).encode(),
        json.dumps({**good, "key": "b"}).encode().replace(b", ", b",\r"),
        json.dumps({**good, "key": "c", "attempt": 2**60}).encode(),
        b"",
        b'{"torn": ',
    ]
    RunDir.of(ended).events.write_bytes(b"\n".join(lines))
    frames = whole(api, ended)
    assert [frame.data.get("key") for frame in frames[:-1]] == [
        "a\r\n\r\nevent: end\r\ndata: {}",
        "\u2028\x85",
        "b",
    ]


def test_a_log_stream_has_all_lines_without_escapes_and_the_last_without_an_end(
    api: Api, ended: Run
) -> None:
    RunDir.of(ended).log.write_bytes(b"one\n\x1b[2Jtwo\r\nthree")
    frames = whole(api, ended, "log")
    assert "".join(frame.data["text"] for frame in frames[:-1]) == "one\ntwo\nthree"
    assert {frame.event for frame in frames[:-1]} == {"log"}
    assert frames[-2].data["offset"] == RunDir.of(ended).log.stat().st_size
    rest = whole(api, ended, "log", **{"Last-Event-ID": "4"})
    assert rest[0].data["text"] == "two\n"


def test_a_live_stream_tells_of_events_as_they_come_and_of_the_end(api: Api, queued: Run) -> None:
    with (
        api.served(poll_s=0.02) as server,
        httpx.stream(
            "GET", f"{server.url}/runs/{queued.id}/events/stream", headers=OWNER, timeout=PATIENCE_S
        ) as answer,
        writer(queued) as out,
    ):
        frames = told(answer.iter_lines())
        for step in range(5):
            out.emit(EventKind.METRIC, "loss", step, step=step)
            out.flush()
            frame = next(frames)
            assert (frame.event, frame.data["step"]) == ("metric", step)
        api.orchestrator.ask_to_stop(queued.id)
        last = next(frames)
        assert (last.event, last.data["state"]) == ("end", "stopped")
        assert list(frames) == []


def test_a_quiet_stream_is_kept_alive(api: Api, queued: Run) -> None:
    with (
        api.served(keep_alive_s=0.05) as server,
        httpx.stream(
            "GET", f"{server.url}/runs/{queued.id}/log/stream", headers=OWNER, timeout=PATIENCE_S
        ) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines) == "retry: 1000"
        assert [next(lines) for _ in range(4)] == ["", ": still here", "", ": still here"]


def test_a_stream_ends_when_its_token_is_revoked(api: Api, queued: Run) -> None:
    tokens = Tokens(api.orchestrator.store)
    token, text = tokens.create("watcher", "read")
    headers = {"Authorization": f"Bearer {text}"}
    url = f"/runs/{queued.id}/events/stream"
    with (
        api.served(keep_alive_s=0.05) as server,
        httpx.stream("GET", f"{server.url}{url}", headers=headers, timeout=PATIENCE_S) as answer,
    ):
        lines = answer.iter_lines()
        assert [next(lines) for _ in range(3)][-1] == ": still here"
        tokens.revoke(token.id)
        assert set(lines) <= {"", ": still here"}
        assert (
            httpx.get(f"{server.url}{url}", headers=headers, timeout=PATIENCE_S).status_code == 401
        )


def test_a_stream_ends_when_its_run_is_removed(api: Api, queued: Run) -> None:
    with (
        api.served(poll_s=0.01) as server,
        httpx.stream(
            "GET", f"{server.url}/runs/{queued.id}/events/stream", headers=OWNER, timeout=PATIENCE_S
        ) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines) == "retry: 1000"
        api.orchestrator.store.remove(queued.id)
        assert set(lines) == {""}


def test_a_caller_holds_only_so_many_streams(
    api: Api, queued: Run, wait_for: Callable[[Callable[[], bool]], None]
) -> None:
    first, second = api.token("read"), api.token("read")
    with api.served(streams_per_caller=2) as server, contextlib.ExitStack() as stack:

        def status(token: str, kept: contextlib.ExitStack) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            url = f"{server.url}/runs/{queued.id}/events/stream"
            return kept.enter_context(
                httpx.stream("GET", url, headers=headers, timeout=PATIENCE_S)
            ).status_code

        with contextlib.ExitStack() as early:
            assert [status(first, early) for _ in range(3)] == [200, 200, 429]
            assert status(second, stack) == 200
        wait_for(lambda: status(first, stack) == 200)


def test_a_client_that_goes_away_leaves_nothing_behind(
    api: Api, queued: Run, wait_for: Callable[[Callable[[], bool]], None]
) -> None:
    with api.served(poll_s=0.02) as server:
        hub: FeedHub = server.app.state.parts.hub
        for _ in range(3):
            with httpx.stream(
                "GET",
                f"{server.url}/runs/{queued.id}/events/stream",
                headers=OWNER,
                timeout=PATIENCE_S,
            ) as answer:
                lines = answer.iter_lines()
                assert next(lines) == "retry: 1000"
                wait_for(lambda: len(hub._feeds) == 1)
        wait_for(lambda: not hub._feeds and not hub._parts and hub._cached_bytes == 0)
        wait_for(lambda: hub._poller is not None and hub._poller.done())


def test_clients_that_take_nothing_hold_up_nobody_and_are_cut_off() -> None:
    load = Load(clients=40, stalled=5, seconds=2.0, stall_timeout_s=10.0, settles_s=PATIENCE_S)
    row = measure(load)
    assert row["complete"] == 35
    assert row["memory_after_mb"] - row["memory_before_mb"] < 20
    assert row["stalled_cut_off"] == 5


def test_an_answer_that_is_not_taken_is_cut_off(
    api: Api, queued: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off, give_up = threading.Event(), Connection._give_up

    def noted(connection: Connection) -> None:
        give_up(connection)
        cut_off.set()

    monkeypatch.setattr(Connection, "_give_up", noted)
    (Path(queued.path) / "large").write_bytes(bytes(20_000_000))
    with api.served(stall_timeout_s=0.2) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(server.address)
        head = f"GET /runs/{queued.id}/artifacts/large HTTP/1.1\r\n{OWNER_LINE}Host: localhost:"
        client.sendall(f"{head}{server.address[1]}\r\n\r\n".encode())
        assert cut_off.wait(PATIENCE_S)
        client.settimeout(PATIENCE_S)
        received = 0
        with contextlib.suppress(ConnectionError):
            while chunk := client.recv(1 << 20):
                received += len(chunk)
        assert received < 20_000_000


class TestPlaces:
    """Where attempts begin, found by looking at no line twice."""

    def test_a_place_knows_the_newest_attempt_before_it(self, tmp_path: Path) -> None:
        path = tmp_path / "events.jsonl"
        ends = []
        for attempt in (1, 3, 2):
            with EventWriter(path, run="r", attempt=attempt) as out:
                out.emit(EventKind.STATE, "started", step=0)
            ends.append(path.stat().st_size)
        starts = Starts(path)
        assert [starts.place(end).attempt for end in (*reversed(ends), 0, ends[0] - 1)] == [
            3, 3, 1, 0, 0
        ]  # fmt: skip
        with EventWriter(path, run="r", attempt=4) as out:
            out.emit(EventKind.STATE, "started", step=0)
        assert starts.place(path.stat().st_size).attempt == 4

    def test_frames_name_the_offset_after_their_line(self) -> None:
        line = b'{"seq":1,"attempt":1,"ts":1,"run":"r","step":1,"kind":"log","key":"k"}'
        part = event_frames([line, b"", line], StreamPosition(100, 0))
        assert part.place.offset == 100 + 2 * len(line) + 3
        frames = told(iter(part.frames.decode().split("\n")))
        assert [frame.id for frame in frames] == [101 + len(line), part.place.offset]

    def test_a_log_frame_covers_whole_lines(self) -> None:
        part = log_frames([b"a", b"", b"b"], StreamPosition(10))
        assert part.place.offset == 15
        assert b'"text":"a\\n\\nb\\n"' in part.frames


class TestHub:
    """Reading for many at once."""

    def follow(self, path: Path, work: Callable[[FeedHub, Any], Any]) -> None:
        async def run() -> None:
            hub = FeedHub(lambda _: self.run, poll_s=0.01)
            async with hub.follow(path, self.run, log_frames) as feed:
                await work(hub, feed)

        asyncio.run(run())

    run = Run(
        id="r", name="r", env="e", algo="a", config_hash="h", path="p", seed=1,
        total_timesteps=1, created_at=0.0, updated_at=0.0, state=State.RUNNING,
    )  # fmt: skip

    def test_readers_at_one_place_share_one_reading(self, tmp_path: Path) -> None:
        path = tmp_path / "log.txt"
        path.write_bytes(b"line\n" * 100)

        async def work(hub: FeedHub, feed: Any) -> None:
            parts = await asyncio.gather(*(hub.part(feed, StreamPosition(0)) for _ in range(50)))
            assert len({id(part) for part in parts}) == 1
            assert len(hub._parts) == 1

        self.follow(path, work)

    def test_a_line_longer_than_a_part_is_taken_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "log.txt"
        path.write_bytes(b"x" * (3 * PART_BYTES) + b"\nshort\n")

        async def work(hub: FeedHub, feed: Any) -> None:
            part = await hub.part(feed, StreamPosition(0))
            assert part.place.offset in (3 * PART_BYTES + 1, 3 * PART_BYTES + 7)

        self.follow(path, work)

    def test_a_line_without_an_end_is_waited_for_or_passed_over(self, tmp_path: Path) -> None:
        path = tmp_path / "log.txt"
        path.write_bytes(b"half a line")

        async def wait(hub: FeedHub, feed: Any) -> None:
            part = await hub.part(feed, StreamPosition(0))
            assert (part.frames, part.place.offset) == (b"", 0)
            changed = feed.changed
            with path.open("ab") as file:
                file.write(b" and its end\n")
            await asyncio.wait_for(changed.wait(), PATIENCE_S)
            part = await hub.part(feed, StreamPosition(0))
            assert b"half a line and its end" in part.frames

        self.follow(path, wait)
        path.write_bytes(b"x" * (LONGEST_LINE + 5))

        async def pass_over(hub: FeedHub, feed: Any) -> None:
            part = await hub.part(feed, StreamPosition(0))
            assert (part.frames, part.place.offset) == (b"", LONGEST_LINE)

        self.follow(path, pass_over)

    def test_a_poller_that_fails_goes_on(self, tmp_path: Path) -> None:
        path, looks = tmp_path / "log.txt", []

        def get(_: str) -> Run:
            looks.append(1)
            if len(looks) == 1:
                raise ZeroDivisionError
            return self.run.model_copy(update={"state": State.STOPPED})

        async def run() -> None:
            hub = FeedHub(get, poll_s=0.001)
            async with hub.follow(path, self.run, log_frames) as feed:
                await asyncio.wait_for(feed.changed.wait(), PATIENCE_S)
                assert not feed.run.active

        asyncio.run(run())
        assert len(looks) == 2

    def test_only_so_much_is_remembered(self, tmp_path: Path) -> None:
        path = tmp_path / "log.txt"
        path.write_bytes((b"y" * 999 + b"\n") * 40_000)

        async def work(hub: FeedHub, feed: Any) -> None:
            place = StreamPosition(0)
            while (part := await hub.part(feed, place)).place != place:
                place = part.place
                assert hub._cached_bytes <= 16 << 20
            assert place.offset == 40_000_000

        self.follow(path, work)

    def test_a_file_that_cannot_be_read_is_an_error_for_those_who_ask_and_is_asked_again(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "log.txt"
        path.mkdir()

        async def work(hub: FeedHub, feed: Any) -> None:
            feed.size = 10
            for _ in range(2):
                with pytest.raises(Damaged):
                    await hub.part(feed, StreamPosition(0))
            assert not hub._parts

        self.follow(path, work)
