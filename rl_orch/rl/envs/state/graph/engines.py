"""Simulators whose state is not in Python objects: MuJoCo, the ALE, Box2D.

None of them is imported here: they are optional, and an object of theirs brings its module along.
"""

import sys
import zlib
from typing import Any

import gymnasium
import numpy as np

from rl_orch.rl.envs.state.graph.errors import Uncapturable, name_of

_parts_of: dict[type, tuple[list[str], list[str]]] = {}
"""Of a class of MjData: the names of its arrays, and of its numbers that outlive a step."""


def state_of(thing: Any) -> dict[str, Any] | None:
    """The state of a simulator as plain values and arrays; None for anything else."""
    match _known(thing):
        case "MjData":
            return _mujoco_data(thing)
        case "MjModel":
            return {"crc32": _mujoco_model(thing)}
        case "ALEInterface":
            state = thing.cloneSystemState().serialize()
            return {"system": np.frombuffer(state, np.uint8)}
    return None


def set_state(thing: Any, state: dict[str, Any]) -> None:
    """Put a simulator of the same model or game into a state."""
    match _known(thing):
        case "MjData":
            _set_mujoco_data(thing, state)
        case "MjModel":
            if _mujoco_model(thing) != state["crc32"]:
                raise Uncapturable("is a model that was changed after it was made")
        case "ALEInterface":
            kind = type(thing.cloneSystemState())
            thing.restoreSystemState(kind(state["system"].tobytes()))


def world_of(env: gymnasium.Env[Any, Any]) -> Any:
    """The Box2D world that an environment keeps and can empty; or None."""
    inner = env.unwrapped
    world = vars(inner).get("world")
    is_world = name_of(type(world)) == "Box2D.Box2D.b2World" and hasattr(inner, "_destroy")
    return world if is_world else None


def renew_world(env: gymnasium.Env[Any, Any]) -> Any:
    """Give the environment a new Box2D world for its next reset; if that fills all of it.

    A world that was emptied is not like a new one: the order in which it solves contacts depends on
    what was in it before, and so would an episode on the ones before. Returns the world to be used;
    an environment that then uses another does all this itself.
    """
    inner: Any = env.unwrapped
    inner._destroy()
    old = inner.world
    if not old.bodyCount and not old.jointCount:
        listener, sleeps = old.contactListener, old.allowSleeping
        inner.world = type(old)(gravity=old.gravity, doSleep=sleeps, contactListener=listener)
    return inner.world


def _known(thing: Any) -> str:
    kind = type(thing)
    package = name_of(kind).partition(".")[0]
    return kind.__name__ if package in ("mujoco", "ale_py") else ""


def _mujoco_data(data: Any) -> dict[str, Any]:
    kind = type(data)
    if kind not in _parts_of:
        public = [name for name in dir(kind) if not name.startswith("_")]
        arrays = [name for name in public if isinstance(getattr(data, name), np.ndarray)]
        rest = [name for name in public if name not in arrays]
        _parts_of[kind] = arrays, [name for name in rest if _outlives(name)]
    names, numbers = _parts_of[kind]
    parts = [np.ascontiguousarray(getattr(data, name)).reshape(-1) for name in names]
    return {
        "names": ",".join(names),
        "sizes": np.array([part.nbytes for part in parts], np.int64),
        "arrays": np.concatenate([part.view(np.uint8) for part in parts]),
        "numbers": {name: getattr(data, name) for name in numbers},
    }


def _set_mujoco_data(data: Any, state: dict[str, Any]) -> None:
    """Arrays of another size than here lie in the arena, which every step fills anew."""
    start = 0
    for name, size in zip(state["names"].split(","), state["sizes"].tolist(), strict=True):
        array = getattr(data, name)
        if array.nbytes == size:
            stored = state["arrays"][start : start + size]
            array[...] = stored.view(array.dtype).reshape(array.shape)
        start += size
    for name, number in state["numbers"].items():
        if _outlives(name):
            setattr(data, name, number)


def _mujoco_model(model: Any) -> int:
    mujoco = sys.modules["mujoco"]
    buffer = np.zeros(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return zlib.crc32(buffer.tobytes())


def _outlives(name: str) -> bool:
    """Whether a number of MjData outlives a step; most count entries of its arena."""
    return name == "time" or name.startswith("flg_") or name.endswith("_awake")
