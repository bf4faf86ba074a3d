"""The source files that a run depends on: their digests say whether it still does what it did.

They are found in two ways. What the modules that a spec names import is read from their source, so
that what is imported late counts from the start. What is imported by no statement (`import_module`,
entry points) counts once it is loaded.
"""

import ast
import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import resolve_name
from pathlib import Path, PurePosixPath
from types import ModuleType

from rl_orch.spec.model import Spec
from rl_orch.spec.named_plugins import modules_of

SOURCE = "source "
OURS = ("rl_orch", "__main__")
INSTALLED = ("site-packages", "dist-packages")


class Sources:
    """The source files of a run, each as it was when it was seen first, unless they are installed.

    Those of the modules that its spec names, of `known` ones (keys of an earlier fingerprint), and
    of all that these import; with `take_in_loaded`, also those that this process has loaded from
    `folders` or from beside the others. A run that names no module has none.
    """

    def __init__(self, spec: Spec, folders: Iterable[str] = (), known: Iterable[str] = ()) -> None:
        self._named = modules_of(spec)
        self._folders = {folder.rstrip(os.sep) for folder in folders}
        self._path = [*sys.path]  # What a module adds to it is not there when a run is resumed.
        self._digests: dict[str, str] = {}
        self._loaded: set[str] = set()
        self._seen: set[str] = set()
        self._specs: dict[str, ModuleSpec | None] = {}
        self._installed = _installed_folders()
        if self._named:
            earlier = [key.removeprefix(SOURCE) for key in known if key.startswith(SOURCE)]
            self._follow([*self._named, *map(_module_of, earlier)])

    def digests(self) -> dict[str, str]:
        """Their digests, by their paths in the folders where they are found, as a fingerprint has
        them."""
        return {f"{SOURCE}{path}": digest for path, digest in sorted(self._digests.items())}

    def take_in_loaded(self) -> None:
        """Take in what was loaded since the last time."""
        if self._named and (new := {*sys.modules} - self._loaded):
            self._loaded |= new
            self._follow(filter(None, map(self._place_of, new)))

    def _place_of(self, loaded: str) -> str | None:
        """The name by which the file of a loaded module is found in one of our folders."""
        module = sys.modules.get(loaded)
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if not isinstance(file, str) or loaded.partition(".")[0] in OURS:
            return None
        around = [folder for folder in self._folders if file.startswith(f"{folder}{os.sep}")]
        if not around or self._is_installed(Path(file)):
            return None
        return _module_of(file[len(max(around, key=len)) + 1 :])

    def _follow(self, names: Iterable[str]) -> None:
        """Take in modules, the packages that they are in, and all that they import."""
        waiting = [each for name in names for each in _with_packages(name)]
        while waiting:
            name = waiting.pop()
            if name in self._seen or name.partition(".")[0] in OURS:
                continue
            self._seen.add(name)
            waiting += self._taken_in(name)

    def _taken_in(self, name: str) -> Sequence[str]:
        """Read a module; returns the names of what it imports, some of which may be no modules."""
        found = self._found(name)
        if found is None or not found.has_location or found.origin is None:
            return ()
        file = Path(found.origin)
        if self._is_installed(file):
            return ()
        with suppress(OSError):
            source = file.read_bytes()
            steps = 1 + name.count(".") + (found.submodule_search_locations is not None)
            path = PurePosixPath(*file.parts[-steps:])
            self._folders.add(str(file.parents[steps - 1]).rstrip(os.sep))
            self._digests[str(path)] = hashlib.sha256(source).hexdigest()[:12]
            is_package = found.submodule_search_locations is not None
            package = name if is_package else name.rpartition(".")[0]
            return [*_imports(source, package)] if file.suffix == ".py" else ()
        return ()

    def _found(self, name: str) -> ModuleSpec | None:
        """The place of a module, for which nothing is imported: not even the package it is in."""
        if name not in self._specs:
            self._specs[name] = self._searched(name)
        return self._specs[name]

    def _searched(self, name: str) -> ModuleSpec | None:
        parent, _, last = name.rpartition(".")
        folders = None
        if parent:
            package = self._found(parent)
            if package is None or package.submodule_search_locations is None:
                return None
            inside = package.submodule_search_locations
            folders = [folder for folder in inside if not self._is_installed(Path(folder))]
            if not folders:
                return None
        for finder in sys.meta_path:
            with suppress(Exception):  # Whoever needs the module says why it cannot be found.
                if finder is PathFinder:  # Asked for the whole name, it wants its parent loaded.
                    found = finder.find_spec(last, self._path if folders is None else folders)
                else:
                    found = finder.find_spec(name, folders)
                if found is not None:
                    if (listed := found.submodule_search_locations) is not None:
                        found.submodule_search_locations = [*listed]
                    return found
        return None

    def _is_installed(self, path: Path) -> bool:
        return not {*INSTALLED}.isdisjoint(path.parts) or any(
            each.is_relative_to(folder)
            for each in (path, path.resolve())
            for folder in self._installed
        )


def _installed_folders() -> list[Path]:
    """The folders of the standard library and of packages: the prefix itself may hold a project."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [Path(sysconfig.get_path(name)) for name in names]
    return [*dict.fromkeys([*folders, *(folder.resolve() for folder in folders)])]


def _module_of(path: str) -> str:
    """The name of the module that is at a path in a folder that is searched."""
    *packages, file = PurePosixPath(path).parts
    name = file.partition(".")[0]
    return ".".join(packages if name == "__init__" else [*packages, name])


def _imports(source: bytes, package: str) -> Iterator[str]:
    """Names of modules that a source imports anywhere, each after the packages that it is in."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        for name in _named_by(node, package):
            yield from _with_packages(name)


def _with_packages(name: str) -> Iterator[str]:
    """`a`, `a.b` and `a.b.c`, of `a.b.c`."""
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _named_by(node: ast.AST, package: str) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (each.name for each in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            with suppress(ImportError):
                base = resolve_name("." * level + (module or ""), package)
                yield base
                yield from (f"{base}.{each.name}" for each in names if each.name != "*")
