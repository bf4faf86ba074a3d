"""The manifest: what a run was made from (commit, versions, hash) and on (the machine)."""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import rl_orch
from rl_orch.spec.algorithms import BUILT_IN
from rl_orch.spec.model import Spec
from rl_orch.spec.part_traits import engine_traits

PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "box2d", "ale-py", "safetensors")


def describe(
    spec: Spec,
    *,
    run_id: str,
    group: str | None,
    created_at: float,
    module_path: Sequence[str] = (),
) -> dict[str, Any]:
    """The manifest of a run that is about to be made. Its modules are searched for in the folders
    of `module_path`."""
    return {
        "version": 1,
        "run_id": run_id,
        "group": group,
        "created_at": created_at,
        "config_hash": spec.config_hash,
        "clock": clock_of(spec),
        "engine": spec.train.engine,
        "env_backend": spec.env.backend,
        "seeds": [spec.env.seed],
        "git_commit": git_commit(Path.cwd()),
        "working_directory": str(Path.cwd()),
        "module_path": list(module_path),
        "versions": {"rl-orch": rl_orch.__version__, "python": platform.python_version()}
        | _versions(spec),
        "fingerprint": fingerprint(spec),
        "cores": os.cpu_count(),
        "changes": [],
    }


def clock_of(spec: Spec) -> str:
    """The unit that a run counts, as far as it is known before; a plugin's run process says it."""
    traits = BUILT_IN.get(spec.agent.algorithm)
    return "env_steps" if traits is None else traits.clock


def fingerprint(spec: Spec) -> dict[str, Any]:
    """The facts that bit-for-bit repetition depends on besides the spec."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cpu": hashlib.sha256(_cpu_features().encode()).hexdigest()[:16],
        "device": spec.resources.device,
        "threads": spec.resources.threads,
        "python": sys.version.split()[0],
        "rl-orch": rl_orch.__version__,
    } | _versions(spec)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The differences of two fingerprints, each as `torch 2.13.0 → 2.14.0`."""
    names = sorted({*before, *now})
    changed = [name for name in names if before.get(name) != now.get(name)]
    return [f"{name} {before.get(name, 'none')} → {now.get(name, 'none')}" for name in changed]


def git_commit(folder: Path) -> str | None:
    """The commit that is checked out in a folder; with `-dirty` after it if files differ."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40"]
    command += ["--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _versions(spec: Spec) -> dict[str, str]:
    versions = {}
    for package in (*PACKAGES, *engine_traits(spec.train.engine).packages):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def _cpu_features() -> str:
    """The processor's model and features; they decide which code paths numeric libraries take."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU implementer")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
