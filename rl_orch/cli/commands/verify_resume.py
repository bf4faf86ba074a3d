"""`rlctl verify-resume`: prove that a spec resumes bit for bit, or say what differs first."""

import random
from collections.abc import Sequence
from typing import Annotated

import typer

from rl_orch import orchestrator
from rl_orch.cli.arguments import Home, Json, Quiet, Server
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.consent import Yes, agreed
from rl_orch.cli.live.bar import watching
from rl_orch.cli.live.progress import watched
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.spec_flags import SpecArguments
from rl_orch.cli.views.text import compared_text, counted
from rl_orch.core.resume_certificate import Trial
from rl_orch.errors import BadInput
from rl_orch.records import Certificate
from rl_orch.records.jobs import VerifyResumeJob

NOT_EXACT = 3
"""The exit code where resuming is not bit for bit: what was asked for is refused, as by a gate."""


Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="STEP:GROUP.OPTION=VALUE",
        help="Set an option from that step on, in both trainings; may be repeated.",
    ),
]


def command(
    typed: SpecArguments,
    kills: Annotated[int, typer.Option(help="How often to kill it.", min=1, max=1000)] = 5,
    moments: Annotated[
        int | None, typer.Option(help="Seed of the moments to kill at.", show_default="by chance")
    ] = None,
    settings: Settings = None,
    yes: Yes = False,
    home: Home = None,
    server: Server = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Certify that a spec resumes bit for bit.

    Trains once undisturbed and once with kill -9 at random moments, then compares parameters,
    optimiser, generators, normalisers and environment states at every checkpoint, and every event.
    Exit code 0 means bitwise; 3, that something differs, and what. Both runs stay, with the
    certificate. For a long training, a short budget proves as much:

      rlctl verify-resume -f spec.yaml --kills 5 train.total_timesteps=50000

    With --set, options change while both train, as by `rlctl set`:

      rlctl verify-resume -f spec.yaml --set 10000:train.lr=1e-4 --set 20000:train.lr=1e-5
    """
    spec = agreed(typed.spec(), yes=yes)
    if spec.seeds is not None:
        raise BadInput("verify-resume takes one seed", path="seeds", hint="Set env.seed instead.")
    planned = _planned(settings or ())
    if server is not None:
        document = spec.model_dump(mode="json")
        request = VerifyResumeJob(
            spec=document, kills=kills, moments=moments, settings=planned, consent=True
        )
        with watching(quiet=quiet) as bar:
            connected = ConnectionOptions(home, None, server).workplace()
            certificate = connected.carry_out(request, bar)
    else:
        here = orchestrator.connect(home, database=spec.registry.db_path)
        with watched(quiet=quiet) as (watch, asked):
            chance = random.Random(moments)
            certificate = Trial(here, spec, kills, chance, watch, asked, planned).certify()
    if json:
        print_json(certificate)
    else:
        print_certificate(certificate)
    return 0 if certificate.level == "bitwise" else NOT_EXACT


def _planned(settings: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """The steps and overrides in `10000:train.lr=1e-4`."""
    pairs = [text.partition(":") for text in settings]
    if not all(step.isascii() and step.isdigit() for step, _, _ in pairs):
        raise BadInput(f"--set is {list(settings)}; each must be STEP:OPTION=VALUE")
    return tuple((int(step), override) for step, _, override in pairs)


def print_certificate(certificate: Certificate) -> None:
    """The certificate in words."""
    console, exact = out(), certificate.level == "bitwise"
    style = "green" if exact else "yellow"
    kills = counted(certificate.kills, "kill")
    console.print(f"[{style}]{certificate.level}[/]  {kills}, {compared_text(certificate)}")
    if certificate.first_difference is not None:
        first = certificate.first_difference
        console.print(f"  first difference: {safe(first.at)}, {first.part}: {safe(first.detail)}")
    elif not exact:
        console.print("  no difference was seen, but the environment cannot vouch for it")
    if certificate.reason is not None:
        console.print(f"  because {safe(certificate.reason)}")
    if exact:
        console.print(f"  hash chain ends in {certificate.chain[:16]}", style="dim")
    console.print(
        f"  undisturbed {safe(certificate.undisturbed)}, killed {safe(certificate.killed)}",
        style="dim",
    )
