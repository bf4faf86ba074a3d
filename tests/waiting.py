"""How long tests wait for what must happen. It ends what hangs, and is no verdict on speed: a
machine that has other work to do, or is slow, has the same verdicts later.
"""

PATIENCE_S = 300.0
"""Less than pytest gives a whole test, so that what was waited for is named."""
