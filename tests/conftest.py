"""What tests of every kind share: the command `rlctl`, carried out in this process."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rl_orch.cli.rlctl import run

pytest_plugins = ["tests.postgres", "tests.stores"]


@dataclass(frozen=True)
class Ran:
    """What a command did: its exit code, and what it printed where."""

    code: int
    out: str
    err: str


@pytest.fixture
def rlctl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """The command, in an empty folder, with none of the variables that options read."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("RL_", "RLCTL_", "OTEL_"))]:
        monkeypatch.delenv(name)

    def carry_out(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run(arguments)
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return carry_out
