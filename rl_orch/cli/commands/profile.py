"""`rlctl profile`: where the time of a training goes, and what would help."""

from collections.abc import Sequence
from textwrap import fill
from typing import Annotated, Any

import typer
from rich.table import Table

from rl_orch.cli.arguments import Home, Json, Quiet, Server
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.live.bar import watching
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.spec_flags import SpecArguments
from rl_orch.cli.views.grid import number_table
from rl_orch.records.jobs import ProfileJob, ProfileResult, Suggestion
from rl_orch.records.profile import Profile, Resolved
from rl_orch.spec.model import Spec

DEFAULT_S = 10.0
APART = "env and policy work in one call; env is what its steps take alone, policy is the rest"


def command(
    typed: SpecArguments,
    seconds: Annotated[
        float | None,
        typer.Option(help="Measure for so long; 10 s, if no steps are given.", min=0.1, max=86400),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Measure for so many environment steps.", min=1)
    ] = None,
    home: Home = None,
    server: Server = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train for a short time and say where the time goes.

    Nothing is kept, and no run is made. A warm-up comes first and is told apart: compiling, random
    steps and the first updates. The parts are env (stepping and resetting environments), policy
    (deciding), buffer (keeping and drawing experience), learner (updates) and other (bookkeeping).
    Where one call decides and steps for a whole rollout, environments are also stepped alone, to
    tell how much of it is theirs. Evaluations and checkpoints are no part of it.

    Examples:

      rlctl profile -f spec.yaml

      rlctl profile -f spec.yaml --seconds 5 resources.threads=2
    """
    if seconds is None and steps is None:
        seconds = DEFAULT_S
    request = ProfileJob(spec=typed.spec().model_dump(mode="json"), seconds=seconds, steps=steps)
    with watching(quiet=quiet) as watch:
        result = ConnectionOptions(home, None, server).workplace().carry_out(request, watch)
    if json:
        print_json(_document(result))
    else:
        _print(result)
    return 0


def _document(result: ProfileResult) -> dict[str, Any]:
    asked, spec, measured = result.asked, result.spec, result.profile
    return {
        "spec": spec.label,
        "algorithm": spec.agent.algorithm,
        "env": spec.env.id,
        "config_hash": spec.config_hash,
        "settled": {
            path: {"value": settled.value, "why": why}
            for path, (settled, why) in _reasons(asked, measured).items()
        },
        "warm_up": measured.warm_up.model_dump(),
        "steps": measured.steps,
        "seconds": measured.seconds,
        "steps_per_second": measured.steps_per_second,
        "parts": {
            part: {
                "seconds": spent,
                "percent": 100 * measured.share(part),
                "ms_per_1000_steps": measured.ms_per_1000_steps(part),
            }
            for part, spent in measured.parts.items()
        },
        "env_measured_alone": measured.apart,
        "advice": [each.model_dump() for each in result.advice],
    }


def _print(result: ProfileResult) -> None:
    asked, spec, measured = result.asked, result.spec, result.profile
    console, warm_up = out(), measured.warm_up
    console.print(
        f"{safe(spec.label)}: {spec.algorithm_title} on {safe(spec.env.id)}, "
        f"{spec.env.num_envs} × {spec.rollout.steps} steps a rollout"
    )
    for path, (settled, why) in _reasons(asked, measured).items():
        console.print(f"  {path:<12}  {safe(settled.value)}: {safe(why)}", style="dim")
    compiled = f", {warm_up.compiling_s:.1f} s of it compiling" if warm_up.compiling_s else ""
    console.print(
        f"  warm-up, not counted: {warm_up.steps:,} steps in {warm_up.seconds:.1f} s{compiled}\n",
        style="dim",
    )
    console.print(_table(measured))
    console.print(
        f"\n[bold]{measured.steps_per_second:,.0f} steps/s[/bold]: {measured.steps:,} steps in "
        f"{measured.seconds:.1f} s"
    )
    if measured.apart:
        console.print(APART, style="dim")
    _print_advice(result.advice)


def _table(measured: Profile) -> Table:
    table = number_table("part", "share", "ms per 1,000 steps")
    for part in measured.parts:
        share, ms = measured.share(part), measured.ms_per_1000_steps(part)
        table.add_row(part, f"{100 * share:.1f} %", f"{ms:,.2f}")
    return table


def _print_advice(advice: Sequence[Suggestion]) -> None:
    console = out()
    if not advice:
        console.print("\nnothing in this spec is known to slow it down")
        return
    console.print("\nwhat would help")
    for each in advice:
        width = console.width if console.is_terminal else len(each.text) + 4
        text = fill(each.text, width, initial_indent="  - ", subsequent_indent="    ")
        console.print(safe(text))
        if each.change is not None:
            console.print(f"    profile again with {safe(each.change)}", style="dim")


def _reasons(asked: Spec, measured: Profile) -> dict[str, tuple[Resolved, str]]:
    """What was settled on, by path, and why."""
    return {
        "train.engine": (measured.engine, _why(asked.train.engine, measured.engine, "kernels")),
        "env.backend": (measured.backend, _why(asked.env.backend, measured.backend, "native")),
    }


def _why(asked: str, settled: Resolved, fast: str) -> str:
    if asked != "auto":
        return "the spec says so"
    if settled.value == fast:
        return "auto takes it where it can"
    return f"{fast} is not possible, because {settled.why_not}"
