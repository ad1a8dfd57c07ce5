"""Read memories: by id, the newest of a thread, and page by page, as far as the caller may see them."""

from __future__ import annotations

import builtins
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from sharedmem.errors import InvalidError
from sharedmem.memory.base import MEMORY, MemoryBase, check_filter
from sharedmem.memory.filters import matches_filter, to_index_filter, to_milliseconds
from sharedmem.memory.repository import unreadable_memories
from sharedmem.memory.search_types import MemoryListing, check_choice, check_limit
from sharedmem.memory.serialization import PLACEHOLDER, READ_FIELDS, decode_item_if_readable
from sharedmem.memory.usage import UsageCounter
from sharedmem.memory.validation import check_id, check_thread
from sharedmem.models import MemoryFilter, MemoryItem
from sharedmem.redis.errors import public_key_error
from sharedmem.redis.replies import Argument, Command, Reply, ServerError
from sharedmem.redis.vectors import Vector, finite_half_or_none, from_half
from sharedmem.runtime import measured
from sharedmem.search.filters import Between

PAGE = 500
"""Memories that one round trip looks at where there may be many."""
_ANY = MemoryFilter()


class FetchedMemory(NamedTuple):
    """A memory, and its vector if that was asked for."""

    item: MemoryItem
    vector: Vector | None


class LoggedMemory(NamedTuple):
    """A memory in the log of changes."""

    id: str
    version: int
    """Of its last change; by then it may have been deleted."""


class MemoryFetcher(MemoryBase):
    """Fetches what others have found."""

    @property
    def _uses(self) -> UsageCounter:
        return self._context.shared(UsageCounter, self._namespace, self._new_usage_counter)

    def _new_usage_counter(self) -> UsageCounter:
        return UsageCounter(self._context, self._namespace)

    async def _take(
        self,
        ids: Sequence[str],
        *,
        filters: MemoryFilter = _ANY,
        vectors: bool = False,
        embedding: bool = False,
        most: int | None = None,
    ) -> list[FetchedMemory]:
        """Those of some memories that are there and that scope and filter let through, in their order.

        One round trip.

        Args:
            ids: which.
            filters: what must hold besides the scope.
            vectors: whether to fetch their vectors too.
            embedding: whether to put these into the items.
            most: the first so many are enough.
        """
        replies = await self._context.client.read_each(self._looks(ids, vectors=vectors or embedding))
        return self._taken(ids, replies, filters=filters, embedding=embedding, most=most)

    def _taken(
        self,
        ids: Iterable[str],
        replies: Iterable[Reply],
        *,
        filters: MemoryFilter = _ANY,
        embedding: bool = False,
        most: int | None = None,
    ) -> list[FetchedMemory]:
        """What such looks told of those that scope and filter let through; see `_take`."""
        taken: list[FetchedMemory] = []
        for id_, reply in zip(ids, replies, strict=True):
            if len(taken) == most:
                break
            kept = self._kept(id_, reply, embedding=embedding)
            if kept is not None and self._is_visible(filters, kept.item):
                taken.append(kept)
        return taken

    def _looks(self, ids: Iterable[str], *, vectors: bool) -> list[Command]:
        fields = (*READ_FIELDS, "vector") if vectors else READ_FIELDS
        record = self._context.keyspace.record
        return [("HMGET", record(MEMORY, self._namespace, id_), *fields) for id_ in ids]

    def _kept(self, id_: str, reply: Reply, *, embedding: bool = False) -> FetchedMemory | None:
        """What the reply to such a look tells; None when nothing is there."""
        body, version, turn, *rest = reply if isinstance(reply, list) else (b"", b"", b"")
        if body is None and version is None and turn is None:
            return None
        half = finite_half_or_none(rest[0], self._context.memories.family.dimension) if rest else None
        item = None
        if isinstance(body, bytes) and isinstance(version, bytes) and isinstance(turn, bytes):
            item = decode_item_if_readable(
                id_, self._namespace, body, version, turn, vector=half if embedding else None
            )
        if item is None:
            unreadable_memories(self._context, self._namespace).note(id_)
            return None
        return FetchedMemory(item, None if half is None else from_half(half))

    def _is_visible(self, filters: MemoryFilter, item: MemoryItem) -> bool:
        return matches_filter(self._within, item) and matches_filter(filters, item)

    async def _logged(self, *, after: int) -> AsyncIterator[list[LoggedMemory]]:
        """The namespace's memories by their last change, page by page; those deleted of late are among them.

        What changes meanwhile comes again. One round trip a page.

        Args:
            after: only what has changed after this version.
        """
        while page := await self._log_page(after):
            yield page
            after = page[-1].version

    async def _log_page(self, after: int) -> list[LoggedMemory]:
        log = self._context.keyspace.record_log(MEMORY, self._namespace)
        pairs = await self._members_of("ZRANGEBYSCORE", log, f"({after}", "+inf", "WITHSCORES", "LIMIT", 0, PAGE)
        return [
            LoggedMemory(id_.decode(), int(float(score))) for id_, score in zip(pairs[::2], pairs[1::2], strict=True)
        ]

    async def _members_of(self, *command: Argument) -> list[bytes]:
        """What a command answers that reads a sorted set. One round trip.

        Raises:
            WrongTypeError: some other client has put something else there.
        """
        try:
            reply = await self._context.client.call(*command)
        except ServerError as error:
            key = f"{self._namespace}:${MEMORY}"
            address = self._context.client.address
            raise public_key_error(error, address, key=key, held="foreign value", wanted="memory") from error
        return [part for part in reply if isinstance(part, bytes)] if isinstance(reply, list) else []

    def _turns_key(self, thread: str) -> bytes:
        return self._context.keyspace.record_item(MEMORY, self._namespace, "turns", thread)

    def _authors_key(self) -> bytes:
        return self._context.keyspace.record_part(MEMORY, self._namespace, "authors")


_CURSOR = re.compile(r"(-?[0-9]{1,16})?\.([0-9]{1,9})")


class MemoryPager(MemoryFetcher):
    """Fetches memories in their order."""

    async def _page(self, filters: MemoryFilter, limit: int, cursor: str | None) -> MemoryListing:
        until_ms, skipped = _parse_cursor(cursor)
        matching = to_index_filter(self._within, filters)
        index = self._context.memories
        await index.ensure(self._namespace)
        here = matching if until_ms is None else matching.also(Between("at", high=until_ms))
        page = await index.matching(self._namespace, here, newest="at", offset=skipped, limit=limit)
        kept = await self._take(page.ids, filters=filters) if page.ids else []
        items = [each.item for each in kept]
        following = _next_cursor(items, until_ms, skipped, seen=len(page.ids))
        is_last = not page.ids or skipped + len(page.ids) >= page.total
        # Where a page ends, others may stand at the same millisecond: the next one begins there, and skips these.
        return MemoryListing(items, cursor=None if is_last else following, total=page.total - skipped)

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


def _parse_cursor(cursor: str | None) -> tuple[int | None, int]:
    """(milliseconds up to which to list, how many of these were listed)."""
    if cursor is None:
        return None, 0
    match = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    if match is None:
        raise InvalidError("cursor", cursor, "give the cursor of the page before, or None for the first page")
    return int(match[1]) if match[1] else None, int(match[2])


def _next_cursor(items: list[MemoryItem], until_ms: int | None, skipped: int, *, seen: int) -> str:
    times = [to_milliseconds(item.timestamp) for item in items if item.timestamp is not None]
    if not times or times[-1] == until_ms:
        return f"{'' if until_ms is None else until_ms}.{skipped + seen}"
    return f"{times[-1]}.{times.count(times[-1])}"


SUMMARY = "summary"
"""Category of what tells a thread in short: it is remembered in the thread, and is no turn of it."""
MOST_LISTED = 1000


class MemoryReader(MemoryPager):
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
        kept = await self._retry_after_restore(lambda: self._take([id], embedding=embedding))
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
        return await self._retry_after_restore(lambda: self._recently(thread, wanted, order_by))

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
    ) -> MemoryListing:
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
        return await self._retry_after_restore(lambda: self._page(wanted, limit, cursor))

    def _thread(self, thread_id: str | None) -> str:
        if thread_id is not None:
            if not isinstance(thread_id, str):
                raise InvalidError("thread_id", thread_id, "give a text")
            check_thread(thread_id)
            return thread_id
        narrowed = self._within.thread_id
        return narrowed if isinstance(narrowed, str) else "main"
