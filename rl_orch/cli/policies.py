"""Which policy a word on the command line means."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from rl_orch.cli.connection import Connected
from rl_orch.errors import NotFound
from rl_orch.io import bundles, shelf
from rl_orch.io.rundir import RunDir

PolicyArgument = Annotated[
    str,
    typer.Argument(
        metavar="POLICY",
        help="A run (its best policy), or the path of a checkpoint or a bundle.",
        show_default=False,
    ),
]


def source_of(reference: str, connection: Callable[[], Connected]) -> Path:
    """The directory of the policy that is meant: a path, or of a run the checkpoint that was
    evaluated last, or else the newest that is intact."""
    if _is_policy(Path(reference)):
        return Path(os.path.abspath(reference))
    run = connection().get(reference)
    directory = RunDir.of(run)
    report = directory.read_report("final")
    if report is not None and report.checkpoint is not None:
        return directory.checkpoints / Path(report.checkpoint).name
    newest = shelf.newest(directory.checkpoints).path
    if newest is None:
        raise NotFound(
            f"run {run.id} has no checkpoint that is intact",
            hint=f"`rlctl show {run.id}` lists what there is.",
        )
    return newest


def _is_policy(path: Path) -> bool:
    return bundles.is_bundle(path) or (path / shelf.TENSORS).is_file()
