"""`rlctl registry import`: take in a policy that was trained elsewhere."""

from pathlib import Path
from typing import Annotated

import typer

from rl_orch.cli.arguments import Json, Quiet
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.live.bar import watching
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.views.text import short
from rl_orch.io.run.directory import RunDir
from rl_orch.records import ModelVersion
from rl_orch.records.jobs import ImportPolicyJob


def command(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="An SB3 .zip, a .cleanrl_model, a state dict (.pt, .pth, .safetensors), or a "
            "bundle's folder.",
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[GROUP.OPTION=VALUE]...",
            help="What the file does not say, such as agent.network.activation=relu.",
        ),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option("--env", metavar="ENV", help="The environment that it has learned."),
    ] = None,
    algo: Annotated[
        str | None, typer.Option("--algo", help="The algorithm, where the file does not tell.")
    ] = None,
    normalizer: Annotated[
        Path | None,
        typer.Option(help="An .npz with mean and var of observations, such as VecNormalize's."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    *,
    target: ConnectionOptions,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take in a policy of Stable-Baselines3, CleanRL, torch or another home.

    Only weights are read, by a process with bounds of memory and time and no network; a pickle
    is never loaded, and one that wants more than tensors is refused by name. Every shape is held
    against the environment. Nothing is played: what the file's makers measured is not believed.

    A file may have 1 GiB and a bundle 4 GiB, of which the disk must have room for four times as
    much with 64 MiB to spare. An import that does not come to its end leaves nothing.

    Examples:

      rlctl registry import ppo_cartpole.zip --env CartPole-v1

      rlctl registry import dqn.cleanrl_model --env CartPole-v1

      rlctl registry import ppo.zip --env HalfCheetah-v5 --normalizer stats.npz

      rlctl registry import mlp.safetensors --env CartPole-v1 --algo dqn

      rlctl registry import ./cartpole.bundle
    """
    algorithm = None if algo is None else algo.lower().replace("-", "")
    request = ImportPolicyJob(
        file=str(path),
        env=env,
        algorithm=algorithm,
        name=name,
        normalizer=None if normalizer is None else str(normalizer),
        overrides=tuple(overrides or ()),
    )
    with watching(quiet=quiet) as watch:
        model = target.workplace().carry_out(request, watch)
    if json:
        print_json(model)
    else:
        _print(model, target)


def _print(model: ModelVersion, target: ConnectionOptions) -> None:
    console = out()
    console.print(
        f"model [bold]{model.id}[/]: {safe(model.algorithm)} on {safe(model.env_id)}, "
        f"from {safe(str(model.lineage['file']))}"
    )
    path = Path(model.model_path)
    if target.server is None:  # Elsewhere, that file is not here.
        for note in RunDir(path.parents[1]).manifest()["imported"]["notes"]:
            console.print(safe(f"  {note}"), style="dim", soft_wrap=True)
    console.print(f"  in {safe(short(str(path)))}", style="dim", soft_wrap=True)
    for step in (f"rlctl eval {model.id}", f"rlctl registry validate {model.id} --min-return …"):
        console.print(safe(f"  next: {step}{target.flags}"), style="dim", soft_wrap=True)
