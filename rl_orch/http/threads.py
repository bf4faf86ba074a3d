"""Threads for work that blocks: each kind has its own few, so that none keeps the others waiting.

What is not named here, such as looking into the database, shares the threads that are left.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread

SLOW_AT_ONCE = 4
COMMANDS_AT_ONCE = 8
STOPS_AT_ONCE = 8
CALLERS_AT_ONCE = 8

_slow = CapacityLimiter(SLOW_AT_ONCE)
_commands = CapacityLimiter(COMMANDS_AT_ONCE)
_stops = CapacityLimiter(STOPS_AT_ONCE)
_callers = CapacityLimiter(CALLERS_AT_ONCE)

Result = TypeVar("Result")


async def aside(work: Callable[..., Result], *given: Any) -> Result:
    """What some work comes to that reads much: only little of it is done at once, so that others
    are answered meanwhile."""
    return await to_thread.run_sync(partial(work, *given), limiter=_slow)


async def commanding(work: Callable[..., Result], *given: Any) -> Result:
    """What a run replies. One that was halted lets each who asks wait for seconds."""
    return await to_thread.run_sync(partial(work, *given), limiter=_commands)


async def stopping(work: Callable[..., Result], *given: Any) -> Result:
    """What comes of a stop: not behind commands to the very run that does not answer them."""
    return await to_thread.run_sync(partial(work, *given), limiter=_stops)


async def at_the_door(work: Callable[..., Result], *given: Any) -> Result:
    """Who asks, and whether all is well: this is found out however busy the rest is."""
    return await to_thread.run_sync(partial(work, *given), limiter=_callers)
