"""`rlctl play`: look at an episode of a policy, in a window or as a film."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rl_orch.cli.arguments import Json
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.live.bar import watching
from rl_orch.cli.output import out, print_json, safe, warn
from rl_orch.cli.policy_arguments import PolicyArgument, source_of
from rl_orch.cli.views.text import counted
from rl_orch.core.policies import evaluation
from rl_orch.core.policies.export import show
from rl_orch.core.registry.references import PolicySource
from rl_orch.errors import BadInput, NotFound
from rl_orch.io.policies import bundles
from rl_orch.io.policies.episode_records import RECORDS, read_records
from rl_orch.stats.text import figure

RECORDED = ("best", "worst")
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
"""Variables one of which says where a window can be shown."""


def command(
    policy: PolicyArgument,
    episode: Annotated[
        str, typer.Option(help="best or worst, as recorded; or a number, which is played anew.")
    ] = "best",
    of: Annotated[
        str | None,
        typer.Option(
            "--of",
            metavar="EVALUATION",
            help="Where it was recorded: a name, or a file of records; final, or else the newest.",
        ),
    ] = None,
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
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """Look at an episode of a policy.

    A recorded episode is a seed and actions: it is driven again, and must come out as it did. The
    final evaluation of a run and every `rlctl eval` record their best and their worst one.

    Examples:

      rlctl play last --episode best --video best.mp4

      rlctl play 12 --episode 3 --seed 7
    """
    source = source_of(policy, lambda: target.connect(reading=True))
    question: dict[str, Any] = {
        "policy": evaluation.named(source),
        "film": None if video is None else str(video.absolute()),
    }
    if episode not in RECORDED:
        question |= {"number": _number(episode), "seed": seed, "deterministic": not sample}
    elif source.kind == "bundle" and of in (None, evaluation.FINAL):
        question |= _reported(source, episode)
    else:
        question["episode"] = _recorded(source, of or _newest(source), episode)
    if video is None:
        _refuse_unseen()
    with watching(quiet=False) as watch:
        answer = show(question, watch)
    if json:
        print_json(answer)
    else:
        _print(answer)
    if not answer["same"]:
        warn(
            f"it was recorded with a return of {figure(answer['recorded_return'])}: this "
            "environment does not repeat itself from seed and actions"
        )


def _refuse_unseen() -> None:
    """Raise if there is no screen to show an episode on."""
    if sys.platform == "linux" and not any(map(os.environ.get, SCREENS)):
        raise BadInput(
            f"there is no screen here: none of {', '.join(SCREENS)} is set",
            hint="Film it: --video episode.mp4",
        )


def _reported(source: PolicySource, episode: str) -> dict[str, Any]:
    """The best or the worst episode of the evaluation that a bundle carries; played anew."""
    report = bundles.read(source.path).report
    choose = max if episode == "best" else min
    number = choose(range(len(report.returns)), key=report.returns.__getitem__)
    return {"number": number, "seed": report.seed, "deterministic": report.deterministic}


def _newest(source: PolicySource) -> str:
    name = evaluation.name_of_newest(source)
    if name is None:
        raise NotFound(
            f"no evaluation in its run has recorded episodes of {source.name}",
            hint=f"`rlctl eval {source.word}` records its best and its worst; or name an episode "
            "by its number: --episode 0.",
        )
    return name


def _recorded(source: PolicySource, of: str, episode: str) -> dict[str, Any]:
    file, recorded = _records(source, of)
    record = read_records(file).get(episode)
    if record is None:
        raise NotFound(
            f"evaluation {of!r} has recorded no {episode} episode; there are records of: "
            f"{', '.join(recorded) or 'none'}",
            hint="`rlctl eval` records some; or name an episode by its number: --episode 0.",
        )
    return record.model_dump()


def _records(source: PolicySource, of: str) -> tuple[Path, list[str]]:
    """The file of records that is meant, and the names of those that the run has."""
    if of.endswith(RECORDS):
        return Path(of), []
    if Path(of).name != of:
        raise BadInput(
            f"--of is {of!r}; must be the name of an evaluation, such as final, or a file whose "
            f"name ends in {RECORDS}"
        )
    directory = evaluation.run_directory(source)
    if directory is None:
        return Path(of + RECORDS), []
    files = (directory.path / "evals").glob(f"*{RECORDS}")
    return directory.records_file(of), sorted(file.name.removesuffix(RECORDS) for file in files)


def _number(episode: str) -> int:
    if not (episode.isascii() and episode.isdigit() and len(episode) <= 9):
        raise BadInput(f"--episode is {episode!r}; must be best, worst, or a number from 0 on")
    return int(episode)


def _print(answer: dict[str, Any]) -> None:
    out().print(
        f"episode {answer['number']} (seed {answer['seed']}): return {figure(answer['return'])} in "
        f"{counted(answer['length'], 'step')}"
    )
    if answer["film"] is not None:
        out().print(f"wrote {safe(answer['film'])}")
