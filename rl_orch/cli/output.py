"""How commands speak: one JSON document on standard output, or text for people.

Progress and errors go to standard error. What came from files or users is shown without escapes.
"""

import json
import os
import re
from typing import Any

from rich.console import Console
from rich.markup import escape

from rl_orch.errors import RlctlError, SpecInvalid

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])?")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def out() -> Console:
    """Where results for people go."""
    return Console(highlight=False, soft_wrap=not os.isatty(1))


def err() -> Console:
    """Where progress and errors go."""
    return Console(stderr=True, highlight=False)


def live() -> bool:
    """Whether a person is watching standard error, so that it may be redrawn."""
    return err().is_terminal and not os.environ.get("CI")


def print_json(document: Any) -> None:
    """Print the one document of a `--json` command."""
    print(json.dumps(document, ensure_ascii=False))


def clean(text: str) -> str:
    """Text without terminal escapes or control characters, for showing what others wrote."""
    return CONTROLS.sub("", ESCAPES.sub("", text))


def safe(text: object) -> str:
    """Text that neither the terminal nor rich takes for anything but text."""
    return escape(clean(str(text)))


def report_error(error: RlctlError, *, as_json: bool) -> int:
    """Show an error where its reader looks for it, and return its exit code."""
    if as_json:
        print_json(error.document())
        return error.exit_code
    console = err()
    if isinstance(error, SpecInvalid):
        for problem in error.problems[:3]:
            console.print(f"[red]error:[/red] {safe(problem.message)}", soft_wrap=True)
            if problem.hint:
                console.print(f"  {safe(problem.hint)}", soft_wrap=True, style="dim")
        if len(error.problems) > 3:
            console.print(f"  and {len(error.problems) - 3} more", style="dim")
    else:
        console.print(f"[red]error:[/red] {safe(error.message)}", soft_wrap=True)
        if error.hint:
            console.print(f"  {safe(error.hint)}", soft_wrap=True, style="dim")
    return error.exit_code
