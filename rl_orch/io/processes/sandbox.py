"""A process that gives up what it does not need, for good: memory, time, and, where the kernel can
filter calls, starting programs, connecting to anything, signals to others, and changing files that
it has not open.

`RLIMIT_NPROC` does not bind root; the filter does. It is a list of what is refused, behind a reader
that runs nothing of what it reads: no place to run the code of strangers in.
"""

import ctypes
import os
import platform
import resource
import struct
from dataclasses import dataclass

from rl_orch.io.processes import system_calls

NO_NEW_PRIVILEGES = 38
SET_SECCOMP, FILTER = 22, 2
ALLOW, REFUSE, UNKNOWN, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
"""What becomes of a call; what is refused fails with EPERM, what is too new to be known as on an
older kernel, with ENOSYS: libraries then do without."""

LOAD, EQUAL, ABOVE, ANY_BIT, RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
NUMBER_AT, MACHINE_AT, ARGUMENTS_AT = 0, 4, 16
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True, slots=True)
class Calls:
    """The system calls of a kind of machine: those that are refused, those that open files, with
    the position of the flags among their arguments, those of which some commands are refused, and
    the last that is known."""

    machine: int
    refused: tuple[int, ...]
    opening: dict[int, int]
    commands: dict[int, tuple[int, ...]]
    last: int


CALLS = {
    "x86_64": Calls(
        0xC000003E,
        tuple(here for here, _ in system_calls.REFUSED.values()),
        {here: flags for here, _, flags in system_calls.OPENING.values()},
        {here: values for here, _, values in system_calls.COMMANDS.values()},
        system_calls.LAST[0],
    ),
    "aarch64": Calls(
        0xC00000B7,
        tuple(here for _, here in system_calls.REFUSED.values() if here is not None),
        {here: flags for _, here, flags in system_calls.OPENING.values() if here is not None},
        {here: values for _, here, values in system_calls.COMMANDS.values()},
        system_calls.LAST[1],
    ),
}


def confine(*, memory: int, seconds: int, written: int) -> bool:
    """Allow this process so many bytes of memory, seconds of work and bytes in a file, and none of
    the calls in `system_calls`. Returns whether the kernel has agreed to all of it."""
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: written,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
    }
    limited = [_limited(limit, most) for limit, most in limits.items()]
    calls = CALLS.get(platform.machine()) if platform.system() == "Linux" else None
    return all(limited) and calls is not None and _filter(calls)


def _limited(limit: int, most: int) -> bool:
    """Whether a limit holds now; some systems have limits that cannot be set."""
    _, hard = resource.getrlimit(limit)
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    try:
        resource.setrlimit(limit, (least, least))
    except (ValueError, OSError):
        return False
    return True


def _filter(calls: Calls) -> bool:
    """Whether the kernel has taken the filter; containers may forbid it."""
    try:
        control = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return False
    program = _program(calls)
    code = ctypes.create_string_buffer(program, len(program))
    told = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    words = [ctypes.c_ulong(0)] * 3
    if control(NO_NEW_PRIVILEGES, ctypes.c_ulong(1), *words) != 0:
        return False
    taken: int = control(SET_SECCOMP, ctypes.c_ulong(FILTER), told, *words[:2])
    return taken == 0


def _program(calls: Calls) -> bytes:
    """The filter, in the kernel's own language: eight bytes an instruction."""
    steps = [
        (LOAD, 0, 0, MACHINE_AT),
        (EQUAL, 1, 0, calls.machine),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
        (ABOVE, 0, 1, calls.last),
        (RETURN, 0, 0, UNKNOWN),
    ]
    for number in calls.refused:
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    for number, position in calls.opening.items():
        steps += [
            (EQUAL, 0, 4, number),
            (LOAD, 0, 0, ARGUMENTS_AT + 8 * position),
            (ANY_BIT, 0, 1, WRITING),
            (RETURN, 0, 0, REFUSE),
            (RETURN, 0, 0, ALLOW),
        ]
    for number, values in calls.commands.items():
        steps += [
            (EQUAL, 0, 2 + 2 * len(values), number),
            (LOAD, 0, 0, ARGUMENTS_AT + 8),
            *(step for each in values for step in ((EQUAL, 0, 1, each), (RETURN, 0, 0, REFUSE))),
            (RETURN, 0, 0, ALLOW),
        ]
    steps.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
