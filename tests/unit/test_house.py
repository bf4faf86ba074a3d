"""The house rules: rooms that can be taken in at a glance, imports that point one way, one name
for one thing. The layers themselves are import-linter's, in `make lint`."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from rl_orch import plugins

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "rl_orch"
ROOM = 16
"""Modules in a folder, beside its sub-packages."""

LONG_LISTS = {"cli/commands", "spec"}
"""Folders whose listing is an index: a command or a part of the option table each."""

TABLE = "rl_orch.plugins"
"""Where modules are named by strings."""

IMPLEMENTATIONS: dict[str, tuple[str, ...]] = {
    "rl_orch.io.trackers.tensorboard": (),
    "rl_orch.rl.collect.overlap": (),
    "rl_orch.rl.collect.rollout": (),
    "rl_orch.rl.kernels.engine": (),
    "rl_orch.runners.external": (),
    "rl_orch.runners.inline": (),
    "rl_orch.runners.local": (),
}
"""Implementations of a seam, and who may import them besides the modules of their own folder."""


SEAMS = ("collectors", "engines", "runners", "trackers")
SEAM_OPTION = re.compile(r"\b(runner\.name|engine|collector|tracker)s?\b")
"""What a comparison is about if it asks which implementation there is."""


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> dict[str, ast.Module]:
    return {module_name(path): ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}


def imported(node: ast.AST) -> Iterator[str]:
    """The modules of ours that an import names: of `from a import b`, `a.b` where it is one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.startswith("rl_orch"))
    elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rl_orch"):
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            yield whole if whole in modules() else node.module


def test_no_folder_has_more_modules_than_can_be_taken_in() -> None:
    counts = Counter(
        str(path.parent.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    )
    crowded = {name for name, count in counts.items() if count > ROOM}
    assert crowded <= LONG_LISTS


def test_imports_have_no_cycles() -> None:
    graph = {
        name: {module for node in ast.walk(tree) for module in imported(node)} - {name}
        for name, tree in modules().items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"a cycle: {' -> '.join(error.args[1])}") from None


def test_nothing_of_ours_is_imported_inside_a_function() -> None:
    inside = [
        f"{name}:{node.lineno}"
        for name, tree in modules().items()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom) and any(imported(node))
    ]
    assert inside == []


def test_modules_are_named_by_strings_in_one_table_alone() -> None:
    named = [
        f"{name}:{node.lineno}"
        for name, tree in modules().items()
        if name != TABLE
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and any(node.value in (known, f"{known}.") for known in modules())
        and node.value != "rl_orch"
    ]
    assert named == []


def test_the_table_names_modules_that_there_are() -> None:
    texts = {
        node.value
        for node in ast.walk(modules()[TABLE])
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    named = {text for text in texts if text.startswith("rl_orch.") and " " not in text}
    unknown = {text for text in named if text not in modules()}
    assert all(text.rpartition(".")[0] in modules() for text in unknown), unknown


def test_names_of_classes_and_type_aliases_are_unique() -> None:
    where = defaultdict(list)
    for name, tree in modules().items():
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef(name=type_name) | ast.AnnAssign(
                    ast.Name(type_name), ast.Name("TypeAlias")
                ):
                    where[type_name].append(name)
    assert {name: found for name, found in where.items() if len(found) > 1} == {}


def test_implementations_of_a_seam_are_imported_in_their_own_folder_alone() -> None:
    strangers = [
        f"{name} imports {module}"
        for name, tree in modules().items()
        for node in ast.walk(tree)
        for module in imported(node)
        if module in IMPLEMENTATIONS
        and name.rpartition(".")[0] != module.rpartition(".")[0]
        and name not in IMPLEMENTATIONS[module]
    ]
    assert strangers == []


NAMED_BY = {
    "rl_orch.rl.engine": "the rule that chooses between our engines",
    "rl_orch.core.policies.advice": "advises the one engine for the other",
}
"""Modules that may tell implementations apart by name, and why."""


def test_no_module_tells_implementations_apart_by_name() -> None:
    """What a runner, an engine or a collector can do is in its traits."""
    known = {name for kind in SEAMS for name in plugins.names(kind)}
    compared = [
        f"{name}:{node.lineno}"
        for name, tree in modules().items()
        if name not in NAMED_BY
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and SEAM_OPTION.search(ast.unparse(node))
        and known & {c.value for c in ast.walk(node) if isinstance(c, ast.Constant)}
    ]
    assert compared == []
