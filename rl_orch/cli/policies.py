"""Which policy a word on the command line means."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from rl_orch.cli.connection import Connected
from rl_orch.core import references
from rl_orch.core.references import PolicySource
from rl_orch.io import bundles, shelf

PolicyArgument = Annotated[
    str,
    typer.Argument(
        metavar="POLICY",
        help="A model's id, an alias, best@ENV, a run, or the path of a checkpoint or bundle.",
        show_default=False,
    ),
]


def source_of(word: str, connection: Callable[[], Connected]) -> PolicySource:
    """Where the policy is that is meant; nobody is asked where a path says it all."""
    path = Path(word)
    if bundles.is_bundle(path) or (path / shelf.TENSORS).is_file():
        path = Path(os.path.abspath(path))
        return PolicySource(path, references.kind_of(path))
    connected = connection()
    return references.source(connected.models, connected, word)
