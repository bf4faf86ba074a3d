"""The pages say what the program does: nothing stale, nothing dead, nothing left out."""

import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_orch import errors, plugins
from rl_orch.cli.rlctl import PANELS
from rl_orch.core.runs.state import EXIT_CODES, NEXT
from rl_orch.io.run.command_socket import COMMANDS
from rl_orch.records import EventKind, State
from rl_orch.rl.envs.packages import package_of
from rl_orch.rl.envs.vector import full_id
from rl_orch.spec.algorithms import BUILT_IN
from rl_orch.spec.checks import unread
from rl_orch.spec.options import groups, table
from rl_orch.spec.resolve import resolve

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LANGUAGES = {"bash", "python", "yaml", "toml", "json", "text", "console"}
"""How blocks are marked; `test_readme.py` runs the first two."""

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def prose(page: Path) -> str:
    """A page without its blocks and its inline code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text("utf-8")))


def rows(page: str) -> dict[str, list[str]]:
    """The rows of every table on a page, by the first code word in them."""
    found: dict[str, list[str]] = {}
    for line in re.findall(r"^\| (.+) \|$", text(page), re.MULTILINE):
        cells = line.split(" | ")
        for word in re.findall(r"`([^`]+)`", cells[0]):
            found[word] = cells
    return found


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def generated() -> dict[Path, str]:
    documents: dict[Path, str] = runpy.run_path(str(DOCS / "generate.py"))["documents"]()
    return documents


def test_the_reference_is_what_the_program_says_today() -> None:
    stale = [
        path.name
        for path, wanted in generated().items()
        if not path.exists() or path.read_text("utf-8") != wanted
    ]
    assert not stale, f"stale: {', '.join(stale)}; run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_is_dead(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_says_whether_it_is_run(page: Path) -> None:
    opened = re.findall(r"^```(\S*).*$", page.read_text("utf-8"), re.MULTILINE)[::2]
    assert set(opened) <= LANGUAGES


def blocks(page: Path, language: str) -> list[str]:
    pattern = rf"^```{language}\b[^\n]*\n(.*?)^```$"
    return re.findall(pattern, page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "yaml")], ids=lambda page: page.stem
)
def test_every_spec_on_a_page_is_one_that_is_taken(page: Path) -> None:
    for block in blocks(page, "yaml"):
        document: dict[str, Any] = {"env": {"id": "CartPole-v1"}} | (yaml.safe_load(block) or {})
        name = document.get("agent", {}).get("algorithm", "ppo")
        if name not in BUILT_IN:  # A plugin that the page has its reader write.
            assert f'{name} = "' in page.read_text("utf-8")
            del document["agent"]
            resolve(document, overrides=["train.batch_size=50"])
            continue
        assert unread(resolve(document)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_names_an_environment_without_the_module_that_registers_it(page: Path) -> None:
    lines = page.read_text("utf-8")
    ids = re.findall(r"(?:--env[ =]|\bid: |env\.id[=:] ?)[\"']?([\w./:-]+)", lines)
    bare = [name for name in ids if ":" not in name and full_id(name) == name]
    assert [name for name in bare if package_of(name)] == []


def test_every_option_and_its_group_are_documented() -> None:
    reference, page = text("docs/reference/options.md"), text("docs/spec.md")
    assert [path for path in table() if f"| `{path}` |" not in reference] == []
    assert [option.path for option in table().values() if not option.help] == []
    assert [name for name in groups() if name != "spec" and f"`{name}`" not in page] == []


def test_every_command_is_documented_and_told_of() -> None:
    names = [name for commands in PANELS.values() for name in commands]
    reference = text("docs/reference/commands.md")
    told = "".join(page.read_text("utf-8") for page in [ROOT / "README.md", *DOCS.glob("*.md")])
    assert [name for name in names if f"## rlctl {name}\n" not in reference] == []
    assert [name for name in names if not re.search(rf"(rlctl |`){name}\b", told)] == []


def test_every_error_is_documented_with_its_code_and_exit_code() -> None:
    def known(kind: type[errors.RlctlError]) -> Iterator[type[errors.RlctlError]]:
        yield kind
        for narrower in kind.__subclasses__():
            if narrower.__module__ == errors.__name__:
                yield from known(narrower)

    table = rows("docs/troubleshooting.md")
    for kind in known(errors.RlctlError):
        assert table[kind.__name__][1:3] == [f"`{kind.code}`", str(kind.exit_code)]


def test_every_kind_of_event_and_every_command_of_the_socket_is_documented() -> None:
    table = rows("docs/runs.md")
    assert {str(kind) for kind in EventKind} | set(COMMANDS) <= set(table)


def test_every_state_is_documented_with_what_may_follow_it() -> None:
    table = rows("docs/runs.md")
    for state in State:
        follows = {State(word) for word in re.findall(r"`(\w+)`", table[state][2])}
        assert follows == NEXT[state], state


def test_the_exit_codes_are_those_of_the_program() -> None:
    listed = re.findall(r"^\| (\d) \| (.+) \|$", text("README.md"), re.MULTILINE)
    codes = {int(code): words for code, words in listed}
    for state, code in EXIT_CODES.items():
        assert str(state) in codes[code]
    assert set(codes) == {*EXIT_CODES.values(), errors.BadInput.exit_code}


def test_every_kind_of_plugin_is_documented() -> None:
    page = text("docs/concepts.md")
    assert [kind for kind in plugins.KINDS if f"`rl_orch.{kind}`" not in page] == []


def tree() -> dict[str, str]:
    """Every path in ARCHITECTURE.md's tree, with what is said of it."""
    page = text("ARCHITECTURE.md").partition("## The tree")[2]
    block = page.partition("```text\n")[2].partition("```")[0]
    above: list[str] = []
    found = {}
    for line in block.splitlines():
        name, _, about = line.strip().partition(" ")
        above[(len(line) - len(line.lstrip())) // 2 :] = [name]
        found["".join(above)] = about.strip()
    return found


def test_the_tree_in_the_architecture_is_the_tree() -> None:
    package = ROOT / "rl_orch"
    folders = {f"{path.parent.relative_to(ROOT)}/" for path in package.rglob("__init__.py")}
    modules = {str(path.relative_to(ROOT)) for path in package.glob("*.py")}
    real = folders | modules - {"rl_orch/__init__.py"} | {"rl_orch/configs/"}
    assert {path for path in tree() if path.startswith("rl_orch/")} == real


def test_every_part_of_the_tree_has_a_line_about_it() -> None:
    assert [path for path, about in tree().items() if not about and path != "rl_orch/"] == []
    assert [path for path in tree() if not (ROOT / path).exists()] == []


def test_the_glossary_and_the_table_of_changes_point_to_files_that_there_are() -> None:
    changes = text("ARCHITECTURE.md").partition("## I want to change X")[2].partition("\n## ")[0]
    paths = re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", changes)
    paths += re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?|plugins\.py)`", text("docs/glossary.md"))
    gone = [
        path for path in paths if not any((ROOT / at / path).exists() for at in ("rl_orch", ""))
    ]
    assert gone == []


def test_the_layers_in_the_architecture_are_those_that_are_enforced() -> None:
    project: dict[str, Any] = tomllib.loads(text("pyproject.toml"))
    enforced = project["tool"]["importlinter"]["contracts"][0]["layers"]
    page = text("ARCHITECTURE.md").partition("## Layers")[2]
    assert page.split("```text\n")[1].partition("```")[0].splitlines() == enforced


@pytest.mark.parametrize("page", sorted((DOCS / "adr").glob("*.md")), ids=lambda page: page.stem)
def test_a_decision_says_context_decision_and_cost_and_is_listed(page: Path) -> None:
    said = page.read_text("utf-8")
    assert said.startswith(f"# {page.name[:4]} ")
    assert re.findall(r"^\*\*(\w+)\.\*\*", said, re.MULTILINE) == ["Context", "Decision", "Cost"]
    assert f"(adr/{page.name})" in text("docs/index.md")


@pytest.mark.parametrize("group", [name for name in groups() if name != "spec"])
def test_every_group_of_a_spec_is_in_its_table_and_called_pending_if_it_is(group: str) -> None:
    inside = [option for option in table().values() if option.group == group]
    waits = all(isinstance(option.pending, str) for option in inside)
    assert (rows("docs/spec.md")[group][-1] == "pending") == waits


def test_no_page_says_that_there_is_only_so_much() -> None:
    assert [
        str(page) for page in PAGES if re.search(r"only .{0,30} so far", page.read_text())
    ] == []
