"""Looking at the machine before a launch: `quick` before every one, `examine` for `rlctl doctor`.

Facts are gathered here, what they mean is decided in `findings.py`.
"""

import ctypes
import os
import platform
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import rl_orch
from rl_orch.addresses import is_url
from rl_orch.core.preflight import findings
from rl_orch.core.preflight.findings import Devices, Finding, failures
from rl_orch.core.preflight.footprint import footprint
from rl_orch.core.store.database import DATABASE, Database, hide_password
from rl_orch.core.store.schema_upgrade import schema_version
from rl_orch.core.store.tables import HEAD
from rl_orch.errors import BadInput, RlctlError
from rl_orch.io import service_note
from rl_orch.io.files import private
from rl_orch.io.machine import filesystem, hardware
from rl_orch.io.processes.task_worker import TaskEnded, TaskWorker
from rl_orch.records.tasks import DeviceAnswer, DeviceTask
from rl_orch.spec.model import Spec
from rl_orch.spec.part_traits import may_compile

TORCH_TIMEOUT_S = 120.0


def quick(home: Path, spec: Spec) -> list[Finding]:
    """Findings to be had at once, without starting anything: the check before every launch."""
    engine = spec.train.engine
    return [
        findings.cores(hardware.cores(), spec),
        findings.memory(hardware.memory_mb(), hardware.memory_free_mb(), spec),
        findings.home(str(home), filesystem.unwritable(home)),
        findings.disk(hardware.disk_free_mb(home), needed_mb(spec), str(home)),
        findings.extras(spec, is_installed),
        *([_kernels()] if spec.runner.traits.trains_here and may_compile(engine) else []),
    ]


def examine(
    home: Path, spec: Spec | None = None, *, database: str | None = None, port: int = 0
) -> list[Finding]:
    """Everything that can be known about this machine, and whether the spec can run here.

    Torch is asked in a process of its own, which takes seconds. Port 0 is not looked at.
    """
    wall, steady = time.time(), time.monotonic()
    devices, tried, cores = ask_torch(), filesystem.abilities(home), hardware.cores()
    wanted = str(home / DATABASE) if database is None else database
    within = sys.prefix != sys.base_prefix
    environment = sys.prefix if within else os.environ.get("CONDA_PREFIX")
    device_findings: list[Finding] = []
    if spec is not None and devices.problem is None:
        spec, device_findings = resolve_devices(spec, _devices_of(spec, devices), cores)
    facts = [
        findings.python(sys.version_info[:3], environment),
        findings.torch(devices, [gpu.name for gpu in hardware.gpus()]),
        *device_findings,
        findings.rendering(_has_egl(), os.environ.get("MUJOCO_GL"), platform.system()),
        findings.cores(cores, spec),
        findings.memory(hardware.memory_mb(), hardware.memory_free_mb(), spec),
        findings.file_system(tried),
        findings.privacy(_open_to(home, wanted)),
        findings.disk(hardware.disk_free_mb(home), needed_mb(spec), str(home)),
        findings.sqlite(sqlite3.sqlite_version_info),
        reach(wanted),
        findings.extras(spec, is_installed, wanted),
        findings.open_files(hardware.open_files()),
        _kernels(),
        *([_port(home, port)] if port else []),
    ]
    drift_s = (time.time() - wall) - (time.monotonic() - steady)
    installed_at = os.stat(rl_orch.__file__).st_mtime  # No true clock says less.
    clock = findings.clock(time.time(), installed_at, tried.skew_s, drift_s)
    return [*facts, clock]


def refuse(looked_at: Sequence[Finding]) -> list[Finding]:
    """The warnings among the findings; if any of them is a failure, that is raised."""
    failed = failures(looked_at)
    if failed:
        message = "; ".join(finding.detail for finding in failed)
        raise BadInput(message, path=failed[0].path, hint=failed[0].fix)
    return [finding for finding in looked_at if finding.level == "warn"]


def ready(home: Path, spec: Spec) -> tuple[Spec, list[Finding]]:
    """The spec as it can be launched, its device resolved, and warnings; `BadInput` if it cannot.

    Takes no time to speak of unless a device other than the CPU is asked for.
    """
    chosen, device_findings = resolve_auto(spec)
    return chosen, refuse([*device_findings, *quick(home, chosen)])


def resolve_auto(spec: Spec) -> tuple[Spec, list[Finding]]:
    """The spec with its device resolved. Torch is asked only where the device is not the CPU."""
    if spec.resources.device == "cpu":
        return spec, []
    devices = ask_torch() if spec.runner.traits.trains_here else None
    return resolve_devices(spec, _devices_of(spec, devices), hardware.cores())


def resolve_devices(spec: Spec, devices: Devices, cores: int) -> tuple[Spec, list[Finding]]:
    """The spec with `auto` resolved by a fixed rule: CUDA, else MPS, else the CPU. Pure.

    The finding fails where a device is asked for by name that is not there. On the CPU a run has
    no more threads than cores, and sets no GPU aside.
    """
    if spec.resources.device != "auto":
        return spec, [findings.device(spec, devices)]
    if devices.cuda or devices.mps:
        chosen = spec.changed({"resources.device": "cuda" if devices.cuda else "mps"})
        return chosen, [findings.device(chosen, devices)]
    threads = min(spec.resources.threads, cores)
    resources = {"resources.device": "cpu", "resources.gpus": 0, "resources.threads": threads}
    chosen = spec.changed(resources)
    return chosen, [findings.fallback(threads)]


def ask_torch() -> Devices:
    """Devices that torch sees, asked in a process of its own."""
    worker = TaskWorker(DeviceAnswer, ("check device",), doing="the check of devices")
    try:
        answer = worker.answer(DeviceTask(), timeout_s=TORCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        problem = f"torch did not load within {TORCH_TIMEOUT_S:.0f} s"
        return Devices(_version("torch"), problem=problem)
    except TaskEnded as error:
        problem = f"torch cannot be loaded: {error.last_line}"
        return Devices(_version("torch"), problem=problem)
    return Devices(answer.torch, answer.cuda, answer.mps)


def needed_mb(spec: Spec | None) -> int:
    """An estimate of what all runs of the spec will write, in MiB; 0 without a spec."""
    if spec is None:
        return 0
    return -(-footprint(spec).total * len(spec.members or [spec]) // hardware.MIB)


def reach(database: str) -> Finding:
    """Whether the database can be read, and whether it is one of this release."""
    if not is_url(database) and not os.path.exists(database):
        return Finding("database", "ok", f"none yet at {database!r}; the first launch makes it")
    try:
        problem = _damage(Database(database if is_url(database) else Path(database)))
    except RlctlError as error:
        return Finding("database", "fail", error.message, error.hint)
    if problem is None:
        return Finding("database", "ok", hide_password(database))
    return Finding("database", "fail", f"{hide_password(database)!r} {problem[0]}", problem[1])


def is_installed(module: str) -> bool:
    """Whether a top-level module could be imported; it is not."""
    return find_spec(module) is not None


def _damage(database: Database) -> tuple[str, str] | None:
    """Damage to a database that can be read, and its fix; None if whole."""
    with database.reading() as connection:
        if connection.dialect.name == "sqlite":
            answer = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
            if answer != "ok":
                return f"is damaged: {answer}", "Restore it from a copy; run directories are whole."
    revision = schema_version(database)
    if revision is not None and revision > HEAD:
        return f"is at schema {revision}, this rlctl knows {HEAD}", "Use the newer rlctl."
    return None


def _open_to(home: Path, database: str) -> dict[str, str]:
    """Paths that are open to others, each with to whom (path → whom).

    They are the home, and a database that is a file elsewhere.
    """
    elsewhere = not is_url(database) and not Path(database).absolute().is_relative_to(home)
    paths = [home, Path(database)] if elsewhere else [home]
    seen = ((path, private.open_to(path)) for path in paths if path.exists())
    return {str(path): whom for path, whom in seen if whom is not None}


def _devices_of(spec: Spec, devices: Devices | None) -> Devices:
    """Devices the run could use: a program has a torch of its own, so the driver's word counts."""
    if devices is not None and spec.runner.traits.trains_here:
        return devices
    return Devices("", tuple(gpu.name for gpu in hardware.gpus()), hardware.has_mps())


def _has_egl() -> bool:
    try:
        ctypes.CDLL("libEGL.so.1")
    except OSError:
        return False
    return True


def _kernels() -> Finding:
    """Finding about the folder where `rl/jit.py` keeps compiled code."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rl_orch"
    except RuntimeError:
        return findings.kernels("~/.cache", writable=False)
    return findings.kernels(str(cache), filesystem.writable(cache), is_own=_is_own(cache))


def _is_own(path: Path) -> bool:
    """Whether nobody but this user can write to a folder, or none is there."""
    try:
        facts = path.stat()
    except OSError:
        return True
    return facts.st_uid == os.geteuid() and not facts.st_mode & 0o022


def _port(home: Path, number: int) -> Finding:
    ours = service_note.living(home)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
            free = True
        except OSError:
            free = False
    return findings.port(number, ours=ours.url if ours else None, free=free)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
