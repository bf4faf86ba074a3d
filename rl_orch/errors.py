"""Every error a user can meet. Each class maps once to a code, an exit code and an HTTP status.

RlctlError                 exit 1  HTTP 500
├── BadInput               exit 2  HTTP 400   what was asked for cannot be done as it was asked
│   ├── SpecInvalid                           one or more problems in a spec
│   ├── OptionPending                         an option whose part this release does not have
│   ├── MissingExtra                          an optional dependency is not installed
│   ├── Ambiguous                             a word that several runs could be meant by
│   └── NotFound                   HTTP 404   no such run, model or file
├── Conflict               exit 2  HTTP 409   true a moment ago, or true for somebody else
│   ├── IllegalTransition                     the run is in a state that does not allow it
│   ├── ConsentNeeded                         a program would be run that nobody agreed to
│   ├── LeaseLost                             another process supervises the run
│   └── RunLocked                             another process trains the run
├── GateRefused            exit 3  HTTP 409   a gate does not let it pass
├── Refused                exit 2  HTTP 403   who asks may not do this
│   ├── Unauthorized               HTTP 401   no token, or none that counts
│   ├── TooLarge                   HTTP 413   more than a request may hold
│   └── TooMany                    HTTP 429   more requests than one may make
├── RunFailed              exit 1  HTTP 500   a run that was waited for failed, or was lost
├── TimedOut               exit 124 HTTP 504  what was waited for goes on
├── Unavailable            exit 1  HTTP 503   a part that is needed does not answer
├── Damaged                exit 1  HTTP 500   a stored file fails its digest or its format
└── Diverged               exit 1  HTTP 500   training produced a number that is not finite
"""

import json
import os
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

from rl_orch.addresses import masked, masked_in

LONGEST = 2000
KEPT = 1900
"""Characters of a message: how many it may have, and how many are kept of a longer one."""


PACKAGE = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = tuple(
    os.path.join(folder, "")
    for folder in (PACKAGE, sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
)
INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")


def shortened(text: str) -> str:
    """A text that others may have written, short enough to show and to store."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:KEPT]}… and {len(text) - KEPT:,} characters more"


def with_place(error: BaseException, text: str | None = None) -> str:
    """An error that nobody foresaw, by its type and text, with the place that it is from."""
    said = f"{type(error).__name__}: {shortened(str(error) if text is None else text)}"
    place = place_of(error)
    return said if place is None else f"{said} ({place})"


def place_of(error: BaseException) -> str | None:
    """The file and line of code that raised an error: the innermost of the user's own, if any of
    it had a part in it or in what led to it; else the innermost of all."""
    innermost = [each[-1] for each in _tracebacks(error) if each]
    own = (frame for frames in _tracebacks(error) for frame in reversed(frames) if _is_own(frame))
    frame = next(own, innermost[0] if innermost else None)
    return None if frame is None else f"{_short(frame.filename)}, line {frame.lineno}"


def _tracebacks(error: BaseException) -> Iterator[traceback.StackSummary]:
    """The frames of an error, and of those that led to it."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield traceback.extract_tb(each.__traceback__)
        each = each.__cause__ or each.__context__


def _is_own(frame: traceback.FrameSummary) -> bool:
    """Whether code is neither of this package, nor of Python, nor of what is installed."""
    path = os.path.abspath(frame.filename)
    return not (
        frame.filename.startswith("<") or path.startswith(LIBRARIES) or INSTALLED.search(path)
    )


def _short(file: str) -> str:
    """A path from the working directory, if it is below it."""
    below = os.path.relpath(file) if os.path.isabs(file) else file
    return file if below.startswith(os.pardir) else below


class RlctlError(Exception):
    """Something failed; the message says what, and the hint what to do next.

    A message that repeats those of other programs is shortened; their logs have all of it. None
    repeats the password of an address.
    """

    code: ClassVar[str] = "failed"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, path: str | None = None, hint: str | None = None) -> None:
        message, hint = shortened(masked(message)), hint and masked(hint)
        super().__init__(message)
        if hint:
            self.add_note(hint)  # Which a traceback shows below the message.
        self.message = message
        self.path = path
        self.hint = hint

    def findings(self) -> list[dict[str, Any]]:
        """What is wrong, one by one, as checks list it."""
        return [{"path": self.path, "value": None, "message": self.message, "hint": self.hint}]

    def document(self) -> dict[str, Any]:
        """The error as the one JSON document that every surface sends."""
        fields = {
            "code": self.code,
            "message": self.message,
            "path": self.path,
            "hint": self.hint,
        }
        return {"error": {key: value for key, value in fields.items() if value is not None}}


class BadInput(RlctlError):
    """What was asked for cannot be done as it was asked."""

    code = "bad_input"
    exit_code = 2
    http_status = 400


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a spec: where, what was seen, and a whole sentence about it."""

    path: str
    value: Any
    message: str
    hint: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", shortened(masked(self.message)))
        object.__setattr__(self, "value", masked_in(self.value))

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


Warn: TypeAlias = Callable[[Problem], None]
"""Hears of what is worth knowing and stops nothing."""


def unheard(_warning: Problem) -> None:
    """Let a warning pass."""


class SpecInvalid(BadInput):
    """A spec has one or more problems; all of them are listed."""

    code = "spec_invalid"

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(first.message + more, path=first.path, hint=first.hint)
        self.problems = tuple(problems)

    def findings(self) -> list[dict[str, Any]]:
        """Every problem."""
        return [asdict(problem) for problem in self.problems]

    def document(self) -> dict[str, Any]:
        """The error as a document, every problem with the value that was seen."""
        error = super().document()["error"]
        return {"error": error | {"problems": json.loads(json.dumps(self.findings(), default=str))}}


class OptionPending(BadInput):
    """An option is known, but the part that would read it is not in this release."""

    code = "option_pending"


class MissingExtra(BadInput):
    """An optional dependency is not installed."""

    code = "missing_extra"


class Ambiguous(BadInput):
    """Several runs, groups or aliases could be meant; all of them are named."""

    code = "ambiguous"


class NotFound(BadInput):
    """There is no run, model or file of that name."""

    code = "not_found"
    http_status = 404


class Conflict(RlctlError):
    """The request does not fit the present state, or somebody else was first."""

    code = "conflict"
    exit_code = 2
    http_status = 409


class IllegalTransition(Conflict):
    """A run cannot go from its state to the one asked for."""

    code = "illegal_transition"


class ConsentNeeded(Conflict):
    """A program would be run that nobody has agreed to."""

    code = "consent_needed"


class LeaseLost(Conflict):
    """Another process supervises the run now."""

    code = "lease_lost"


class RunLocked(Conflict):
    """Another process holds the run directory."""

    code = "run_locked"


class GateRefused(RlctlError):
    """A gate does not let it pass."""

    code = "gate_refused"
    exit_code = 3
    http_status = 409


class Refused(RlctlError):
    """Who asks may not do this."""

    code = "forbidden"
    exit_code = 2
    http_status = 403


class Unauthorized(Refused):
    """There is no token, or none that counts."""

    code = "unauthorized"
    http_status = 401


class TooLarge(Refused):
    """A request holds more than it may."""

    code = "too_large"
    http_status = 413


class TooMany(Refused):
    """More requests than one may make."""

    code = "too_many_requests"
    http_status = 429


class RunFailed(RlctlError):
    """A run that was waited for failed, or was lost."""

    code = "run_failed"


class TimedOut(RlctlError):
    """What was waited for goes on, and was waited for as long as was asked."""

    code = "timeout"
    exit_code = 124
    http_status = 504


class Unavailable(RlctlError):
    """A part that is needed does not answer; it may later."""

    code = "unavailable"
    http_status = 503


class Damaged(RlctlError):
    """A stored file fails its digest or cannot be read."""

    code = "damaged"


class Diverged(RlctlError):
    """Training produced a number that is not finite; after `step` environment steps, if known."""

    code = "diverged"

    def __init__(self, message: str, *, step: int = 0, **details: str | None) -> None:
        super().__init__(message, **details)
        self.step = step


def kind_of(code: str, status: int | None = None) -> type[RlctlError]:
    """The class of a code; of one that is not known here, the widest class with that status."""
    kinds = list(_kinds(RlctlError))
    named = [kind for kind in kinds if kind.code == code]
    alike = [kind for kind in kinds if kind.http_status == status]
    return next(iter(named or alike), RlctlError)


def error_of(
    code: str,
    message: str,
    *,
    path: str | None = None,
    hint: str | None = None,
    problems: Sequence[Mapping[str, Any]] = (),
) -> RlctlError:
    """The error that a document of one tells of."""
    kind = kind_of(code)
    if kind is SpecInvalid:
        alone = Problem(path or "", None, message, hint)
        return SpecInvalid([Problem(**problem) for problem in problems] or [alone])
    return kind(message, path=path, hint=hint)


def _kinds(kind: type[RlctlError]) -> Iterator[type[RlctlError]]:
    """A class of errors and all under it, wider ones first."""
    yield kind
    for narrower in kind.__subclasses__():
        yield from _kinds(narrower)
