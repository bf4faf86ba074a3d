"""A page of the documentation, done from its top to its end in one process: `page.py PAGE`.

Commands are carried out where torch is loaded once: `rlctl` by its function, and a launch in the
foreground without processes of its own. What needs a shell, such as a pipe, gets one.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rl_orch.cli import rlctl
from tests.integration.conftest import INLINE

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
LINE = re.compile(r"(?P<words>[^|&;<>$(){}`]+?)(?: \|\| \[ \$\? -eq (?P<code>\d+) \])?")
SHELL = ("bash", "-euo", "pipefail", "-c")
LANGUAGES = ("bash", "python")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str | None
    body: str

    @property
    def run_by(self) -> str | None:
        """The language it is run in; None for files, output and what needs more than a shell."""
        return self.language if self.title is None and self.language in LANGUAGES else None


@dataclass(frozen=True)
class Line:
    """A command without anything that only a shell understands, and the exit codes it may have."""

    words: tuple[str, ...]
    codes: frozenset[int]


def blocks(page: Path) -> list[Block]:
    found = BLOCK.findall(page.read_text("utf-8"))
    return [Block(language, title or None, body) for language, title, body in found]


def scripts(page: Path) -> Iterator[tuple[str, str]]:
    """Language and text. Python blocks that follow each other are one session, as a reader would
    have it."""
    for language, group in groupby(filter(lambda b: b.run_by, blocks(page)), lambda b: b.run_by):
        assert language is not None
        bodies = [block.body for block in group]
        if language == "python":
            bodies = ["\n".join(bodies)]
        yield from ((language, body) for body in bodies)


def lines(script: str) -> list[Line] | None:
    """The commands of a script; None if it takes a shell to carry them out."""
    whole = script.replace("\\\n", " ")
    matches = [LINE.fullmatch(line) for line in whole.splitlines() if line.strip()]
    read = [
        Line(tuple(shlex.split(match["words"])), frozenset({0, int(match["code"] or 0)}))
        for match in matches
        if match is not None
    ]
    plain = len(read) == len(matches) and all("=" not in line.words[0] for line in read)
    return read if plain else None


def carry_out(line: Line) -> None:
    """Do what a line says; raise if it ends otherwise than it may."""
    program, *words = line.words
    if program == "rlctl":
        code = rlctl.run(_launched_here(words))
    elif program == "export":
        for name, _, value in (word.partition("=") for word in words):
            os.environ[name] = value
        code = 0
    else:
        code = subprocess.run(line.words, check=False).returncode
    if code not in line.codes:
        raise SystemExit(f"{shlex.join(line.words)} ended with {code}, not {sorted(line.codes)}")


def _launched_here(words: list[str]) -> list[str]:
    """The words of a command, and where to train if nothing else is said about it."""
    elsewhere = {"--detach", "external.yaml"} & {*words}
    return words if words[0] != "launch" or elsewhere else [*words, INLINE]


def main(page: Path) -> None:
    """Everything on a page, in order, in this folder."""
    for language, script in scripts(page):
        commands = lines(script) if language == "bash" else None
        if commands is not None:
            for line in commands:
                carry_out(line)
        elif language == "bash":
            subprocess.run([*SHELL, script], check=True)
        else:
            session: dict[str, Any] = {"__name__": "__main__"}
            exec(compile(script, page.name, "exec"), session)  # noqa: S102 (what is tested)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
