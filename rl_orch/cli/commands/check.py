"""`rlctl check`: everything that can be known about a spec before training."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

from rl_orch import orchestrator
from rl_orch.cli.arguments import Json
from rl_orch.cli.output import note, out, print_json, report_error, safe, warn
from rl_orch.cli.spec_flags import SpecArguments
from rl_orch.cli.views.text import counted, seeds_text
from rl_orch.core.registry.inherited_specs import inherited_here
from rl_orch.errors import BadInput, Problem
from rl_orch.runners.spec_check import CHECK_TIMEOUT_S
from rl_orch.spec import checks
from rl_orch.spec.engine import left_open
from rl_orch.spec.model import Spec

SILENCE_S = 5.0
"""How long a check may say nothing."""


def command(typed: SpecArguments, json: Json = False) -> int:
    """Validate a spec and its environment without training.

    Pending options belong to parts that are not in this release: accepted here, refused by launch.
    """
    warnings: list[Problem] = []

    def tell(warning: Problem) -> None:
        warnings.append(warning)
        warn(str(warning))

    try:
        here = orchestrator.connect()
        spec = typed.spec(partial(inherited_here, here), tell)
        with nullcontext() if json else patience():
            spec = here.check(spec, warn=warnings.append if json else tell)
    except BadInput as error:
        if not json:
            return report_error(error, as_json=False)
        print_json(checks.findings(None, warnings) | {"errors": error.findings()})
        return error.exit_code
    if json:
        print_json(checks.findings(spec, warnings) | {"errors": []})
    else:
        _print(spec)
    return 0


@contextmanager
def patience() -> Iterator[None]:
    """Time in which an environment is tried; if it is long, that is said."""
    said = (
        f"the environment is still being tried; that may take {CHECK_TIMEOUT_S:.0f} s, and is then "
        "given up"
    )
    timer = threading.Timer(SILENCE_S, note, [said])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _print(spec: Spec) -> None:
    console = out()
    seeds = checks.findings(spec)["seeds"]
    grouped = f"seeds {seeds_text(seeds)}: a group of {len(seeds)}"
    console.print(
        f"[green]ok[/green]  {safe(spec.label)}: {spec.algorithm_title} on "
        f"{safe(spec.env.id)}, {counted(spec.train.total_timesteps, 'step')}, "
        f"{grouped if spec.members else f'seed {spec.env.seed}'}"
    )
    console.print(f"    config hash {spec.config_hash[:12]}", style="dim")
    settled = [f"{path} {value}" for path, value in left_open(spec).items() if path != "env.id"]
    console.print(f"    {', '.join(settled)}", style="dim")
    for path in checks.pending(spec):
        console.print(f"[yellow]pending[/yellow]  {path}: not in this release; `launch` refuses it")
