"""Reading: memories by id, the newest of a thread, and page by page."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any, Literal

from sharedmem.errors import InvalidError
from sharedmem.knowledge.memory.answers import Listing
from sharedmem.knowledge.memory.asking import check_choice, check_limit
from sharedmem.knowledge.memory.base import check_filter
from sharedmem.knowledge.memory.drafts import check_id, check_thread
from sharedmem.knowledge.memory.pages import Pages
from sharedmem.models import MemoryFilter, MemoryItem
from sharedmem.telemetry import measured

SUMMARY = "summary"
"""Category of what tells a thread in short: it is remembered in the thread, and is no turn of it."""
MOST_LISTED = 1000


class Reading(Pages):
    """Reads memories without looking for anything."""

    @measured("memory.get")
    async def get(self, id: str, *, embedding: bool = False) -> MemoryItem | None:  # noqa: A002  # as users say it
        """The memory with an id; None when there is none in this scope. One round trip.

        Args:
            id: as `add` answered it.
            embedding: whether its `embedding` is wanted too.

        Raises:
            InvalidError: it cannot be an id.
            AccessDeniedError: this actor may not read the namespace.
            UnavailableError: the server stayed away.
        """
        await self._enter("read")
        check_id(id)
        kept = await self._surely(lambda: self._take([id], embedding=embedding))
        if not kept:
            return None
        self._uses.count([id])
        return kept[0].item

    async def recent(
        self,
        thread_id: str | None = None,
        *,
        limit: int = 10,
        order_by: Literal["timestamp", "turn_index"] = "timestamp",
    ) -> list[MemoryItem]:
        """The newest memories of a thread, newest first; summaries of it are left out.

        Two round trips; more where many of the newest are in another scope.

        Args:
            thread_id: `main` when not given, or the thread that this scope is narrowed to.
            limit: at most so many, 1 to 100.
            order_by: when it was said, or its place in the thread.

        Raises:
            InvalidError: an argument is none.
            AccessDeniedError, UnavailableError: as `get`.
        """
        await self._enter("read")
        check_choice("order_by", order_by, ("timestamp", "turn_index"))
        wanted, thread = check_limit(limit), self._thread(thread_id)
        return await self._surely(lambda: self._recently(thread, wanted, order_by))

    async def _recently(self, thread: str, wanted: int, order_by: str) -> builtins.list[MemoryItem]:
        pages = self._turns(thread) if order_by == "turn_index" else self._latest(MemoryFilter(thread_id=thread))
        recent: builtins.list[MemoryItem] = []
        async for page in pages:
            recent += [item for item in page if item.category != SUMMARY]
            if len(recent) >= wanted:
                break
        return recent[:wanted]

    async def list(
        self,
        filters: MemoryFilter | Mapping[str, Any] | None = None,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Listing:
        """Memories, those with the newest `timestamp` first, page by page. Two round trips.

        Args:
            filters: which are meant; None for all in this scope.
            limit: at most so many on the page, 1 to 1,000. Less may come, when some have just expired.
            cursor: that of the page before; None for the first one.

        Returns:
            A list with `cursor` for the next page and `total`.

        Raises:
            InvalidError: an argument is none.
            AccessDeniedError, UnavailableError: as `get`.
        """
        await self._enter("read")
        check_limit(limit, most=MOST_LISTED)
        wanted = check_filter(filters)
        return await self._surely(lambda: self._page(wanted, limit, cursor))

    def _thread(self, thread_id: str | None) -> str:
        if thread_id is not None:
            if not isinstance(thread_id, str):
                raise InvalidError("thread_id", thread_id, "give a text")
            check_thread(thread_id)
            return thread_id
        narrowed = self._within.thread_id
        return narrowed if isinstance(narrowed, str) else "main"
