"""Text that others wrote, made safe to show: no terminal escapes, no control characters."""

import re

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])?")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """The text without terminal escapes or control characters."""
    return CONTROLS.sub("", ESCAPES.sub("", text))


def one_line(text: str, most: int) -> str:
    """The printable characters of the text on one line, at most so many; one that is cut ends in
    an ellipsis."""
    line = "".join(filter(str.isprintable, " ".join(clean(text).split())))
    return line if len(line) <= most else f"{line[: most - 1]}…"
