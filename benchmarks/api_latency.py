"""How long the HTTP API takes beside a running trainer, with 10,000 runs in the store.

`rlctl up` serves, `rlctl launch` trains, and requests with a token arrive at a steady rate, whether
those before them were answered or not. A time is from the moment when a request was due to the end
of its answer. Two questions: the first page of runs, and the curve of a run with a million points,
thinned to 2,000. Writes `benchmarks/results/api_latency.json`.
"""

import argparse
import asyncio
import json
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import psutil

from rl_orch.core.store.tokens import Tokens
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.manifest import git_commit
from rl_orch.orchestrator import Orchestrator, connect
from rl_orch.records import Evaluation, Run, State
from rl_orch.testing import a_spec

HERE = Path(__file__).parent
RLCTL = [sys.executable, "-c", "from rl_orch.cli.rlctl import main; main()"]
BATCH = 1000
KEY = "losses/value_loss"
SHOWN = 2_000
BARS_MS = {"runs": 50.0, "metrics": 150.0}
TRAINING = ["env.id=CartPole-v1", "train.total_timesteps=1e9", "eval.every=1e9", "name=trainer"]


def main() -> None:
    """Measure, print a table, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--per-s", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        verbs = connect(folder)
        _fill(verbs, options.runs)
        curve = _with_points(verbs, options.points)
        token = Tokens(verbs.store).create("benchmark", "read")[1]
        with _service(verbs.home) as url, _trainer(verbs.home):
            asker = _Asker(url, token)
            runs = asker.ask("/runs", options.per_s, options.seconds)
            path = f"/runs/{curve.id}/metrics?key={KEY}&points={SHOWN}"
            first = asker.ask(path, 1.0, 1.0)
            metrics = asker.ask(path, 5.0, options.seconds)
    rows = {"runs": _row(runs), "metrics": _row(metrics) | {"first_ms": 1000 * first[0]}}
    print("| question | requests | median | p99 | longest | bar |")
    print("|---|---|---|---|---|---|")
    for name, row in rows.items():
        print(
            f"| {name} | {row['requests']} | {row['p50_ms']:.1f} ms | {row['p99_ms']:.1f} ms "
            f"| {row['longest_ms']:.1f} ms | {BARS_MS[name]:.0f} ms |"
        )
    document = {
        "commit": git_commit(HERE),
        "python": platform.python_version(),
        "machine": {"cpus": psutil.cpu_count(), "platform": platform.platform()},
        "options": vars(options),
        "bars_p99_ms": BARS_MS,
        "rows": rows,
    }
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "api_latency.json").write_text(json.dumps(document, indent=2) + "\n")


class _Asker:
    """Asks one thing over and over, at a steady rate."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 0)
        self._headers = f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"

    def ask(self, path: str, per_s: float, seconds: float) -> list[float]:
        """Seconds that each request took."""
        return asyncio.run(self._asked(path, per_s, seconds))

    async def _asked(self, path: str, per_s: float, seconds: float) -> list[float]:
        idle: asyncio.LifoQueue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
        idle = asyncio.LifoQueue()
        began = time.perf_counter()

        async def one(due: float) -> float:
            await asyncio.sleep(due - time.perf_counter())
            while True:
                fresh = idle.empty()
                if fresh:
                    connection = await asyncio.open_connection(*self._address, limit=1 << 24)
                else:
                    connection = idle.get_nowait()
                try:
                    await self._exchange(path, *connection)
                except (asyncio.IncompleteReadError, ConnectionError):
                    # A service closes connections that have been idle for a while.
                    if fresh:
                        raise
                    continue
                idle.put_nowait(connection)
                return time.perf_counter() - due

        dues = [began + number / per_s for number in range(max(1, int(per_s * seconds)))]
        return list(await asyncio.gather(*map(one, dues)))

    async def _exchange(
        self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(f"GET {path} HTTP/1.1\r\n{self._headers}".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200 " in head.split(b"\r\n")[0], head
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)


def _row(times: list[float]) -> dict[str, Any]:
    ordered = sorted(times)
    return {
        "requests": len(times),
        "p50_ms": 1000 * ordered[len(ordered) // 2],
        "p99_ms": 1000 * ordered[int(0.99 * len(ordered))],
        "longest_ms": 1000 * ordered[-1],
    }


def _fill(verbs: Orchestrator, count: int) -> None:
    """Runs that have ended, of all kinds."""
    spec = a_spec()
    evaluation = Evaluation(mean=1.0, std=1.0, iqm=1.0, ci95=(0.0, 2.0), n=100)
    ends = (State.SUCCEEDED, State.REJECTED, State.FAILED, State.STOPPED)
    now = time.time() - count
    runs = [
        Run(
            id=f"filled-{number:06}",
            name=f"sweep-{number % 97}",
            state=ends[number % len(ends)],
            env=spec.env.id,
            algo=spec.algo,
            env_steps=number,
            config_hash=spec.config_hash,
            eval=evaluation,
            path=str(verbs.home / "runs" / f"filled-{number:06}"),
            seed=number,
            total_timesteps=spec.train.total_timesteps,
            created_at=now + number,
            updated_at=now + number,
        )
        for number in range(count)
    ]
    for start in range(0, count, BATCH):
        verbs.store.submit(runs[start : start + BATCH], key=None, digest="")


def _with_points(verbs: Orchestrator, count: int) -> Run:
    """A run that has told so many points of one curve."""
    (run,) = verbs.submit(a_spec("name=curve")).runs
    run = verbs.ask_to_stop(run.id)
    common = f'"attempt":1,"ts":1794776510.5,"run":"{run.id}","step":'
    with RunDir.of(run).events.open("w") as file:
        start = '"kind":"state","key":"started","value":null,"tags":{"after":null}}'
        file.write(f'{{"v":1,"seq":1,{common}0,{start}\n')
        rest = f'"kind":"metric","key":"{KEY}","value":'
        for step in range(count):
            value = (step * 7919) % 10_007 / 10_007
            file.write(f'{{"v":1,"seq":{step + 2},{common}{step},{rest}{value},"tags":{{}}}}\n')
    return run


@contextmanager
def _service(home: Path) -> Iterator[str]:
    words = [*RLCTL, "up", "--home", str(home), "--port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        try:
            yield json.loads(child.stdout.readline())["url"]
        finally:
            child.terminate()


@contextmanager
def _trainer(home: Path) -> Iterator[None]:
    words = [*RLCTL, "launch", *TRAINING, "--home", str(home)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            _await_training(connect(home), child)
            yield
        finally:
            child.terminate()


def _await_training(verbs: Orchestrator, child: "subprocess.Popen[bytes]") -> None:
    """Return once steps are being made."""
    while True:
        assert child.poll() is None, "the trainer has ended"
        run = verbs.store.find("last")
        if run.name == "trainer" and run.env_steps > 0:
            return
        time.sleep(0.2)


if __name__ == "__main__":
    main()
