"""Findings from the facts about a machine. Pure; `facts.py` gathers the facts.

Each function takes plain facts and returns a finding of ok, warn or fail, with what to do about it.
"""

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from rl_orch.core.store.database import SAFE_WAL
from rl_orch.io.machine.filesystem import Abilities
from rl_orch.io.policies.bundles import ONNX_PACKAGES
from rl_orch.spec.model import Spec

Level = Literal["ok", "warn", "fail"]

OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 35)
"""The first that can return rows from a write."""

FEW_FILES = 1024
LITTLE_MB = 1024
"""Less room than this on a disk is worth a warning."""

SKEW_S = 2.0

EXTRAS = {
    "server": ("fastapi", "uvicorn"),
    "postgres": ("psycopg",),
    "box2d": ("Box2D",),
    "mujoco": ("mujoco",),
    "atari": ("ale_py",),
    "export": ONNX_PACKAGES,
}
"""Extra → the modules that it brings."""

FAMILIES = {
    "box2d": r"(LunarLander(Continuous)?|BipedalWalker(Hardcore)?|CarRacing)-v\d+",
    "mujoco": r"(Ant|HalfCheetah|Hopper|Humanoid(Standup)?|Inverted(Double)?Pendulum|Pusher|Reacher"
    r"|Swimmer|Walker2d)-v\d+",
    "atari": r"(ale_py:|ALE/).+",
}
"""Extra → the ids of the environments that need it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what is the case, and the fix if it is not well.

    `path` is the option that the finding is about, where there is one.
    """

    name: str
    level: Level
    detail: str
    fix: str | None = None
    path: str | None = None

    def __str__(self) -> str:
        return f"{self.detail}. {self.fix}" if self.fix else self.detail


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices of torch: the CUDA devices that it sees, and whether it has MPS.

    `problem` is a sentence where it could not be asked.
    """

    torch: str
    cuda: tuple[str, ...] = ()
    mps: bool = False
    problem: str | None = None


def python(version: Sequence[int], environment: str | None) -> Finding:
    """The interpreter, and the virtual environment that it is in."""
    text = ".".join(map(str, version[:3]))
    if tuple(version[:2]) < OLDEST_PYTHON:
        return Finding("python", "fail", f"{text} is too old", "Install Python 3.11 or newer.")
    where = f"in {environment}" if environment else "not in a virtual environment"
    return Finding("python", "ok", f"{text}, {where}")


def torch(devices: Devices, gpus: Sequence[str]) -> Finding:
    """Finding whether torch works and sees the GPUs that the driver knows."""
    if devices.problem is not None:
        fix = "Install it anew: pip install --force-reinstall torch."
        return Finding("torch", "fail", devices.problem, fix)
    if len(devices.cuda) < len(gpus):
        detail = f"{devices.torch} sees {len(devices.cuda)} of the GPUs {', '.join(gpus)}"
        fix = "Install a torch build for the CUDA version of your driver (see the README)."
        return Finding("torch", "warn", detail, fix)
    backends = [f"CUDA ({', '.join(devices.cuda)})"] if devices.cuda else []
    backends += ["MPS"] if devices.mps else []
    return Finding(
        "torch", "ok", f"{devices.torch}, trains on {' and '.join([*backends, 'the CPU'])}"
    )


def device(spec: Spec, devices: Devices) -> Finding:
    """Whether torch has the device that is asked for. `auto` is satisfied with any."""
    wanted, name = spec.resources.device, "resources.device"
    kind, _, number = wanted.partition(":")
    count = {"cuda": len(devices.cuda), "mps": int(devices.mps)}.get(kind, 1)
    if int(number or 0) < count:
        return Finding("device", "ok", f"{wanted} is there", path=name)
    be = "is" if count == 1 else "are"
    who = f"torch {devices.torch} sees" if devices.torch else f"there {be}"
    there = f"{who} {count or 'no'} {kind} device{'' if count == 1 else 's'}"
    return Finding(
        "device",
        "fail",
        f"{name} is {wanted!r}, but {devices.problem or there} here",
        f"Set {name} to auto or cpu, or install a torch build and a driver for {kind}.",
        path=name,
    )


def fallback(threads: int) -> Finding:
    """Warning that `auto` has come down to the CPU."""
    detail = (
        f"resources.device is 'auto', and no GPU was found; training on the CPU with {threads} "
        f"thread{'' if threads == 1 else 's'}"
    )
    fix = "Set resources.device to cpu to say so, and resources.threads for larger networks."
    return Finding("device", "warn", detail, fix, path="resources.device")


def rendering(egl: bool, mujoco_gl: str | None, system: str) -> Finding:
    """Whether pictures can be drawn on a machine without a screen."""
    if mujoco_gl:
        return Finding("rendering", "ok", f"MUJOCO_GL is {mujoco_gl}")
    if egl or system == "Darwin":
        return Finding("rendering", "ok", "EGL is there" if egl else "done by the system")
    return Finding(
        "rendering",
        "warn",
        "EGL was not found; without a screen, some environments cannot draw pictures",
        "Install libegl1 (Debian, Ubuntu) or mesa-libEGL (Fedora); training does not need it.",
    )


def cores(there: int, spec: Spec | None) -> Finding:
    """Cores against those that the run is to have."""
    asked = 0 if spec is None else spec.cpus
    if asked > there:
        option = "resources.cpus" if spec and spec.resources.cpus else "resources.threads"
        detail = f"{option} is {asked}, but this machine has {_count(there, 'core')} for it"
        return Finding("cores", "fail", detail, f"Set {option} to at most {there}.", path=option)
    return Finding("cores", "ok", _count(there, "core") + (f", {asked} asked for" if asked else ""))


def memory(total_mb: int, free_mb: int, spec: Spec | None) -> Finding:
    """Memory against what the run is to have."""
    name = "resources.memory_mb"
    asked = 0 if spec is None else spec.resources.memory_mb
    if asked > total_mb:
        detail = f"{name} is {asked}, but this machine has {total_mb:,} MiB for it"
        return Finding("memory", "fail", detail, f"Set {name} to at most {total_mb}.", path=name)
    if asked > free_mb:
        detail = f"{name} is {asked}, but only {free_mb:,} of {total_mb:,} MiB are free now"
        return Finding("memory", "warn", detail, "End programs that use much of it.", path=name)
    return Finding("memory", "ok", f"{free_mb:,} of {total_mb:,} MiB free")


def disk(free_mb: int, needed_mb: int, home: str) -> Finding:
    """Room on the disk against an estimate of what will be written; 0 where nothing is known."""
    needs = f"; about {needed_mb:,} MiB will be written" if needed_mb else ""
    detail = f"{free_mb:,} MiB free for {home!r}{needs}"
    fix = "Free some, or set RLCTL_HOME to a folder on another disk."
    if free_mb == 0:
        detail = f"nothing can be written in {home!r}: its file system has no room for files"
        return Finding("disk", "fail", detail, "Set RLCTL_HOME to a folder on a disk with room.")
    if needed_mb:
        fix += " A smaller checkpoint.keep_last needs less."
    if needed_mb > free_mb:
        return Finding("disk", "fail", detail, fix)
    if free_mb < max(LITTLE_MB, 2 * needed_mb):
        return Finding("disk", "warn", detail, fix)
    return Finding("disk", "ok", detail)


def home(path: str, obstacle: str | None) -> Finding:
    """Whether runs can be written where they are to be; the obstacle follows the path."""
    if obstacle is None:
        return Finding("home", "ok", path)
    fix = "Set RLCTL_HOME to a folder that you may write to."
    return Finding("home", "fail", f"{path!r} {obstacle}", fix)


def privacy(open_to: Mapping[str, str]) -> Finding:
    """Whether others on this machine can get at the home, or at a database elsewhere: path → to
    whom it is open."""
    if not open_to:
        return Finding("privacy", "ok", "nobody else on this machine can read it")
    detail = "; ".join(f"{path!r} is open to {whom}" for path, whom in open_to.items())
    paths = " ".join(map(shlex.quote, open_to))
    fix = f"If that is not meant: chmod -R go= {paths}"
    return Finding("privacy", "warn", detail, fix)


def kernels(cache: str, writable: bool, *, is_own: bool = True) -> Finding:
    """Whether compiled code can be kept from one run to the next."""
    if not is_own:
        detail = f"every run compiles its kernels anew, since others can write to {cache!r}"
        return Finding("kernels", "warn", detail, f"Remove it: rm -r {shlex.quote(cache)}")
    if writable:
        return Finding("kernels", "ok", f"kept in {cache}")
    detail = f"every run compiles its kernels anew, since {cache!r} cannot be written to"
    fix = "Set XDG_CACHE_HOME to a folder that you may write to."
    return Finding("kernels", "warn", detail, fix)


def file_system(abilities: Abilities) -> Finding:
    """Whether the home's file system can do what runs rely on."""
    if abilities.unwritable is not None:
        fix = "Set RLCTL_HOME to a folder that you may write to."
        return Finding(
            "file system", "fail", f"nothing can be written: {abilities.unwritable}", fix
        )
    if abilities.lacking:
        fix = "Set RLCTL_HOME to a folder on a local disk."
        return Finding("file system", "fail", f"lacks {'; '.join(abilities.lacking)}", fix)
    return Finding("file system", "ok", "locks, atomic renames and Unix sockets work")


def clock(now: float, installed_at: float, skew_s: float, drift_s: float) -> Finding:
    """Whether times mean anything: against the age of this package, file stamps, a steady clock."""
    text = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M UTC")
    fix = "Set the clock, for example by NTP: timedatectl set-ntp true."
    if now < installed_at:
        detail = f"it is {text} by the clock, which is before this package was installed"
        return Finding("clock", "warn", detail, fix)
    if abs(skew_s) > SKEW_S:
        way = "ahead of" if skew_s > 0 else "behind"
        detail = f"the clock of the home's disk is {abs(skew_s):.0f} s {way} this machine's"
        return Finding("clock", "warn", detail, "Let both machines set their clocks by NTP.")
    if abs(drift_s) > SKEW_S:
        return Finding("clock", "warn", f"it has just jumped by {drift_s:+.0f} s", fix)
    return Finding("clock", "ok", text)


def sqlite(version: Sequence[int]) -> Finding:
    """The library behind the default database."""
    text = ".".join(map(str, version))
    if tuple(version) < OLDEST_SQLITE:
        return Finding("sqlite", "fail", f"{text} is too old", "Use a Python with 3.35 or newer.")
    journal = "a write-ahead log" if tuple(version) >= SAFE_WAL else "a rollback journal"
    return Finding("sqlite", "ok", f"{text}, with {journal}")


def open_files(limit: int) -> Finding:
    """Number of files a process may have open; a service has some for each run and each client."""
    if limit < FEW_FILES:
        detail = f"a process may have only {limit} open"
        return Finding("open files", "warn", detail, "Raise it: ulimit -n 4096.")
    return Finding("open files", "ok", f"up to {limit:,}")


def port(number: int, *, ours: str | None, free: bool) -> Finding:
    """Whether a service could listen; `ours` is the address of the one that already does."""
    if ours is not None:
        return Finding("port", "ok", f"the service of this home is up at {ours}")
    if free:
        return Finding("port", "ok", f"{number} is free for `rlctl up`")
    detail = f"another program listens on {number}"
    return Finding("port", "warn", detail, "Give `rlctl up` another one with --port.")


def extras(spec: Spec | None, installed: Callable[[str], bool], database: str = "") -> Finding:
    """The optional dependencies: all of those that are needed must be there."""
    there = [extra for extra, modules in EXTRAS.items() if all(map(installed, modules))]
    needed = needed_extras(spec, database)
    missing = [extra for extra in needed if extra not in there]
    if missing:
        names, are = ",".join(missing), "is" if len(missing) == 1 else "are"
        detail = f"this needs {' and '.join(missing)}, which {are} not installed"
        return Finding("extras", "fail", detail, f"pip install 'rl-orch[{names}]'")
    absent = [extra for extra in EXTRAS if extra not in there]
    detail = f"installed: {', '.join(there) or 'none'}"
    detail += f"; not installed: {', '.join(absent)}" if absent else ""
    return Finding("extras", "ok", detail)


def needed_extras(spec: Spec | None, database: str = "") -> list[str]:
    """The extras that a spec and a database cannot do without."""
    needed = ["postgres"] if "://" in database else []
    if spec is not None and spec.runner.traits.trains_here:
        needed += [extra for extra, ids in FAMILIES.items() if re.fullmatch(ids, spec.env.id)]
        if spec.gates.export_parity or spec.gates.max_bundle_mb is not None:
            needed.append("export")
    return needed


def failures(findings: Collection[Finding]) -> list[Finding]:
    """Findings that stand in the way."""
    return [finding for finding in findings if finding.level == "fail"]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
