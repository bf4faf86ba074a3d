"""Asking a child process something before a run is made: a question in, its whole answer out."""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from rl_orch.errors import BadInput, Problem
from rl_orch.io.processes import import_path
from rl_orch.io.processes.contained import ContainedProcess
from rl_orch.io.processes.environment import program_variables
from rl_orch.io.processes.subreaper import ENDS_WITHIN_S
from rl_orch.spec.model import Spec

CHECK_TIMEOUT_S = 120.0


class OneShotWorker:
    """A child that waits for one question: a module of ours and its arguments. It ends without an
    answer when this process does."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self._child = ContainedProcess(self._words, program_variables())

    @property
    def lives(self) -> bool:
        """Whether it still waits, as far as can be told."""
        return self._child.poll() is None

    def ask(self, question: str, *, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Its reply. However this ends, nothing is left of the child and what it started."""
        try:
            self._child.send(question, last=True)
            answer = self._answer(timeout_s)
            code = self._child.wait()
            errors = self._child.last_words
        finally:
            self.end()
        return subprocess.CompletedProcess(self._words, code, answer, errors)

    def end(self) -> None:
        """End it, with all that it has started."""
        self._child.close()

    def _answer(self, timeout_s: float) -> str:
        """All that it answers. Once it has, it may take a while to end by itself, and no longer: it
        may wait for processes that do not."""
        lines: list[str] = []
        for line in self._child.lines(timeout_s=timeout_s):
            lines.append(line)
            if line:
                break
        try:
            lines += self._child.lines(timeout_s=ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._child.end()
        return "\n".join(lines)


def checked(
    worker: OneShotWorker, question: str, *, doing: str
) -> subprocess.CompletedProcess[str]:
    """The reply of a child that checks something; a BadInput if that takes too long."""
    try:
        return worker.ask(question, timeout_s=CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise BadInput(
            f"{doing} took longer than {CHECK_TIMEOUT_S:.0f} s",
            hint="Make the environment by hand to see what it waits for.",
        ) from None


def check_question(spec: Spec, module_path: Sequence[str]) -> str:
    """The question to a child that makes an environment: the spec, and folders of modules."""
    return json.dumps({"spec": spec.model_dump(mode="json"), "module_path": list(module_path)})


def asked_spec(question: str) -> Spec:
    """The spec that such a question is about, whose modules are found from here on."""
    document = json.loads(question)
    import_path.search()
    import_path.search(document["module_path"])
    return Spec.model_validate(document["spec"])


def answer_in(reply: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The document in the last line of an answer."""
    document: dict[str, Any] = json.loads(reply.stdout.splitlines()[-1])
    return document


def problems_in(reply: subprocess.CompletedProcess[str], env_id: str) -> list[Problem]:
    """The problems in the reply of a child that was to make an environment.

    Making one may end the process; and the child itself may say that it cannot look.
    """
    try:
        document = answer_in(reply)
    except (IndexError, ValueError):
        last = reply.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        message = (
            f"env.id is {env_id!r}; making it ended the process with exit code "
            f"{reply.returncode}: {last[0]}"
        )
        return [Problem("env.id", env_id, message)]
    if "error" in document:
        raise BadInput(document["error"]["message"], hint=document["error"].get("hint"))
    return [Problem(**problem) for problem in document["problems"]]
