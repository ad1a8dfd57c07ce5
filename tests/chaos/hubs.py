"""Hubs of a scenario, with their cure or without it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from support.faulty_hubs import hub_without_ids, persistent

from sharedmem import Hub


@asynccontextmanager
async def opened(url: str, number: int, *, is_control: bool) -> AsyncIterator[list[Hub]]:
    """Open so many hubs that outlast every fault; those of a control give each repeated call a new operation id."""
    async with AsyncExitStack() as stack:
        settings = persistent(url)
        made = (hub_without_ids(settings) if is_control else Hub.open(settings=settings) for _ in range(number))
        yield [await stack.enter_async_context(hub) for hub in made]
