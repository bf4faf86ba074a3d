"""Files through which an external program and its run talk.

They are in a folder for each attempt.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir, write_text
from rl_orch.spec.model import Spec

PROGRAM = "program"
"""The folder in a run's directory that has these."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """The files of one attempt."""

    path: Path
    attempt: int

    @classmethod
    def make(cls, directory: RunDir, attempt: int, spec: Spec) -> "Scratch":
        """The folder for an attempt, new. What older attempts wrote as checkpoints goes: what was
        kept of it was copied."""
        root = directory.path / PROGRAM
        for old in root.glob("attempt_*/checkpoints"):
            shutil.rmtree(old, ignore_errors=True)
        made = cls(root / f"attempt_{attempt}", attempt)
        shutil.rmtree(made.path, ignore_errors=True)
        made.checkpoints.mkdir(parents=True)
        made.events.touch()
        write_text(made.spec, spec.model_dump_json(indent=2) + "\n")
        return made

    @property
    def events(self) -> Path:
        """File to which the program appends what it has to say."""
        return self.path / "events.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Folder in which the program writes its checkpoints."""
        return self.path / "checkpoints"

    @property
    def spec(self) -> Path:
        """The spec as JSON."""
        return self.path / "spec.json"

    @property
    def stop(self) -> Path:
        """A file that appears when the program should end."""
        return self.path / "stop"

    def variables(self, spec: Spec, directory: RunDir) -> dict[str, str]:
        """Environment variables that tell the program of these files and its task."""
        return facts(spec, directory, self.attempt) | {
            "RLCTL_EVENTS": str(self.events),
            "RLCTL_CHECKPOINTS": str(self.checkpoints),
            "RLCTL_STOP": str(self.stop),
            "RLCTL_SPEC": str(self.spec),
        }


def facts(spec: Spec, directory: RunDir, attempt: int) -> dict[str, str]:
    """Environment variables that every program of a run gets.

    They tell it of the run, and the cookie among them marks its processes.
    """
    return {
        "RLCTL_RUN": directory.path.name,
        "RLCTL_ATTEMPT": str(attempt),
        "RLCTL_SEED": str(spec.env.seed),
        "RLCTL_TOTAL_TIMESTEPS": str(spec.train.total_timesteps),
        "RLCTL_ENV_ID": spec.env.id,
    } | pids.cookie(directory.path, attempt)
