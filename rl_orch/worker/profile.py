"""`python -m rl_orch.worker.profile < question.json`: train for a while, and say where it went.

The question has a spec with nothing left open, and limits. Standard output has a line of JSON
whenever there is progress to tell of, and a last one with the answer or an error.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TextIO

from rl_orch.errors import BadInput, RlctlError
from rl_orch.rl.profile import Limits, Tell, profile
from rl_orch.spec.model import Spec

TELL_EVERY_S = 0.1


def answer(question: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """What was found, or why nothing was."""
    spec = Spec.model_validate(question["spec"])
    try:
        return {"times": asdict(profile(spec, Limits(**question["limits"]), tell))}
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


def write(lines: TextIO, document: dict[str, Any]) -> None:
    """Write a document as a line of its own, whatever an environment has printed before it."""
    lines.write("\n" + json.dumps(document, default=str) + "\n")
    lines.flush()


if __name__ == "__main__":
    real = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        reply = answer(json.loads(sys.stdin.read()), teller(real))
    write(real, reply)
