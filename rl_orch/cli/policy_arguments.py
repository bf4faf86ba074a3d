"""Which policy a word on the command line means."""

from collections.abc import Mapping
from typing import Annotated, Literal

import typer

from rl_orch.cli.connection import Connected
from rl_orch.cli.views.subjects import run_at
from rl_orch.core.registry import references
from rl_orch.errors import BadInput

FORMS = "A model's id, an alias, best, best@ENV, a run, or the path of a checkpoint or bundle."
PolicyArgument = Annotated[str, typer.Argument(metavar="POLICY", help=FORMS, callback=run_at)]
OptionalPolicy = Annotated[
    str | None, typer.Argument(metavar="[POLICY]", help=FORMS, callback=run_at)
]
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


def names_model(connected: Connected, word: str) -> bool:
    """Whether a word means a policy without a run to lead to it; not by a path that the system
    does not take."""
    try:
        return references.names_model(connected.models, word)
    except OSError:
        return False
