"""Draws the README's pictures from real launches: `python docs/picture.py`, about a minute.

`images/progress.svg` is the live panel half-way through the demo, `images/summary.svg` its end,
`images/compare.svg` a comparison of two groups of seeds.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

import rl_orch
from rl_orch import orchestrator
from rl_orch.cli.live.progress import Panel
from rl_orch.cli.views.run_summary import print_summary
from rl_orch.records import Event, Run

ROOT = Path(__file__).parents[1]
SPEC = "rl_orch/configs/ppo-CartPole-v1.yaml"
COMMAND = f"[bold green]$[/] rlctl launch -f {SPEC}"
WIDTH = 108
GROUPS = {"lr 1e-4": 1e-4, "lr 1e-3": 1e-3}
SHOWN_AT = 12_000
"""Environment steps at which the live panel is drawn."""


def main() -> None:
    """Launch the demo in an empty folder, and keep what it shows."""
    spec = orchestrator.to_spec(ROOT / SPEC)
    progress = _terminal()
    panel = Panel()

    def watch(run: Run, events: Sequence[Event]) -> None:
        panel.watch(run, events)
        if run.env_steps < SHOWN_AT or run.env_steps >= spec.train.total_timesteps:
            return
        if not progress.export_text(clear=False).count("steps/s"):
            progress.print(panel.live.renderable)

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        connected = orchestrator.connect("rlruns")
        result = connected.launch(spec, watch=watch)
        summary = _terminal()
        shown, past = connected.show(result.run.id), connected.history(result.run.id)
        print_summary(summary, shown, past, result.verdict)
        compare(ROOT / "docs" / "images" / "compare.svg")
    _save(progress, "progress")
    _save(summary, "summary")


def compare(picture: Path) -> None:
    """Train two groups in the folder's home, and draw which is better."""
    for name, lr in GROUPS.items():
        options: Any = {"total_timesteps": 20_000, "seeds": 5, "lr": lr, "tuned": False}
        rl_orch.train("CartPole-v1", "ppo", name=name, progress=False, **options)
    command = ["rlctl", "compare", *GROUPS, "--out", str(picture)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _terminal() -> Console:
    """A terminal that remembers what it was shown, with the command already typed."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=WIDTH,
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
        legacy_windows=False,
    )
    console.print(COMMAND)
    return console


def _save(console: Console, name: str) -> None:
    """The terminal as SVG, without the fonts that would be fetched from elsewhere."""
    svg = console.export_svg(title="rlctl", unique_id=f"rlctl-{name}")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    path = ROOT / "docs" / "images" / f"{name}.svg"
    path.parent.mkdir(exist_ok=True)
    path.write_text(svg, "utf-8")
    sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
