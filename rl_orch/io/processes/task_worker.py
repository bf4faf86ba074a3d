"""Children that are asked something and watched while they work at it: request, progress, answer.

A request is one line of JSON, and so is an answer. What they hold is in `records/tasks.py`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from rl_orch.errors import RlctlError, error_of
from rl_orch.io.processes.contained import ContainedProcess
from rl_orch.io.processes.environment import program_variables

DOCTOR = "Run `rlctl doctor`; the last line above may say more."
Answer = TypeVar("Answer", bound=BaseModel)

ProgressCallback = Callable[[str, float], None]
"""Takes what the child is doing, and the part of it that is done."""


def unwatched(_doing: str, _done: float) -> None:
    """The callback of callers that do not want to hear how far it is."""


class TaskEnded(RlctlError):
    """A child ended without an answer, by an exit code."""

    def __init__(self, doing: str, exit_status: int, last_line: str, hint: str | None) -> None:
        super().__init__(f"{doing} ended with exit code {exit_status}: {last_line}", hint=hint)
        self.exit_status, self.last_line = exit_status, last_line


class TaskWorker(Generic[Answer]):
    """A program of ours that waits for requests, and all that it starts.

    `doing` is what it is called in errors, `hint` what to do if it ends without an answer. One that
    is `bare` has no variables but those; `folder` is where it works, if not here.
    """

    def __init__(
        self,
        answers: type[Answer],
        words: Sequence[str],
        *,
        doing: str,
        hint: str | None = DOCTOR,
        threads: int = 1,
        bare: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._answers, self._doing, self._hint = answers, doing, hint
        variables = program_variables(threads=threads) if bare is None else bare
        self._child = ContainedProcess(words, variables, folder=folder)

    @property
    def lives(self) -> bool:
        """Whether it still waits, as far as can be told."""
        return self._child.poll() is None

    def answer(
        self,
        request: BaseModel | None,
        watch: ProgressCallback = unwatched,
        *,
        timeout_s: float | None = None,
    ) -> Answer:
        """Its only answer. However this ends, nothing is left of the child and what it started."""
        with closing(self):
            return self.ask(request, watch, timeout_s=timeout_s, last=True)

    def ask(
        self,
        request: BaseModel | None,
        watch: ProgressCallback = unwatched,
        *,
        timeout_s: float | None = None,
        last: bool = False,
    ) -> Answer:
        """Its answer to one request of several; after the `last`, or None, it hears no more."""
        line = "" if request is None else json.dumps(request.model_dump(mode="json"), default=str)
        self._child.send(f"{line}\n" if line else "", last=last)
        reply = self._reply(watch, timeout_s)
        if reply is None:
            raise TaskEnded(self._doing, self._child.wait(), self._child.last_line, self._hint)
        if "error" in reply:
            raise error_of(**reply["error"])
        return self._answers.model_validate(reply["answer"])

    def ask_to_end(self) -> None:
        """Have it ended, and do not wait for that."""
        self._child.ask_to_end()

    def close(self) -> None:
        """End it, with all that it has started."""
        self._child.close()

    def _reply(self, watch: ProgressCallback, timeout_s: float | None) -> dict[str, Any] | None:
        """The next answer or error, None if there is none to come. `watch` is told the others."""
        for line in self._child.lines(timeout_s=timeout_s):
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
