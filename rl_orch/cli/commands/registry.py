"""`rlctl registry`: models listed, shown, judged, verified, pruned. Imports are in a module of
their own.
"""

from typing import Annotated

import typer

from rl_orch.cli.arguments import AliasArgument, Json, ModelArgument
from rl_orch.cli.commands import import_policy
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.output import out, print_json, print_result, safe
from rl_orch.cli.views.models import (
    change_line,
    moment,
    print_changes,
    print_models,
    return_text,
    verdict_lines,
)
from rl_orch.cli.views.text import counted, plain
from rl_orch.cli.views.unlisted import warn_of_unlisted
from rl_orch.core.registry.references import best as best_of
from rl_orch.core.registry.references import place_of
from rl_orch.errors import GateRefused, NotFound, RlctlError
from rl_orch.records import ModelView, Retirement
from rl_orch.records.queries import ModelQuery

Env = Annotated[str | None, typer.Option("--env", metavar="ENV", help="Of this environment only.")]


def list_(
    validated: Annotated[
        bool, typer.Option("--validated", help="Only models that a gate has passed.")
    ] = False,
    top_n: Annotated[
        int | None,
        typer.Option("--top-n", min=1, max=10_000, help="The best so many of each environment."),
    ] = None,
    env: Env = None,
    algo: Annotated[str | None, typer.Option(help="Of this algorithm only.")] = None,
    alias: Annotated[str | None, typer.Option(help="Only models that have this alias.")] = None,
    limit: Annotated[
        int, typer.Option("-n", "--limit", min=1, max=10_000, help="At most so many.")
    ] = 1000,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """List models, newest first; with --top-n, by environment, the best of each first.

    Returns of different environments do not compare.

    Examples:

      rlctl registry list --validated --top-n 5
    """
    query = ModelQuery(validated, top_n, env, algo, alias, None, limit)
    connected = target.connect(reading=True)
    models = connected.models.list(query)
    if json:
        print_json({"models": models})
    elif models:
        print_models(models)
    else:
        out().print("no such models; a run registers the checkpoints that it evaluates and keeps")
    if not models:
        warn_of_unlisted(connected, target)


def show(
    model: ModelArgument,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """Show one model: numbers, lineage, verdicts, aliases and their history."""
    view = target.connect(reading=True).models.show(model)
    if json:
        print_json(view)
    else:
        _print_view(view)


def best(
    env: Env = None,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """Print the path of the best validated model: the one with the highest mean return.

    Examples:

      rlctl registry best --env CartPole-v1
    """
    model = best_of(target.connect(reading=True).models, env)
    if json:
        print_json(model)
    else:
        print(model.model_path)


def validate(
    model: ModelArgument,
    min_return: Annotated[
        float | None,
        typer.Option(
            "--min-return", "--min-reward", help="Ask for this, not for what its spec does."
        ),
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(min=10, max=100_000, help="Play so many episodes, now.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Play it now, though there is a report on it.")
    ] = False,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> int:
    """Hold a model against the gate of its spec, and keep the verdict.

    Exits with 3 if it fails. What is judged is the final evaluation, if it was of this model; else
    the model is played by a process of its own. One that passes is validated.
    """
    models = target.connect().models
    judged = models.validate(model, min_return=min_return, episodes=episodes, fresh=fresh)
    if json:
        print_json(judged)
    else:
        first, *checks = verdict_lines(judged.verdict)
        out().print(f"model {judged.model_id}: {first}")
        for line in checks:
            out().print(line)
    return 0 if judged.passed else GateRefused.exit_code


def verify(
    env: Env = None,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> int:
    """Compare every model with its files: what is missing, damaged or changed, by name.

    Exits with 1 if anything is.
    """
    integrity = target.connect(reading=True).models.verify(env=env)
    if json:
        print_json(plain(integrity) | {"ok": integrity.ok})
    else:
        for fault in integrity.faults:
            out().print(f"[red]{fault.kind}[/]  {safe(fault.sentence)}")
        outcome = "all of them whole" if integrity.ok else counted(len(integrity.faults), "fault")
        out().print(f"{counted(integrity.models, 'model')}, {outcome}")
    return 0 if integrity.ok else RlctlError.exit_code


def prune(
    keep_top_n: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10**6,
            envvar="RL_REGISTRY_KEEP_TOP_N",
            help="Keep the best so many of each environment.",
        ),
    ] = None,
    max_age: Annotated[
        float | None,
        typer.Option(
            min=0.0, envvar="RL_REGISTRY_MAX_AGE", help="Drop those older than so many days."
        ),
    ] = None,
    env: Env = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """Delete models beyond a number or an age, files and rows; and finish what was cut short.

    What an alias points to or a rollback would return to stays, and so does what a run has that is
    under way or can be resumed.

    Examples:

      rlctl registry prune --keep-top-n 10 --dry-run
    """
    models = target.connect().models
    done = models.prune(keep_top_n=keep_top_n, max_age=max_age, env=env, dry_run=dry_run)
    if json:
        print_json(done)
        return
    _print_retirements("would go" if dry_run else "removed", done.removed)
    _print_retirements("stays", done.spared)
    if keep_top_n is None and max_age is None:
        out().print("no limit is set, so only removals that were cut short are finished")
        out().print("set one with --keep-top-n or --max-age")
    elif not done.removed:
        out().print("nothing to remove")


def history(
    alias: Annotated[
        str | None, typer.Argument(metavar="[ALIAS]", help="Of this alias only.")
    ] = None,
    env: Env = None,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """List every change of an alias, newest first: which model, by whom, why, forced or not."""
    name, env_id = (None, env) if alias is None else place_of(alias, env)
    changes = target.connect(reading=True).models.history(env=env_id, alias=name)
    if json:
        print_json({"history": changes})
    elif changes:
        print_changes(changes)
    elif name is not None:
        raise NotFound(f"nobody ever had the alias {alias!r}", hint="rlctl registry history")
    else:
        out().print("no alias was ever given; start with: rlctl promote MODEL --to production")


def unalias(
    alias: AliasArgument,
    env: Env = None,
    reason: Annotated[str | None, typer.Option(help="Why; it stays in the history.")] = None,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """Take an alias away, so that nobody has it."""
    change = target.connect().models.unalias(alias, env=env, reason=reason)
    print_result(change, change_line(change), as_json=json)


commands = {
    "list": list_,
    "show": show,
    "best": best,
    "import": import_policy.command,
    "validate": validate,
    "verify": verify,
    "prune": prune,
    "history": history,
    "unalias": unalias,
}


def _print_view(view: ModelView) -> None:
    model, console = view.model, out()
    facts = {
        "model": f"#{model.id}",
        "aliases": ", ".join(f"{name}@{model.env_id}" for name in model.aliases) or "–",
        "policy": f"{model.algorithm} on {model.env_id}",
        "return": return_text(model),
        "episodes": "–" if model.episodes is None else f"{model.episodes:,}",
        "validated": "yes" if model.validated else "no",
        "run": model.run_id or "–",
        "commit": model.git_commit or "–",
        "config": (model.config_hash or "–")[:12],
        "lineage": ", ".join(f"{name} {value}" for name, value in model.lineage.items()) or "–",
        "digest": (model.digest or "–")[:12],
        "from": f"checkpoint {model.checkpoint_digest[:12]}" if model.checkpoint_digest else "–",
        "path": model.model_path,
    }
    for name, value in facts.items():
        console.print(f"[dim]{name:<10}[/]{safe(value)}", soft_wrap=True)
    for stored in view.verdicts:
        beside = "" if stored.baseline_id is None else f", beside model {stored.baseline_id}"
        first, *checks = verdict_lines(stored.verdict)
        console.print(f"\n[dim]verdict {stored.id}[/] {moment(stored.at)}{beside}: {first}")
        for line in checks:
            console.print(line, soft_wrap=True)
    if view.history:
        console.print()
        print_changes(view.history)


def _print_retirements(word: str, retirements: tuple[Retirement, ...]) -> None:
    for retirement in retirements:
        out().print(f"{word}  #{retirement.model_id}: {safe(retirement.why)}")
