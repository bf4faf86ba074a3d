"""Traits of engines and collectors, known without loading them; a plugin's engine declares its own
as `traits`."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """What an engine is like.

    `compiles`: its code is compiled, ahead of time where that can be. `has_threads`: threads of its
    own, beside which torch's would take the cores to wait for work. `packages`: those whose
    versions exact repetition depends on.
    """

    compiles: bool = False
    has_threads: bool = False
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectorTraits:
    """What a collector is like: whether it `overlaps` with learning, by an older policy."""

    overlaps: bool = False


ENGINES: Mapping[str, EngineTraits] = {
    "auto": EngineTraits(),
    "kernels": EngineTraits(
        compiles=True, has_threads=True, packages=("numba", "llvmlite", "scipy")
    ),
    "torch": EngineTraits(),
}
"""Engines that come with this package; `auto` is one of the others."""

COLLECTORS: Mapping[str, CollectorTraits] = {
    "local": CollectorTraits(),
    "overlapped": CollectorTraits(overlaps=True),
}
"""Collectors that come with this package, the usual one first."""

USUAL_COLLECTOR = next(iter(COLLECTORS))
OVERLAPPING = next(name for name, traits in COLLECTORS.items() if traits.overlaps)


def engine_traits(name: str) -> EngineTraits:
    """The traits of an engine of ours; the usual ones, for others."""
    return ENGINES.get(name, EngineTraits())


def may_compile(engine: str) -> bool:
    """Whether an engine compiles code, or one that `auto` may become."""
    return engine == "auto" or engine_traits(engine).compiles


def collector_traits(name: str) -> CollectorTraits:
    """The traits of a collector of ours; the usual ones, for others."""
    return COLLECTORS.get(name, CollectorTraits())
