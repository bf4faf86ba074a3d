"""Text of flags and variables as values of options, and the one text that several flags come to."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rl_orch.errors import BadInput, SpecInvalid
from rl_orch.spec import mistakes, reader, spelling, zoo
from rl_orch.spec.mistakes import Given
from rl_orch.spec.options import Option


def value_of(option: Option, text: str, source: str) -> Any:
    """What a text stands for: lists and maps are JSON, `null` is nothing, a word that stands alone
    is a list of one, and `a=1,b=2` is a map."""
    if option.nullable and text.strip().lower() in ("null", "none"):
        return None
    if option.mapping and (given := spelling.pairs(text, of_text=option.of_text)) is not None:
        return given
    if option.numbers and spelling.NUMBERS.fullmatch(text):
        return spelling.sizes(text)
    if not option.structured or (option.listing and not text.lstrip().startswith("[")):
        return text
    try:
        return reader.parse_json(text, source=source)
    except BadInput:
        raise SpecInvalid([mistakes.wrong(option, Given(text, source), "JSON: ")]) from None


def joined(option: Option, texts: Sequence[str]) -> str:
    """The text of an option whose flag is given several times: maps are merged, lists appended.

    Other options are given once, and so is each name of a map.
    """
    lists = option.listing or option.numbers
    if len(texts) == 1 or (len({*texts}) == 1 and not lists):
        return texts[0]
    values = [value_of(option, text, option.flags[0]) for text in texts]
    if option.mapping and all(isinstance(value, dict) for value in values):
        return _merged(option.flags[0], values)
    if lists and None not in values:
        parts = (value if isinstance(value, list) else [value] for value in values)
        return json.dumps([part for each in parts for part in each])
    raise given_twice(option.flags[0], texts)


def arguments_of(text: str, source: str) -> Mapping[str, Any] | None:
    """The arguments of a policy, if they are named: as JSON, or as a call of `dict`."""
    try:
        given = reader.parse_json(text, source=source)
    except BadInput:
        return zoo.keywords(text)
    return given if isinstance(given, Mapping) else None


def joined_arguments(flag: str, texts: Sequence[str]) -> str:
    """The same as `joined`, of the arguments of a policy."""
    if len(texts) == 1:
        return texts[0]
    maps = [arguments_of(text, flag) for text in texts]
    odd = [text for text, each in zip(texts, maps, strict=True) if each is None]
    return odd[0] if odd else _merged(flag, [each for each in maps if each is not None])


def given_twice(
    subject: str, values: Sequence[str], hint: str = "Keep one; aliases count as the same."
) -> BadInput:
    """The error that flags say different things."""
    seen = " and as ".join(dict.fromkeys(values))
    return BadInput(f"{subject} is given twice, as {seen}", hint=hint)


def _merged(flag: str, maps: Sequence[Mapping[str, Any]]) -> str:
    whole: dict[str, str] = {}
    for each in maps:
        for name, value in each.items():
            text = json.dumps(value, default=str)
            if whole.setdefault(name, text) != text:
                raise given_twice(f"{name} of {flag}", [whole[name], text])
    return json.dumps({name: json.loads(text) for name, text in whole.items()})
