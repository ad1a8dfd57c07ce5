"""Waiting for a thing that comes true, with a sentence for the day when it does not."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

_PAUSE_S = 0.01


async def wait_until(
    condition: Callable[[], bool | Awaitable[bool]], *, description: str, within_s: float = 60
) -> None:
    """Return as soon as the condition holds.

    Args:
        condition: asked again every 10 ms; a plain function or one that returns an awaitable.
        description: what should have become true, e.g. "the watcher has caught up".
        within_s: seconds to wait at most; a condition that hangs is cut off as well.

    Raises:
        AssertionError: the time is over.
    """
    try:
        async with asyncio.timeout(within_s) as patience:
            while not await _holds(condition):  # noqa: ASYNC110 - the condition may be in another process
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError as error:
        if not patience.expired():
            raise
        raise AssertionError(f"waited {within_s:g} s in vain until {description}") from error


async def _holds(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    answer = condition()
    return await answer if inspect.isawaitable(answer) else answer
