"""Hubs of a scenario, with their cure or without it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from support.faulty_hubs import hub_without_ids, persistent_settings

from sharedmem import Hub


@asynccontextmanager
async def open_hubs(
    url: str, number: int, *, is_control: bool = False, gives_up: bool = False
) -> AsyncIterator[list[Hub]]:
    """Open so many hubs that outlast every fault.

    Args:
        is_control: they give each repeated call a new operation id.
        gives_up: the last of them repeats nothing, so that the outcome of some of its calls is unknown.
    """
    async with AsyncExitStack() as stack:
        hubs = []
        for one in range(number):
            settings = persistent_settings(url, **({"retry_for_s": 0.0} if gives_up and one == number - 1 else {}))
            hub = hub_without_ids(persistent_settings(url)) if is_control else Hub.open(settings=settings)
            hubs.append(await stack.enter_async_context(hub))
        yield hubs
