"""Text that others wrote, made safe to show: no terminal escapes, no control characters."""

import re

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])?")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """The text without terminal escapes or control characters."""
    return CONTROLS.sub("", ESCAPES.sub("", text))
