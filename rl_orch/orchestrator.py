"""The Python surface: `from rl_orch import orchestrator`, then `orchestrator.run(cfg)`.

Here the orchestrator meets its runners.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rl_orch import plugins
from rl_orch.core.orchestrator import GroupResult, Orchestrator, RunResult, RunView
from rl_orch.core.ports import Runner
from rl_orch.core.registry.inherited_specs import inherited_here
from rl_orch.core.runs.foreground import RunObserver, no_observer
from rl_orch.errors import BadInput
from rl_orch.io import service_note
from rl_orch.spec import checks
from rl_orch.spec.model import Spec
from rl_orch.spec.reader import read_spec
from rl_orch.spec.tuned import resolve_tuned

__all__ = [
    "GroupResult",
    "Orchestrator",
    "RunObserver",
    "RunResult",
    "RunView",
    "connect",
    "resume",
    "resume_group",
    "run",
    "run_group",
    "to_spec",
]

LOG = logging.getLogger(__name__)

Config = Spec | Mapping[str, Any] | str | Path
"""A resolved spec, a document like the YAML, or the path of a spec file."""


def connect(
    home: str | Path | None = None,
    *,
    database: str | Path | None = None,
    runner: str | None = None,
    resident: bool = False,
    confined: bool = False,
    spares: int = 1,
    runners: Mapping[str, Runner] | None = None,
) -> Orchestrator:
    """The orchestrator of a home: RLCTL_HOME, or `./rlruns`, unless another is named.

    Its database is the one that is named, or that of the service which the home had last. Each run
    is executed by the runner that its spec names, one of `runners` or a new one, or all of them by
    `runner`. A resident one keeps that many processes ready to become runs of ours; a confined one
    lets nobody name a path outside of the home.
    """
    folder = Path(home or os.environ.get("RLCTL_HOME") or "rlruns").absolute()
    made: dict[str, Runner] = {**(runners or {})}

    def runner_of(name: str) -> Runner:
        chosen = runner or name
        if chosen not in made:
            made[chosen] = plugins.load("runners", chosen)()
        return made[chosen]

    if resident and spares:
        made["local"] = plugins.load("runners", "local")(standbys=spares)
    found = service_note.database_of(folder, database)
    return Orchestrator(folder, runner_of, database=found, resident=resident, confined=confined)


def run(
    cfg: Config,
    *,
    overrides: str | Sequence[str] = (),
    home: str | Path | None = None,
    in_process: bool = False,
    watch: RunObserver | None = None,
) -> RunResult:
    """Train, evaluate, gate and register what `cfg` asks for, and return what became of it.

    `in_process` runs the worker inside this process, so that a debugger can stop in it.
    """
    spec = to_spec(cfg, overrides, home=home)
    if spec.seeds is not None:
        raise BadInput(
            "seeds asks for a group; run takes one run",
            path="seeds",
            hint="Use run_group, or set env.seed.",
        )
    runner = "inline" if in_process else None
    connected = connect(home, database=spec.registry.db_path, runner=runner)
    return connected.launch(spec, watch=watch or no_observer)


def run_group(
    cfg: Config,
    *,
    overrides: str | Sequence[str] = (),
    home: str | Path | None = None,
    watch: RunObserver | None = None,
) -> GroupResult:
    """Run once for each of the configuration's `seeds`, as `run` does; side by side where cores
    allow."""
    spec = to_spec(cfg, overrides, home=home)
    if spec.seeds is None:
        raise BadInput("run_group needs seeds", path="seeds", hint="seeds: 5, or seeds: [1, 2, 3]")
    connected = connect(home, database=spec.registry.db_path)
    return connected.launch_group(spec, watch=watch or no_observer)


def resume(
    run_id: str,
    *,
    overrides: str | Sequence[str] = (),
    approximate: bool = False,
    home: str | Path | None = None,
    database: str | Path | None = None,
    in_process: bool = False,
    watch: RunObserver | None = None,
) -> RunResult:
    """Go on with a stopped, failed or lost run; from its newest intact checkpoint, to its end.

    `overrides` may change what a resumed run can change, such as `train.total_timesteps=2e6`: with
    a larger budget, a run that has succeeded or was rejected is trained further; where that is not
    exact, only if it may be `approximate`.
    """
    connected = connect(home, database=database, runner="inline" if in_process else None)
    if connected.group(run_id) is not None:
        raise BadInput(f"{run_id!r} is a group; resume takes one run", hint="Use resume_group.")
    how: Any = {"overrides": _listed(overrides), "approximate": approximate}
    return connected.resume(run_id, **how, watch=watch or no_observer)


def resume_group(
    group_id: str,
    *,
    overrides: str | Sequence[str] = (),
    approximate: bool = False,
    home: str | Path | None = None,
    database: str | Path | None = None,
    watch: RunObserver | None = None,
) -> GroupResult:
    """Resume every run of a group that has not come to a final end; as `resume` does."""
    connected = connect(home, database=database)
    how: Any = {"overrides": _listed(overrides), "approximate": approximate}
    return connected.resume_group(group_id, **how, watch=watch or no_observer)


def to_spec(
    cfg: Config, overrides: str | Sequence[str] = (), *, home: str | Path | None = None
) -> Spec:
    """The Spec that a configuration means. Environment variables are left to the command line.

    One with `start.from` and no environment takes over the spec of that run, found in the home.
    What the command line would say of it, such as options that are not read or tuned ones that are
    taken, is logged as warnings; of a Spec nothing is.
    """
    if isinstance(cfg, Spec):
        document: Mapping[str, Any] = cfg.model_dump(mode="json")
        document["registry"]["db_path"] = cfg.registry.db_path  # No dump has an address.
    elif isinstance(cfg, Mapping):
        document = cfg
    else:
        document = read_spec(Path(cfg))

    def inherit(word: str) -> Mapping[str, Any]:
        return inherited_here(connect(home), word)

    if isinstance(cfg, Spec):
        return resolve_tuned(document, inherit=inherit, overrides=_listed(overrides))
    say = partial(LOG.warning, "%s")
    spec = resolve_tuned(document, say=say, inherit=inherit, overrides=_listed(overrides))
    for warning in checks.unread(spec):
        say(str(warning))
    return spec


def _listed(overrides: str | Sequence[str]) -> Sequence[str]:
    return [overrides] if isinstance(overrides, str) else overrides
