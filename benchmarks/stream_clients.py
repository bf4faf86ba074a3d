"""What 200 clients that follow the events of a run cost, when 20 of them take nothing.

A server in a process of its own, over a run whose event file has a long past. Every client first
reads the past; then events are appended, and each client that reads notes how late they come. The
figures to read are the delay of the events and how much the server's memory grows meanwhile.
Writes `benchmarks/results/stream_clients.json`.
"""

import argparse
import asyncio
import json
import platform
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import psutil

from rl_orch.api.app import create_app
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.store.tokens import Tokens
from rl_orch.http.serving import serve
from rl_orch.http.settings import Settings
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.io.run.manifest import git_commit
from rl_orch.records import EventKind
from rl_orch.testing import FakeRunner, a_spec, trains_to

HERE = Path(__file__).parent
LIVE = re.compile(rb'"ts":([0-9.]+),"run":"[^"]*","step":([0-9]+),"kind":"metric","key":"live"')
LONGEST_MATCH = 400
PAST_BYTES = 8 << 20
EVENT_BYTES = 2000


@dataclass(frozen=True, slots=True)
class Load:
    """What is done to the server. At the end it has at most `settles_s` until every client that
    reads has read all, and the others are cut off."""

    clients: int = 200
    stalled: int = 20
    seconds: float = 20.0
    events_per_s: int = 50
    stall_timeout_s: float = 60.0
    settles_s: float = 1.5

    @property
    def events(self) -> int:
        """How many events are appended."""
        return int(self.seconds * self.events_per_s)


def main() -> None:
    """Measure, print a line, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", metavar="HOME", help=argparse.SUPPRESS)
    parser.add_argument("--stall-timeout-s", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--stalled", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    if options.serve:
        _serve(Path(options.serve), options.stall_timeout_s)
        return
    load = Load(
        options.clients,
        options.stalled,
        options.seconds,
        stall_timeout_s=options.stall_timeout_s,
    )
    row = measure(load)
    print(
        f"{row['clients']} clients, {row['stalled']} stalled, {row['events']} events: delay "
        f"{row['delay_p50_s']:.3f} s median, {row['delay_p99_s']:.3f} s p99, "
        f"{row['delay_max_s']:.3f} s at most; memory {row['memory_before_mb']:.0f} MB → "
        f"{row['memory_after_mb']:.0f} MB (at most {row['memory_max_mb']:.0f} MB)"
    )
    document = {
        "commit": git_commit(HERE),
        "python": platform.python_version(),
        "machine": {"cpus": psutil.cpu_count(), "platform": platform.platform()},
        "bar": {"delay_max_s": 1.0, "memory": "flat"},
        "row": row,
    }
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "stream_clients.json").write_text(json.dumps(document, indent=2) + "\n")


def measure(load: Load) -> dict[str, Any]:
    """Delays and memory under a load."""
    with TemporaryDirectory() as folder:
        orchestrator = _orchestrator(Path(folder))
        (run,) = orchestrator.submit(a_spec()).runs
        token = Tokens(orchestrator.store).create("benchmark", "read")[1]
        with (
            EventWriter(RunDir.of(run).events, run=run.id, attempt=1) as writer,
            _server(Path(folder), load.stall_timeout_s) as (url, process),
        ):
            _write_past(writer)
            return asyncio.run(
                _measured(load, f"{url}/runs/{run.id}/events/stream", token, writer, process)
            )


@dataclass(slots=True)
class _Client(asyncio.Protocol):
    """A client that follows a stream. `delays` has one number for each event since the past."""

    request: bytes
    delays: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    closed: bool = False
    _rest: bytes = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        """Note when each event came."""
        now, text, end = time.time(), self._rest + data, 0
        for match in LIVE.finditer(text):
            self.delays.append(now - float(match[1]))
            self.steps.append(int(match[2]))
            end = match.end()
        self._rest = text[max(end, len(text) - LONGEST_MATCH) :]

    def connection_lost(self, _error: Exception | None) -> None:
        """The server has closed."""
        self.closed = True


async def _measured(
    load: Load, url: str, token: str, writer: EventWriter, process: psutil.Process
) -> dict[str, Any]:
    parts = urlsplit(url)
    named = f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
    request = f"GET {parts.path} HTTP/1.1\r\n{named}".encode()
    address = (parts.hostname or "", parts.port or 0)
    stalled = [_stalled(address, request) for _ in range(load.stalled)]
    readers = [_Client(request) for _ in range(load.clients - load.stalled)]
    loop = asyncio.get_running_loop()
    for reader in readers:
        await loop.create_connection(lambda reader=reader: reader, *address)  # type: ignore[misc]
    began = time.perf_counter()
    writer.emit(EventKind.METRIC, "live", 0.0, step=0)
    writer.flush()
    while not all(reader.steps for reader in readers):
        await asyncio.sleep(0.05)
    caught_up_s = time.perf_counter() - began
    for reader in readers:
        reader.delays.clear()
    memory = [_memory_mb(process)]
    for step in range(1, load.events + 1):
        writer.emit(EventKind.METRIC, "live", 1.0, step=step, tags={"pad": "x" * EVENT_BYTES})
        writer.flush()
        await asyncio.sleep(1 / load.events_per_s)
        if step % load.events_per_s == 0:
            memory.append(_memory_mb(process))
    over_at = time.monotonic() + load.settles_s
    while time.monotonic() < over_at and not _is_over(load, readers, process):
        await asyncio.sleep(0.05)
    memory.append(_memory_mb(process))
    return _row(load, readers, stalled, memory) | {"caught_up_s": caught_up_s}


def _is_over(load: Load, readers: list[_Client], process: psutil.Process) -> bool:
    """Whether every client that reads has all, and the server has connections to no others."""
    if not all(reader.steps[-1] == load.events for reader in readers):
        return False
    connections = process.net_connections("tcp")
    return sum(each.status == psutil.CONN_ESTABLISHED for each in connections) <= len(readers)


def _row(
    load: Load, readers: list[_Client], stalled: list[socket.socket], memory: list[float]
) -> dict[str, Any]:
    whole = [reader for reader in readers if reader.steps == list(range(load.events + 1))]
    delays = sorted(delay for reader in readers for delay in reader.delays)
    return {
        "clients": load.clients,
        "stalled": load.stalled,
        "stalled_cut_off": sum(map(_is_cut_off, stalled)),
        "events": load.events,
        "complete": len(whole),
        "delay_p50_s": statistics.median(delays),
        "delay_p99_s": delays[int(0.99 * len(delays))],
        "delay_max_s": delays[-1],
        "memory_before_mb": memory[0],
        "memory_after_mb": memory[-1],
        "memory_max_mb": max(memory),
    }


def _stalled(address: tuple[str, int], request: bytes) -> socket.socket:
    """A client that asks and then takes nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(address)
    client.sendall(request)
    return client


def _is_cut_off(client: socket.socket) -> bool:
    """Whether the server has ended the connection: it answers with a reset."""
    with client:
        client.settimeout(0.5)
        try:
            while client.recv(1 << 20):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
    return True


def _write_past(writer: EventWriter) -> None:
    writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
    for step in range(PAST_BYTES // EVENT_BYTES):
        writer.emit(EventKind.METRIC, "past", 1.0, step=step, tags={"pad": "x" * EVENT_BYTES})
    writer.flush()


def _orchestrator(home: Path) -> Orchestrator:
    return Orchestrator(home, FakeRunner(trains_to([1.0])), resident=True)


def _memory_mb(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 2**20


@contextmanager
def _server(home: Path, stall_timeout_s: float) -> Iterator[tuple[str, psutil.Process]]:
    words = [sys.executable, __file__, "--serve", str(home)]
    words += ["--stall-timeout-s", str(stall_timeout_s)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield child.stdout.readline().strip(), psutil.Process(child.pid)
        finally:
            child.stdin.close()


def _serve(home: Path, stall_timeout_s: float) -> None:
    """Serve a home until standard input ends."""
    until = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        until.set()

    threading.Thread(target=wait, daemon=True).start()
    app = create_app(_orchestrator(home), settings=Settings(stall_timeout_s=stall_timeout_s))
    serve(app, "127.0.0.1", 0, until=until, started=lambda url: print(url, flush=True))


if __name__ == "__main__":
    main()
