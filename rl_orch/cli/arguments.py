"""Arguments that several commands take, spelled once."""

import functools
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from rl_orch.errors import BadInput

DATABASE_VARIABLES = ("RL_REGISTRY_DB", "RL_REGISTRY_DB_PATH")
SERVER_VARIABLE = "RLCTL_SERVER"


def _refuse_elsewhere(context: typer.Context, server: str | None) -> None:
    if server is not None:
        raise BadInput(
            f"`{context.command_path}` cannot be done through --server or RLCTL_SERVER",
            hint="Run it where the service is, in its home, without them.",
        )


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show no progress.")]
Home = Annotated[
    Path | None, typer.Option("--home", help="Folder of the runs; RLCTL_HOME, or ./rlruns.")
]
_database = partial(typer.Option, metavar="URL|PATH", envvar=[*DATABASE_VARIABLES])
_DATABASE = "The database: a path, or postgresql://…"
Database = Annotated[str | None, _database("--registry-db", help=_DATABASE)]
ServiceDatabase = Annotated[
    str | None,
    _database("--database", "--registry-db", help=f"{_DATABASE} to share it with other services."),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar=SERVER_VARIABLE,
        help="Ask this service, with the token in RLCTL_TOKEN, and not that of the home.",
    ),
]
Elsewhere = Annotated[
    str | None,
    typer.Option("--server", envvar=SERVER_VARIABLE, hidden=True, callback=_refuse_elsewhere),
]
"""The same, where a command cannot be carried out but where the service is."""

Detach = Annotated[
    bool, typer.Option("-d", "--detach", help="Queue it and return; a service carries it out.")
]
AliasArgument = Annotated[
    str, typer.Argument(metavar="ALIAS", help="Such as production, or production@CartPole-v1.")
]
ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="Id, alias, alias@ENV, best@ENV, or a run: the model it ended with."
    ),
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Id, a unique beginning of it, name, or `last`.")
]


class ArgumentGroup:
    """Parameters that several commands take, as one: see `expanded`."""

    about: ClassVar[str] = ""
    """What help says of them, after what it says of the command."""


def expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command for typer, with the parameters of each group in the place of the group.

    Refused are a default for a whole group, which nobody would see, and two parameters of one name.
    """
    own = inspect.signature(command).parameters
    groups = {
        name: parameter.annotation
        for name, parameter in own.items()
        if isinstance(parameter.annotation, type)
        and issubclass(parameter.annotation, ArgumentGroup)
    }
    if not groups:
        return command
    if any(own[name].default is not inspect.Parameter.empty for name in groups):
        raise TypeError(f"{command.__qualname__}: a group takes no default; its fields have theirs")
    inner = {name: inspect.signature(group).parameters for name, group in groups.items()}

    @functools.wraps(command)
    def wrapper(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{field: given.pop(field) for field in inner[name]})
        return command(**given)

    taken = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name in own
        for parameter in (inner[name].values() if name in inner else (own[name],))
    ]
    abouts = (f"\n\n    {group.about}\n" for group in groups.values() if group.about)
    wrapper.__doc__ = "".join([(command.__doc__ or "").rstrip(), *abouts])
    wrapper.__dict__["__signature__"] = inspect.Signature(taken)
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in taken}
    return wrapper
