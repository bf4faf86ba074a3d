"""`rlctl token`: keys to the HTTP API, made, listed and revoked in the database itself."""

import sys
import time
from typing import Annotated

import typer

from rl_orch.cli.arguments import Elsewhere, Home, Json
from rl_orch.cli.connection import LocalOptions, local_orchestrator
from rl_orch.cli.output import note, out, print_json, print_result, safe
from rl_orch.cli.views.grid import grid_of
from rl_orch.cli.views.text import age_text, plain, span_text
from rl_orch.client import Client
from rl_orch.core.store.tokens import Scope, Tokens
from rl_orch.errors import BadInput
from rl_orch.records import Token
from rl_orch.spec.spelling import span

ScopeOption = Annotated[
    Scope,
    typer.Option(
        metavar="read|operate|admin",
        help="`read` looks, `operate` also submits, stops and resumes, `admin` may do all.",
    ),
]


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose or what for it is.")],
    scope: ScopeOption = "read",
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="After which it no longer counts: 12h, 30d.", show_default="never"
        ),
    ] = None,
    *,
    target: LocalOptions,
    json: Json = False,
) -> None:
    """Make a token, and print its secret: once, now, and never again.

    Every program that calls the service needs one, on this machine too; only `rlctl` in the
    service's own home, by its own user, does not. `operate` submits what is installed; whoever may
    name modules and programs of their own, and so run any code as the service's user, is `admin`.

    Examples:

      rlctl token create notebook --scope operate --expires 30d
    """
    lifetime_s = None if expires is None else seconds(expires)
    made, secret = _tokens(target).create(name, scope, lifetime_s=lifetime_s)
    if json:
        print_json(plain(made) | {"secret": secret})
        return
    print(secret)
    note(
        f"token {made.name} ({made.id}) may {made.scope}; it is shown this once. "
        "Callers send it as `Authorization: Bearer …`; `rlctl --server` reads RLCTL_TOKEN."
    )


def ls(target: LocalOptions, json: Json = False) -> None:
    """List the tokens, without their secrets."""
    connected = local_orchestrator(target.home, target.database)
    tokens = Tokens(connected.store).list() if connected.exists else []
    if json:
        print_json({"tokens": tokens})
        return
    if not tokens:
        out().print("no tokens; `rlctl token create NAME` makes one for another program")
        return
    grid = grid_of(("id", "name", "scope", "made", "state"))
    for token in tokens:
        made = f"{age_text(token.created_at)} ago"
        grid.add_row(token.id, safe(token.name), token.scope, made, _state(token))
    out().print(grid)


def revoke(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Its id or its name.")],
    target: LocalOptions,
    json: Json = False,
) -> None:
    """Let a token count no longer, from the next request on."""
    revoked = _tokens(target).revoke(token)
    text = f"token {safe(revoked.name)} ({revoked.id}) is revoked"
    print_result(revoked, text, as_json=json)


def code(
    scope: ScopeOption = "operate",
    home: Home = None,
    _server: Elsewhere = None,
    json: Json = False,
) -> None:
    """Show a code that a browser exchanges for a token: once, within five minutes.

    It is shown on a terminal and nowhere else. Other programs use `rlctl token create`.
    """
    if not sys.stdout.isatty():
        raise BadInput(
            "a one-time code is shown on a terminal only, and standard output is none",
            hint="For a program, make a token: rlctl token create NAME.",
        )
    with Client.of_home(home) as client:
        made = client.create_code(scope)
    if json:
        print_json(made)
        return
    out().print(safe(made["code"]))
    note(f"counts once, within {span_text(made['lifetime_s'])}, and may {made['scope']}")


commands = {"create": create, "ls": ls, "revoke": revoke, "code": code}


def seconds(text: str) -> float:
    """A span of time as people write it: `45m`, `12h`, `30d`."""
    found = span(text)
    if not found:
        raise BadInput(
            f"--expires is {text!r}; must be a number of s, m, h, d or w",
            hint="For example: --expires 30d",
        )
    return found


def _tokens(target: LocalOptions) -> Tokens:
    return Tokens(local_orchestrator(target.home, target.database).store)


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return "[yellow]revoked[/]"
    if token.expires_at is None:
        return "[green]counts[/]"
    left_s = token.expires_at - time.time()
    return f"[green]counts for {span_text(left_s)}[/]" if left_s > 0 else "[yellow]expired[/]"
