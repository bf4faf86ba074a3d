"""Every block marked `bash` or `python` in the README and the docs runs as it is printed.

A block with a title is a file. Blocks of a page run in order, in one folder and one home.
"""

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

from tests.conftest import python_path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
TIMEOUT_S = 600.0
RUNS = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str | None
    body: str

    @property
    def run_by(self) -> str | None:
        """The language it is run in; None for files, output and what needs more than a shell."""
        return self.language if self.title is None and self.language in RUNS else None


def blocks(page: Path) -> list[Block]:
    found = BLOCK.findall(page.read_text("utf-8"))
    return [Block(language, title or None, body) for language, title, body in found]


RUNNABLE = [page for page in PAGES if any(block.run_by for block in blocks(page))]


@pytest.mark.timeout(2 * TIMEOUT_S)  # The README is a tour of everything.
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_what_the_page_says_can_be_done(page: Path, tmp_path: Path) -> None:
    folder = ROOT if page.name == "README.md" else tmp_path
    variables = environment(tmp_path / "home")
    for block in blocks(page):
        if block.title is not None:
            assert folder is not ROOT, "the README writes no files"
            (folder / block.title).write_text(block.body, "utf-8")
            if block.title == "pyproject.toml":
                install(block.body, folder)
                variables["PYTHONPATH"] = python_path(folder)
    # Python blocks that follow each other are one session, as a reader would have it.
    for language, group in groupby(filter(lambda b: b.run_by, blocks(page)), lambda b: b.run_by):
        assert language is not None
        script = "\n".join(block.body for block in group)
        done = subprocess.run(
            [*RUNS[language], script],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


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
