"""`rlctl check`: everything that can be known about a spec before training."""

from typing import Any

from rl_orch import orchestrator
from rl_orch.cli.arguments import Json
from rl_orch.cli.output import out, print_json, report_error, safe
from rl_orch.cli.spec_flags import Overrides, SpecFile, spec_from, with_spec_flags
from rl_orch.cli.views.text import counted, seeds_text
from rl_orch.errors import BadInput, SpecInvalid
from rl_orch.spec import checks
from rl_orch.spec.engine import left_open
from rl_orch.spec.model import Spec


@with_spec_flags
def command(
    overrides: Overrides = None,
    file: SpecFile = None,
    json: Json = False,
    *,
    flags: dict[str, str],
) -> int:
    """Validate a spec and its environment without training.

    Pending options belong to parts that are not in this release: accepted here, refused by launch.
    """
    try:
        spec = spec_from(file, overrides, flags)
        spec = orchestrator.connect().check(spec)
    except BadInput as error:
        if not json:
            return report_error(error, as_json=False)
        print_json(_document(None, error))
        return error.exit_code
    if json:
        print_json(_document(spec, None))
        return 0
    _print(spec)
    return 0


def _document(spec: Spec | None, error: BadInput | None) -> dict[str, Any]:
    errors: list[dict[str, Any]] = []
    if isinstance(error, SpecInvalid):
        errors = [
            {"path": p.path, "value": p.value, "message": p.message, "hint": p.hint}
            for p in error.problems
        ]
    elif error is not None:
        errors = [{"path": error.path, "value": None, "message": error.message, "hint": error.hint}]
    return {
        "ok": spec is not None,
        "config_hash": None if spec is None else spec.config_hash,
        "settled": {} if spec is None else left_open(spec),
        "pending": [] if spec is None else checks.pending(spec),
        "seeds": [] if spec is None else _seeds(spec),
        "errors": errors,
    }


def _print(spec: Spec) -> None:
    console = out()
    seeds = _seeds(spec)
    grouped = f"seeds {seeds_text(seeds)}: a group of {len(seeds)}"
    console.print(
        f"[green]ok[/green]  {safe(spec.label)}: {spec.agent.algorithm.upper()} on "
        f"{safe(spec.env.id)}, {counted(spec.train.total_timesteps, 'step')}, "
        f"{grouped if spec.members else f'seed {spec.env.seed}'}"
    )
    console.print(f"    config hash {spec.config_hash[:12]}", style="dim")
    settled = ", ".join(f"{path} {value}" for path, value in left_open(spec).items())
    console.print(f"    {settled}", style="dim")
    for path in checks.pending(spec):
        console.print(f"[yellow]pending[/yellow]  {path}: not in this release; `launch` refuses it")


def _seeds(spec: Spec) -> list[int]:
    """The seed of each run that a launch would make."""
    return [member.env.seed for member in spec.members or [spec]]
