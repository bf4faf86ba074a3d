"""`rlctl set`: change options of a run while it goes on."""

from rl_orch.cli.arguments import Json
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.live.commands import Reply, tell
from rl_orch.cli.spec_flags import ChangedOptions
from rl_orch.cli.views.subjects import SubjectArgument
from rl_orch.cli.views.text import changes_text
from rl_orch.errors import BadInput


def command(
    run: SubjectArgument, typed: ChangedOptions, *, target: ConnectionOptions, json: Json = False
) -> None:
    """Change options of a run while it goes on.

    They count from its next iteration on. What is told here is on the disk: a run that is killed
    and resumed takes the same values at the same step. `rlctl options` marks the options that may
    change as live. Of a group, every run that is at work is told.

    Examples:

      rlctl set last train.lr=1e-4 train.ent_coef=0.01

      rlctl set last --lr 2e-4

      rlctl set cartpole-k3m9xq train.total_timesteps=2e6 gates.min_return=475
    """
    if not typed.overrides:
        raise BadInput("set changes nothing without options", hint="For example: lr=1e-4")
    tell(target, run, ("set", {"overrides": typed.overrides}), json=json, text=_said)


def _said(reply: Reply) -> str:
    if not reply["set"]:
        return "nothing changes"
    at = "the next iteration" if reply["step"] is None else f"step {reply['step']:,}"
    return f"{changes_text(reply['set'])}, from {at} on"
