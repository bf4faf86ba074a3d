"""The limits that control groups set on this process: cores and memory, versions 1 and 2.

A limit of any group above counts too. In a container the path in /proc may not exist below the
mount; then the mount itself is the container's group.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The control groups of a process: what /proc/PID/cgroup says, and where they are mounted."""

    membership: str
    mount: Path

    def cpus(self) -> float | None:
        """Cores' worth of time that may be used; None is no limit."""
        found = [_quota(*_words(folder / "cpu.max")) for folder in self._folders("")]
        for folder in self._folders("cpu"):
            quota, period = (_words(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
            found.append(_quota(*quota, *period))
        return min((limit for limit in found if limit is not None), default=None)

    def memory_bytes(self) -> int | None:
        """Memory that may be used; None is no limit."""
        limits = (limit for limit, _ in self._memory())
        return min(limits, default=None)

    def memory_left_bytes(self) -> int | None:
        """Memory that is left to use; files that can be dropped from memory count as free."""
        return min((limit - used for limit, used in self._memory()), default=None)

    def _memory(self) -> Iterator[tuple[int, int]]:
        """The limit of each group and what it uses of it."""
        for name, limit_file, used_file, cache in (
            ("", "memory.max", "memory.current", "inactive_file"),
            ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            for folder in self._folders(name):
                limit, used = _number(folder / limit_file), _number(folder / used_file)
                if limit is not None:
                    yield limit, (used or 0) - _statistic(folder / "memory.stat", cache)

    def _folders(self, controller: str) -> Iterator[Path]:
        """The folders of the group and of those above it; the empty controller is version 2."""
        for line in self.membership.splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                for mount in self._mounts(controllers):
                    inside = PurePosixPath(path).relative_to("/")
                    yield from (mount / part for part in (inside, *inside.parents))

    def _mounts(self, controllers: str) -> list[Path]:
        if not controllers:
            return [self.mount, self.mount / "unified"]
        return [self.mount / name for name in dict.fromkeys([controllers, *controllers.split(",")])]


def here() -> Cgroups:
    """The control groups of this process; none where the system has none."""
    try:
        membership = Path("/proc/self/cgroup").read_text()
    except OSError:
        membership = ""
    return Cgroups(membership, Path("/sys/fs/cgroup"))


def _quota(*words: str) -> float | None:
    """Cores from a quota and a period in microseconds; `max` or -1 is no quota."""
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def _number(file: Path) -> int | None:
    words = _words(file)
    return int(words[0]) if words and words[0].isdecimal() else None


def _statistic(file: Path, key: str) -> int:
    words = _words(file)
    return int(words[words.index(key) + 1]) if key in words else 0


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
