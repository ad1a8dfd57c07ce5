"""Watchers and consumers that end with a block, not when the garbage collector comes by."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from sharedmem import Change


@asynccontextmanager
async def closed_at_exit(changes: AsyncIterator[Change]) -> AsyncIterator[AsyncIterator[Change]]:
    """The iterator, closed at the end of the block."""
    assert isinstance(changes, AsyncGenerator)
    async with aclosing(changes):
        yield changes
