"""Resources of this machine, as far as this process may use it: cores, memory, GPUs, room on disks.

Facts only, and no torch; what follows from them is decided in `core/queue/scheduler.py` and
`core/preflight/findings.py`. Limits of control groups are in `cgroups.py`.
"""

import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from rl_orch.io.machine import cgroups

MIB = 1 << 20
SMI_TIMEOUT_S = 5.0
SMI = ("--query-gpu=index,uuid,memory.total,name", "--format=csv,noheader,nounits")
SMI_LINE = re.compile(r"(\d+), (GPU-[0-9a-f-]+), ([^,]+), (.+)")
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU. `index` is what CUDA_VISIBLE_DEVICES calls it; 0 MiB of memory is an unknown size."""

    index: str
    name: str
    memory_mb: int


def cores() -> int:
    """Cores that this process may keep busy: its affinity, and the whole cores of its quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = cgroups.here().cpus()
    return max(1, min(allowed or 1, int(quota) if quota is not None else allowed or 1))


def memory_mb() -> int:
    """Memory of the machine in MiB, or what its control group leaves of it."""
    total, limit = psutil.virtual_memory().total, cgroups.here().memory_bytes()
    return int(min(total, total if limit is None else limit) // MIB)


def memory_free_mb() -> int:
    """Memory that can be had at this moment without swapping, in MiB."""
    free, left = psutil.virtual_memory().available, cgroups.here().memory_left_bytes()
    return int(max(0, min(free, free if left is None else left)) // MIB)


def disk_free_mb(path: Path) -> int:
    """Room for this user's files, in MiB; on the disk that a path is on or would be made on."""
    return shutil.disk_usage(nearest(path)).free // MIB


def nearest(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    whole = path.absolute()
    return next(folder for folder in (whole, *whole.parents) if os.path.exists(folder))


def gpus() -> list[Gpu]:
    """The NVIDIA GPUs that a process started from here would see; as `nvidia-smi` tells of them."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        done = subprocess.run(
            [program, *SMI], capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return visible(listed(done.stdout), os.environ.get(VISIBLE))


def listed(printed: str) -> dict[int, Gpu]:
    """The GPUs in what `nvidia-smi` printed, by its numbers and called by their UUIDs; lines that
    are not about one are passed over."""
    found = (SMI_LINE.fullmatch(line.strip()) for line in printed.splitlines())
    return {
        int(line[1]): Gpu(line[2], line[4], int(line[3]) if line[3].isdigit() else 0)
        for line in found
        if line is not None
    }


def visible(there: Mapping[int, Gpu], variable: str | None) -> list[Gpu]:
    """The GPUs that CUDA shows under a value of CUDA_VISIBLE_DEVICES, in its order.

    As CUDA reads it: numbers, or UUIDs by their beginnings; the first entry that is none of these,
    such as -1, hides itself and all behind it; an entry that comes twice hides all. Without the
    variable a GPU is called by its UUID, since CUDA may count in another order than `nvidia-smi`.
    """
    if variable is None:
        return list(there.values())
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in variable.split(",")):
        found = _named(entry, there)
        if found is None:
            break
        chosen.append(found)
    names = [gpu.index for gpu in chosen]
    return chosen if len(set(names)) == len(names) else []


def _named(entry: str, there: Mapping[int, Gpu]) -> Gpu | None:
    if entry.startswith("MIG-"):  # A slice of a GPU, which this query does not list.
        return Gpu(entry, "MIG device", 0)
    if entry.isdecimal():
        found = [gpu for number, gpu in there.items() if number == int(entry)]
    else:
        uuids = there.values() if entry.startswith("GPU-") else ()
        found = [gpu for gpu in uuids if gpu.index.startswith(entry)]
    return replace(found[0], index=entry) if len(found) == 1 else None


def has_mps() -> bool:
    """Whether this is a machine whose GPU torch can use by Metal."""
    return sys.platform == "darwin" and platform.machine() == "arm64"


def open_files() -> int:
    """The number of files, sockets and pipes a process may have open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
