"""Who looks on: sees from outside which roots live at the same time, and whether what has ended
stays as it ended.
"""

import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from rl_orch.core.store.runs import Store
from rl_orch.errors import RlctlError
from rl_orch.io.processes import pids as processes
from rl_orch.io.processes import subreaper
from rl_orch.records import State
from rl_orch.records.queries import Query

LOOK_EVERY_S = 0.15
LEAST_S = 0.05
WORKER = "rl_orch.worker."
ROOTS = ("train", "external.train", "evaluate", "warm.standby")


@dataclass(frozen=True, slots=True)
class Marked:
    """A process that carries the cookie of a run: which, of which attempt, and what it is."""

    identity: str
    attempt: int
    directory: Path
    parent: int
    role: str | None
    """What it does where it is a root; None where it is not."""

    @property
    def alive(self) -> bool:
        """Whether it is still there; a zombie is not."""
        return processes.alive(self.identity)


class Watcher:
    """Looks at the processes of a folder's runs, a few times a second, in a thread."""

    def __init__(self, folder: Path, store: Callable[[], Store]) -> None:
        self.complaints: list[str] = []
        self.seen: dict[str, Marked] = {}
        self._folder = folder
        self._store = store
        self._ended: dict[str, tuple[State, int]] = {}
        self._resumed: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def may_go_on(self, run_id: str) -> None:
        """Say that somebody has asked a run to be resumed."""
        self._resumed.add(run_id)

    def marked(self) -> list[Marked]:
        """The processes of this folder's runs, as they are now."""
        found = (self._marked(pid) for pid in psutil.pids())
        return [process for process in found if process is not None]

    def roots(self) -> list[Marked]:
        """The roots among them. Until it is another program, the child of one looks like it."""
        found = [process for process in self.marked() if process.role is not None]
        pids = {processes.pid_of(process.identity) for process in found}
        return [process for process in found if process.parent not in pids]

    def kill_all(self) -> None:
        """End all of them."""
        for _ in range(20):
            left = self.marked()
            if not left:
                return
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(processes.pid_of(process.identity), signal.SIGKILL)
            threading.Event().wait(LEAST_S)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            self._compare(self.roots())
            with suppress(RlctlError):  # The database may be away.
                self._look_at_ends()

    def _compare(self, roots: Iterable[Marked]) -> None:
        """Complain of two roots in one directory. Both were there when the second was seen, if
        the first still is afterwards."""
        at: dict[Path, list[Marked]] = defaultdict(list)
        for root in roots:
            self.seen[root.identity] = root
            at[root.directory].append(root)
        for directory, several in at.items():
            living = [root for root in several if root.alive]
            if len(living) > 1:
                who = ", ".join(f"{r.role} of attempt {r.attempt} ({r.identity})" for r in living)
                self.complaints.append(f"two roots in {directory.name}: {who}")

    def _look_at_ends(self) -> None:
        cursor = None
        while True:
            page = self._store().page(Query(limit=200, after=cursor))
            for run in page.runs:
                before, now = self._ended.get(run.id), (run.state, run.attempt)
                if before not in (None, now) and run.id not in self._resumed:
                    self.complaints.append(f"{run.id} had ended as {before} and is {now} now")
                if not run.active:
                    self._ended[run.id] = now
            cursor = page.next
            if cursor is None:
                return

    def _marked(self, pid: int) -> Marked | None:
        try:
            block = Path(f"/proc/{pid}/environ").read_bytes()
            mark = f"{processes.COOKIE}=".encode()
            value = next((v for v in block.split(b"\0") if v.startswith(mark)), None)
            known = None if value is None else processes.identity(pid)
            if value is None or known is None:
                return None
            words = os.fsdecode(value[len(mark) :])
            if words.startswith("standby:"):
                words = self._standbys().get(words, "")
            attempt, _, directory = words.partition(":")
            if _is_subreaper(pid) or not Path(directory).is_relative_to(self._folder):
                return None
            return Marked(known, int(attempt), Path(directory), _parent(pid), _role(pid))
        except (OSError, ValueError):
            return None

    def _standbys(self) -> dict[str, str]:
        """The cookies of processes that were standbys → those of the attempts that they began."""
        noted = {}
        for directory in self._folder.rglob(processes.STANDBYS):
            for line in processes.noted_standbys(directory.parent).splitlines():
                attempt, _, cookie = line.partition(" ")
                noted[cookie] = f"{attempt}:{os.path.realpath(directory.parent)}"
        return noted


def _is_subreaper(pid: int) -> bool:
    """Whether it only watches over a run process; it ends with that."""
    return Path(f"/proc/{pid}/comm").read_text().strip() == subreaper.NAME


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _role(pid: int) -> str | None:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    roles = [word.removeprefix(WORKER) for word in words if word.startswith(WORKER)]
    return roles[0] if roles and roles[0] in ROOTS else None
