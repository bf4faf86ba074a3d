"""`group.option=value` as Hydra reads it: one typed seam around that library, which is loaded only
where its grammar is needed.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from rl_orch.errors import BadInput
from rl_orch.spec.zoo import ENV_ID, keywords, pair


class _Reset:
    """Stands for the default: what `~group.option` asks for."""

    def __repr__(self) -> str:
        return "its default"


RESET: Final = _Reset()

HINT = "Write group.option=value, e.g. train.lr=1e-3 or 'env.kwargs={gravity:9.8}'."


CALL = re.compile(r"(?P<path>[A-Za-z][\w.]*)=\s*(?P<call>dict\(.*\))\s*", re.DOTALL)
"""A map as Python and the zoo write one, which Hydra takes for a function of its own."""

ODD_KEY = re.compile(
    r"""(?P<before>[{,]\s*)(?:(?P<quote>["'])(?P<quoted>[A-Za-z_][\w.:-]*)(?P=quote)\s*(?=:)"""
    r"""|(?P<bare>[A-Za-z_][\w.]*:\w+)(?=\s*:\s))"""
)
"""Keys that files may have and Hydra does not: in quotes, or with a colon, as wrappers of the
zoo."""

READ: Final[Mapping[str, Callable[[str], Any]]] = {
    "int": int,
    "float": float,
    "bool": "true".__eq__,
    "word": str,
}

PLAIN = re.compile(
    r"(?P<path>[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*)="
    r"(?:(?P<int>-?(?:0|[1-9][0-9]*))"
    r"|(?P<float>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+|(?:\.[0-9]+)?e-?[0-9]+))"
    r"|(?P<bool>true|false)"
    r"|(?P<word>(?!(?i:null|nan|inf|true|false)$)[A-Za-z][A-Za-z0-9_-]*))"
)
"""Overrides that need no grammar: a number, a word, true or false."""


@dataclass(frozen=True, slots=True)
class Override:
    """A path, its plain value, and how a value was typed that might also be meant as text."""

    path: str
    value: Any
    text: str | None


def parse_override(typed: str) -> Override:
    """One override; `BadInput` if it is not one, or names several values."""
    if (plain := PLAIN.fullmatch(typed)) is not None:
        kind, text = str(plain.lastgroup), typed.partition("=")[2]
        value = READ[kind](text)
        return Override(plain["path"], value, None if kind == "word" else text)
    return _by_grammar(typed)


def _by_grammar(typed: str) -> Override:
    """Any override that Hydra knows."""
    call = CALL.fullmatch(typed)
    if call is not None and (arguments := keywords(call["call"])) is not None:
        return Override(call["path"], arguments, None)
    # Hydra takes a quarter of a second to load: a quarter of what a command takes.
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(typed)
    except HydraException as error:
        if (mended := ODD_KEY.sub(_escaped_key, typed)) != typed:
            with suppress(BadInput):
                return _by_grammar(mended)
        if typed.endswith((".yaml", ".yml", ".json")):
            raise BadInput(f"{typed!r} is not an override", hint=f"A file: -f {typed}") from None
        if "=" not in typed and not typed.startswith("~"):
            message = f"override {typed!r} is not understood: it gives no value"
            raise BadInput(message, hint=_hint(typed)) from None
        raise BadInput(
            f"override {typed!r} is not understood: {str(error).splitlines()[0]}", hint=HINT
        ) from None
    if not override.key_or_group:
        raise BadInput(f"override {typed!r} names no option", hint=HINT)
    if override.is_sweep_override():
        raise BadInput(
            f"override {typed!r} names several values; a run takes one",
            hint="Write a single value; launch once for each of them.",
        )
    if override.is_delete():
        return Override(override.key_or_group, RESET, None)
    value = override.value()
    unquoted = isinstance(value, bool | int | float)
    text = typed.partition("=")[2].strip() if unquoted else None
    return Override(override.key_or_group, value, text)


def _hint(typed: str) -> str:
    if ENV_ID.fullmatch(typed):
        return f"An environment: --env {typed}"
    named = pair(typed)
    if named is None:
        return f"An environment: --env {typed}. An option: {HINT}"
    return f"Write {named[0]}={named[1]}; NAME:VALUE goes after --hyperparams or --env-kwargs."


def _escaped_key(match: re.Match[str]) -> str:
    """A key as Hydra's grammar has it."""
    key = match["quoted"] or match["bare"]
    return f"{match['before']}{key.replace(':', chr(92) + ':')}"
