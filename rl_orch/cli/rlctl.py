"""`rlctl`: the table of commands, and how errors and exit codes leave the program.

A command's module is imported only when that command is asked for, so that help is instant.
"""

import difflib
import gc
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from rl_orch import __version__, plugins
from rl_orch.cli.arguments import expanded
from rl_orch.cli.output import note, outlast_readers, report_error
from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.processes.signals import hear_of_children

PANELS = {
    "Train": {
        "launch": ("launch", "Train a policy, evaluate it, gate it and register it."),
        "resume": ("resume", "Go on with a stopped, failed or lost run."),
        "check": ("check", "Validate a spec and its environment without training."),
        "profile": ("profile", "Train for a short time and say where the time goes."),
        "options": ("options", "List every option with its type, default, variable and flag."),
        "verify-resume": ("verify_resume", "Certify that a spec resumes bit for bit."),
    },
    "Look": {
        "ls": ("ls", "List runs, newest first."),
        "watch": ("watch", "Show the live panel of runs until they have ended."),
        "show": ("show", "Show runs: result, curve, checkpoints, models."),
        "logs": ("logs", "Print a run's log; -f follows it."),
        "compare": ("compare", "Put runs side by side: results, config difference, curves."),
    },
    "Policies": {
        "eval": ("eval", "Play a policy, and say what it is worth."),
        "play": ("play", "Look at an episode of a policy."),
        "registry": ("registry", "List, show, judge, verify and prune models."),
        "promote": ("promote", "Give a model an alias, if gates let it pass."),
        "rollback": ("rollback", "Give an alias back to the model that had it before."),
    },
    "Manage": {
        "stop": ("stop", "Ask a run to end after a last checkpoint."),
        "set": ("set", "Change options of a run while it goes on."),
        "load": ("load", "Give a run other weights while it goes on."),
        "wait": ("wait", "Wait until runs have ended and exit with their code."),
        "tag": ("tag", "Set and remove tags of a run."),
        "note": ("note", "Note something on a run."),
        "rm": ("rm", "Delete runs that have ended."),
        "import-run": ("import_run", "Take in a run directory from another home."),
    },
    "Carry away": {
        "export": ("export", "Write a policy as ONNX, TorchScript, pt2 or a bundle."),
        "infer": ("infer", "Ask a policy for actions, without an environment."),
    },
    "Serve": {
        "up": ("up", "Start the service of a home: scheduler and HTTP API."),
        "down": ("down", "End the service of a home."),
        "jobs": ("jobs", "List, show, wait for, cancel and repeat jobs of a service."),
        "token": ("token", "Make, list and revoke keys to the HTTP API."),
        "doctor": ("doctor", "Check this machine and say what to mend."),
    },
}
"""Panel → command → (module in this package, one line of help).

A module has a function `command`, or `commands`, a table of such functions by name.
"""

SYNONYMS = {
    "train": "launch",
    "run": "launch",
    "list": "ls",
    "evaluate": "eval",
    "enjoy": "play",
}
"""Words of other tools that are understood as ours."""

MEANT = {
    **dict.fromkeys(("remove", "delete", "del"), "rm"),
    **dict.fromkeys(("kill", "cancel", "abort"), "stop"),
    **dict.fromkeys(("status", "info", "describe", "inspect"), "show"),
    **dict.fromkeys(("log", "tail"), "logs"),
    **dict.fromkeys(("continue", "restart", "retry"), "resume"),
    **dict.fromkeys(("start", "submit", "learn", "fit"), "launch"),
    **dict.fromkeys(("serve", "server"), "up"),
    **dict.fromkeys(("models", "model"), "registry"),
    **dict.fromkeys(("ps", "runs"), "ls"),
    **dict.fromkeys(("follow", "attach", "monitor"), "watch"),
    **dict.fromkeys(("diff", "plot"), "compare"),
    **dict.fromkeys(("predict", "act"), "infer"),
    **dict.fromkeys(("tokens", "login"), "token"),
    **dict.fromkeys(("validate", "lint"), "check"),
    **dict.fromkeys(("import-policy", "import"), "registry import"),
}
"""Words of other tools that are answered with what is meant here."""

ELSEWHERE = {
    **dict.fromkeys(
        ("--log-interval", "--log-freq"),
        "Every update is logged: `rlctl watch` and `rlctl show` have the numbers.",
    ),
    **dict.fromkeys(
        ("-t", "--tensorboard-log", "--tensorboard", "--logdir"),
        "TensorBoard files are in the folder of every run, tensorboard/.",
    ),
    **dict.fromkeys(
        ("--optimize", "--n-trials", "--optimize-hyperparameters", "--sampler", "--pruner"),
        "There is no search for hyperparameters yet; --seeds 1,2,3 launches one spec several "
        "times, and `rlctl compare` puts runs side by side.",
    ),
    **dict.fromkeys(
        ("--track", "--wandb", "--wandb-project-name", "--wandb-entity"),
        "Trackers are named by store.trackers=[tensorboard, my_module:Mine]; "
        "docs/extending.md has one in 25 lines.",
    ),
    **dict.fromkeys(
        ("-P", "--progress"), "Progress is shown where there is a terminal; -q shows none."
    ),
    "--verbose": "`rlctl logs -f` has all that a run says, `rlctl watch` its numbers.",
    "--alpha": "The temperature of SAC is --ent-coef: a number, or auto, which learns it; that of "
    "prioritised replay is --buffer-alpha.",
    "--autotune": "--ent-coef auto learns the temperature, as SAC does without being told.",
    "--num-minibatches": "Minibatches are given by their size: --batch-size is num_envs × "
    "num_steps / num_minibatches.",
    "--anneal-lr": "--lr-schedule linear lets the learning rate fall to zero, and constant not.",
    "--clip-vloss": "--clip-range-vf 0.2 clips the value update, at a number of its own.",
    **dict.fromkeys(
        ("--policy-lr", "--q-lr"), "Policy and critics have one learning rate: --lr 3e-4."
    ),
    **dict.fromkeys(("--cuda", "--no-cuda"), "The device is named: --device cuda, or cpu."),
    "--capture-video": "--eval-video films the best episode of the final evaluation; `rlctl play` "
    "films any policy.",
    "--torch-deterministic": "Nothing is to be switched on: --seed decides every random number.",
    "--save-model": "The best and the newest checkpoints are kept, and the best is registered.",
}
"""Flags of other tools, and how the same is had here."""

SUB_MEANT = {
    "token": {
        **dict.fromkeys(("new", "make", "add"), "create"),
        "rm": "revoke",
        "delete": "revoke",
    },
    "jobs": {**dict.fromkeys(("stop", "kill"), "cancel"), "status": "show"},
}
"""Command → words that are answered with the sub-command that is meant."""

BOTH = {"ls": "list", "list": "ls"}
"""Names of sub-commands that are understood in either spelling."""

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C has ended."""

SUGGESTED = 3
"""Flags that are named in the place of one that there is not."""

PYDANTIC = "Value error, "
"""The beginning of what the parser says of a value, which is of no use to people."""

NO_COMMAND = re.compile("No such command '([^']*)'")
NOT_A_CHOICE = re.compile("'([^']*)' is not one of (.*)")

Function = Callable[..., Any]
COMMANDS = {name: row for commands in PANELS.values() for name, row in commands.items()}

HELP = """One control plane for the whole life of a policy:
spec → run → evaluate → gate → register → export.

Start with [bold]rlctl launch --env CartPole-v1[/bold]. Runs live in RLCTL_HOME (default ./rlruns).
Exit codes: 0 succeeded, 1 failed or lost, 2 bad input, 3 rejected by a gate, 4 stopped.
"""


def main() -> None:
    """The console script."""
    hear_of_children()
    outlast_readers()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line and return its exit code."""
    as_json = "--json" in arguments
    try:
        first, *rest = list(arguments) or ["--help"]
        words = [SYNONYMS.get(first, first), *rest]
        asked = next((word for word in words if not word.startswith("-")), None)
        if words[0] == asked and asked not in COMMANDS:
            raise _unknown_command(asked)
        code = build(asked)(words, prog_name="rlctl", standalone_mode=False)
        if code == INTERRUPTED:
            note("interrupted")
        return code if isinstance(code, int) else 0
    except RlctlError as error:
        return report_error(error, as_json=as_json)
    except typer.Exit as leaving:
        return leaving.exit_code
    except KeyboardInterrupt:  # While the command is loaded; after that, it says so itself.
        note("interrupted")
        return INTERRUPTED
    except typer.Abort:
        return report_error(BadInput("nothing was done"), as_json=as_json)
    except typer.TyperException as error:
        return report_error(_usage_error(error), as_json=as_json)


def build(asked: str | None) -> typer.Typer:
    """The program, with the command that is asked for loaded and the others only named."""
    app = typer.Typer(
        name="rlctl",
        help=HELP,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        add_completion=True,
        context_settings={
            "help_option_names": ["-h", "--help"],
            "token_normalize_func": _with_dashes,
        },
    )
    app.callback()(_root)
    for panel, commands in PANELS.items():
        for name, (module, help) in commands.items():
            if name != asked:
                app.command(name, help=help, rich_help_panel=panel)(_unloaded)
                continue
            functions = load(module)
            if callable(functions):
                app.command(name, rich_help_panel=panel)(functions)
            else:
                app.add_typer(_group(help, functions), name=name, rich_help_panel=panel)
    return app


def _with_dashes(name: str) -> str:
    """The name of a flag or of a command, where somebody has written it as Python would."""
    return name.replace("_", "-")


def load(module: str) -> Function | Mapping[str, Function]:
    """The function of a command, or those of its sub-commands by name."""
    with _nothing_collected():
        loaded = plugins.command(module)
    if hasattr(loaded, "commands"):
        return {name: expanded(function) for name, function in loaded.commands.items()}
    return expanded(loaded.command)


def _group(help: str, functions: Mapping[str, Function]) -> typer.Typer:
    group = typer.Typer(help=help, rich_markup_mode="rich", invoke_without_command=True)
    group.callback()(_help_alone)
    for name, function in functions.items():
        group.command(name)(function)
        if BOTH.get(name, name) not in functions:
            group.command(BOTH[name], hidden=True)(function)
    return group


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """What is made meanwhile stays for good, so looking through it for garbage is a waste.

    That would be a fifth of the time that a short command takes, most of it when the process ends.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


def _unloaded() -> None:
    """Stands for a command whose module is not needed to print its name."""


def _unknown_command(word: str) -> BadInput:
    near = difflib.get_close_matches(word, [*COMMANDS, *SYNONYMS], n=1)
    near = [MEANT[word]] if word in MEANT else near
    return BadInput(
        f"no command {word!r}; there are: {', '.join(COMMANDS)}",
        hint=f"Did you mean `rlctl {near[0]}`?" if near else "`rlctl --help` explains them.",
    )


def _usage_error(error: typer.TyperException) -> BadInput:
    """What the parser says, as an error of ours."""
    context = getattr(error, "ctx", None)
    hint = f"`{context.command_path} --help` lists what it takes." if context else ""
    message = error.format_message().replace(PYDANTIC, "")
    near = _near_choices(message) or _near_commands(message, context)
    if (typed := getattr(error, "option_name", None)) is not None and context is not None:
        message = error.message
        if typed in ELSEWHERE:
            return BadInput(message, hint=ELSEWHERE[typed])
        near = near_options(typed, _flags(context))
    if near:
        hint = f"Did you mean {' or '.join(near)}? {hint}".strip()
    return BadInput(message, hint=hint or None)


def near_options(typed: str, flags: Iterable[str]) -> list[str]:
    """The flags that a wrong one may mean: those that end in all its words, or are most like it."""
    known = [flag for flag in dict.fromkeys(flags) if flag.startswith("--")]
    ends = [flag for flag in known if flag.endswith(f"-{typed.removeprefix('--')}")]
    if ends:
        return sorted(ends, key=lambda flag: flag.count("-"))[:SUGGESTED]
    return difflib.get_close_matches(typed, known, n=SUGGESTED, cutoff=0.7)


def _flags(context: typer.Context) -> Iterator[str]:
    for parameter in context.command.get_params(context):
        yield from (*parameter.opts, *parameter.secondary_opts)


def _near_choices(message: str) -> list[str]:
    """The choice that a wrong value is most like, from what the parser says of it."""
    match = NOT_A_CHOICE.search(message)
    if match is None:
        return []
    return difflib.get_close_matches(match[1].lower(), re.findall("'([^']*)'", match[2]), n=1)


def _near_commands(message: str, context: typer.Context | None) -> list[str]:
    """The sub-command that is meant by a word of other tools."""
    match = NO_COMMAND.search(message)
    if match is None or context is None:
        return []
    meant = SUB_MEANT.get(context.info_name or "", {}).get(match[1])
    return [] if meant is None else [f"`{context.command_path} {meant}`"]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"rlctl {__version__}")
        raise typer.Exit


def _help_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass
