"""Addresses, as of a database: what is one, and a text with the passwords in it hidden. Pure."""

import re
from typing import Any

PASSWORD = re.compile(
    r"(postgres[\w+]*://[^\s:/@]*:)(?!password@)[^\s'\"]{0,500}@"
    r"|(\w://[^\s:/?#@]*:)(?!password@)[^\s/?#]{0,500}@"
    r"|([?&](?:ssl)?password=)[^\s&#'\"]*"
)
"""Passwords, each after what stands before it; `password` itself is that of an example. In a
database's, people leave characters as they are that an address should not have."""


def is_url(text: object) -> bool:
    """Whether a database, or another place, is named by an address, and not by a path."""
    return isinstance(text, str) and "://" in text


def masked(text: str) -> str:
    """A text as it may be shown: the password of an address in it is three stars."""
    return PASSWORD.sub(_hidden, text) if "://" in text else text


def masked_in(value: Any, levels: int = 30) -> Any:
    """A value as it may be shown, a map or a list with all that is in it."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict | list) and levels == 0:
        return "…"
    if isinstance(value, dict):
        return {key: masked_in(each, levels - 1) for key, each in value.items()}
    return [masked_in(each, levels - 1) for each in value] if isinstance(value, list) else value


def _hidden(match: re.Match[str]) -> str:
    before = next(group for group in match.groups() if group is not None)
    return f"{before}***" if before.endswith("=") else f"{before}***@"
