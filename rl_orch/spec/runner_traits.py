"""What is known of the runners: what each can do and asks for. Ours are known without loading them;
a plugin's class declares its own as `traits`.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Literal

from rl_orch import plugins
from rl_orch.errors import BadInput


@dataclass(frozen=True, slots=True)
class RunnerTraits:
    """What a runner can do; seed 4 calls it `RunnerCapabilities`.

    `trains_here`: algorithm, engine and hyperparameters of the spec are this package's affair.
    `serves_policy`: policies act in a process that `runner.policy` starts. `resumes`: whether an
    attempt goes on from the last one's checkpoint, or only as `runner.resume` says. `warm_start`:
    weights of elsewhere can enter a run. `prestarts`: it has `prestart(spec)`, to load ahead.
    `needs_consent`: it runs a program that the spec names. `privileged`: to name it is a permission
    of its own, as to name code is. `services` are what must be there besides this machine.
    """

    trains_here: bool = True
    serves_policy: bool = False
    resumes: Literal["always", "declared", "never"] = "always"
    warm_start: bool = True
    prestarts: bool = False
    needs_consent: bool = False
    needs_gpu: bool = False
    privileged: bool = True
    services: tuple[str, ...] = ()


BUILT_IN: Mapping[str, RunnerTraits] = {
    "local": RunnerTraits(prestarts=True, privileged=False),
    "inline": RunnerTraits(),
    "external": RunnerTraits(
        trains_here=False,
        serves_policy=True,
        resumes="declared",
        warm_start=False,
        needs_consent=True,
    ),
}
"""The runners of this package, by name."""


def of(name: str) -> RunnerTraits:
    """The traits of a runner; of one that is not installed or declares none, the usual ones."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    with suppress(BadInput, ImportError, AttributeError):
        return _declared(name)
    return RunnerTraits()


@cache
def _declared(name: str) -> RunnerTraits:
    traits: RunnerTraits = plugins.load("runners", name).traits
    return traits
