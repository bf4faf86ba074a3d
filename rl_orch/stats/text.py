"""Numbers as people read them: returns and their intervals, in every sentence and table."""

import math


def figure(value: float) -> str:
    """A return with as many digits as it takes: 489.7, 12.34, 0.0512. What is none is a dash."""
    if math.isnan(value):
        return "–"
    if not math.isfinite(value) or value == 0 or abs(value) >= 100:
        return f"{value:,.1f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def bounds_text(bounds: tuple[float, float]) -> str:
    """An interval; one without bounds, as a single number has it, is unknown."""
    low, high = bounds
    return f"[{figure(low)}, {figure(high)}]" if math.isfinite(high - low) else "[unknown]"
