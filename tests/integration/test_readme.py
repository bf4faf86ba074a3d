"""Every block marked `bash` or `python` in the README and the docs runs as it is printed.

A block with a title is a file. Blocks of a page run in order, in one folder and one home: those of
the README as a user types them, a process a command; those of other pages in one process.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import python_path
from tests.integration import page as pages
from tests.integration.page import SHELL, blocks, lines, scripts
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
RUNNABLE = [
    page
    for page in sorted((ROOT / "docs").glob("*.md"))
    if any(block.run_by for block in blocks(page))
]
RUNS = {"bash": SHELL, "python": (sys.executable, "-c")}


@pytest.mark.timeout(1800)  # It is a tour of everything.
def test_what_the_readme_says_can_be_done(tmp_path: Path) -> None:
    assert all(block.title is None for block in blocks(README)), "the README writes no files"
    for language, script in scripts(README):
        run((*RUNS[language], script), ROOT, environment(tmp_path / "home"))


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_what_the_page_says_can_be_done(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        if block.title is not None:
            (tmp_path / block.title).write_text(block.body, "utf-8")
            if block.title == "pyproject.toml":
                install(block.body, tmp_path)
    variables = environment(tmp_path / "home") | {"PYTHONPATH": python_path(tmp_path, ROOT)}
    run((sys.executable, "-m", pages.__name__, str(page)), tmp_path, variables)


def test_what_takes_a_shell_is_left_to_one() -> None:
    plain = lines("rlctl check --env 'a b' || [ $? -eq 2 ]\n\nexport A=1 B=2\n")
    assert plain is not None
    assert [(line.words, {*line.codes}) for line in plain] == [
        (("rlctl", "check", "--env", "a b"), {0, 2}),
        (("export", "A=1", "B=2"), {0}),
    ]
    for shell in ("rlctl ls | tail -n 1", "RL_TRAIN_LR=1 rlctl check", "rlctl ls || true", "f() {"):
        assert lines(f"rlctl ls\n{shell}\n") is None


def run(command: tuple[str, ...], folder: Path, variables: dict[str, str]) -> None:
    """Do it as a user would, and show everything if it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"


def environment(home: Path) -> dict[str, str]:
    """The variables of a user with `rlctl` on the path and a home of their own."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RL_", "RLCTL_"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), inherited.get("PATH", "")])
    return inherited | {"PATH": path, "RLCTL_HOME": str(home)}


def install(pyproject: str, folder: Path) -> None:
    """What `pip install -e .` does for a page's entry points, without touching this environment."""
    project = tomllib.loads(pyproject)["project"]
    name, version = project["name"], project["version"]
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
