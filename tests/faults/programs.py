"""Programs that train nothing, for runs that are light enough to have many of: no library but
Python's own is loaded, so that a run is little more than its root.
"""

import random
import sys
from dataclasses import dataclass
from pathlib import Path

from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve

COUNTS = """
import json, os, pathlib, sys, time
steps, pause_s = int(sys.argv[1]), float(sys.argv[2])
held_at, gate = (int(sys.argv[3]), sys.argv[4]) if len(sys.argv) > 3 else (0, "")
folder, begin = pathlib.Path(os.environ["RLCTL_CHECKPOINTS"]), 0
if "RLCTL_RESUME" in os.environ:
    begin = int(pathlib.Path(os.environ["RLCTL_RESUME"]).read_text())
def say(**what):
    with open(os.environ["RLCTL_EVENTS"], "a") as events:
        events.write(json.dumps(what) + "\\n")
for step in range(begin + 1, steps + 1):
    time.sleep(pause_s)
    while step == held_at and not os.path.exists(gate):
        time.sleep(0.02)
    print("step", step, "of attempt", os.environ["RLCTL_ATTEMPT"], flush=True)
    say(step=step, key="losses/count", value=step)
    if step % 4 == 0:
        (folder / f"at_{step}").write_text(str(step))
        say(step=step, checkpoint=f"at_{step}")
"""
"""Counts to a number, a step after every pause, and goes on from its own checkpoints. It may be
held before a step until a file is there."""

STUBBORN = """
import os, signal, sys, time
def ignore():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
ignore()
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        ignore()
        time.sleep(600)
if os.fork() == 0:
    time.sleep(600)
open("begun", "w").close()
time.sleep(600)
"""
"""Ignores every polite request. It has a child, and two that are daemons: a double fork, a session
of their own, and init for a parent."""

STEPS = 12


def counts(folder: Path) -> Path:
    """The file of the program that counts."""
    return _written(folder / "counts.py", COUNTS)


def stubborn(folder: Path) -> Path:
    """The file of the program that ignores every polite request."""
    return _written(folder / "stubborn.py", STUBBORN)


@dataclass(frozen=True, slots=True)
class Gate:
    """Holds programs before a step until it is opened, however long that takes."""

    path: Path
    step: int = STEPS

    def open(self) -> None:
        """Let them go on."""
        self.path.touch()


def a_count(
    program: Path,
    *overrides: str,
    lasts_s: float = 1.0,
    gate: Gate | None = None,
    name: str = "count",
) -> Spec:
    """A run of the program that counts; it lasts that long, once it has begun, and is not held."""
    words = [sys.executable, "-S", str(program), str(STEPS), str(round(lasts_s / STEPS, 3))]
    words += [] if gate is None else [str(gate.step), str(gate.path)]
    return external(
        words, "runner.resume=approximate", "schedule.backoff_s=0", *overrides, name=name
    )


def by_chance(program: Path, chance: random.Random, *, most_s: float = 2.0) -> Spec:
    """A run that counts for half a second or more."""
    return a_count(program, lasts_s=chance.uniform(0.5, most_s))


def external(command: list[str], *overrides: str, name: str) -> Spec:
    """A run of some program."""
    document = {
        "name": name,
        "env": {"id": "CartPole-v1"},
        "train": {"total_timesteps": STEPS},
        "runner": {"name": "external", "command": command},
    }
    return resolve(document, overrides=overrides)


def _written(path: Path, text: str) -> Path:
    if not path.exists():
        path.write_text(text)
    return path
