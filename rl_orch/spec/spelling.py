"""How people write values in YAML, on a command line and in variables: `1e6`, `"on"`, `QR-DQN`.

Each function returns what pydantic should check, or the value unchanged where it cannot tell.
"""

from typing import Any

SWITCHES = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def whole(value: Any) -> Any:
    """An int from `1e6`, `"100_000"` or `8.0`; a boolean or `8.5` is not a whole number."""
    if isinstance(value, bool):
        raise ValueError("a boolean is not a whole number")
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def number(value: Any) -> Any:
    """A number from `"3e-4"`; YAML reads that as text."""
    if isinstance(value, bool):
        raise ValueError("a boolean is not a number")
    return _parsed(value) if isinstance(value, str) else value


def switch(value: Any) -> Any:
    """A boolean from `1`, `"on"`, `"yes"`, `"false"`."""
    if isinstance(value, bool):
        return value
    return (
        SWITCHES.get(str(value).strip().lower(), value) if isinstance(value, int | str) else value
    )


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


def lower(value: Any) -> Any:
    """A name in any case, with or without hyphens: `QR-DQN` is `qrdqn`."""
    return value.strip().lower().replace("-", "") if isinstance(value, str) else value


def _parsed(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text
