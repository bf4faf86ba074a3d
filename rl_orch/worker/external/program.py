"""Programs of somebody else's: whether they can be found, in which folder and with which variables
they start, and how they end with all that they started. They are argument lists, never a shell's.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

from rl_orch.errors import BadInput, Problem
from rl_orch.io.files import private
from rl_orch.io.processes import pids
from rl_orch.io.processes.environment import KEYS, harmless
from rl_orch.io.run.directory import RunDir
from rl_orch.spec.model import Spec

WORK = "work"
"""The folder in a run's directory that its program starts in, where the spec names no other."""

OURS = "RLCTL_"
"""How the names of variables begin that are ours: none is handed on, but for cookies."""

REFERENCE = "env:"
"""How a value begins that only names a variable: a secret, which is written down nowhere."""

LEAKS = frozenset(
    {
        *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONNOUSERSITE"),
        *("PYTHONSAFEPATH", "PYTHONEXECUTABLE", "PYTHONPLATLIBDIR", "PYTHONWARNINGS"),
        *("VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "__PYVENV_LAUNCHER__"),
    }
)
"""Variables that would make another interpreter look for modules where ours has them."""


def problems(spec: Spec) -> list[Problem]:
    """Reasons why this process could not start the programs of a spec; empty if it can."""
    runner = spec.runner
    mistakes = [*_folder_problems(spec), *_variable_problems(spec)]
    if mistakes:
        return mistakes
    for option, arguments in (("command", runner.command), ("policy", runner.policy)):
        if arguments:
            mistakes += _program_problems(spec, f"runner.{option}", arguments)
    return mistakes


def variables(
    spec: Spec, given: Mapping[str, str], *, inherited: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a program: ours without what is only ours, the spec's, and `given`."""
    mine = harmless(os.environ if inherited is None else inherited)
    kept = {name: value for name, value in mine.items() if _is_handed_on(name)}
    chosen = {name: _resolved(name, value, mine) for name, value in spec.runner.env.items()}
    return kept | chosen | dict(given)


def folder(spec: Spec, directory: RunDir) -> Path:
    """Folder in which the programs of a run start; the run's own is made if need be."""
    if spec.runner.cwd is not None:
        return Path(spec.runner.cwd)
    own = directory.path / WORK
    private.inner_folder(own)
    return own


def start(
    arguments: Sequence[str],
    spec: Spec,
    directory: RunDir,
    given: Mapping[str, str],
    *,
    output: IO[bytes] | int,
    errors: IO[bytes],
    input: int = subprocess.DEVNULL,
) -> "subprocess.Popen[bytes]":
    """Start a program of a run, with the variables that are given, in a process group of its own.

    So it ends when we say so. Its session is that of its run process: who looks for one by the
    session that it leads finds nobody else.
    """
    at, environment = folder(spec, directory), variables(spec, given)
    try:
        return subprocess.Popen(
            list(arguments),
            stdin=input,
            stdout=output,
            stderr=errors,
            cwd=at,
            env=environment,
            process_group=0,
            # In the run's own folder its umask, elsewhere that of whoever started the run.
            umask=-1 if spec.runner.cwd is None else private.users_umask(),
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BadInput(
            f"the program {arguments[0]!r} cannot be started in {str(at)!r}: {why}",
            path="runner.command",
        ) from error


def ask_to_end(program: "subprocess.Popen[bytes]") -> None:
    """SIGTERM for a program and its process group."""
    _signal_group(program, signal.SIGTERM)


def end(program: "subprocess.Popen[bytes]", directory: RunDir, attempt: int) -> int:
    """Kill what is left of a program; returns how many processes that it had started were left.

    They are found by their parents, and by the cookie that they inherited, wherever they went.
    """
    left = {*_descendants(program), *pids.marked(directory.path, through=attempt)}
    left.discard(pids.identity(program.pid) or "")
    _signal_group(program, signal.SIGKILL)
    for identity in left:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pids.pid_of(identity), signal.SIGKILL)
    pids.sweep(directory.path, through=attempt)
    program.wait()
    return len(left)


def _signal_group(program: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """Send a signal to the group that a program leads. Once it is waited for, its pid and its
    group may be somebody else's."""
    if program.returncode is not None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, number)


def _descendants(program: "subprocess.Popen[bytes]") -> set[str]:
    if program.returncode is not None:
        return set()
    try:
        children = psutil.Process(program.pid).children(recursive=True)
    except psutil.Error:
        return set()
    identities = (pids.identity(child.pid) for child in children)
    return {identity for identity in identities if identity is not None}


def _is_handed_on(name: str) -> bool:
    is_cookie = name in (pids.COOKIE, pids.ASKED)
    return is_cookie or not (name in LEAKS or name.startswith(OURS))


def _resolved(name: str, value: str, mine: Mapping[str, str]) -> str:
    """The value of a variable, looked up if it is a reference."""
    if not value.startswith(REFERENCE):
        return value
    wanted = value.removeprefix(REFERENCE)
    if wanted not in mine:
        raise BadInput(_unset(name, wanted), path=f"runner.env.{name}")
    return mine[wanted]


def _unset(name: str, wanted: str) -> str:
    return f"runner.env.{name} is {REFERENCE}{wanted}, but the variable {wanted} is not set here"


def _folder_problems(spec: Spec) -> list[Problem]:
    cwd, tensorboard = spec.runner.cwd, spec.runner.tensorboard
    mistakes = []
    if cwd is not None and not Path(cwd).is_absolute():
        message = f"runner.cwd is {cwd!r}; must be an absolute path by the time a run is made"
        mistakes.append(Problem("runner.cwd", cwd, message, "Write the whole path."))
    elif cwd is not None and not Path(cwd).is_dir():
        message = f"runner.cwd is {cwd!r}; there is no such folder here"
        mistakes.append(Problem("runner.cwd", cwd, message))
    if tensorboard is not None and (tensorboard.startswith("/") or ".." in Path(tensorboard).parts):
        message = f"runner.tensorboard is {tensorboard!r}; must be a folder inside runner.cwd"
        mistakes.append(Problem("runner.tensorboard", tensorboard, message, "For example: runs."))
    return mistakes


def _variable_problems(spec: Spec) -> list[Problem]:
    mistakes = []
    for name, value in spec.runner.env.items():
        wanted = value.removeprefix(REFERENCE)
        if name.startswith(OURS):
            message = f"runner.env.{name} is set; names that begin with {OURS} are the run's own"
            mistakes.append(Problem(f"runner.env.{name}", value, message))
        elif value.startswith(REFERENCE) and wanted in KEYS:
            message = f"runner.env.{name} is {value}; no program is handed {wanted}"
            hint = "It opens the control plane, where a program has no business."
            mistakes.append(Problem(f"runner.env.{name}", value, message, hint))
        elif value.startswith(REFERENCE) and wanted not in os.environ:
            hint = f"Set {wanted} where the run is started: for a service, where that was started."
            mistakes.append(Problem(f"runner.env.{name}", value, _unset(name, wanted), hint))
    return mistakes


def _program_problems(spec: Spec, option: str, arguments: Sequence[str]) -> list[Problem]:
    """Whether the program is there, and the mistake that everybody makes once: a script that is
    named as if the program started where the command is typed."""
    program, at = arguments[0], spec.runner.cwd
    path = variables(spec, {}).get("PATH", os.defpath)
    if "/" in program:
        there = shutil.which(Path(at or ".") / program) is not None
        there = there and (at is not None or Path(program).is_absolute())
    else:
        there = bool(program) and shutil.which(program, path=path) is not None
    if not there:
        where = f"in {at!r}" if at is not None else "in the run's own folder"
        looked = where if "/" in program else f"on the path {path!r}"
        message = f"{option} starts {program!r}; there is no such program {looked}"
        hint = "Write the whole path of the program, or set runner.cwd."
        return [Problem(option, list(arguments), message, hint)]
    scripts = [word for word in arguments[1:] if word.endswith((".py", ".sh"))]
    for script in () if at is not None else scripts:
        if not Path(script).is_absolute() and Path(script).is_file():
            message = f"{option} names {script!r}; the program starts in the run's own folder"
            hint = f"Set runner.cwd to {str(Path.cwd())!r}, or write the whole path of {script!r}."
            return [Problem(option, list(arguments), message, hint)]
    return []
