"""Files that processes open, noted by an audit hook in each Python that they are."""

import os
from collections import Counter
from pathlib import Path

VARIABLE = "OPENED_FILES"
HOOK = f"""
import os, sys

def note(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        if not (arguments[2] or 0) & os.O_ACCMODE:
            os.write(notes, f"{{os.getpid()}} {{arguments[0]}}\\n".encode())

notes = os.open(os.environ["{VARIABLE}"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
sys.addaudithook(note)
"""


class OpenedFiles:
    """What was opened to be read, by processes that were started with `variables`."""

    def __init__(self, folder: Path) -> None:
        self._notes = folder / "opened.txt"
        self._path = folder / "hook"
        self._path.mkdir()
        (self._path / "sitecustomize.py").write_text(HOOK, "utf-8")

    def variables(self, inherited: dict[str, str]) -> dict[str, str]:
        """The environment of a process that notes, and whose children do."""
        path = os.pathsep.join([str(self._path), inherited.get("PYTHONPATH", "")])
        return inherited | {"PYTHONPATH": path, VARIABLE: str(self._notes)}

    def by_process(self, name: str) -> dict[int, Counter[str]]:
        """How often each process has opened each file of that name, by its whole path."""
        found: dict[int, Counter[str]] = {}
        for line in self._notes.read_text("utf-8").splitlines():
            pid, _, path = line.partition(" ")
            if Path(path).name == name:
                found.setdefault(int(pid), Counter())[path] += 1
        return found
