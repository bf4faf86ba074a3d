"""Policies from the files of a run: of artefacts, checkpoints, and programs that serve them."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rl_orch import plugins
from rl_orch.errors import BadInput
from rl_orch.io.checkpoints import checkpoint_files, external
from rl_orch.io.policies import artefacts
from rl_orch.io.policies.bundles import POLICY, Bundle
from rl_orch.io.processes import import_path
from rl_orch.io.run.directory import RunDir
from rl_orch.rl.envs import space_json, vector
from rl_orch.rl.envs.observations import flat_space
from rl_orch.rl.learn.learner import load_with_actor
from rl_orch.rl.policies.policy import Actor, PolicyModule, Setup
from rl_orch.spec.difference import task_differences
from rl_orch.spec.model import Spec
from rl_orch.spec.named_plugins import modules_of
from rl_orch.worker.external.served_policy import serving


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy in torch with who decides for it, its spec and its weights.

    With it is the bundle it is from, if any.
    """

    policy: PolicyModule
    actor: Actor
    spec: Spec
    tensors: dict[str, np.ndarray]
    step: int
    bundle: Bundle | None = None


def spec_in(directory: RunDir, path: Path) -> Spec:
    """Spec of a policy of a run that the store knows.

    Its modules are found from here on.
    """
    import_path.search(directory.module_path())
    return artefacts.spec_of(path)


@contextmanager
def opened(spec: Spec, directory: RunDir, path: Path) -> Iterator[tuple[Actor, int]]:
    """The policy of an artefact or a checkpoint of a run, and the step it was saved at."""
    if not spec.runner.traits.serves_policy:
        loaded = from_checkpoint(spec, path, plays=True)
        yield loaded.actor, loaded.step
        return
    checkpoint = external.load(path)
    payload = external.payload(path, checkpoint)
    with naming_missing_modules(spec, directory):
        actions = setup_of(spec).action_space
    with serving(spec, directory, payload, actions) as policy:
        yield policy, checkpoint.step


def from_checkpoint(spec: Spec, path: Path, *, plays: bool = False) -> LoadedPolicy:
    """The policy of a checkpoint or its artefact, where the spec says that it computes; one that
    `plays` is refused in an environment with other spaces than were sealed with it."""
    loaded = checkpoint_files.load(path)
    setup = _sealed_setup(spec, loaded.document)
    if setup is None or plays:
        with naming_missing_modules(spec, RunDir(path.parents[1])):
            here = setup_of(spec)
        setup = setup or here
        refuse_other_spaces(f"model {path.name}", setup, here)
    policy, actor = load_with_actor(setup, loaded.tensors)
    return LoadedPolicy(policy, actor, spec, loaded.tensors, loaded.step)


def refuse_other_spaces(name: str, learned: Setup, here: Setup) -> None:
    """Raise if the environment here differs from the one that a policy has learned.

    It may do so though its id is the same.
    """
    for part in ("observation_space", "action_space"):
        told, seen = (flat_space(getattr(setup, part)) for setup in (learned, here))
        if told != seen:
            raise BadInput(
                f"{name} has learned {learned.spec.env.id} with {part} {told}; here it is {seen}",
                path="env.id",
                hint="Play it with the version of the environment that it was trained with.",
            )


def _sealed_setup(spec: Spec, document: Mapping[str, Any]) -> Setup | None:
    """The spec with the spaces that were sealed with an artefact, if they were; no environment is
    made for them."""
    match document.get("policies", {}).get(POLICY):
        case {"observation_space": dict(seen), "action_space": dict(taken)}:
            return Setup(spec, space_json.from_json(seen), space_json.from_json(taken))
    return None


@contextmanager
def naming_missing_modules(spec: Spec, directory: RunDir | None = None) -> Iterator[None]:
    """The time in which a module that a policy's spec names, and that is not there, is a `BadInput`
    that says where it was looked for, and where its run has found it."""
    try:
        yield
    except ModuleNotFoundError as error:
        cause = error.__cause__ or error
        missing = getattr(cause, "name", None) or ""
        if not any(f"{name}.".startswith(f"{missing}.") for name in modules_of(spec)):
            raise
        looked = ", ".join(plugins.searched_folders()) or "no folder"
        hint = f"Besides what is installed, these were searched: {looked}."
        if directory is not None and (noted := directory.module_path()):
            where, run = ", ".join(noted), directory.path.name
            hint += f" Its run found it in: {where}. Type this there, or name the run, {run}."
        raise BadInput(f"env.id is {spec.env.id!r}; {cause}", path="env.id", hint=hint) from None


def setup_of(spec: Spec) -> Setup:
    """The spec with the spaces of its environment.

    One environment is made to ask it.
    """
    with closing(vector.make(spec, num_envs=1)) as envs:
        return Setup(spec, envs.single_observation_space, envs.single_action_space)


def on_cpu(spec: Spec) -> Spec:
    """The spec of a policy that computes on the CPU."""
    return spec.changed({"resources.device": "cpu"})


def refuse_unless_alike(one: Spec, other: Spec) -> None:
    """Raise if two policies do not play the same game.

    So no episode of one is the other's.
    """
    for path, (ours, theirs) in task_differences([one, other]).items():
        raise BadInput(
            f"the two policies cannot be compared: {path} is {ours!r} for one and "
            f"{theirs!r} for the other",
            path=path,
            hint="Compare policies of one environment.",
        )
