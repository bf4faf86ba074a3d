"""Answer of a child that was asked one thing: lines of progress, then one document.

Whatever an environment prints meanwhile goes to standard error.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.processes import import_path

Tell = Callable[[str, float], None]
Work = Callable[[Mapping[str, Any], Tell], dict[str, Any]]
TELL_EVERY_S = 0.1


def answer_one(work: Work) -> int:
    """Read the question, do the work and write what came of it."""
    question = json.loads(sys.stdin.read())
    import_path.search()
    real = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        reply = replied(work, question, teller(real))
    write(real, reply)
    return 0


def replied(work: Work, question: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Reply to a question: `{"answer": …}`, or `{"error": …}` if it was refused."""
    try:
        return {"answer": work(question, tell)}
    except RlctlError as error:
        return error.document() | {"bad_input": isinstance(error, BadInput)}


def teller(lines: TextIO, clock: Callable[[], float] = time.monotonic) -> Tell:
    """Writes a line when something else is being done, and a few times a second.

    Where nobody reads them any more that is an error, which ends the process.
    """
    said, said_at = "", clock()

    def tell(doing: str, done: float) -> None:
        nonlocal said, said_at
        if doing == said and clock() - said_at < TELL_EVERY_S:
            return
        said, said_at = doing, clock()
        write(lines, {"doing": doing, "done": done})

    return tell


def write(lines: TextIO, document: Mapping[str, Any]) -> None:
    """Write a document as a line of its own.

    That holds whatever an environment has printed before it.
    """
    lines.write("\n" + json.dumps(document, default=str) + "\n")
    lines.flush()
