"""Leave to run a program of somebody's own: shown what it is, a person says yes, or `--yes` did."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from rl_orch.cli.output import err, safe
from rl_orch.errors import BadInput
from rl_orch.spec import consent
from rl_orch.spec.model import Spec

Yes = Annotated[
    bool, typer.Option("-y", "--yes", help="Run the spec's own command without asking.")
]


def agreed(spec: Spec, *, yes: bool) -> Spec:
    """The spec, meant from this folder on, once somebody agrees to the program that it runs.

    Raises where nobody does. A spec that runs nothing of its own needs no consent.
    """
    spec = consent.located(spec, Path.cwd())
    lines = consent.preview(spec)
    if not lines or yes:
        return spec
    if not sys.stdin.isatty():
        raise BadInput(
            f"nobody is here to agree to the program of this spec: {' '.join(lines[0].split())}",
            path="runner.command",
            hint="If it may run, add --yes.",
        )
    for line in lines:
        err().print(safe(line), soft_wrap=True)
    typer.confirm("Run it?", abort=True, err=True)
    return spec
