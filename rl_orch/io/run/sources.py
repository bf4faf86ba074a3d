"""The source files that a spec names: their digests say whether a run still does what it did.

Files are read and never imported: what else a process has loaded makes no difference.
"""

import ast
import hashlib
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.util import resolve_name
from pathlib import Path, PurePosixPath
from typing import Any

from rl_orch import plugins
from rl_orch.spec.model import Spec
from rl_orch.spec.named_plugins import modules_of

KEYED_BY = "sources keyed by"
"""The fact that tells digests by path from those of before, which went by the file's name alone."""

SOURCE = "source "
OURS = ("rl_orch", "__main__")
INSTALLED = ("site-packages", "dist-packages")
IMPORTERS = ("import_module", "__import__")


def of(spec: Spec) -> dict[str, str]:
    """Digests of the files of modules that the spec names, and of those that these import, unless
    they are installed. By their paths in the folders where they are found, as a fingerprint has
    it."""
    if not (named := modules_of(spec)):
        return {}
    files = _Files()
    files.follow(named)
    return {KEYED_BY: "path"} | {f"{SOURCE}{path}": d for path, d in sorted(files.digests.items())}


def rekeyed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """An earlier fingerprint with its digests by path, as one of now has them.

    Of one whose digests go by the names of files, those that could be of several files, or of none
    that is read today, say nothing.
    """
    if KEYED_BY in before or KEYED_BY not in now:
        return dict(before)
    paths = [key for key in now if key.startswith(SOURCE)]
    alike = Counter(map(_by_name, paths))
    kept = {key: value for key, value in before.items() if not key.startswith(SOURCE)}
    for key in paths:
        name = _by_name(key)
        is_clear = alike[name] == 1 and name != f"{SOURCE}__init__.py"
        kept[key] = before.get(name, now[key]) if is_clear else now[key]
    return kept | {KEYED_BY: now[KEYED_BY]}


def _by_name(key: str) -> str:
    return f"{SOURCE}{PurePosixPath(key.removeprefix(SOURCE)).name}"


class _Files:
    """Files of modules that are not installed, and of what they import, from one to the next."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        self._seen: set[str] = set()
        self._specs: dict[str, ModuleSpec | None] = {}
        self._installed = _installed_folders()

    def follow(self, names: Iterable[str]) -> None:
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
            self.digests[str(path)] = hashlib.sha256(source).hexdigest()[:12]
            package = name if found.submodule_search_locations is not None else found.parent
            return [*_imports(source, package or "")] if file.suffix == ".py" else ()
        return ()

    def _found(self, name: str) -> ModuleSpec | None:
        """The place of a module, for which nothing is imported: not even the package it is in."""
        if name not in self._specs:
            self._specs[name] = self._searched(name)
        return self._specs[name]

    def _searched(self, name: str) -> ModuleSpec | None:
        parent, _, _ = name.rpartition(".")
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
                if (found := finder.find_spec(name, folders)) is not None:
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


def _imports(source: bytes, package: str) -> Iterator[str]:
    """Names of modules that a source imports anywhere, each after the packages that it is in; an
    environment that it registers as `module:Class` is imported, too."""
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
        case ast.Call(
            func=ast.Name(id=called) | ast.Attribute(attr=called),
            args=[ast.Constant(value=str(name)), *_],
        ) if called in IMPORTERS:
            with suppress(ImportError):
                yield resolve_name(name, package)
        case ast.Constant(value=str(text)) if plugins.is_importable(text):
            yield text.partition(":")[0]
