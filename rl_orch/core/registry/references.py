"""References to a policy, as users write them: a model's id, an alias, `best@ENV`, a run, or a
path. Resolved alike by every command, here and through a service.
"""

import difflib
import json
import math
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from rl_orch.errors import Ambiguous, BadInput, Conflict, NotFound, RlctlError
from rl_orch.io.checkpoints import catalog, external
from rl_orch.io.files import sealed
from rl_orch.io.files.sealed import MANIFEST
from rl_orch.io.policies import artefacts, bundles
from rl_orch.io.run.directory import MODEL, RunDir
from rl_orch.records import Alias, Group, ModelVersion, Run
from rl_orch.records.queries import ModelQuery
from rl_orch.spec.difference import TASK, task_in
from rl_orch.spec.groups import ALIAS_FORM, ALIAS_NAME, BEST, RESERVED

Kind = Literal["artefact", "checkpoint", "bundle", "deposit"]
MODEL_FORMS = "a model's id, an alias, best, best@ENV or a run"
MOST_RANKED = 1000
"""So many validated models of an environment, the best ones, are looked at for their tasks."""

FILES = (catalog.TENSORS, MODEL)
"""Either is in a folder that holds a policy."""

SAVED_BY = {
    ".zip": "Stable-Baselines3",
    ".cleanrl_model": "CleanRL",
    ".pt": "torch",
    ".pth": "torch",
    ".safetensors": "safetensors",
}
"""Endings of files that can be imported → whose they are."""

NAMED = 5
"""How many models of different tasks an error names."""

FORMS = f"{MODEL_FORMS}; or the path of a checkpoint or bundle"


@dataclass(frozen=True, slots=True)
class PolicySource:
    """Location and form of a policy, and its model and run, if any."""

    path: Path
    kind: Kind
    model: ModelVersion | None = None
    run: Run | None = None

    @property
    def name(self) -> str:
        """Name of the policy in a sentence."""
        return f"{self.kind} {self.path.name}" if self.model is None else f"model {self.model.id}"

    @property
    def module_path(self) -> list[str]:
        """The folders that its run's modules are searched for in. Files that are named by their
        path may be anybody's, and say nothing about that."""
        of_run = self.model is not None or self.run is not None
        return RunDir(self.path.parents[1]).module_path() if of_run else []

    @property
    def word(self) -> str:
        """Name of the policy in a command, as a shell reads it."""
        return shlex.quote(str(self.path)) if self.model is None else str(self.model.id)


Again = Callable[[str, str], str]
"""The same command for another policy and environment."""


class KnowsModels(Protocol):
    """Lookup of models: the registry's verbs, here or over HTTP."""

    def get(self, reference: int) -> ModelVersion:
        """The model of that id."""

    def list(self, query: ModelQuery) -> Sequence[ModelVersion]:
        """The models that a query asks for."""

    def aliases(self, *, env: str | None = None, alias: str | None = None) -> Sequence[Alias]:
        """The aliases that match."""

    def environments(self) -> Sequence[str]:
        """The environments that have a validated model, by name."""


class KnowsRuns(Protocol):
    """Lookup of runs: the verbs of runs, here or over HTTP."""

    def get(self, reference: str) -> Run:
        """The run that is meant."""

    def only(self, reference: str) -> Run:
        """The run that is meant, if its name is no other's."""

    def group(self, reference: str) -> Group | None:
        """The group that is meant, if one is."""


def source(models: KnowsModels, runs: KnowsRuns, word: str) -> PolicySource:
    """Source of the policy that a word means; its files must be on this machine."""
    if _is_there(word):
        path = _at(word)
        return PolicySource(path, kind_of(path))
    try:
        chosen = model(models, runs, word)
    except NotFound as error:
        if (best := _best_so_far(runs, word)) is not None:
            return best
        # Only whoever may look at the files of this machine asks here, and learns what is there.
        raise _nothing_there(word) if os.sep in word else error from None
    path = Path(chosen.model_path)
    kind = kind_of(path)
    registered_digest(chosen)
    return PolicySource(path, kind, chosen, run_of(runs, chosen))


def _best_so_far(runs: KnowsRuns, word: str) -> PolicySource | None:
    """The best evaluated checkpoint of a run that is at work, and has no model until it ends."""
    try:
        run = runs.get(word)
    except NotFound:
        return None
    directory = RunDir.of(run)
    if not run.active or not word or not directory.checkpoints.is_dir():
        return None
    means: dict[str, float] = {}
    for name in catalog.all_names(directory.checkpoints):
        with suppress(RlctlError):  # A report that is damaged says nothing.
            if (report := directory.read_report(name)) is not None:
                means[name] = report.summary.mean
    if not means:
        return None
    best = max(means, key=lambda name: (means[name], name))
    return PolicySource(directory.checkpoints / best, "checkpoint", run=run)


def registered_digest(model: ModelVersion) -> str:
    """The digest of a model's files, which are those that were registered: a `Conflict` if they
    are others, a `NotFound` if they are gone, `Damaged` if none can be read."""
    path = Path(model.model_path)
    digest = sealed.manifest_digest(path)
    if digest is None and os.path.lexists(path / MANIFEST):
        sealed.listed(path, noun="model")
    if digest is None:
        raise NotFound(f"the files of model {model.id} are gone: {model.model_path!r}")
    if model.digest not in (None, digest):
        raise Conflict(
            f"model {model.id} has other files than were registered: {model.model_path!r}",
            path=model.model_path,
            hint="`rlctl registry verify` says more; put its files back from a copy.",
        )
    return digest


def model(
    models: KnowsModels, runs: KnowsRuns, word: str, *, only_run: bool = False
) -> ModelVersion:
    """The model that a word means; of a run's name the newest, or with `only_run` the only one."""
    if not word.strip():
        raise NotFound(f"no policy {word!r}; must be {FORMS}")
    if _is_there(word):
        raise NotFound(
            f"{word!r} is a path, and a model of the registry is meant: {MODEL_FORMS}",
            hint="`rlctl registry list` lists them.",
        )
    if word.isascii() and word.isdigit():
        if len(word) > 9:
            raise NotFound(f"no model {word}", hint="`rlctl registry list` lists them.")
        return models.get(int(word))
    name, at, env = word.partition("@")
    if name == BEST:
        return best(models, env or None)
    if at:
        return models.get(only(models.aliases(env=env, alias=name), word).model_id)
    if ALIAS_NAME.fullmatch(word):
        named = models.aliases(alias=word)
        if named:
            return models.get(only(named, word).model_id)
    return of_run(models, runs, word, only_run=only_run)


def names_model(models: KnowsModels, word: str) -> bool:
    """Whether a word means a policy without a run to lead to it: an id, an alias, the best, or a
    path."""
    if word.isdigit() or "@" in word or word == BEST:
        return True
    if _is_there(word) or (Path(word) / MANIFEST).is_file():
        return True
    return bool(ALIAS_NAME.fullmatch(word) and models.aliases(alias=word))


def refuse_alias_as_name(models: KnowsModels, name: str | None) -> None:
    """Raise if the name of a new run is an alias: where a policy is asked for, that would be meant
    by it, and the run everywhere else."""
    if name is None or not ALIAS_NAME.fullmatch(name):
        return
    if held := models.aliases(alias=name):
        raise BadInput(
            f"name is {name!r}, which is the alias of model {held[0].model_id}",
            path="name",
            hint=f"Take another name, such as {name}-run.",
        )


def best(models: KnowsModels, env: str | None) -> ModelVersion:
    """The validated model of an environment with the highest mean reward.

    Without an environment, it is that of the only one that has any. Raises where validated models
    of it play different tasks, whose returns do not compare.
    """
    if env is not None:
        leading = best_of_tasks(models, env)
        if len(leading) > 1:
            raise _unlike_tasks(env, leading)
        if leading:
            return leading[0]
    environments = models.environments()
    if env is None and len(environments) == 1:
        return best(models, environments[0])
    if env is None and environments:
        raise BadInput(
            f"there are validated models of {', '.join(environments)}; returns of different "
            "environments cannot be compared",
            hint=f"Say which is meant: --env {environments[0]}, or {BEST}@{environments[0]}.",
        )
    of_it = "" if env is None else f" of {env}"
    others = f"some of: {', '.join(environments)}" if environments else "none at all"
    raise NotFound(
        f"no validated model{of_it}; there are {others}",
        hint="A gate that its run passes validates one, or `rlctl registry validate`.",
    )


def best_of_tasks(models: KnowsModels, env: str) -> list[ModelVersion]:
    """The validated model with the highest mean reward of each task that an environment is played
    as, the highest first. One whose spec is not known counts as of the first task."""
    leading: list[ModelVersion] = []
    for each in models.list(ModelQuery(validated=True, top_n=MOST_RANKED, env=env)):
        tasks = [_task(one) for one in leading]
        if not leading or (_task(each) is not None and _task(each) not in tasks):
            leading.append(each)
    return leading


def _task(model: ModelVersion) -> dict[str, Any] | None:
    return None if model.hyperparams is None else task_in(model.hyperparams)


def _unlike_tasks(env: str, leading: Sequence[ModelVersion]) -> Ambiguous:
    """The error that no model is the best of an environment, with the best of each task."""
    tasks = {model.id: _task(model) or {} for model in leading}
    differing = [path for path in TASK if len({str(task.get(path)) for task in tasks.values()}) > 1]
    named = "; ".join(
        f"model {number}, with "
        + ", ".join(f"{path} {json.dumps(task.get(path))}" for path in differing)
        for number, task in list(tasks.items())[:NAMED]
    )
    return Ambiguous(
        f"validated models of {env} play different tasks, whose returns do not compare. The best "
        f"of each: {named}",
        hint=f"Name the model that is meant: {leading[0].id}, or an alias of it.",
    )


def of_run(
    models: KnowsModels, runs: KnowsRuns, word: str, *, only_run: bool = False
) -> ModelVersion:
    """The model that a run ended with; else the best of those that it has."""
    try:
        group = runs.group(word)
        run = (runs.only if only_run else runs.get)(group.runs[0] if group else word)
    except NotFound as error:
        raise NotFound(f"no policy {word!r}; must be {FORMS}", hint=error.hint) from None
    if group is not None:
        raise _several(models, runs, word, group)
    if run.model_id is not None:
        with suppress(NotFound):  # It may have been let go of since.
            return models.get(run.model_id)
    registered = models.list(ModelQuery(run=run.id, top_n=1))
    if not registered:
        raise _without_model(run)
    return registered[0]


def _without_model(run: Run) -> NotFound:
    """The error that a run has no model, or none any more; its hint names its newest checkpoint."""
    gone = "" if run.model_id is None else f" any more: model {run.model_id} was removed"
    hint = "A run has one when its training has ended and was evaluated, with registry.enable=true."
    folder = RunDir.of(run).checkpoints
    with suppress(OSError):
        if names := catalog.all_names(folder):
            hint = f"Its newest checkpoint is there still: {shlex.quote(str(folder / names[-1]))}"
    return NotFound(f"run {run.id} is {run.state} and has no model{gone}", hint=hint)


def _several(models: KnowsModels, runs: KnowsRuns, word: str, group: Group) -> BadInput:
    """The error that a group is no policy; its hint names the best model."""
    names = []
    for run_id in group.runs:
        with suppress(NotFound):
            names.append(of_run(models, runs, run_id))
    best = max(names, key=_worth, default=None)
    return BadInput(
        f"{word!r} is a group of {len(group.runs)} runs, each with a policy of its own",
        hint="None of them has a model yet."
        if best is None
        else f"The best of them is model {best.id}, of run {best.run_id}: name it as {best.id}.",
    )


def _worth(model: ModelVersion) -> tuple[bool, float]:
    """Rank of a model: whether it is validated, then its mean return."""
    return model.validated, -math.inf if model.mean_reward is None else model.mean_reward


def only(aliases: Sequence[Alias], word: str) -> Alias:
    """The alias that a word means, if it means one alone."""
    if not aliases:
        raise NotFound(
            f"nobody has the alias {word!r}",
            hint=f"rlctl promote MODEL --to {word.partition('@')[0]}",
        )
    if len(aliases) > 1:
        names = ", ".join(f"{each.alias}@{each.env_id}" for each in aliases)
        raise Ambiguous(f"{word!r} could be any of: {names}", hint="Name the environment as well.")
    return aliases[0]


def place_of(word: str, env: str | None = None) -> tuple[str, str | None]:
    """The alias and the environment in `production@CartPole-v1`, or in `production` alone."""
    alias, at, named = word.partition("@")
    if at and not named:
        raise BadInput(f"alias {word!r} names no environment after its @")
    if not (named or env or "").isprintable():
        raise BadInput(f"env is {named or env!r}; must be the id of an environment", path="env")
    if named and env is not None and named != env:
        raise BadInput(f"alias {word!r} is of {named}; --env says {env}")
    if not ALIAS_NAME.fullmatch(alias) or alias in RESERVED:
        raise BadInput(
            f"alias is {alias!r}; {ALIAS_FORM}",
            hint="For example: production, staging, canary.",
        )
    return alias, named or env


def env_of(policy: PolicySource) -> str:
    """The environment that a policy has learned."""
    if policy.model is not None:
        return policy.model.env_id
    if policy.kind == "bundle":
        return bundles.read(policy.path).policy.env_id
    return artefacts.spec_of(policy.path).env.id


def refuse_other_env(
    models: KnowsModels, policy: PolicySource, env: str | None, again: Again
) -> None:
    """Raise if a policy is of another environment than is meant, with both ways out: the best
    model of the one, and the other."""
    if env is None or env == (learned := env_of(policy)):
        return
    there = best_of_tasks(models, env)
    each = ", of one of its tasks," if len(there) > 1 else ""
    instead = (
        f"The best of {env}{each} is model {there[0].id}: `{again(str(there[0].id), env)}`."
        if there
        else f"There is no validated model of {env} yet."
    )
    raise BadInput(
        f"{policy.name} has learned {learned}; it cannot act in {env}",
        path="env",
        hint=f"{instead} Where it has learned: `{again(policy.word, learned)}`.",
    )


def kind_of(path: Path) -> Kind:
    """In which form a policy is at a path."""
    if path.is_file():
        raise _no_folder(str(path))
    if not path.is_dir():
        raise NotFound(
            f"there is no policy at {str(path)!r}",
            path=str(path),
            hint="`rlctl registry verify` says which models have lost their files.",
        )
    if external.is_deposit(path):
        return "deposit"
    names = os.listdir(path)
    if bundles.DOCUMENT in names:
        return "bundle"
    if MODEL in names:
        return "artefact"
    if MANIFEST in names and catalog.STATE in names:
        return "checkpoint"
    raise BadInput(
        f"{str(path)!r} is no policy: it has neither {catalog.STATE} nor {bundles.DOCUMENT}",
        path=str(path),
        hint="Name the folder of one checkpoint, …/checkpoints/step_000000100000, or of a bundle.",
    )


def is_path(word: str) -> bool:
    """Whether a word is written as a path."""
    return word.startswith(("/", "./", "../", "~")) or word in (".", "..")


def is_at(path: Path) -> bool:
    """Whether a policy's files are there; not where the system takes no such path."""
    try:
        return bundles.is_bundle(path) or any((path / name).is_file() for name in FILES)
    except OSError:
        return False


def refuse_file(word: str) -> None:
    """Raise if a word means a file: as a path, or by its ending. Only for callers who may look at
    the files of this machine."""
    path = Path(os.path.expanduser(word))
    if (is_path(word) or os.sep in word or path.suffix) and os.path.isfile(path):
        raise _no_folder(word)


def _no_folder(word: str) -> BadInput:
    """The error that a file is no policy; its hint says how it becomes one."""
    path = Path(os.path.expanduser(word))
    if (whose := SAVED_BY.get(path.suffix.lower())) is not None:
        return BadInput(
            f"{word!r} is a file of {whose}, and no policy of this home yet",
            path=word,
            hint=f"`rlctl registry import {shlex.quote(word)} --env ENV` takes it in first.",
        )
    inside = is_at(path.parent)
    return BadInput(
        f"{word!r} is a file, and no policy",
        path=word,
        hint=f"Name its folder: {str(path.parent)!r}" if inside else f"A policy can be {FORMS}.",
    )


def path_of(word: str) -> Path | None:
    """The path that a word means, if it means one: as it is written, or since a policy is there,
    under a bare name too. Only for callers who may look at the files of this machine."""
    refuse_file(word)
    return _at(word) if _is_there(word) or is_at(Path(word)) else None


def _at(word: str) -> Path:
    path = Path(os.path.expanduser(word)).absolute()
    if not path.exists():
        raise _nothing_there(word)
    return path


def _is_there(word: str) -> bool:
    """Whether a word is a path: it is written as one, or is there and contains a separator."""
    return is_path(word) or (os.sep in word and Path(word).is_dir())


def _nothing_there(word: str) -> RlctlError:
    """The error that a path leads nowhere, or to a file.

    It says how far the path does lead and what is there.
    """
    path = Path(os.path.expanduser(word)).absolute()
    if path.is_file():
        return _no_folder(word)
    last = next(folder for folder in path.parents if folder.is_dir())
    names = sorted(each.name for each in last.iterdir() if not each.name.startswith("."))
    missing = path.relative_to(last).parts[0]
    near = difflib.get_close_matches(missing, names, n=1)
    return NotFound(
        f"there is no policy at {word!r}: {missing!r} is not in {str(last)!r}",
        path=str(path),
        hint=f"Did you mean {near[0]!r}?" if near else f"A policy can be {FORMS}.",
    )


def run_of(runs: KnowsRuns, model: ModelVersion) -> Run | None:
    """The run that made a model, if it is still known."""
    with suppress(NotFound):
        return None if model.run_id is None else runs.get(model.run_id)
    return None
