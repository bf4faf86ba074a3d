"""A child that is asked one thing, and watched while it works at it."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_orch.errors import BadInput, Damaged, MissingExtra, NotFound, RlctlError
from rl_orch.io.processes.contained import ContainedProcess
from rl_orch.io.processes.environment import program_variables

DOCTOR = "Run `rlctl doctor`; the last line above may say more."

ProgressCallback = Callable[[str, float], None]
"""Takes what the child is doing, and the part of it that is done."""


def unwatched(_doing: str, _done: float) -> None:
    """The callback of callers that do not want to hear how far it is."""


@dataclass(frozen=True, slots=True)
class TaskChild:
    """A program of ours that reads one question and writes JSON lines, its answer last.

    `doing` is what it is called in errors, `hint` what to do if it ends without an answer. One that
    is `bare` has no variables but those; `folder` is where it works, if not here.
    """

    words: Sequence[str]
    doing: str
    hint: str = DOCTOR
    threads: int = 1
    bare: Mapping[str, str] | None = None
    folder: Path | None = None

    def answer(self, question: Mapping[str, Any], watch: ProgressCallback) -> dict[str, Any]:
        """Its answer. However this ends, nothing is left of the child and what it started."""
        with closing(self._start()) as child:
            child.send(json.dumps(question), last=True)
            reply = _reply(child, watch)
            if reply is None:
                raise self._ended(child)
        if "error" in reply:
            raise refusal(reply)
        answer: dict[str, Any] = reply["answer"]
        return answer

    def _start(self) -> ContainedProcess:
        variables = program_variables(threads=self.threads) if self.bare is None else self.bare
        return ContainedProcess(self.words, variables, folder=self.folder)

    def _ended(self, child: ContainedProcess) -> RlctlError:
        """The error for a child that gave no answer."""
        how = f"exit code {child.wait()}: {child.last_line}"
        return RlctlError(f"{self.doing} ended with {how}", hint=self.hint)


def _reply(child: ContainedProcess, watch: ProgressCallback) -> dict[str, Any] | None:
    """The child's last document, None if it ended without one. `watch` is told the others."""
    for line in child.lines():
        try:
            document = json.loads(line)
        except ValueError:  # A blank line, or half of one.
            continue
        if not isinstance(document, dict):
            continue
        if "doing" in document:
            watch(document["doing"], document["done"])
        elif "answer" in document or "error" in document:
            return document
    return None


def refusal(reply: Mapping[str, Any]) -> RlctlError:
    """The error that a child tells of, of the kind that its code names; or at least as grave."""
    told = reply["error"]
    kind: type[RlctlError] = BadInput if reply.get("bad_input") else RlctlError
    kinds = {each.code: each for each in (MissingExtra, NotFound, Damaged)}
    kind = kinds.get(told.get("code"), kind)
    return kind(told["message"], path=told.get("path"), hint=told.get("hint"))
