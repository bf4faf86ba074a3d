"""`rlctl launch`: one run or a group of them, here in the foreground or queued for a service."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from rl_orch import plugins
from rl_orch.cli.arguments import Detach, Home, Json, Quiet, Server
from rl_orch.cli.connection import Connected, ConnectionOptions, local_orchestrator
from rl_orch.cli.consent import Yes, agreed
from rl_orch.cli.live.finish import OutputOptions, attached, group_in_foreground, run_in_foreground
from rl_orch.cli.live.follow import announce
from rl_orch.cli.spec_flags import SpecArguments
from rl_orch.core.registry.inherited_specs import inherited_here
from rl_orch.records import Submission
from rl_orch.spec.model import Spec

if TYPE_CHECKING:
    from rl_orch.core.ports import Runner


def command(
    typed: SpecArguments,
    detach: Detach = False,
    yes: Yes = False,
    home: Home = None,
    server: Server = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train a policy, evaluate it, gate it and register it.

    With --seeds, a group: a run for each seed, as many at once as the cores allow. It exits with 1
    if any run failed or was lost, else with 4 if any was stopped, 3 if any was rejected, or 0.

    Ctrl-C ends the run after a last checkpoint; a second Ctrl-C ends it at once. A closed pipe, as
    of `rlctl launch ... 2>&1 | head`, ends only the output: the run goes on to its own exit code.

    With --detach it is queued, and this returns: the service that `rlctl up` starts carries it out.
    With --server it is queued there, and followed from here to its end.

    Examples:

      rlctl launch --env CartPole-v1 --total-timesteps 100000

      rlctl launch -f spec.yaml train.lr=1e-3 env.seed=7

      rlctl launch -f spec.yaml --seeds 5

      rlctl launch -f spec.yaml --detach

      rlctl launch --from last --total-timesteps 50000 --start-parts policy+optimizer
    """

    def inherit(word: str) -> Mapping[str, Any]:
        return inherited_here(ConnectionOptions(home, None, server).connect(reading=True), word)

    spec = agreed(typed.spec(inherit), yes=yes)
    database = spec.registry.db_path
    target = ConnectionOptions(home, database, server)
    options = OutputOptions(target.flags, json=json, quiet=quiet)
    if not detach and server is None:
        with _prestarted(spec) as runners:
            here = local_orchestrator(home, database, runners)
            if spec.members:
                return group_in_foreground(here, partial(here.launch_group, spec), options)
            return run_in_foreground(here, partial(here.launch, spec), options)
    line = target.retrying()
    submission = line.ask(lambda connected: _submitted(connected, spec))
    if not detach:
        return attached(line, submission, options)
    return announce(submission, flags=options.flags, json=json, served=line.connected.serves)


def _submitted(connected: Connected, spec: Spec) -> Submission:
    """The spec, queued by one who has agreed to the program that it may run."""
    if connected.serves:
        return connected.submit(spec, consent=True)
    return connected.submit(spec)


@contextmanager
def _prestarted(spec: Spec) -> Iterator[dict[str, "Runner"]]:
    """A runner that has begun to load what a run of ours needs: that takes longer than anything
    else that is to be done before. If there is no such run in the end, nothing is left of it."""
    if not spec.runner.traits.prestarts:
        yield {}
        return

    runner = plugins.load("runners", spec.runner.name)()
    runner.prestart(spec)
    try:
        yield {spec.runner.name: runner}
    finally:
        runner.standbys.close()
