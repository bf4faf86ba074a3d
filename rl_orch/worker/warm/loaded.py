"""Modules that a process has loaded, and whether one started now would load the same."""

import importlib
import os
import site
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

OUTDATED = 75
"""The exit code of a process that has waited for a question in vain, or for too long: if it started
now, it would load something else."""

Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class LoadedModules:
    """The modules that a process has loaded, and from where.

    `files` are those of all loaded modules, the interpreter, and the site directories with their
    `.pth` files; `places` are where each loaded top-level module is found on the path.
    """

    files: Mapping[str, Stamp | None]
    places: Mapping[str, str | None]

    @classmethod
    def now(cls) -> "LoadedModules":
        """Modules of this process."""
        named = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        files = {file for file in named if file is not None and os.path.isabs(file)}
        files |= {sys.executable, *_site_files()}
        names = {name.partition(".")[0] for name in sys.modules} | {"sitecustomize"}
        return cls({file: _stamp(file) for file in files}, _places(names))

    @property
    def is_current(self) -> bool:
        """Whether a process that started now would load the same."""
        if any(_stamp(file) != seen for file, seen in self.files.items()):
            return False
        return set(_site_files()) <= set(self.files) and _places(self.places) == self.places

    def changed_since(self, began_ns: int) -> bool:
        """Whether a file may have changed while it was being loaded."""
        return any(seen is None or seen[1] >= began_ns for seen in self.files.values())


def _site_files() -> list[str]:
    """The folders of packages, and the files there that add to the path."""
    known = [*site.getsitepackages(), site.getusersitepackages()]
    folders = [folder for folder in known if os.path.isdir(folder)]
    return folders + [str(file) for folder in folders for file in Path(folder).glob("*.pth")]


def _stamp(path: str) -> Stamp | None:
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino


def _places(names: Mapping[str, str | None] | set[str]) -> dict[str, str | None]:
    """The place of each top-level module on the path, as it is now."""
    importlib.invalidate_caches()
    found = {name: PathFinder.find_spec(name) for name in names}
    return {name: None if spec is None else spec.origin for name, spec in found.items()}
