"""Where the time of a training goes, found out by a child that trains for a short time.

What to make of it is decided in `advice.py`.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

from pydantic import BaseModel, ConfigDict

from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.asking import harmless
from rl_orch.io.children import FIXED_VARIABLES, THREAD_VARIABLES
from rl_orch.spec.model import Spec

Watch = Callable[[str, float], None]
"""Takes what the child is doing, and the part of it that is done."""

TRAINED_HERE = "local"
"""The runner that trains with this package."""


class Found(BaseModel):
    """Something that a child has found out."""

    model_config = ConfigDict(frozen=True)


class WarmUp(Found):
    """What came before the measurement, the compilation of kernels in it."""

    steps: int
    seconds: float
    compiling_s: float


class Settled(Found):
    """What trains or steps; `why_not` is why kernels cannot, None if they can, and `mendable`
    whether they could if the spec said otherwise (`spec.mends`)."""

    value: str
    why_not: str | None
    mendable: bool = False


class Profile(Found):
    """Seconds of a training by part: env, policy, learner, other, and buffer where there is one.

    Where `apart`, env and policy work in one call, and were told apart by stepping environments
    alone. `observations` are the kinds of their parts; `at_once`, backends that could step all
    copies at once.
    """

    engine: Settled
    backend: Settled
    observations: tuple[str, ...]
    warm_up: WarmUp
    steps: int
    seconds: float
    parts: dict[str, float]
    apart: bool
    at_once: tuple[str, ...]

    @property
    def steps_per_second(self) -> float:
        """Environment steps a second, with the updates that go with them."""
        return self.steps / self.seconds

    def share(self, *parts: str) -> float:
        """What these parts take of all time, in [0, 1]."""
        return sum(self.parts.get(part, 0.0) for part in parts) / self.seconds

    def ms_per_1000_steps(self, part: str) -> float:
        """What a part takes for a thousand environment steps."""
        return 1e6 * self.parts[part] / self.steps


def refuse_unless_local(spec: Spec) -> None:
    """Raise if it is not this package that would train."""
    if spec.runner.name != TRAINED_HERE:
        raise BadInput(
            f"runner.name is {spec.runner.name!r}; a profile looks into the training of this "
            f"package, so it must be {TRAINED_HERE!r}",
            path="runner.name",
            hint="Programs of your own have profilers of their own, such as py-spy.",
        )


def profile(spec: Spec, *, seconds: float | None, steps: int | None, watch: Watch) -> Profile:
    """Let a child train what the spec says, with nothing left open, until one of the limits is
    reached. When this is interrupted, the child's whole session is ended."""
    limits = {"seconds": seconds, "steps": steps}
    question = json.dumps({"spec": spec.model_dump(mode="json"), "limits": limits})
    with tempfile.TemporaryFile("w+", errors="replace") as said, _child(spec, said) as child:
        try:
            reply = _reply(child, question, watch)
            if reply is None:
                raise _ended(child.wait(), said)
        finally:
            with suppress(ProcessLookupError):
                # Processes that an environment started would keep the pipe open.
                os.killpg(child.pid, signal.SIGKILL)
    if "error" in reply:
        raise _refusal(reply)
    return Profile.model_validate(reply["times"])


def _child(spec: Spec, said: IO[str]) -> subprocess.Popen[str]:
    """The child, in a session of its own: a Ctrl-C in the terminal is meant for us."""
    threads = dict.fromkeys(THREAD_VARIABLES, str(spec.resources.threads))
    return subprocess.Popen(
        [sys.executable, "-m", "rl_orch.worker.profile"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        text=True,
        start_new_session=True,
        env=harmless(os.environ) | threads | FIXED_VARIABLES,
    )


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
        elif "times" in document or "error" in document:
            return document
    return None


def _refusal(reply: dict[str, Any]) -> RlctlError:
    """The error that a child tells of."""
    kind = BadInput if reply["bad_input"] else RlctlError
    told = reply["error"]
    return kind(told["message"], path=told.get("path"), hint=told.get("hint"))


def _ended(code: int, said: IO[str]) -> RlctlError:
    """What a child that gave no answer leaves us to say."""
    said.seek(0)
    last = said.read().strip().splitlines()[-1:] or ["it said nothing"]
    return RlctlError(
        f"the training ended with exit code {code}: {last[0]}",
        hint="`rlctl launch` with the same spec keeps the whole log.",
    )
