"""`rlctl doctor`: whether this machine can do what is asked of it, and what to mend if not."""

import os
from collections.abc import Sequence

from rl_orch.cli.arguments import Home, Json, Server
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.spec_flags import SpecArguments
from rl_orch.records.jobs import DoctorJob, MachineFinding
from rl_orch.spec.model import Spec
from rl_orch.spec.options import table

MARKS = {"ok": "[green]✓[/green]", "warn": "[yellow]![/yellow]", "fail": "[red]✗[/red]"}
PLACE = "registry.db_path"
"""The one option that means something without a spec."""


def command(
    typed: SpecArguments, home: Home = None, server: Server = None, json: Json = False
) -> int:
    """Check this machine and say what to mend.

    With a spec, also whether that could run here: its device, its cores, its memory, the room that
    it needs on the disk, the extras that its environment needs. Exits with 1 if anything fails.

    Examples:

      rlctl doctor

      rlctl doctor -f spec.yaml --device cuda
    """
    spec = _spec(typed)
    named = typed.flags.get(PLACE) or _variable(PLACE) if spec is None else spec.registry.db_path
    document = None if spec is None else spec.model_dump(mode="json")
    request = DoctorJob(spec=document, database=None if server else named)
    findings = ConnectionOptions(home, None, server).workplace().carry_out(request).findings
    failed = any(finding.level == "fail" for finding in findings)
    if json:
        print_json({"ok": not failed, "findings": findings})
    else:
        _print(findings)
    return int(failed)


def _spec(typed: SpecArguments) -> Spec | None:
    """The spec that was typed, if one was."""
    given = typed.file or typed.overrides or set(typed.flags) - {PLACE} or _variable("env.id")
    return typed.spec() if given else None


def _variable(path: str) -> str | None:
    values = (os.environ.get(name) for name in table()[path].variables)
    return next((value for value in values if value), None)


def _print(findings: Sequence[MachineFinding]) -> None:
    console, width = out(), max(len(finding.name) for finding in findings)
    for finding in findings:
        console.print(f"{MARKS[finding.level]} {finding.name:<{width}}  {safe(finding.detail)}")
        if finding.level != "ok" and finding.fix:
            console.print(f"  {'':<{width}}  {safe(finding.fix)}", style="dim")
    counts = {level: sum(f.level == level for f in findings) for level in ("warn", "fail")}
    if any(counts.values()):
        console.print(f"\n{counts['fail']} failed, {counts['warn']} to look at")
    else:
        console.print("\nall is well")
