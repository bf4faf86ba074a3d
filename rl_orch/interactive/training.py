"""`rl_orch.train`: a policy for an environment, in one call.

Options go by any name that the spec knows for them; what they mean is in the option table.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from rl_orch.errors import BadInput, Problem, SpecInvalid
from rl_orch.interactive import progress as showing
from rl_orch.interactive.results import TrainingResult, result_of
from rl_orch.orchestrator import connect, to_spec
from rl_orch.spec.options import is_group, path_of, short_names, table

NamedCallback: TypeAlias = str | type | Mapping[str, Any] | tuple[str | type, Mapping[str, Any]]
"""A callback: its name or class; with arguments, in a map with `name`, or a pair."""


def train(
    env: str,
    algo: str | None = None,
    *,
    callbacks: NamedCallback | Sequence[NamedCallback] = (),
    home: str | Path | None = None,
    raise_on_failure: bool = True,
    progress: bool | None = None,
    in_process: bool = False,
    **options: Any,
) -> TrainingResult:
    """Train, evaluate and register a policy, and return when the run has ended.

    `options` are those of a spec: `total_timesteps=50_000, lr=3e-4, seeds=3, gamma=0.98`, by any of
    their names, Stable-Baselines3's among them; whole paths as `**{"eval.episodes": 20}`, groups as
    `obs={"normalize": "running"}`. `seeds` makes it a group of runs. `callbacks` are names of
    plugins, `module:Class`, or classes of a module that the process of a run can import; or pairs
    of one of these and its arguments, `("my_callbacks:Mine", {"threshold": 5})`. A single one needs
    no list.

    A run that fails raises `RunFailed` unless `raise_on_failure` is false; one that its gate
    rejects, or that is stopped, does not: `result.state` says so. `progress` is shown in notebooks
    and terminals unless it is false. What the command line warns of is logged as warnings, which
    Python shows by default. `in_process` trains here, where a debugger can stop, and where classes
    of the notebook or script itself are found.
    """
    document = _document(env, algo, options)
    if callbacks:
        entries = [_entry_of(each, in_process=in_process) for each in _listed(callbacks)]
        document["train.observers"] = entries
    spec = to_spec(document, home=home)
    here = connect(home, database=spec.registry.db_path, runner="inline" if in_process else None)
    watch = showing.observer(progress)
    if spec.seeds is None:
        runs = [here.launch(spec, watch=watch).run]
    else:
        runs = [each.run for each in here.launch_group(spec, watch=watch).results]
    result = result_of(here, runs)
    if raise_on_failure:
        result.raise_if_failed()
    return result


def _document(env: Any, algo: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(env, str):
        raise BadInput(
            f"env is {env!r:.100}; must be the id of an environment, which the run makes itself",
            path="env.id",
            hint="An id such as 'CartPole-v1', or 'my_module:MyEnv-v0' for one of your own.",
        )
    given: dict[str, Any] = {"env.id": env} | ({} if algo is None else {"agent.algorithm": algo})
    unknown = [name for name in options if not _is_known(name)]
    if unknown:
        raise SpecInvalid([_unknown(name, options[name]) for name in unknown])
    return given | dict(options)


def _is_known(name: str) -> bool:
    path = path_of(name)
    return path in table() or is_group(path)


def _unknown(name: str, value: Any) -> Problem:
    known = {**short_names(), **dict.fromkeys(table(), "")}
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]}?" if near else "`rlctl options` lists all of them."
    return Problem(name, value, f"{name} is unknown: no option goes by that name", hint)


def _listed(callbacks: Any) -> Sequence[Any]:
    """Callbacks as a list, of which a single one is given without."""
    match callbacks:
        case (_, Mapping() as arguments) if "name" not in arguments:
            return [callbacks]
        case [*several]:
            return several
    return [callbacks]


def _entry_of(callback: Any, *, in_process: bool) -> Any:
    """A callback as a spec names it, with its arguments where there are some."""
    match callback:
        case (named, Mapping() as arguments):
            return {**arguments, "name": _name_of(named, in_process=in_process)}
        case {"name": named}:
            return {**callback, "name": _name_of(named, in_process=in_process)}
    return _name_of(callback, in_process=in_process)


def _name_of(callback: Any, *, in_process: bool) -> str:
    """The name of a callback in a spec; a class goes by its module, which a run can import."""
    if isinstance(callback, str):
        return callback
    if not isinstance(callback, type):
        raise BadInput(
            f"callback {callback!r:.100} is neither a name nor a class; a run makes its own object",
            path="train.observers",
            hint="Give the class, and arguments beside it: callbacks=[(Mine, {'threshold': 5})].",
        )
    if "." in callback.__qualname__:
        raise _unfound(callback, "is defined inside of a function or class")
    if callback.__module__ == "__main__" and not in_process:
        raise _unfound(callback, "is of this notebook or script, which a run does not import")
    return f"{callback.__module__}:{callback.__qualname__}"


def _unfound(callback: type, why: str) -> BadInput:
    return BadInput(
        f"callback {callback!r:.100} {why}",
        path="train.observers",
        hint="Put the class into a file, and name it: callbacks=['my_callbacks:Mine'].",
    )
