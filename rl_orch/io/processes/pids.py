"""The identity of a process: pid and start time, so that a reused pid is never taken for it.

Every process of a run carries a cookie in its environment, which its children inherit, so that
those that left its session are found as well; so does every child that is asked something. A run
process that was a standby before carries the cookie of that, which the run directory notes.
"""

import getpass
import hashlib
import os
import re
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

from rl_orch.io.processes import subreaper
from rl_orch.io.processes.subreaper import DIES_WITHIN_S

COOKIE = "RLCTL_ROOT"
"""The variable that says which attempt at which run a process belongs to."""

ASKED = "RLCTL_ASKED"
"""The variable that says of which children that were asked something a process is a part: one's
cookie, behind those of the children that it was started by."""

STANDBYS = "standby"
"""The file of a run directory with a line for each standby that was to begin an attempt: the number
of the attempt and the cookie."""

NOTED_BYTES = 1 << 20
LOADS_WITHIN_S = 0.5
"""How long to wait for the kernel to load a program, once nothing else is left."""

YOUNG_S = 2.0
"""The age up to which a process without variables is taken for one that is being loaded."""


def somebody() -> str:
    """Whose process this is, for people: a user at a machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


@cache
def host() -> str:
    """A name for where this process's pids mean something: `machine-boot-namespace`.

    Two machines, two boots of one, or a machine and a container on it, have different names.
    """
    return "-".join((_machine(), _boot(), _namespace()))


def rebooted(other: str) -> bool:
    """Whether a host is this machine before a reboot, so that nothing of it lives."""
    mine, theirs = host().split("-"), other.split("-")
    return same_machine(other) and len(theirs) == len(mine) and theirs[1] != mine[1]


def same_machine(other: str) -> bool:
    """Whether a host is this machine, at whatever boot and in whatever container."""
    return host().split("-")[0] == other.split("-")[0]


_LEASES: set[str] = set()
"""The leases that this process has made and not let go of."""


def lease() -> str:
    """A token that says which process holds it; others can see whether that lives."""
    made = f"{host()}/{identity(os.getpid())}/{secrets.token_hex(8)}"
    _LEASES.add(made)
    return made


def let_go(lease: str) -> None:
    """Hold a lease no longer, whatever the database says of it."""
    _LEASES.discard(lease)


def holds(lease: str) -> bool:
    """Whether the maker of a lease on this host lives, and has not let go."""
    place, known = holder_of(lease)
    ours = known == identity(os.getpid()) and lease.startswith(f"{place}/")
    return lease in _LEASES if ours else alive(known)


def holder_of(lease: str) -> tuple[str, str]:
    """The host and the identity of the process that holds a lease.

    Older leases name no host; theirs was this one.
    """
    place, _, rest = lease.partition("/")
    return (host(), place) if is_identity(place) else (place, rest.partition("/")[0])


def identity(pid: int) -> str | None:
    """`pid:start`, or None if there is no such process or it is a zombie.

    On Linux the start is in clock ticks since boot, which a change of the clock does not move.
    """
    stat = _stat(pid)
    if stat is not None:
        return None if stat[0] in ("Z", "X") else f"{pid}:{stat[19]}"
    if Path("/proc/self/stat").exists():
        return None
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return f"{pid}:{process.create_time()!r}"
    except (psutil.Error, OSError):
        return None


def alive(known: str) -> bool:
    """Whether the very process that had this identity still runs."""
    return is_identity(known) and identity(pid_of(known)) == known


def is_identity(text: str) -> bool:
    """Whether a text has the form of an identity."""
    return re.fullmatch(r"[0-9]{1,10}:[0-9.]+", text) is not None


def pid_of(known: str) -> int:
    """The pid in an identity."""
    return int(known.split(":", 1)[0])


def signal_group(known: str, number: signal.Signals) -> bool:
    """Send a signal to the process and its group; False if it is gone. Strangers are never hit."""
    if not alive(known):
        return False
    try:
        os.killpg(os.getpgid(pid_of(known)), number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def cookie(directory: Path, attempt: int) -> dict[str, str]:
    """The variable that marks the processes of an attempt."""
    return {COOKIE: f"{attempt}:{os.path.realpath(directory)}"}


def is_of(directory: Path) -> bool:
    """Whether this process is one of a run's own."""
    return os.environ.get(COOKIE, "").partition(":")[2] == os.path.realpath(directory)


def standby_cookie() -> dict[str, str]:
    """The variable that marks a standby: nobody else's, and of no attempt yet."""
    return {COOKIE: f"standby:{secrets.token_hex(16)}"}


def noted_standbys(directory: Path) -> str:
    """The lines of `STANDBYS` in a run directory; nothing where there is no such file."""
    file, flags = directory / STANDBYS, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with suppress(OSError, ValueError):
        if file.is_file():
            with open(os.open(file, flags)) as notes:
                return notes.read(NOTED_BYTES)
    return ""


def marked(directory: Path, *, through: int, since: int = 0) -> Iterator[str]:
    """The processes of some of a run's attempts, wherever they have gone; never this one, and no
    subreapers: those end by themselves."""
    return (known for known in _marked(directory, since, through) if not _is_subreaper(known))


def sweep(directory: Path, *, through: int) -> int:
    """Kill what is left of a run's attempts up to one; returns the number of processes."""
    return _kill_all(lambda: list(marked(directory, through=through)))


def end_subreapers(directory: Path, *, through: int) -> None:
    """End the subreapers of a run's attempts up to one, with all below them. One that does not end
    is killed."""
    left = [known for known in _marked(directory, 0, through) if _is_subreaper(known)]
    for number in (subreaper.END_RUN, signal.SIGKILL):
        for known in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid_of(known), number)
                os.kill(pid_of(known), signal.SIGCONT)  # Somebody may have halted it.
        deadline = time.monotonic() + subreaper.ENDS_WITHIN_S
        while left and time.monotonic() < deadline:
            left = [known for known in left if alive(known)]
            time.sleep(0.01 if left else 0.0)


def marked_as_asked(variables: Mapping[str, str], cookie: str) -> dict[str, str]:
    """The variables of a child that is asked something, with its cookie among them."""
    outer = variables.get(ASKED)
    return {**variables, ASKED: cookie if outer is None else f"{outer}/{cookie}"}


def sweep_asked(cookie: str) -> int:
    """Kill what carries the cookie of a child that was asked; returns the number of processes."""
    return _kill_all(lambda: list(_carriers(ASKED, lambda value: cookie in value.split("/"))))


def kill_session(leader: int) -> None:
    """Kill a child that leads a session, and all others in it, whatever their groups. Before the
    child is waited for: then its pid may be somebody else's."""
    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)


def _marked(directory: Path, since: int, through: int) -> Iterator[str]:
    place = os.path.realpath(directory)
    noted = (line.partition(" ") for line in noted_standbys(directory).splitlines())
    standbys = {standby: attempt for attempt, _, standby in noted}

    def is_meant(value: str) -> bool:
        attempt, _, at = value.partition(":")
        attempt = attempt if at == place else standbys.get(value, "")
        return attempt.isdigit() and since <= int(attempt) <= through

    return _carriers(COOKIE, is_meant)


def _is_subreaper(known: str) -> bool:
    try:
        return Path(f"/proc/{pid_of(known)}/comm").read_text().strip() == subreaper.NAME
    except (OSError, ValueError):
        return False


def _carriers(variable: str, is_meant: Callable[[str], bool]) -> Iterator[str]:
    """The processes that were started with such a value of a variable; never this one."""
    for pid in psutil.pids():
        value = None if pid == os.getpid() else _variable(pid, variable)
        known = identity(pid) if value is not None and is_meant(value) else None
        if known is not None:
            yield known


def _kill_all(look: Callable[[], list[str]]) -> int:
    """Kill the processes that are seen, and return how many these were.

    A process may fork while it is looked for, so it is looked for until none is seen; and for a
    moment longer while one is seen whose program is just being loaded, for it has no variables yet.
    """
    hit: set[str] = set()
    began = time.monotonic()
    while time.monotonic() < began + DIES_WITHIN_S:
        seen = look()
        if not seen and (time.monotonic() > began + LOADS_WITHIN_S or not _is_any_loading()):
            break
        for known in seen:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid_of(known), signal.SIGKILL)
        hit.update(seen)
        time.sleep(0.01)
    return len(hit)


def _is_any_loading() -> bool:
    """Whether a process is so new that its variables may not be there yet."""
    return any(map(_is_loading, psutil.pids()))


def _is_loading(pid: int) -> bool:
    try:
        blank = os.path.exists(f"/proc/{pid}/exe") and not Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    facts = _stat(pid) if blank else None
    if facts is None:
        return False
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(facts[19]) / os.sysconf("SC_CLK_TCK")
    return facts[0] not in ("Z", "X") and age_s < YOUNG_S


def _machine() -> str:
    facts = [os.uname().nodename]
    with suppress(OSError):
        facts.append(Path("/etc/machine-id").read_text().strip())
    return _digest(*facts)


def _boot() -> str:
    try:
        return _digest(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    except OSError:
        return _digest(str(int(psutil.boot_time())))


def _namespace() -> str:
    try:
        return _digest(str(os.stat("/proc/self/ns/pid").st_ino))
    except OSError:
        return _digest("")


def _digest(*facts: str) -> str:
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:8]


def _variable(pid: int, name: str) -> str | None:
    """A variable in the environment that a process was started with."""
    try:
        block = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return _variable_elsewhere(pid, name)
    mark = f"{name}=".encode()
    for entry in block.split(b"\0") if mark in block else ():
        if entry.startswith(mark):
            return os.fsdecode(entry[len(mark) :])
    return None


def _variable_elsewhere(pid: int, name: str) -> str | None:
    if Path("/proc/self/environ").exists():
        return None
    try:
        return psutil.Process(pid).environ().get(name)
    except (psutil.Error, OSError):
        return None


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
