"""Limits that a process sets itself for good: memory, time, bytes written, and no network.

A second line behind a reader that runs nothing of what it reads: no place to run the code of
strangers in.
"""

import ctypes
import resource
import sys

NEW_NETWORK, NEW_USER = 0x40000000, 0x10000000
"""Flags of Linux's `unshare`."""


def confine(*, memory: int, seconds: int, written: int) -> bool:
    """Limit this process for good: bytes of memory, seconds, bytes of a file.

    It has no core file, no network and, unless it is root's, no children from then on. Returns
    whether all of that holds.
    """
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: written,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
    }
    agreed = [_leave_network(), *(_limited(limit, most) for limit, most in limits.items())]
    return all(agreed)


def _limited(limit: int, most: int) -> bool:
    """Whether a limit holds now; some systems have limits that cannot be set."""
    _, hard = resource.getrlimit(limit)
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    try:
        resource.setrlimit(limit, (least, least))
    except (ValueError, OSError):
        return False
    return True


def _leave_network() -> bool:
    """Whether this thread has a network of its own now, in which there is nobody.

    Root may have one; others need a namespace of users with it, which a process with several
    threads cannot make, and which containers may forbid.
    """
    if sys.platform != "linux":
        return False
    unshare = ctypes.CDLL(None).unshare
    return any(unshare(flags) == 0 for flags in (NEW_NETWORK, NEW_USER | NEW_NETWORK))
