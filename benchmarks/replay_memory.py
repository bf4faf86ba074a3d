"""A replay buffer of a million transitions of 84x84x4 bytes: its memory, and what checkpoints cost.

Fills the buffer through the worker's own recorder, then goes on at the pace of a fast Atari
training with a checkpoint every few thousand steps; at last another process restores the buffer
from the disk and draws from it. The bars: 8 GiB of memory at the most, a stall below a second for
every checkpoint, and no checkpoint writes more than what is new. Needs 8 GB of disk for a while.
Writes `benchmarks/results/replay_memory.json`.
"""

import argparse
import gc
import hashlib
import json
import platform
import statistics
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_orch.io.checkpoints import replay_files
from rl_orch.io.checkpoints.checkpoint_retention import CheckpointRetention
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.io.run.manifest import fingerprint, git_commit
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.policies.policy import Setup
from rl_orch.rl.replay.buffer import ReplayBuffer, segments_in
from rl_orch.rl.snapshot import TrainingSnapshot, parts_of
from rl_orch.rl.train import SEGMENT_BYTES
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.worker.attempt import start
from rl_orch.worker.attempt.commands import PendingCommands
from rl_orch.worker.attempt.recorder import FileRecorder

HERE = Path(__file__).parent
GIB = 1 << 30
STACK, FRAME = 4, (84, 84)
COPIES, EPISODE_STEPS = 8, 1000
TRANSITIONS = 1_000_000
ROWS = TRANSITIONS + TRANSITIONS // EPISODE_STEPS + 100
"""Room for the final observation of every episode, too."""

MEMORY_BAR_GIB, STALL_BAR_S = 8.0, 1.0
BATCH_SIZE, ROLLOUT = 32, 4


def main() -> None:
    """Measure, print a table, and keep the figures; or restore, in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=10)
    parser.add_argument("--steps", type=int, default=8000, help="between two checkpoints")
    parser.add_argument("--pace", type=float, default=2000.0, help="steps a second, all copies")
    parser.add_argument("--restore", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.restore is not None:
        print(json.dumps(_restored(RunDir(options.restore))))
        return
    with TemporaryDirectory(dir=HERE) as folder:
        figures = _measured(RunDir(Path(folder) / "run"), options)
    _print(figures)
    document = {
        "commit": git_commit(HERE),
        "python": platform.python_version(),
        "fingerprint": fingerprint(_spec()),
        "bars": {"memory_gib": MEMORY_BAR_GIB, "stall_s": STALL_BAR_S},
        **figures,
    }
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "replay_memory.json").write_text(json.dumps(document, indent=2) + "\n")


def _print(figures: dict[str, Any]) -> None:
    stalls, written = figures["stalls_s"], figures["written_bytes"]
    print("| | measured | bar |")
    print("|---|---|---|")
    rows = (
        ("transitions that can be drawn", f"{figures['transitions']:,}", f"{TRANSITIONS:,}"),
        ("memory of the whole process", f"{figures['peak_gib']:.2f} GiB", f"{MEMORY_BAR_GIB} GiB"),
        (
            "stall of a checkpoint, median and longest",
            f"{statistics.median(stalls):.3f} s, {max(stalls):.3f} s, n = {len(stalls)}",
            f"{STALL_BAR_S} s",
        ),
        (
            "written by a checkpoint, of what is new",
            f"{max(written) / 1e6:.0f} MB",
            f"{figures['new_bytes'] / 1e6:.0f} MB",
        ),
        ("the whole buffer on the disk", f"{figures['buffer_bytes'] / 1e9:.2f} GB", ""),
        ("longest wait for a segment between them", f"{max(figures['handovers_s']):.3f} s", ""),
        ("a batch of 32, median", f"{1e3 * figures['sample_s']:.2f} ms", ""),
        (
            "restored, verified and drawn from",
            f"{figures['restored']['seconds']:.0f} s, {figures['restored']['peak_gib']:.2f} GiB",
            f"{MEMORY_BAR_GIB} GiB",
        ),
    )
    for name, measured, bar in rows:
        print(f"| {name} | {measured} | {bar} |")


def _measured(directory: RunDir, options: argparse.Namespace) -> dict[str, Any]:
    collection = _Collection(directory)
    with closing(collection):
        began = time.perf_counter()
        while collection.steps < TRANSITIONS + 10_000:
            collection.collect(125)
        collection.save()
        filled_s = time.perf_counter() - began
        collection.forget()
        for _ in range(options.checkpoints):
            collection.go_on(options.steps, options.pace)
            collection.save()
        expected = _digest(collection.buffer)
        collection.verify()
        figures = {
            "transitions": len(collection.buffer),
            "row_bytes": collection.buffer.row_bytes,
            "buffer_bytes": ROWS * collection.buffer.row_bytes,
            "filled_s": filled_s,
            "steps_between": options.steps,
            "pace": options.pace,
            "new_bytes": collection.new_bytes(options.steps),
            "written_bytes": collection.written,
            "stalls_s": collection.stalls,
            "handovers_s": collection.handovers,
            "sample_s": statistics.median(collection.draws),
            "peak_gib": _peak_gib(),
        }
    del collection
    gc.collect()
    figures["restored"] = _restored_elsewhere(directory)
    if figures["restored"].pop("digest") != expected:
        raise SystemExit("the restored buffer draws something else")
    _hold_to_the_bars(figures)
    return figures


def _hold_to_the_bars(figures: dict[str, Any]) -> None:
    """Say so, and fail, if one is not met."""
    missed = [
        name
        for name, met in {
            "transitions": figures["transitions"] >= TRANSITIONS,
            "memory": max(figures["peak_gib"], figures["restored"]["peak_gib"]) < MEMORY_BAR_GIB,
            "stall": max(figures["stalls_s"]) < STALL_BAR_S,
            "only what is new": max(figures["written_bytes"]) <= figures["new_bytes"],
        }.items()
        if not met
    ]
    if missed:
        _print(figures)
        raise SystemExit(f"not met: {', '.join(missed)}")


@dataclass
class _Collection:
    """Experience as fast as it is asked for, kept by the worker's own recorder.

    Every frame carries its copy, episode and step, so that what is drawn can be verified.
    """

    directory: RunDir

    def __post_init__(self) -> None:
        spec = _spec()
        self.directory.create(spec, {})
        self.buffer = ReplayBuffer(_setup(spec))
        self._writer = EventWriter(self.directory.events, run="run", attempt=1)
        exact = {"level": "bitwise", "method": "captured", "reason": None, "pure_reset": True}
        meta = {"run_id": "run", "attempt": 1, "resume": exact, "fingerprint": {}}
        self._recorder = FileRecorder(
            self.directory,
            spec,
            self._writer,
            PendingCommands(),
            meta=meta,
            kept=CheckpointRetention(),
        )
        self.steps = 0
        self._known: set[str] = set()
        self.forget()

    def forget(self) -> None:
        """Begin to measure anew."""
        self.stalls: list[float] = []
        self.handovers: list[float] = [0.0]
        self.draws: list[float] = []
        self.written: list[int] = []

    def collect(self, steps: int) -> None:
        """So many steps of every copy."""
        times = self.steps // COPIES + np.arange(steps)
        batch = _batch(times)
        self.buffer.add(batch)
        self.steps += len(batch)
        if self.buffer.unsealed_bytes > SEGMENT_BYTES:
            began = time.perf_counter()
            self._hand_over()
            self.handovers.append(time.perf_counter() - began)

    def go_on(self, steps: int, pace: float) -> None:
        """Collect at that pace, and draw a batch after each rollout, as a learner would."""
        began = time.perf_counter()
        for done in range(0, steps, COPIES * ROLLOUT):
            self.collect(ROLLOUT)
            drawing = time.perf_counter()
            sample = self.buffer.sample(BATCH_SIZE, 0.5)
            self.buffer.update_priorities(sample.rows, sample.rewards)
            self.draws.append(time.perf_counter() - drawing)
            ahead = began + done / pace - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)

    def save(self) -> None:
        """A checkpoint; notes how long it held up the collection, and what it wrote."""
        began = time.perf_counter()
        self._hand_over()
        state = self.buffer.state()
        document = {
            "trainer_state": {},
            "replay_meta": dict(state.document),
            "rng_state": {},
        }
        tensors = {f"replay/{name}": tensor for name, tensor in state.tensors.items()}
        snapshot = TrainingSnapshot(tensors, document, step=self.steps, segments=segments_in(state))
        self._recorder.save(snapshot, None)
        self.stalls.append(time.perf_counter() - began)
        checkpoint = max(self.directory.checkpoints.iterdir())
        written = [file.stat().st_size for file in checkpoint.iterdir()]
        self.written.append(self._new_segments_bytes() + sum(written))

    def new_bytes(self, steps: int) -> int:
        """What is new after so many steps: rows, the final ones of episodes, and all priorities;
        with a little for headers and the list of segments."""
        rows = steps + COPIES * (steps // (COPIES * EPISODE_STEPS) + 1)
        return rows * self.buffer.row_bytes + 4 * ROWS + (256 << 10)

    def verify(self) -> None:
        """Draw a lot, and look at every frame."""
        for _ in range(100):
            sample = self.buffer.sample(BATCH_SIZE)
            seen, after = (
                _marks(np.asarray(c)) for c in (sample.observations, sample.next_observations)
            )
            newest = seen[:, -1]
            for marks, shift in ((seen, 0), (after, 1)):
                back = np.arange(STACK - 1, -1, -1)
                expected = np.maximum((newest & 0xFFFF)[:, None] + shift - back, 0)
                if not (marks == (newest & ~0xFFFF)[:, None] + expected).all():
                    raise SystemExit("a stack has the wrong frames")

    def close(self) -> None:
        """Wait for what is being written."""
        self._recorder.close()
        self._writer.close()

    def _hand_over(self) -> None:
        segment = self.buffer.seal()
        if segment is not None:
            self._recorder.add_segment(segment)

    def _new_segments_bytes(self) -> int:
        """Bytes of the segments that were not there when this was last asked."""
        folder, before = self.directory.replay, self._known
        self._known = set(replay_files.names(folder))
        new = self._known - before
        return sum(replay_files.path_of(folder, name).stat().st_size for name in new)


def _batch(times: NDArray[np.int64]) -> Batch:
    """Steps of every copy at these times; copies differ only in the marks of their frames."""
    episode, step = times // EPISODE_STEPS, times % EPISODE_STEPS
    copies = np.repeat(np.arange(COPIES), len(times))
    marks = (copies << 48) + np.tile((episode << 16) + step, COPIES)
    rows = len(marks)
    ended = np.tile(step == EPISODE_STEPS - 1, COPIES)
    return Batch(
        observations=_seen(marks),
        actions=marks % 4,
        rewards=(marks % 7).astype(np.float64),
        terminated=ended,
        truncated=np.zeros(rows, np.bool_),
        next_observations=_seen(marks + 1),
        extras={
            "valid": np.ones(rows, np.bool_),
            "first": np.tile(step == 0, COPIES),
        },
    )


def _seen(marks: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Stacks of noise whose newest frames carry marks; only these are ever looked at."""
    frames = np.empty((len(marks), *FRAME), np.uint8)
    frames[:] = NOISE[marks % len(NOISE)]
    frames.reshape(len(marks), -1)[:, :8] = marks[:, None].view(np.uint8)
    return np.broadcast_to(frames[:, None], (len(marks), STACK, *FRAME))


def _marks(stacks: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The marks of the frames of stacks: (B, STACK)."""
    flat = np.ascontiguousarray(stacks.reshape(len(stacks), STACK, -1)[:, :, :8])
    return flat.view(np.int64)[:, :, 0]


NOISE = np.random.default_rng(0).integers(0, 256, (64, *FRAME), np.uint8)


def _spec() -> Spec:
    return resolve(
        {
            "env": {"id": "CartPole-v1", "num_envs": COPIES, "seed": 1},
            "obs": {"stack_frames": STACK},
            "agent": {"algorithm": "dqn"},
            "buffer": {"size": ROWS, "prioritized": True},
            "train": {"total_timesteps": 10_000_000},
            "checkpoint": {"keep_last": 1},
        }
    )


def _setup(spec: Spec) -> Setup:
    """As if the environment were one of Atari's."""
    return Setup(spec, spaces.Box(0, 255, (STACK, *FRAME), np.uint8), spaces.Discrete(4))


def _restored_elsewhere(directory: RunDir) -> dict[str, Any]:
    command = [sys.executable, __file__, "--restore", str(directory.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _restored(directory: RunDir) -> dict[str, Any]:
    """Restore the buffer of the newest checkpoint and draw from it."""
    began = time.perf_counter()
    resumption = start.find(directory, 2).resumption
    assert resumption is not None
    buffer = ReplayBuffer(_setup(directory.spec()))
    buffer.load(parts_of(resumption.snapshot)["replay"], resumption.segments)
    digest = _digest(buffer)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "peak_gib": _peak_gib(), "digest": digest}


def _digest(buffer: ReplayBuffer) -> str:
    """Of what the buffer draws next; a checkpoint is expected just before."""
    made = hashlib.sha256()
    for _ in range(10):
        sample = buffer.sample(BATCH_SIZE, 0.5)
        for column in (sample.rows, sample.observations, sample.next_observations, sample.weights):
            made.update(np.ascontiguousarray(column).tobytes())
    return made.hexdigest()


def _peak_gib() -> float:
    """The most memory that this process ever had; `getrusage` would count its parent's too."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / GIB


if __name__ == "__main__":
    main()
