"""The folders in which modules of specs are searched for, besides what is installed.

Processes of ours start without the folder that they are started in on their path: a service may be
started in any, and what lies there is nobody's to run. They are told the folders instead: those of
whoever started them, and those that a run was submitted with.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress

from rl_orch.plugins import PROGRAMS

VARIABLE = "RLCTL_MODULE_PATH"
"""The folders that a process of ours is told to search, as JSON."""


def program(name: str, *arguments: str) -> list[str]:
    """The command that runs a program of ours, or a module; its path is what is installed."""
    return [sys.executable, "-P", "-m", PROGRAMS.get(name, name), *arguments]


def typed_in() -> list[str]:
    """The folders where whoever types a command here expects modules to be found."""
    listed = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [*_here(), *(os.path.abspath(entry) for entry in listed if entry)]
    return list(dict.fromkeys(folder for folder in folders if _is_text(folder)))


def absolute(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables, with nothing in `PYTHONPATH` that means the folder a process is started in:
    an empty entry does, as in `:/lib`, and so does a relative one."""
    listed = variables.get("PYTHONPATH", "").split(os.pathsep)
    others = {name: value for name, value in variables.items() if name != "PYTHONPATH"}
    kept = [entry for entry in listed if os.path.isabs(entry)]
    return others | {"PYTHONPATH": os.pathsep.join(kept)} if kept else others


def searched() -> list[str]:
    """The folders that this process and its children search; by default the one it is in."""
    told = os.environ.get(VARIABLE)
    folders: list[str] = _here() if told is None else json.loads(told)
    return folders


def variable(folders: Iterable[str] | None = None) -> dict[str, str]:
    """The variable that lets a child search folders; by default those of this process."""
    return {VARIABLE: json.dumps(searched() if folders is None else list(folders))}


def search(folders: Iterable[str] | None = None) -> None:
    """Search folders before anything else, as `python` does the one it is started in; by default
    those that this process was told of."""
    wanted = searched() if folders is None else list(folders)
    sys.path[:0] = [folder for folder in wanted if folder not in sys.path]


def _is_text(folder: str) -> bool:
    """Whether a name can be written down: one that is not UTF-8 cannot."""
    try:
        folder.encode()
    except UnicodeEncodeError:
        return False
    return True


def _here() -> list[str]:
    with suppress(FileNotFoundError):  # Somebody has removed it.
        return [os.getcwd()]
    return []
