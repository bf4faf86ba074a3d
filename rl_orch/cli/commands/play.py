"""`rlctl play`: look at an episode of a policy, in a window or as a film."""

from pathlib import Path
from typing import Annotated

import typer

from rl_orch.cli.arguments import Json
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.live.bar import watching
from rl_orch.cli.output import out, print_json, safe, warn
from rl_orch.cli.policy_arguments import PolicyArgument
from rl_orch.cli.views.text import counted
from rl_orch.io.policies.episode_records import RECORDS
from rl_orch.records.jobs import FilmJob
from rl_orch.records.tasks import FilmAnswer
from rl_orch.stats.text import figure


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
    records = None if of is None or not of.endswith(RECORDS) else of
    request = FilmJob(
        policy=policy,
        episode=episode,
        of=None if records else of,
        records=records,
        seed=seed,
        sample=sample,
        out=None if video is None else str(video),
    )
    with watching(quiet=False) as watch:
        answer = target.workplace().carry_out(request, watch)
    if json:
        shown = answer.model_dump(mode="json")
        print_json({"return" if name == "ret" else name: each for name, each in shown.items()})
    else:
        _print(answer)
    if not answer.same:
        warn(
            f"it was recorded with a return of {figure(answer.recorded_return)}: this "
            "environment does not repeat itself from seed and actions"
        )


def _print(answer: FilmAnswer) -> None:
    out().print(
        f"episode {answer.number} (seed {answer.seed}): return {figure(answer.ret)} in "
        f"{counted(answer.length, 'step')}"
    )
    if answer.film is not None:
        out().print(f"wrote {safe(answer.film)}")
