"""Tuned hyperparameters: the example specs, found by algorithm and environment.

`resolve_tuned` is how every surface makes a Spec of what a user asks for: command, file, Python
and HTTP find the same hyperparameters, and so have the same config hash.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rl_orch.errors import Problem, SpecInvalid
from rl_orch.spec.env_ids import newest_version
from rl_orch.spec.mistakes import closest
from rl_orch.spec.model import UNTUNED, Spec
from rl_orch.spec.reader import read_spec
from rl_orch.spec.resolve import given, outline, resolve

CONFIGS = Path(__file__).parent.parent / "configs"

PROVIDERS = ("ale_py", "gym_anytrading")
"""Modules whose environments are meant, where an id names one."""

LEARNING = ("env", "obs", "feature", "agent", "train", "rollout", "buffer")
"""Groups that are taken over. When to evaluate, what to ask for and where to run is not tuned."""


def resolve_tuned(
    document: Mapping[str, Any] | None = None,
    *,
    say: Callable[[str], object] = lambda sentence: None,
    inherit: Callable[[str], Mapping[str, Any]] | None = None,
    **typed: Any,
) -> Spec:
    """The Spec that is asked for, over the tuned hyperparameters that `tuned` names or finds.

    Those that do not go together with what is asked for are left, unless they are named. `typed`
    is what `resolve` takes besides a document; `say` is told what was taken or left, and why.
    Where `start.from` is given and no environment, `inherit` gives the document to begin with.
    """
    asked = given("env.id", document, **typed)
    newest = None if given("runner.command", document, **typed) else newest_version(asked)
    if newest is not None:
        say(f"{asked} is {newest}, its newest version")
        typed = typed | {"overrides": [*typed.get("overrides", ()), f"env.id='{newest}'"]}
    source = given("start.from", document, **typed)
    if inherit is not None and source and given("env.id", document, **typed) is None:
        return resolve(document, base=inherit(str(source)), **typed)
    outlined = outline(document, **typed)
    example = None if outlined is None else _example(outlined)
    if outlined is None or example is None:
        return resolve(document, **typed).changed({"tuned": UNTUNED})
    name = example.stem
    try:
        spec = resolve(document, base=hyperparameters(example), **typed)
    except SpecInvalid as error:
        if outlined.tuned == name:
            raise
        plain = resolve(document, **typed)  # What is wrong without them as well is said alone.
        say(f"not tuned: {example.name} does not go together with what you ask for ({error})")
        return plain.changed({"tuned": UNTUNED})
    if spec == outlined and outlined.tuned != name:
        return spec.changed({"tuned": UNTUNED})
    if spec != outlined:
        say(f"hyperparameters tuned for {spec.env.id} ({example.name}); tuned=false takes none")
    return spec.changed({"tuned": name})


def find(spec: Spec) -> Path | None:
    """The example for the spec's algorithm in its environment, if there is one.

    None for a program that is not ours: its hyperparameters are its own affair.
    """
    if not spec.runner.traits.trains_here:
        return None
    module, _, env_id = spec.env.id.rpartition(":")
    if module not in ("", *PROVIDERS):
        return None
    name = f"{spec.agent.algorithm}-{env_id.replace('/', '-')}.yaml"
    path = CONFIGS / name
    return path if re.fullmatch(r"[\w.-]+", name) and path.is_file() else None


def hyperparameters(path: Path) -> Mapping[str, Any]:
    """What an example says of learning; the seed is left to whoever asks."""
    document = read_spec(path)
    chosen = {group: document[group] for group in LEARNING if group in document}
    env = {key: value for key, value in chosen.get("env", {}).items() if key not in ("id", "seed")}
    return chosen | {"env": env}


def _example(spec: Spec) -> Path | None:
    """The example that a spec's `tuned` means."""
    if spec.tuned in ("auto", UNTUNED):
        return find(spec) if spec.tuned == "auto" else None
    known = {path.stem: path for path in sorted(CONFIGS.glob("*.yaml"))}
    if spec.tuned not in known:
        near = closest(spec.tuned, known)
        message = f"tuned is {spec.tuned!r}; must be auto, false, or one of {', '.join(known)}"
        hint = f"Did you mean {near}?" if near else None
        raise SpecInvalid([Problem("tuned", spec.tuned, message, hint)])
    return known[spec.tuned]
