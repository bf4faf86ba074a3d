"""The plugins that a spec names, by the option that names them."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rl_orch import plugins
from rl_orch.spec.model import Spec


class NamedPlugin(NamedTuple):
    """A name of a plugin, its kind, the option that it is the value of, and what it is given."""

    path: str
    kind: str
    name: str
    options: Mapping[str, Any] = {}


def named_plugins(spec: Spec) -> Iterator[NamedPlugin]:
    """All of them, ours included."""
    yield NamedPlugin("agent.algorithm", "algorithms", spec.agent.algorithm)
    yield NamedPlugin("feature.encoder", "encoders", spec.feature.encoder)
    yield NamedPlugin("train.engine", "engines", spec.train.engine)
    yield NamedPlugin("rollout.collector", "collectors", spec.rollout.collector)
    yield NamedPlugin("env.backend", "vector_envs", spec.env.backend)
    for chosen in spec.train.chosen_observers:
        yield NamedPlugin("train.observers", "observers", chosen.name, chosen.kwargs)
    for name in spec.eval.metrics:
        yield NamedPlugin("eval.metrics", "metrics", name)
    for choice in spec.store.chosen_trackers:
        yield NamedPlugin("store.trackers", "trackers", choice.name, choice.options)


def importable(spec: Spec) -> list[NamedPlugin]:
    """Those that are named as `module:Class`."""
    return [each for each in named_plugins(spec) if plugins.is_importable(each.name)]


def modules_of(spec: Spec) -> list[str]:
    """The modules that a spec names: of its environment, of its wrappers and of its plugins."""
    wrapped = [choice.name for choice in spec.env.chosen_wrappers]
    named = [spec.env.id, *wrapped, *(each.name for each in importable(spec))]
    return list(dict.fromkeys(name.rpartition(":")[0] for name in named if ":" in name))
