"""`rlctl resume`: go on with a run, or a group of them, that has not come to a final end."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer

from rl_orch.cli.arguments import Detach, Json, Quiet
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.live.finish import OutputOptions, attached, group_in_foreground, run_in_foreground
from rl_orch.cli.live.follow import announce
from rl_orch.cli.spec_flags import ChangedOptions
from rl_orch.cli.views.subjects import SubjectArgument, find_only
from rl_orch.cli.views.text import counted
from rl_orch.core.runs.state import resumable_states
from rl_orch.errors import BadInput
from rl_orch.records import Run
from rl_orch.spec.aliases import PRODUCT
from rl_orch.spec.spelling import whole

Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="GROUP.OPTION=VALUE", help="The same as without --set."),
]
Extend = Annotated[
    str | None,
    typer.Option(
        "--extend",
        metavar="STEPS",
        help="A larger budget in all; a run that has succeeded or was rejected goes on, too.",
    ),
]
Approximate = Annotated[
    bool,
    typer.Option(
        "--approximate", help="Extend it even if that is not what a larger budget would have done."
    ),
]


def command(
    run: SubjectArgument,
    typed: ChangedOptions,
    changes: Changes = None,
    extend: Extend = None,
    approximate: Approximate = False,
    detach: Detach = False,
    *,
    target: ConnectionOptions,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Go on with a stopped, failed or lost run.

    It begins at its newest intact checkpoint. What follows is bit for bit what the run would have
    done without the interruption, where its environment allows that: `rlctl show` says so. A run
    whose `launch` was killed while it trains on is taken over as it is. A group is resumed run by
    run. Where a service is up, the run is queued there and followed to its end; else it goes on
    here in the foreground. With --detach it is queued, and this returns.

    Options are given as for `launch`, as overrides or by flag. They may change: name,
    train.total_timesteps, eval, gates, checkpoint, resources. Any other is refused.

    With --extend, a run that has succeeded or was rejected is trained further, bit for bit as if
    its budget had been larger from the start. Where something follows the share of the budget that
    is used, such as a schedule, or its replay buffer was let go of, this says so, and
    --approximate goes on all the same. `rlctl launch --from` begins a run of its own instead.

    Examples:

      rlctl resume last

      rlctl resume cartpole-k3m9xq checkpoint.every=5e4 --min-return 475

      rlctl resume solved --extend 2e6
    """
    overrides = [
        *typed.overrides,
        *(changes or ()),
        *([] if extend is None else [f"{PRODUCT}={extend}"]),
    ]
    how: Any = {"overrides": overrides, "approximate": approximate}
    line = target.retrying()
    options = OutputOptions(target.flags, json=json, quiet=quiet)
    states = resumable_states(overrides)
    meant = line.ask(lambda known: find_only(known, run, states=states, ask=not json))
    if extend is not None:
        _refuse_no_more(meant.runs, extend)
    if not line.connected.serves and not detach:
        here = line.connected
        if meant.group is None:
            resume = partial(here.resume, meant.id, **how)
            return run_in_foreground(here, resume, options)
        resume_group = partial(here.resume_group, meant.id, **how)
        return group_in_foreground(here, resume_group, options)
    submission = line.ask(lambda connected: connected.requeue(meant.id, **how))
    if detach:
        return announce(submission, flags=options.flags, json=json, served=line.connected.serves)
    return attached(line, submission, options)


def _refuse_no_more(runs: Sequence[Run], extend: str) -> None:
    """Raise if what is asked for is no larger budget: some mean so many steps more by it."""
    steps, budget = whole(extend), max(run.total_timesteps for run in runs)
    if not isinstance(steps, int) or steps > budget:
        return
    hint = f"For {counted(steps, 'step')} more: --extend {budget + steps}"
    if steps > max(run.env_steps for run in runs):
        hint += f"; for a smaller budget: {PRODUCT}={steps}"
    raise BadInput(
        f"--extend is {steps:,}, which is the whole budget from then on; it is {budget:,} already",
        path=PRODUCT,
        hint=hint,
    )
