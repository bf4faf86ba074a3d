"""Policies that can be carried away: from an artefact, a checkpoint with its spec, or a bundle.

Weights come from safetensors and the rest from the spec; nothing that could run code is loaded.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rl_orch.export.acting import GraphActor
from rl_orch.export.formats import session_run
from rl_orch.io.files.tensors import decode
from rl_orch.io.policies import artefacts, bundles, requests
from rl_orch.io.policies.bundles import Bundle
from rl_orch.io.policies.requests import TORCH
from rl_orch.io.processes import import_path
from rl_orch.io.run.directory import RunDir
from rl_orch.records.tasks import PolicyFiles
from rl_orch.rl.envs import space_json
from rl_orch.rl.evaluate import lanes_alone
from rl_orch.rl.learn.learner import load_with_actor
from rl_orch.rl.policies.policy import Actor, Setup
from rl_orch.spec.model import Spec
from rl_orch.worker.policies.load import (
    LoadedPolicy,
    from_checkpoint,
    naming_missing_modules,
    on_cpu,
    opened,
    refuse_other_spaces,
    setup_of,
)


@dataclass(frozen=True, slots=True)
class Playable:
    """A policy that can be played, and its name in a report.

    `lanes` is how many episodes it may play side by side: of INT8 graphs, rows that are asked about
    together would change each other's actions.
    """

    policy: Actor
    spec: Spec
    step: int
    name: str
    lanes: int


@contextmanager
def playable(named: PolicyFiles) -> Iterator[Playable]:
    """The policy of a run, by its `directory` and `checkpoint`; or that of a `bundle`, `using` its
    weights in torch or one of its graphs."""
    if named.bundle is not None:
        yield _of_bundle(Path(named.bundle), named.using)
        return
    spec, directory = spec_of(named), RunDir(Path(named.directory))
    path = directory.policy(named.checkpoint)
    with opened(spec, directory, path) as (policy, step):
        yield Playable(policy, spec, step, path.name, lanes_alone(spec))


def spec_of(named: PolicyFiles) -> Spec:
    """The spec of a policy that is named like this."""
    if named.bundle is not None:
        return bundles.read(Path(named.bundle)).spec
    import_path.search(named.module_path)
    return artefacts.spec_of(RunDir(Path(named.directory)).policy(named.checkpoint))


def load(path: Path, module_path: Sequence[str] = ()) -> LoadedPolicy:
    """The policy at a path, on the CPU and in torch; modules are searched for in these folders."""
    import_path.search(module_path)
    if bundles.is_bundle(path):
        return _from_bundle(bundles.read(path))
    requests.refuse_unloadable(path)
    return from_checkpoint(on_cpu(artefacts.spec_of(path)), path)


def _of_bundle(path: Path, means: str) -> Playable:
    policy: Actor
    if means == TORCH:
        bundle = bundles.read(path)
        policy = _from_bundle(bundle).actor
    else:
        bundle, data = requests.graph_of(path, means)
        policy = GraphActor(session_run(data), bundle.policy.inputs, bundle.spec)
    spec = on_cpu(bundle.spec)
    with naming_missing_modules(spec):
        here = setup_of(spec)
    refuse_other_spaces(f"bundle {path.name}", _setup(bundle), here)
    lanes = 1 if means == "int8" else lanes_alone(spec)
    return Playable(policy, spec, bundle.report.step, path.name, lanes)


def _from_bundle(bundle: Bundle) -> LoadedPolicy:
    setup, data = _setup(bundle), bundle.files[bundles.WEIGHTS]
    tensors = decode(data, bundle.path, bundles.WEIGHTS, noun=bundles.NOUN)
    policy, actor = load_with_actor(setup, tensors)
    return LoadedPolicy(policy, actor, setup.spec, tensors, bundle.report.step, bundle)


def _setup(bundle: Bundle) -> Setup:
    told = bundle.policy
    return Setup(
        on_cpu(bundle.spec),
        space_json.from_json(told.observation_space),
        space_json.from_json(told.action_space),
    )
