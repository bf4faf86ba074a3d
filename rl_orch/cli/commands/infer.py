"""`rlctl infer`: actions for observations, one or a file of them."""

import json as notation
from pathlib import Path
from typing import Annotated, Any

import typer

from rl_orch.cli.arguments import Json, Quiet
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.live.bar import watching
from rl_orch.cli.output import note, print_json
from rl_orch.cli.policy_arguments import MeantEnv, OptionalPolicy, UsingOption, only_one
from rl_orch.cli.views.text import counted
from rl_orch.errors import BadInput
from rl_orch.records.jobs import InferJob
from rl_orch.records.tasks import InferAnswer
from rl_orch.spec.groups import BEST


def command(
    policy: OptionalPolicy = None,
    load_best: Annotated[
        bool,
        typer.Option(
            "--load-best", help="The best validated model, for POLICY; of --env, if given."
        ),
    ] = False,
    env: MeantEnv = None,
    input: Annotated[
        Path | None, typer.Option("--input", help="Observations: .npy, .npz, .parquet or .jsonl.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Where actions go, in any of these kinds.")
    ] = None,
    observation: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="One observation, in place of a file."),
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic/--sample", help="The best action, or a drawn one.")
    ] = True,
    seed: Annotated[int, typer.Option(help="What drawn actions follow from.", min=0)] = 0,
    using: UsingOption = "torch",
    *,
    target: ConnectionOptions,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ask a policy for actions, without an environment.

    A file has the column `observation`, or one for each part of a Dict; `mask` where actions are
    masked. Policies that remember take rows as the steps of one episode, and a column `first` says
    where others begin. Without --output, actions are printed, one a line.

    Examples:

      rlctl infer last --observation '[0.0, 0.1, 0.0, -0.1]'

      rlctl infer --load-best --input observations.parquet --output actions.parquet
    """
    if (input is None) == (observation is None):
        raise BadInput("give either --input FILE or --observation JSON")
    if observation is not None and output is not None:
        raise BadInput("--output goes with --input; one observation is answered right here")
    best = BEST if env is None else f"{BEST}@{env}"
    word = only_one({"POLICY": policy, "--load-best": best if load_best else None})
    request = InferJob(
        policy=word,
        env=env,
        input=None if input is None else str(input),
        out=None if output is None else str(output),
        observation=_parsed(observation),
        sample=not deterministic,
        seed=seed,
        using=using,
    )
    with watching(quiet=quiet) as watch:
        answer = target.workplace().carry_out(request, watch)
    if json:
        print_json(answer.model_dump(mode="json", exclude_none=True))
    else:
        _print(answer)


def _print(answer: InferAnswer) -> None:
    if answer.path is not None:
        note(f"wrote the actions of {counted(answer.rows, 'observation')} to {answer.path}")
        return
    for action in [answer.action] if answer.actions is None else answer.actions:
        print(notation.dumps(action))


def _parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return notation.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"--observation is {text!r:.80}, which is not JSON: {error}",
            hint="Write numbers in brackets: '[0.0, 0.1]'.",
        ) from None
