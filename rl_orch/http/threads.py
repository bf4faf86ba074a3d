"""Threads for work that blocks: each kind has its own few, so that none keeps the others waiting.

What is not named here, such as looking into the database, shares the threads that are left.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread

Result = TypeVar("Result")


class ThreadLimiter:
    """A limit on the threads for one kind of work."""

    def __init__(self, most: int) -> None:
        self._limiter = CapacityLimiter(most)

    async def __call__(self, work: Callable[..., Result], *given: Any, **named: Any) -> Result:
        """What the work comes to."""
        return await to_thread.run_sync(partial(work, *given, **named), limiter=self._limiter)


slow_reads = ThreadLimiter(4)
"""For what reads much: only little of it is done at once, so that others are answered meanwhile."""

commands = ThreadLimiter(8)
"""For what a run replies. One that was halted lets each who asks wait for seconds."""

stops = ThreadLimiter(8)
"""For stops: not behind commands to the very run that does not answer them."""

admissions = ThreadLimiter(8)
"""For who asks, and whether all is well: this is found out however busy the rest is."""
