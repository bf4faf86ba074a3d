"""A child that is asked one thing, watched while it works at it, and ended if nobody waits."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rl_orch.errors import BadInput, Damaged, MissingExtra, NotFound, RlctlError
from rl_orch.io import processes
from rl_orch.io.asking import harmless

Watch = Callable[[str, float], None]
"""Takes what the child is doing, and the part of it that is done."""


LAST_BYTES = 4096
"""Of what a child has said, where its last line is looked for."""


def unwatched(_doing: str, _done: float) -> None:
    """Nobody waits to hear how far it is."""


@dataclass(frozen=True, slots=True)
class Child:
    """A program that reads one question and writes lines of JSON, the last of them its answer.

    `doing` is what it is called in errors, `hint` what to do if it ends without an answer. One that
    is `bare` has no variables but these; `folder` is where it works, if not here.
    """

    command: Sequence[str]
    variables: Mapping[str, str]
    doing: str
    hint: str
    bare: bool = False
    folder: Path | None = None

    def answer(self, question: Mapping[str, Any], watch: Watch) -> dict[str, Any]:
        """What it answers. When this is interrupted, its whole session is ended."""
        with tempfile.TemporaryFile("w+", errors="replace") as said, self._start(said) as child:
            try:
                reply = _reply(child, json.dumps(question), watch)
                if reply is None:
                    raise self._ended(child.wait(), said)
            finally:
                # Processes that an environment started would keep the pipe open.
                processes.kill_session(child.pid)
        if "error" in reply:
            raise refusal(reply)
        answer: dict[str, Any] = reply["answer"]
        return answer

    def _start(self, said: IO[str]) -> subprocess.Popen[str]:
        """The child, in a session of its own: a Ctrl-C in the terminal is meant for us."""
        return subprocess.Popen(
            list(self.command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            start_new_session=True,
            env={**({} if self.bare else harmless(os.environ)), **self.variables},
            cwd=self.folder,
        )

    def _ended(self, code: int, said: IO[str]) -> RlctlError:
        """What a child that gave no answer leaves us to say."""
        last = last_line(said)
        return RlctlError(f"{self.doing} ended with exit code {code}: {last}", hint=self.hint)


def _reply(child: subprocess.Popen[str], question: str, watch: Watch) -> dict[str, Any] | None:
    """The child's last document, None if it ended without one. `watch` is told the others."""
    assert child.stdin is not None
    assert child.stdout is not None
    with suppress(BrokenPipeError):
        child.stdin.write(question)
        child.stdin.close()
    for line in child.stdout:
        try:
            document = json.loads(line)
        except ValueError:  # An environment may print what it likes.
            continue
        if not isinstance(document, dict):
            continue
        if "doing" in document:
            watch(document["doing"], document["done"])
        elif "answer" in document or "error" in document:
            return document
    return None


def last_line(said: IO[str]) -> str:
    """The last line that a child has written to a file, which may be as long as it likes."""
    size = os.fstat(said.fileno()).st_size
    end = os.pread(said.fileno(), LAST_BYTES, max(0, size - LAST_BYTES)).decode(errors="replace")
    return (end.strip().splitlines() or ["it said nothing"])[-1]


def refusal(reply: Mapping[str, Any]) -> RlctlError:
    """The error that a child tells of, of the kind that its code names; or at least as grave."""
    told = reply["error"]
    kind: type[RlctlError] = BadInput if reply.get("bad_input") else RlctlError
    kinds = {each.code: each for each in (MissingExtra, NotFound, Damaged)}
    kind = kinds.get(told.get("code"), kind)
    return kind(told["message"], path=told.get("path"), hint=told.get("hint"))
