"""Moments as people type them: so long ago, or a date and a time."""

import re
import time
from datetime import datetime

from rl_orch.errors import BadInput

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
SPAN = re.compile(r"([0-9]{1,6})([smhdw])")


def moment(text: str, *, flag: str) -> float:
    """Seconds since the epoch: `12h` is so long ago, `2026-11-18T09:30` is local time."""
    if (span := SPAN.fullmatch(text.strip())) is not None:
        return time.time() - int(span[1]) * UNITS[span[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise BadInput(
            f"{flag} is {text!r}; must be a number of s, m, h, d or w ago, or a date and a time",
            hint=f"For example: {flag} 12h, or {flag} 2026-11-18T09:30",
        ) from None
