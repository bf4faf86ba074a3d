"""Flags for a whole spec, made from the option table and added to a command's signature."""

import difflib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, starmap
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from rl_orch.cli.arguments import ArgumentGroup
from rl_orch.cli.output import note, warn
from rl_orch.core.registry import references
from rl_orch.errors import BadInput, Warn
from rl_orch.spec import checks, spelling, zoo
from rl_orch.spec.mistakes import stray_variables
from rl_orch.spec.model import Spec
from rl_orch.spec.options import Option, groups, is_group, path_of, short_names, table
from rl_orch.spec.overrides import parse_override
from rl_orch.spec.reader import read_spec
from rl_orch.spec.reference import default_text
from rl_orch.spec.texts import given_twice, joined, joined_arguments, value_of
from rl_orch.spec.tuned import resolve_tuned

ELSEWHERE = ("registry.db_path",)
"""Options whose flags are those of the connection, where a command has one."""

SpecFile = Annotated[Path | None, typer.Option("-f", "--file", help="Spec file, YAML or JSON.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="GROUP.OPTION=VALUE",
        help="Overrides in Hydra's grammar; they beat flags, variables and the file.",
    ),
]

Hyperparams = Annotated[
    list[str] | None,
    typer.Option(
        "--hyperparams",
        "-params",
        metavar="NAME:VALUE",
        help="Options by the zoo's spelling: learning_rate:0.001 n_steps:64.",
    ),
]
PolicyArguments = Annotated[
    list[str] | None,
    typer.Option(
        "--policy-kwargs",
        metavar="MAP",
        help="Options of the network by their names in SB3: 'dict(net_arch=[64, 64])', or JSON.",
    ),
]
ENV_ARGUMENTS = "env.kwargs"
LIKE_AN_OPTION = 0.8
"""How alike a word is to the name of the option that it may be meant as."""


class SpecArguments(ArgumentGroup):
    """A spec as it is typed: a file, overrides, and a flag for every option, by path."""

    about = (
        "Every option of a spec is a flag, listed below by group; --no-FLAG turns a switch off. "
        "The same options are keys of the file, variables and overrides: "
        "`rlctl options` names them."
    )

    def __init__(
        self,
        overrides: Overrides = None,
        file: SpecFile = None,
        *,
        hyperparams: Hyperparams = None,
        policy_kwargs: PolicyArguments = None,
        **flags: str | list[str] | bool | None,
    ) -> None:
        self.file = file
        self.flags = dict(_given_flags(flags))
        if policy_kwargs:
            self.flags[zoo.POLICY] = joined_arguments("--policy-kwargs", _texts(policy_kwargs))
        self.overrides = []
        for word in overrides or ():
            if hyperparams and _continues_hyperparams(word, self.flags):
                self._add(word)
            elif not _continues_a_map(word, self.flags):
                self.overrides.append(word)
        _refuse_loose_words(self.overrides, self.flags)
        for word in hyperparams or ():
            self._add(word)

    def _add(self, word: str) -> None:
        name, text = _hyperparameter(word)
        if self.flags.setdefault(name, text) != text:
            raise given_twice(name, [self.flags[name], text])

    def spec(
        self,
        inherit: Callable[[str], Mapping[str, Any]] | None = None,
        tell: Warn = lambda warning: warn(str(warning)),
    ) -> Spec:
        """The spec that was typed: file, variables, flags and overrides; `tell` hears of warnings.

        Tuned hyperparameters are below all of them, if there are any; or, where no environment is
        named, what `inherit` says of the source of weights.
        """
        for warning in stray_variables(os.environ):
            tell(warning)
        flags = {_as_typed(name): text for name, text in self.flags.items()}
        typed: Any = {"variables": os.environ, "flags": flags, "overrides": self.overrides}
        document = None if self.file is None else read_spec(self.file)
        spec = resolve_tuned(document, say=note, inherit=inherit, **typed)
        for warning in [*checks.unread(spec), *checks.overrun(spec)]:
            tell(warning)
        source = spec.start.source
        return spec if source is None else spec.changed({"start.from": absolute(source)})


def absolute(word: str) -> str:
    """A reference to a policy that a service elsewhere understands: paths are meant from here."""
    path = Path(os.path.expanduser(word))
    is_path = word.startswith((".", "~")) or (os.sep in word and os.path.isdir(path))
    is_path = is_path or references.is_at(path)
    return str(path.absolute()) if is_path else word


def _continues_hyperparams(word: str, flags: Mapping[str, str]) -> bool:
    """Whether a further word is one of several `name:value` after `--hyperparams`.

    If arguments of an environment are given, too, it is one that is known as a hyperparameter.
    """
    pair = zoo.pair(word)
    return pair is not None and (_is_hyperparameter(pair[0]) or ENV_ARGUMENTS not in flags)


def _continues_a_map(word: str, flags: dict[str, str]) -> bool:
    """Take a further word that is one of several entries after `--env-kwargs` or another map."""
    match = spelling.PAIR.fullmatch(word)
    maps = [path for path in flags if path in table() and table()[path].mapping]
    if match is None or not maps:
        return False
    name, path = match[1], maps[0]
    if word[len(name)] == ":":
        path = ENV_ARGUMENTS if ENV_ARGUMENTS in maps else path
    elif _may_be_option(name):
        return False
    elif len(maps) > 1:
        several = " or ".join(f"{path}.{name}{word[len(name) :]}" for path in maps)
        raise BadInput(f"{word} may be of {' or of '.join(maps)}", hint=f"Write {several}.")
    flags[path] = joined(table()[path], [flags[path], word])
    return True


def _may_be_option(name: str) -> bool:
    path = path_of(name)
    near = difflib.get_close_matches(name.lower(), short_names(), n=1, cutoff=LIKE_AN_OPTION)
    return path in table() or is_group(path) or bool(near)


def _hyperparameter(word: str) -> tuple[str, str]:
    """Name and text of an option that is written as the zoo does: `learning_rate:0.001`."""
    pair = zoo.pair(word, signs=":=")
    if pair is None:
        raise BadInput(
            f"hyperparameter {word!r} is not understood", hint="For example: learning_rate:0.001"
        )
    if not _is_hyperparameter(pair[0]):
        near = difflib.get_close_matches(_flag(pair[0]), _flags(), n=1)
        meant = f"Did you mean {near[0][2:].replace('-', '_')!r}? " if near else ""
        raise BadInput(f"no hyperparameter {pair[0]!r}", hint=f"{meant}`rlctl options` lists them.")
    return pair


def _is_hyperparameter(name: str) -> bool:
    return name == zoo.POLICY or name in short_names() or path_of(name) in table()


def _as_typed(name: str) -> str:
    """The flag that was typed for an option, of which the parser keeps no note; else its path."""
    option = table().get(name)
    words = {word.partition("=")[0].replace("_", "-") for word in sys.argv[1:]}
    typed = (flag for flag in (option.flags if option else ()) if flag in words)
    return next((flag for flag in typed if flag.startswith("--")), name)


def _refuse_loose_words(words: Sequence[str], flags: Mapping[str, str]) -> None:
    """Raise if an override was typed with a space, `lr 1e-3`, or a list as argparse takes it,
    `--seeds 1 2 3`."""
    for word, value in pairwise([*words, ""]):
        if path_of(word) in table() or word in short_names():
            given = "" if "=" in value or value.startswith("~") else value
            message = f"{f'{word} {given}'.strip()} is no override"
            raise BadInput(message, hint=f"In one word: {word}={given or 'VALUE'}")
    loose = [word for word in words if word.isdecimal()]
    lists = [
        path for path in flags if path == "seeds" or (path in table() and table()[path].numbers)
    ]
    if not loose:
        return
    written = ",".join([*(flags[path] for path in lists[:1]), *loose])
    flag = min(table()[next(iter(lists), "seeds")].flags, key=len)
    message = f"{' '.join(loose)} belongs to no option; a list is one word, with commas"
    raise BadInput(message, hint=f"For example: {flag} {written}")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _flags() -> set[str]:
    return {flag for option in table().values() for flag in option.flags}


def _given_flags(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for option in table().values():
        typed = (given.get(name) for name in (_name(option), _name(option, other=True)))
        texts = [joined(option, _texts(each)) for each in typed if each not in (None, [])]
        if len({*texts}) > 1 and (option.listing or option.numbers):
            # In which order, the parser does not say.
            raise given_twice(option.flags[0], texts, f"Type {option.flags[0]} each time.")
        if texts:
            yield option.path, joined(option, texts) if len({*texts}) > 1 else texts[0]


def _texts(typed: Any) -> list[str]:
    values = typed if isinstance(typed, list) else [typed]
    return [str(each).lower() if isinstance(each, bool) else each for each in values]


def _in_help_order() -> list[Option]:
    """What this release can do comes before what is pending."""
    return sorted(table().values(), key=lambda option: _waits(option.group))


def _waits(group: str) -> bool:
    inside = [option for option in table().values() if option.group == group]
    return all(isinstance(option.pending, str) for option in inside)


def _parameters(option: Option) -> Iterator[inspect.Parameter]:
    """One parameter that help shows, and one that takes the other spellings."""
    first, *others = option.flags
    if option.switch:
        others = [f" /--no-{first[2:]}", *(f"{flag}/--no-{flag[2:]}" for flag in others)]
    kind: Any = bool | None if option.switch else list[str] | None
    shown = typer.Option(
        first,
        help=_help(option),
        rich_help_panel=_panel(option.group),
        metavar=None if option.switch else _metavar(option),
    )
    yield _parameter(_name(option), Annotated[kind, shown])
    if others:
        hidden = typer.Option(*others, hidden=True)
        yield _parameter(_name(option, other=True), Annotated[kind, hidden])


def _hidden(annotation: Any) -> Any:
    """The parameter, which help does not show."""
    shown = annotation.__metadata__[0]
    shown.hidden = True
    return annotation


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=annotation)


def _name(option: Option, *, other: bool = False) -> str:
    return ("other_" if other else "flag_") + option.path.replace(".", "__")


def _panel(group: str) -> str:
    about = groups()[group].partition(". ")[0].rstrip(".")
    return f"{group} (pending): {about}" if _waits(group) else f"{group}: {about}"


def _help(option: Option) -> str:
    parts = [option.help]
    if len(option.choices) > 1:
        parts.append(f"One of {', '.join(option.choices)}.")
    if option.default is not None:
        parts.append(f"[default: {default_text(option)}]")
    if isinstance(option.pending, str) and not _waits(option.group):
        parts.append("(pending)")
    return escape(" ".join(parts))


def _metavar(option: Option) -> str:
    if option.choices:
        return "NAME" if len(option.choices) > 1 else option.choices[0]
    words = ("list", "pair", "map", "whole", "number")
    return next((word.upper() for word in words if option.type.startswith(word)), "TEXT")


class ChangedOptions(ArgumentGroup):
    """Options of a run that are to change: as overrides, or by a flag for each."""

    about = "Every option is a flag here as it is of `rlctl launch`, with the same spellings."

    def __init__(self, words: Overrides = None, **flags: str | list[str] | bool | None) -> None:
        given = dict(_given_flags(flags))
        words = [word for word in words or () if not _continues_a_map(word, given)]
        _refuse_loose_words(words, given)
        self.overrides = [*words, *starmap(_as_override, given.items())]


def _as_override(path: str, text: str) -> str:
    """What a flag says, in the grammar of overrides."""
    value = value_of(table()[path], text, table()[path].flags[0])
    text = text if value is None or isinstance(value, str) else json.dumps(value)
    try:
        parse_override(f"{path}={text}")
    except BadInput:
        escaped = text.replace("\\", "\\\\").replace("'", "\\'")
        return f"{path}='{escaped}'"
    return f"{path}={text}"


ChangedOptions.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        _parameter("words", Overrides),
        *(
            parameter.replace(annotation=_hidden(parameter.annotation))
            for option in _in_help_order()
            if option.path not in ELSEWHERE
            for parameter in _parameters(option)
        ),
    ]
)
SpecArguments.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        _parameter("overrides", Overrides),
        _parameter("file", SpecFile),
        _parameter("hyperparams", Hyperparams),
        _parameter("policy_kwargs", PolicyArguments),
        *(parameter for option in _in_help_order() for parameter in _parameters(option)),
    ]
)
