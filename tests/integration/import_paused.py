"""An import that stops in its middle: `python -m tests.integration.import_paused HOME RUN_PATH`.

Prints a line once some of the run is copied, and goes on when it reads one.
"""

import sys
from pathlib import Path

from rl_orch import orchestrator


def main(home: Path, source: Path) -> None:
    """Import a run, with one pause."""
    told: list[str] = []

    def pause(doing: str, _done: float) -> None:
        if doing == "copying" and not told:
            told.append(doing)
            sys.stdout.write("in its middle\n")
            sys.stdout.flush()
            sys.stdin.readline()

    orchestrator.connect(home).import_run(source, watch=pause)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
