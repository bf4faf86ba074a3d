"""Tasks of a child: it reads requests, tells how far it is, and answers each with one record.

Whatever an environment prints meanwhile goes to standard error.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO, TypeVar

from pydantic import BaseModel

from rl_orch.errors import RlctlError
from rl_orch.io.processes import import_path

Tell = Callable[[str, float], None]
Request = TypeVar("Request", bound=BaseModel)
Work = Callable[[Request, Tell], BaseModel]
TELL_EVERY_S = 0.1


def answer_one(kind: type[Request], work: Work[Request]) -> int:
    """Read one request, do the work and write what came of it."""
    return answer_lines(kind, work, [sys.stdin.readline()])


def answer_lines(kind: type[Request], work: Work[Request], lines: Iterable[str]) -> int:
    """Answer the request on each line, as long as there are any."""
    import_path.search()
    real = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for line in lines:
            write(real, replied(work, kind.model_validate(json.loads(line)), teller(real)))
    return 0


def replied(work: Work[Request], request: Request, tell: Tell) -> dict[str, Any]:
    """Reply to a request: `{"answer": …}`, or `{"error": …}` if it was refused."""
    try:
        return {"answer": work(request, tell).model_dump(mode="json")}
    except RlctlError as error:
        return error.document()


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
