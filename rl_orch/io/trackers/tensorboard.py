"""TensorBoard: the numbers of a run as scalars, in the files that TensorBoard reads.

The one module that writes them. The messages are tensorboard's own classes; its writer has a
thread, and computes checksums in Python, which would cost a hundred times as much.
"""

import itertools
import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import Any

from tensorboard.compat.proto import event_pb2  # type: ignore[import-untyped]

from rl_orch.errors import BadInput
from rl_orch.io.files import private
from rl_orch.io.files.tfrecords import masked_crc
from rl_orch.io.metrics import names
from rl_orch.io.run import events
from rl_orch.io.run.directory import RunDir
from rl_orch.records import Event, Run
from rl_orch.spec.model import Spec

_VERSION = "brain.Event:2"
_NUMBERS = itertools.count()


class TensorBoardFiles:
    """A sink that writes for TensorBoard: numeric metrics, logs and evaluations under their keys,
    and episodes as `charts/episodic_return` and `charts/episodic_length`.

    The start of a resumed attempt makes TensorBoard forget the steps that it repeats.
    """

    def __init__(self, directory: Path) -> None:
        private.inner_folder(directory)
        # TensorBoard reads files in the order of their names: of two attempts, the later one last.
        seconds, rest = divmod(time.time_ns(), 10**9)
        where = f"{socket.gethostname()}.{os.getpid()}.{next(_NUMBERS)}"
        self._path = directory / f"events.out.tfevents.{seconds}.{rest:09d}.{where}"
        self._file = FileIO(self._path, "ab", opener=private.inner_file)
        self._pending = bytearray()
        self._append(event_pb2.Event(wall_time=time.time(), file_version=_VERSION))
        self.flush()

    def write(self, batch: Sequence[Event]) -> None:
        """Take the scalars of some events."""
        for event in batch:
            self._take(event)

    def _take(self, event: Event) -> None:
        if events.is_start(event):
            self._append_start(event)
        message = event_pb2.Event(wall_time=event.ts, step=event.step)
        for key, number in names.of_event(event):
            message.summary.value.add(tag=key, simple_value=number)
        if message.HasField("summary"):
            self._append(message)

    def flush(self) -> None:
        """Return once everything taken is in the file. What a full disk refuses is kept."""
        while self._pending:
            written = self._file.write(self._pending)
            del self._pending[: written or 0]

    def close(self, end: Run | None = None) -> None:
        """Write what is left and close the file."""
        try:
            self.flush()
        finally:
            self._file.close()

    def _append_start(self, event: Event) -> None:
        """Make TensorBoard drop what it has after the step of the checkpoint."""
        first = event.step + 1 if event.tags.get("after") else 0
        log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._append(event_pb2.Event(wall_time=event.ts, step=first, session_log=log))

    def _append(self, message: event_pb2.Event) -> None:
        """Add a record: its length, its bytes, and a checksum after each."""
        data: bytes = message.SerializeToString()
        self._pending += _length(len(data)) + data + struct.pack("<I", masked_crc(data))


class TensorBoard(TensorBoardFiles):
    """The tracker `tensorboard`: files in the folder of that name in the run's directory."""

    def __init__(self, run: Run, spec: Spec, options: Mapping[str, Any]) -> None:
        self.check(options)
        super().__init__(RunDir.of(run, spec).tensorboard)

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        """There are none."""
        if options:
            raise BadInput(f"the tracker tensorboard has no option {next(iter(options))!r}")


@lru_cache
def _length(count: int) -> bytes:
    """The beginning of a record of so many bytes. Few lengths occur, and they occur often."""
    length = struct.pack("<Q", count)
    return length + struct.pack("<I", masked_crc(length))
