"""The plugins that a spec names, by the option that names them."""

from collections.abc import Iterator
from typing import NamedTuple

from rl_orch import plugins
from rl_orch.spec.model import Spec


class NamedPlugin(NamedTuple):
    """A name of a plugin, its kind, and the option that it is the value of."""

    path: str
    kind: str
    name: str


def named_plugins(spec: Spec) -> Iterator[NamedPlugin]:
    """All of them, ours included."""
    yield NamedPlugin("agent.algorithm", "algorithms", spec.agent.algorithm)
    yield NamedPlugin("feature.encoder", "encoders", spec.feature.encoder)
    yield NamedPlugin("train.engine", "engines", spec.train.engine)
    yield NamedPlugin("rollout.collector", "collectors", spec.rollout.collector)
    yield NamedPlugin("env.backend", "vector_envs", spec.env.backend)
    for name in spec.train.observers:
        yield NamedPlugin("train.observers", "observers", name)
    for name in spec.eval.metrics:
        yield NamedPlugin("eval.metrics", "metrics", name)
    for choice in spec.store.chosen_trackers:
        yield NamedPlugin("store.trackers", "trackers", choice.name)


def importable(spec: Spec) -> list[NamedPlugin]:
    """Those that are named as `module:Class`."""
    return [each for each in named_plugins(spec) if plugins.is_importable(each.name)]


def modules_of(spec: Spec) -> list[str]:
    """The modules that a spec names: of its environment, of its wrappers and of its plugins."""
    wrapped = [choice.name for choice in spec.env.chosen_wrappers]
    named = [spec.env.id, *wrapped, *(each.name for each in importable(spec))]
    return list(dict.fromkeys(name.rpartition(":")[0] for name in named if ":" in name))
