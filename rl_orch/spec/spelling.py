"""How people write values in YAML, on a command line and in variables: `1e6`, `"on"`, `QR-DQN`.

Each function returns what pydantic should check, or the value unchanged where it cannot tell.
"""

import json
import math
import re
from contextlib import suppress
from fractions import Fraction
from typing import Any

MAX_DEPTH = 30
"""Maps and lists may be nested so deep, and no deeper."""

SWITCHES = dict.fromkeys(("1", "true", "yes", "on"), True)
SWITCHES |= dict.fromkeys(("0", "false", "no", "off"), False)


COUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s?([kKmM])")
THOUSANDS = {"k": 3, "m": 6}


def whole(value: Any) -> Any:
    """An int from `1e6`, `"100_000"`, `"45k"`, `"1.5M"` or `8.0`; a boolean or `8.5` is not a whole
    number."""
    if isinstance(value, bool):
        raise ValueError("a boolean is not a whole number")
    if isinstance(value, str):
        count = COUNT.fullmatch(value.strip())
        value = _parsed(value) if count is None else _scaled(count[1], THOUSANDS[count[2].lower()])
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
SPAN = re.compile(r"([0-9]{1,6})([smhdw])")


def span(text: str) -> float | None:
    """Seconds in a span of time: `45m`, `12h`, `30d`; None if it is no such text."""
    match = SPAN.fullmatch(text.strip())
    return None if match is None else float(int(match[1]) * UNITS[match[2]])


def seconds(value: Any) -> Any:
    """A number of seconds, or a span of time."""
    found = span(value) if isinstance(value, str) else None
    return number(value) if found is None else found


def number(value: Any) -> Any:
    """A number from `"3e-4"`; YAML reads that as text."""
    if isinstance(value, bool):
        raise ValueError("a boolean is not a number")
    return _parsed(value) if isinstance(value, str) else value


def auto(value: Any) -> Any:
    """A number, or the word `auto`."""
    if isinstance(value, str) and value.strip().lower() == "auto":
        return "auto"
    return number(value)


BACKENDS = {"dummy": "sync", "subproc": "async"}
"""What the zoo calls the ways of stepping copies, and what they are called here."""


def stepping(value: Any) -> Any:
    """How copies are stepped, also in the zoo's words."""
    return BACKENDS.get(value, value) if isinstance(value, str) else value


def switch(value: Any) -> Any:
    """A boolean from `1`, `"on"`, `"yes"`, `"false"`."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return value
    return SWITCHES.get(str(value).strip().lower(), value)


def untuned(value: Any) -> Any:
    """The name of tuned hyperparameters; a switch means those of the environment, or `none`."""
    means = switch(value)
    if isinstance(means, bool):
        return "auto" if means else "none"
    return lower(value) if lower(value) in ("auto", "none") else value


def seeds(value: Any) -> Any:
    """A count, or distinct seeds from `[1, 2, 3]` or from text: `"5"`, `"1, 2, 3"`, `"[1]"`."""
    if isinstance(value, str) and ("," in value or "[" in value):
        value = value.strip().removeprefix("[").removesuffix("]").split(",")
    if not isinstance(value, list | tuple):
        return whole(value)
    listed = [whole(part) for part in value]
    if len({repr(part) for part in listed}) < len(listed):
        raise ValueError("a seed is given twice")
    return listed


def words(value: Any) -> Any:
    """A list of words from one that stands alone. Words are never split: that is a shell's job."""
    return [value] if isinstance(value, str) else value


def entries(value: Any) -> Any:
    """A list of names and maps from one that stands alone."""
    return [value] if isinstance(value, str | dict) else value


PAIR = re.compile(r"([A-Za-z_]\w*)[=:](?!//)(.+)", re.DOTALL)
WORDS: dict[str, Any] = {"True": True, "False": False, "None": None}


def pairs(text: str, *, of_text: bool) -> dict[str, Any] | None:
    """A map from `a=1,b=two`, or from `a:1` as RL Zoo writes it; None if it is no such text.

    Values are JSON, or Python's True, False and None, or else text; in a map of text, always text.
    """
    found = [PAIR.fullmatch(part.strip()) for part in text.split(",")]
    if any(match is None for match in found):
        return None
    read = str.strip if of_text else _literal
    return {match[1]: read(match[2]) for match in found if match is not None}


def _literal(typed: str) -> Any:
    text = typed.strip()
    if text in WORDS:
        return WORDS[text]
    try:
        value = json.loads(text)
    except ValueError:
        quoted = len(text) > 1 and text[0] == text[-1] == "'"
        return text[1:-1] if quoted else text
    return value


LIMIT = re.compile(r"\s*(>=|<=|>|<|≥|≤)?\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*")
SIGNS = {None: ">=", "≥": ">=", "≤": "<="}


def limits(value: Any) -> Any:
    """A map of limits in one spelling, `>= 3.0`; a number alone is a least one."""
    if not isinstance(value, dict):
        return value
    return {name: _limit(each) for name, each in plain_map(value).items()}


def _limit(value: Any) -> str:
    match = None if isinstance(value, bool) else LIMIT.fullmatch(str(value))
    if match is None or not math.isfinite(float(match[2])):
        raise ValueError(f"{value!r} is no limit")
    number = float(match[2])
    text = f"{number:g}" if float(f"{number:g}") == number else repr(number)
    return f"{SIGNS.get(match[1], match[1])} {text}"


def pair(value: Any) -> Any:
    """Bounds from one number: `10` is `[-10, 10]`."""
    value = number(value) if isinstance(value, str) else value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (-abs(value), abs(value))
    return value


def strategy(value: Any) -> Any:
    """A normalisation strategy from its name, or from a switch: on is `running`, off `none`."""
    switched = switch(value)
    if isinstance(switched, bool):
        return "running" if switched else "none"
    return lower(value)


def nonlinearity(value: Any) -> Any:
    """The name of a non-linearity from that of torch's class, `nn.ReLU`, or from the class."""
    name = value.__name__ if isinstance(value, type) else value
    return name.rpartition(".")[2].strip().lower() if isinstance(name, str) else value


NUMBERS = re.compile(r"\s*[0-9]+\s*(?:,\s*[0-9]+\s*)*")
"""Whole numbers without brackets, as `--seeds` has them."""


def sizes(value: Any) -> Any:
    """The widths of layers, also from `64` and from `"64, 64"`."""
    if isinstance(value, str) and NUMBERS.fullmatch(value):
        return value.split(",")
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


FREQUENCY = re.compile(r"""\s*[([]\s*([0-9]+)\s*,\s*["']?step["']?\s*[)\]]\s*""")


def frequency(value: Any) -> Any:
    """A count of steps, also from `[4, "step"]` and from `"(4, 'step')"`, as train_freq has it."""
    text = str(list(value)) if isinstance(value, list | tuple) else value
    match = FREQUENCY.fullmatch(text) if isinstance(text, str) else None
    return whole(value if match is None else match[1])


def lower(value: Any) -> Any:
    """A name in any case, with or without hyphens: `QR-DQN` is `qrdqn`."""
    return value.strip().lower().replace("-", "") if isinstance(value, str) else value


def plain_map(value: Any) -> Any:
    """A map that JSON can hold, so that it can be stored, sent and hashed."""
    if isinstance(value, dict):
        _refuse_odd(value, MAX_DEPTH)
    return value


def _refuse_odd(value: Any, levels: int) -> None:
    if levels == 0:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a name that is not text")
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            _refuse_odd(part, levels - 1)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a number that is not finite")
    elif not isinstance(value, str | int | bool | None):
        raise ValueError(f"a {type(value).__name__}")


def _scaled(digits: str, power: int) -> Any:
    number = Fraction(digits) * 10**power
    return int(number) if number.denominator == 1 else float(number)


def _parsed(text: str) -> Any:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
