"""Pages: memories one page after the other, the newest first."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from sharedmem.errors import InvalidError
from sharedmem.knowledge.memory.answers import Listing
from sharedmem.knowledge.memory.documents import PLACEHOLDER
from sharedmem.knowledge.memory.narrowing import milliseconds, rendered
from sharedmem.knowledge.memory.shelf import Shelf
from sharedmem.models import MemoryFilter, MemoryItem
from sharedmem.search.filters import Between

_CURSOR = re.compile(r"(-?[0-9]{1,16})?\.([0-9]{1,9})")


class Pages(Shelf):
    """Fetches memories in their order."""

    async def _page(self, filters: MemoryFilter, limit: int, cursor: str | None) -> Listing:
        until_ms, skipped = _position(cursor)
        matching = rendered(self._within, filters)
        index = self._minds.memories
        await index.ensure(self._namespace)
        here = matching if until_ms is None else matching.also(Between("at", high=until_ms))
        page = await index.matching(self._namespace, here, newest="at", offset=skipped, limit=limit)
        kept = await self._take(page.ids, filters=filters) if page.ids else []
        items = [each.item for each in kept]
        following = _following(items, until_ms, skipped, seen=len(page.ids))
        is_last = not page.ids or skipped + len(page.ids) >= page.total
        # Where a page ends, others may stand at the same millisecond: the next one begins there, and skips these.
        return Listing(items, cursor=None if is_last else following, total=page.total - skipped)

    async def _latest(self, filters: MemoryFilter) -> AsyncIterator[list[MemoryItem]]:
        """Memories by their timestamp, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self._page(filters, 100, cursor)
            yield page
            if page.cursor is None:
                return
            cursor = page.cursor

    async def _turns(self, thread: str) -> AsyncIterator[list[MemoryItem]]:
        """Memories of a thread, the last turn first, page by page."""
        at, size, key = 0, 100, self._turns_key(thread)
        while True:
            members = await self._members_of("ZRANGE", key, at, at + size - 1, "REV")
            if not members:
                return
            at += len(members)
            ids = [text.partition(b" ")[0].decode() for text in members if not text.startswith(PLACEHOLDER)]
            thread_only = MemoryFilter(thread_id=thread)
            yield [kept.item for kept in await self._take(ids, filters=thread_only)] if ids else []


def _position(cursor: str | None) -> tuple[int | None, int]:
    """(milliseconds up to which to list, how many of these were listed)."""
    if cursor is None:
        return None, 0
    match = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    if match is None:
        raise InvalidError("cursor", cursor, "give the cursor of the page before, or None for the first page")
    return int(match[1]) if match[1] else None, int(match[2])


def _following(items: list[MemoryItem], until_ms: int | None, skipped: int, *, seen: int) -> str:
    times = [milliseconds(item.timestamp) for item in items if item.timestamp is not None]
    if not times or times[-1] == until_ms:
        return f"{'' if until_ms is None else until_ms}.{skipped + seen}"
    return f"{times[-1]}.{times.count(times[-1])}"
