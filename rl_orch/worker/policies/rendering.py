"""Rendering without a display: a way to draw that works, picked before an environment is made."""

import os
import subprocess
import sys
from importlib.util import find_spec

from rl_orch.errors import RlctlError
from rl_orch.rl.envs.vector import registered
from rl_orch.spec.model import Spec

OFF_SCREEN = ("egl", "osmesa")
"""Ways in which MuJoCo draws without a display, the faster one first."""

TRY = (
    "import importlib, sys\n"
    "context = importlib.import_module('mujoco.' + sys.argv[1]).GLContext(8, 8)\n"
    "context.make_current()\n"
)
TRY_S = 30.0

GYMNASIUM = "gymnasium.envs."


def has_display() -> bool:
    """Whether a window could open; only Linux says so beforehand."""
    named = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(named) or sys.platform != "linux"


def prepare(spec: Spec) -> None:
    """Let what the spec's environment draws with do without a display, where there is none.

    Before the environment is made: libraries read their variables once. What is set already counts.
    """
    if has_display():
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if "MUJOCO_GL" not in os.environ and _may_use_mujoco(spec):
        os.environ["MUJOCO_GL"] = next(filter(_works, OFF_SCREEN), OFF_SCREEN[0])


def explained(spec: Spec, error: Exception) -> RlctlError:
    """The error of a rendering that failed, with what can help it."""
    said = (str(error).strip().splitlines() or ["no message"])[0]
    way, hint = os.environ.get("MUJOCO_GL"), None
    if way is not None and _may_use_mujoco(spec):
        said = f"{said} (MUJOCO_GL={way})"
        hint = (
            "MuJoCo draws with EGL or OSMesa: install libegl1 and libgl1, or libosmesa6 with "
            "MUJOCO_GL=osmesa, and try again."
        )
    return RlctlError(
        f"{spec.env.id} cannot be rendered: {type(error).__name__}: {said}", hint=hint
    )


def _may_use_mujoco(spec: Spec) -> bool:
    """Whether the environment is one of MuJoCo, or somebody's, of which nobody knows."""
    if find_spec("mujoco") is None:
        return False
    code = str(registered(spec.env.id).entry_point)
    return "mujoco" in code or not code.startswith(GYMNASIUM)


def _works(way: str) -> bool:
    """Whether MuJoCo can draw in this way here; asked of a process of its own, since a library that
    was loaded in vain stays loaded."""
    variables = os.environ | {"MUJOCO_GL": way}
    try:
        ran = subprocess.run(
            [sys.executable, "-c", TRY, way], env=variables, capture_output=True, timeout=TRY_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ran.returncode == 0
