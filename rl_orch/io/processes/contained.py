"""A child that runs the code of others outside a run, contained: whatever it starts ends with it.

All questions that are asked of children go this way: what they are about is the caller's business.
Above each is a subreaper (`subreaper.py`), which ends what is left. If that is killed itself, and
where there are none, processes are known by a cookie that they inherit.
"""

import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from rl_orch.io.processes import import_path, pids
from rl_orch.io.processes.subreaper import DIES_WITHIN_S, ENDS_WITHIN_S
from rl_orch.plugins import PROGRAMS

LOOK_EVERY_S = 0.25
"""How often to see whether a child that says nothing still lives."""

READ_BYTES = 1 << 20
"""More than a pipe holds."""

LAST_BYTES = 1 << 16
"""Of what a child has written to standard error, where its last words are looked for."""

COOKIE_BYTES = 8


class ContainedProcess:
    """A module of ours that is run as a program, and all that it starts. It reads what is sent to
    its standard input, and answers in lines.

    It has a session of its own: a Ctrl-C in the terminal is meant for us. When this process ends,
    however it does, so does the child.
    """

    def __init__(
        self, words: Sequence[str], variables: Mapping[str, str], *, folder: Path | None = None
    ) -> None:
        """Start a module with its arguments and with these variables."""
        self._words = list(words)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._cookie = secrets.token_hex(COOKIE_BYTES)
        self._child = subprocess.Popen(
            import_path.program(
                "subreaper", str(os.getpid()), PROGRAMS.get(words[0], words[0]), *words[1:]
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            env=pids.marked_as_asked(variables, self._cookie),
            cwd=folder,
        )
        self._input, self._output = unblocked(self._child.stdin), unblocked(self._child.stdout)
        self._unsent, self._is_last = b"", False
        self._unread, self._is_over = bytearray(), False

    @property
    def pid(self) -> int:
        """The pid of the child: on Linux, that of the subreaper above the program."""
        return self._child.pid

    def poll(self) -> int | None:
        """The exit code of the program; None as long as it, or anything that it started, lives."""
        return self._child.poll()

    def send(self, text: str, *, last: bool = False) -> None:
        """Send a text; what a pipe does not hold of it, while answers are waited for. After the
        last, the input is closed."""
        self._unsent += text.encode()
        self._is_last = last
        self._send()

    def lines(self, *, timeout_s: float | None = None) -> Iterator[str]:
        """The lines of its answer, until there is no more to come.

        Raises `subprocess.TimeoutExpired` if that is not within the time.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            while (end := self._unread.find(b"\n")) >= 0:
                line = self._unread[:end].decode("utf-8", "replace")
                del self._unread[: end + 1]
                yield line
            data = self._received(deadline)
            if data is None:
                raise subprocess.TimeoutExpired(self._words, timeout_s or 0.0)
            if not data:
                return
            self._unread += data

    @property
    def last_words(self) -> str:
        """The end of its standard error, where all goes that is no answer."""
        size = os.fstat(self._errors.fileno()).st_size
        end = os.pread(self._errors.fileno(), LAST_BYTES, max(0, size - LAST_BYTES))
        return end.decode(errors="replace").strip()

    @property
    def last_line(self) -> str:
        """The last line of it."""
        return (self.last_words.splitlines() or ["it said nothing"])[-1]

    def wait(self) -> int:
        """The exit code of the program, once it and all that it started have ended. A child that
        has said its last and does not end is ended."""
        with suppress(subprocess.TimeoutExpired):
            return self._child.wait(ENDS_WITHIN_S)
        self.end()
        code = self.poll()
        return -signal.SIGKILL if code is None else code

    def ask_to_end(self) -> None:
        """Have it ended, and do not wait for that."""
        if sys.platform == "linux":
            self._child.terminate()
            self._child.send_signal(signal.SIGCONT)  # The environment may have halted it.

    def end(self) -> None:
        """End it and all that it has started, and return once they are gone."""
        self.ask_to_end()
        if sys.platform == "linux":
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(ENDS_WITHIN_S)
        if self._child.returncode is None:
            pids.kill_session(self._child.pid)
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(DIES_WITHIN_S)
        code = self._child.returncode
        if sys.platform != "linux" or code is None or code < 0:
            # There was no subreaper, or it may have been killed before it was done.
            pids.sweep_asked(self._cookie)

    def close(self) -> None:
        """End it, and close the files, which nobody may be reading from any more."""
        self.end()
        for file in (self._child.stdin, self._child.stdout, self._errors):
            with suppress(OSError):
                if file is not None:
                    file.close()

    def _received(self, deadline: float | None) -> bytes | None:
        """The next bytes; none if no more is to come, and None if nothing came in time.

        No more is to come when the pipe is at its end; and when the child has ended, though a
        stranger has the pipe open. What the child said before is in the pipe then.
        """
        while not self._is_over:
            self._is_over = self.poll() is not None
            left_s = LOOK_EVERY_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0 and not self._is_over:
                return None
            if self._has_said(0.0 if self._is_over else min(left_s, LOOK_EVERY_S)):
                return os.read(self._output, READ_BYTES)
        return b""

    def _has_said(self, within_s: float) -> bool:
        """Whether there is something to read within a time; sends what it can on the way."""
        ready = select.poll()
        ready.register(self._output, select.POLLIN)
        if self._unsent:
            ready.register(self._input, select.POLLOUT)
        events = dict(ready.poll(1000.0 * within_s))
        if self._input in events:
            self._send()
        return self._output in events

    def _send(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._input, self._unsent) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # Nobody reads it; what became of the child is seen elsewhere.
            self._unsent = b""
        if self._is_last and not self._unsent and self._child.stdin is not None:
            self._child.stdin.close()


def unblocked(pipe: IO[bytes] | None) -> int:
    """The descriptor of a pipe, which from now on never blocks."""
    assert pipe is not None
    os.set_blocking(pipe.fileno(), False)
    return pipe.fileno()
