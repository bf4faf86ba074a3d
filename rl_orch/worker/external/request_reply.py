"""A program that answers: a JSON object a line on its standard input, one back on its output.

Lines that are no JSON objects are its log. Nothing here waits longer than it was told to.
"""

import json
import os
import selectors
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rl_orch.errors import RlctlError
from rl_orch.io.processes.contained import unblocked

LINE_BYTES = 64 << 20
ENDS_WITHIN_S = 5.0
_READ_BYTES = 1 << 16


class Dialogue:
    """Questions to a program and its answers, in turn. `note` takes the lines that are neither."""

    def __init__(
        self, program: "subprocess.Popen[bytes]", note: Callable[[bytes], None], *, name: str
    ) -> None:
        self._program = program
        self._note = note
        self._name = name
        self._input, self._output = unblocked(program.stdin), unblocked(program.stdout)
        self._read = bytearray()

    def ask(self, question: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """The answer; an error if there is none in time, or if the program ends instead."""
        deadline = time.monotonic() + timeout_s
        self._receive()
        if self._next_answer() is not None:
            raise RlctlError(f"{self._name} answered before it was asked")
        unsent = memoryview(json.dumps(question).encode() + b"\n")
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            selector.register(self._input, selectors.EVENT_WRITE)
            while unsent or (answer := self._next_answer()) is None:
                left_s = deadline - time.monotonic()
                ready = selector.select(left_s) if left_s > 0 else []
                if not ready:
                    raise RlctlError(f"{self._name} did not answer within {timeout_s:g} s")
                for key, _ in ready:
                    if key.fd == self._output:
                        self._receive()
                    else:
                        unsent = unsent[self._send(unsent) :]
                        if not unsent:
                            selector.unregister(self._input)
        return answer

    def close(self) -> None:
        """Tell the program that nothing more comes, and let it end by itself.

        It has some time for that. Closing again does nothing.
        """
        for pipe in (self._program.stdin, self._program.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._program.wait(ENDS_WITHIN_S)

    def _send(self, data: memoryview) -> int:
        try:
            return os.write(self._input, data)
        except BlockingIOError:
            return 0
        except OSError:
            raise self._ended() from None

    def _receive(self) -> None:
        try:
            data = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise self._ended()
        self._read += data
        if len(self._read) > LINE_BYTES:
            raise RlctlError(f"{self._name} sent a line of more than {LINE_BYTES >> 20} MiB")

    def _next_answer(self) -> dict[str, Any] | None:
        """The next JSON object that has come in whole; what comes before it is noted."""
        while (end := self._read.find(b"\n")) >= 0:
            line = bytes(self._read[:end])
            del self._read[: end + 1]
            with suppress(ValueError, RecursionError):
                said = json.loads(line)
                if isinstance(said, dict):
                    return said
            self._note(line)
        return None

    def _ended(self) -> RlctlError:
        try:
            code = self._program.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            return RlctlError(f"{self._name} closed its standard output; see the log")
        how = f"with exit code {code}" if code >= 0 else f"by signal {-code}"
        return RlctlError(f"{self._name} ended {how} before it answered; see the log")
