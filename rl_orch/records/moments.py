"""Moments as people type them: so long ago, or a date and a time."""

import time
from datetime import datetime

from rl_orch.errors import BadInput
from rl_orch.spec.spelling import span


def moment(text: str, *, flag: str) -> float:
    """Seconds since the epoch: `12h` is so long ago, `2026-11-18T09:30` is local time."""
    if (ago_s := span(text)) is not None:
        return time.time() - ago_s
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise BadInput(
            f"{flag} is {text!r}; must be a number of s, m, h, d or w ago, or a date and a time",
            hint=f"For example: {flag} 12h, or {flag} 2026-11-18T09:30",
        ) from None
