"""Which policy a word on the command line means."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from rl_orch.cli.connection import Connected
from rl_orch.core.registry import references
from rl_orch.core.registry.references import PolicySource
from rl_orch.errors import BadInput, NotFound
from rl_orch.io.checkpoints import catalog
from rl_orch.io.policies import bundles
from rl_orch.io.run.directory import MODEL

FILES = (catalog.TENSORS, MODEL)
FORMS = "A model's id, an alias, best, best@ENV, a run, or the path of a checkpoint or bundle."
PolicyArgument = Annotated[str, typer.Argument(metavar="POLICY", help=FORMS)]
OptionalPolicy = Annotated[str | None, typer.Argument(metavar="[POLICY]", help=FORMS)]
MeantEnv = Annotated[
    str | None,
    typer.Option("--env", metavar="ENV", help="Refuse a policy of any other environment."),
]


UsingOption = Annotated[
    Literal["torch", "onnx", "int8"], typer.Option(help="onnx and int8 run the graphs of a bundle.")
]


def only_one(ways: Mapping[str, str | None]) -> str:
    """The word that was given, in one of several ways to name a policy."""
    given = [word for word in ways.values() if word is not None]
    if len(given) != 1:
        how_many = "none of them" if not given else "more than one"
        raise BadInput(f"name the policy by {' or by '.join(ways)}; {how_many} is given")
    return given[0]


def source_of(
    word: str, connection: Callable[[], Connected], env: str | None = None, command: str = "eval"
) -> PolicySource:
    """Where the policy is that is meant, if it has learned the environment that is meant; nobody is
    asked where a path says it all. `command` is what a refusal offers to do instead."""
    if _is_at(Path(word)):
        path = Path(os.path.abspath(word))
        source = PolicySource(path, references.kind_of(path))
    else:
        source = _named(connection(), word)
    if env is not None:
        references.refuse_other_env(
            connection().models,
            source,
            env,
            lambda other, there: f"rlctl {command} {other} --env {there}",
        )
    return source


def names_model(connected: Connected, word: str) -> bool:
    """Whether a word means a policy without a run to lead to it; not by a path that the system
    does not take."""
    try:
        return references.names_model(connected.models, word)
    except OSError:
        return False


def _is_at(path: Path) -> bool:
    """Whether a policy's files are there; not where the system takes no such path."""
    try:
        return bundles.is_bundle(path) or any((path / name).is_file() for name in FILES)
    except OSError:
        return False


def _named(connected: Connected, word: str) -> PolicySource:
    try:
        return references.source(connected.models, connected, word)
    except OSError as error:
        raise NotFound(
            f"no policy {word!r}, which cannot be looked at as a path: {error.strerror or error}",
            hint=f"Name {references.FORMS}.",
        ) from None
