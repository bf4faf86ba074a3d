"""`rlctl export`: a policy to carry away, as a graph or as a bundle."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from rl_orch.cli.arguments import Json, Quiet
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.live.bar import watching
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.policy_arguments import PolicyArgument
from rl_orch.cli.views.grid import number_table
from rl_orch.cli.views.text import counted
from rl_orch.records.jobs import ExportJob
from rl_orch.records.tasks import ExportAnswer
from rl_orch.stats.text import bounds_text

ExportFormat = Literal["onnx", "torchscript", "pt2", "bundle"]
"""What a policy can be written as."""


def command(
    policy: PolicyArgument,
    format: Annotated[ExportFormat, typer.Option(help="What to write.")] = "bundle",
    to: Annotated[
        Path | None, typer.Option("--out", help="Where to write; the run's folder `exports`.")
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="ONNX with weights of 8 bits, and what that costs.")
    ] = False,
    rows: Annotated[
        int | None,
        typer.Option(
            help="Compare with torch on so many observations; 10,000.", min=1, max=1_000_000
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace what an earlier export has written there.")
    ] = False,
    *,
    target: ConnectionOptions,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a policy as ONNX, TorchScript, pt2 or a bundle with all of them.

    The graph takes observations as the environment gives them and gives actions as it takes them.
    It is loaded back and compared with torch on observations from playing the environment; where
    it differs, nothing is written. A bundle adds weights, spec, evaluation and a model card.

    Examples:

      rlctl export last

      rlctl export last --format onnx --out policy.onnx
    """
    request = ExportJob(
        policy=policy,
        format=format,
        out=None if to is None else str(to),
        int8=int8,
        rows=rows,
        replace=force,
    )
    with watching(quiet=quiet) as watch:
        written = target.workplace().carry_out(request, watch)
    if json:
        print_json(written)
    else:
        _print(written)


def _print(written: ExportAnswer) -> None:
    console = out()
    console.print(f"wrote [bold]{safe(written.path)}[/bold] ({counted(written.bytes, 'byte')})")
    table = number_table("graph", "largest difference", "other greedy actions", "observations")
    for form, parity in written.parity.items():
        table.add_row(
            form,
            f"{parity['largest_difference']:.1e}",
            str(parity["differing"]),
            f"{parity['rows']:,}",
        )
    console.print(table)
    int8 = written.int8
    if int8:
        console.print(
            f"INT8: {int8['bytes_after']:,} bytes instead of {int8['bytes_before']:,}; mean return "
            f"{int8['mean_before']:.2f} before, {int8['mean_after']:.2f} after "
            f"({counted(int8['n'], 'episode')}, the same ones; the difference is in "
            f"{bounds_text(int8['difference_ci95'])} with 95 % confidence)"
        )
