"""`rlctl play`: look at an episode of a policy, in a window or as a film."""

import json as json_format
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rl_orch.cli.arguments import Database, Home, Json, Server
from rl_orch.cli.connection import connect
from rl_orch.cli.eval import PolicyArgument, source_of
from rl_orch.cli.output import out, print_json, safe, warn
from rl_orch.cli.words import figure
from rl_orch.core import evaluation
from rl_orch.errors import BadInput, NotFound, RlctlError
from rl_orch.io import asking
from rl_orch.io.episode_tables import read_records
from rl_orch.io.rundir import RunDir

TIMEOUT_S = 3600.0
RECORDED = ("best", "worst")


def command(
    policy: PolicyArgument,
    episode: Annotated[
        str, typer.Option(help="best or worst, as recorded; or a number, which is played anew.")
    ] = "best",
    of: Annotated[
        str, typer.Option("--of", metavar="EVALUATION", help="The evaluation it was recorded in.")
    ] = "final",
    video: Annotated[
        Path | None,
        typer.Option("--video", metavar="FILE.mp4", help="Film it; without, a window opens."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="With a number: of the episodes.")
    ] = 0,
    sample: Annotated[
        bool, typer.Option("--sample/--deterministic", help="With a number: sample actions.")
    ] = False,
    home: Home = None,
    database: Database = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Look at an episode of a policy.

    A recorded episode is a seed and actions: it is driven again, and must come out as it did. The
    final evaluation of a run and every `rlctl eval` record their best and their worst one.

    Examples:

      rlctl play last --episode best --video best.mp4

      rlctl play 12 --episode 3 --seed 7
    """
    source = source_of(connect(home, database, server), policy, None)
    named = evaluation.named(source)
    question: dict[str, Any] = {
        "directory": named["directory"],
        "film": None if video is None else str(video.absolute()),
    }
    if episode in RECORDED:
        question["episode"] = _recorded(RunDir(Path(named["directory"])), of, episode)
    else:
        played = {"seed": seed, "number": _number(episode), "deterministic": not sample}
        question |= {"checkpoint": named["checkpoint"]} | played
    found = _ask(question)
    if json:
        print_json(found)
    else:
        _print(found)
    if not found["same"]:
        warn(
            f"it was recorded with a return of {figure(found['recorded_return'])}: this "
            "environment does not repeat itself from seed and actions"
        )


def _recorded(directory: RunDir, of: str, episode: str) -> dict[str, Any]:
    if Path(of).name != of:
        raise BadInput(f"--of is {of!r}; must be the name of an evaluation, such as final")
    found = read_records(directory.records_file(of)).get(episode)
    if found is None:
        known = sorted(file.name.removesuffix(".episodes.json") for file in _records(directory))
        raise NotFound(
            f"evaluation {of!r} has recorded no {episode} episode; there are records of: "
            f"{', '.join(known) or 'none'}",
            hint="`rlctl eval` records some; or name an episode by its number: --episode 0.",
        )
    return found.model_dump()


def _records(directory: RunDir) -> list[Path]:
    return [*(directory.path / "evals").glob("*.episodes.json")]


def _number(episode: str) -> int:
    if not (episode.isascii() and episode.isdigit() and len(episode) <= 9):
        raise BadInput(f"--episode is {episode!r}; must be best, worst, or a number from 0 on")
    return int(episode)


def _ask(question: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "rl_orch.worker.play"]
    try:
        reply = asking.ask(command, json_format.dumps(question), timeout_s=TIMEOUT_S)
        found = asking.answer_in(reply)
    except subprocess.TimeoutExpired:
        raise RlctlError(f"the episode took longer than {TIMEOUT_S:.0f} s") from None
    except (IndexError, ValueError):
        last = (reply.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise RlctlError(
            f"the episode was not shown: its process ended with exit code {reply.returncode}: "
            f"{last}",
            hint="Without a display, film it: --video episode.mp4.",
        ) from None
    if "error" in found:
        kind = BadInput if found.get("bad_input") else RlctlError
        told = found["error"]
        raise kind(told["message"], path=told.get("path"), hint=told.get("hint"))
    return found


def _print(found: dict[str, Any]) -> None:
    out().print(
        f"episode {found['number']} (seed {found['seed']}): return {figure(found['return'])} in "
        f"{found['length']} steps"
    )
    if found["film"] is not None:
        out().print(f"wrote {safe(found['film'])}")
