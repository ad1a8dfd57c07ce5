"""Read the memories of a scope: by id, by thread, page by page, by their last change; and count their uses.

Counts of uses are sent in the background. Where the setting `adaptive_ttl` asks for it, `TtlExtender` then reads the
used memories with an adaptive lifetime, and writes those whose lifetime begins anew. A write is a version of the
memory, so the durable tier, exports and the log of changes have the new lifetime too. If a memory changes meanwhile,
or the process dies, the next use extends it.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from sharedmem.errors import AccessDeniedError, InvalidError, SharedMemoryError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.access import ANY, MEMORY, MemoryAccess, to_milliseconds
from sharedmem.memory.repository import (
    MOST_AT_ONCE,
    MemoryRepository,
    MemoryWriteResult,
    StoredMemory,
    unreadable_memories,
)
from sharedmem.memory.serialization import READ_FIELDS, decode_item_if_readable, encode_change, parse_turns
from sharedmem.memory.validation import adapted_ttl, default_ttl
from sharedmem.models import MemoryFilter, MemoryItem
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.redis.replies import Argument, Command, Reply, ServerError, public_key_error
from sharedmem.redis.scripts.knowledge import MemoryScripts, MemoryWrite
from sharedmem.redis.vectors import Vector, finite_half_or_none, from_half
from sharedmem.runtime import get_logger
from sharedmem.runtime.concurrency import BackgroundTask
from sharedmem.search.protocol import Between

FLUSH_AFTER_S = 0.5
MOST_COUNTED_AT_ONCE = 250
"""Memories whose uses one call of the script counts: it blocks the server for that long."""
LOOKED_AT = 8
"""Memories that each call checks, to delete the counts of deleted memories."""
# Stores of several actors share the counts, so the changes carry the namespace as their actor.
_SIGNATURE = SHARED_SCOPE.encode()
_logger = get_logger("memory")
PAGE = 500
"""Memories that one round trip reads if there may be many."""
SUMMARY = "summary"
"""Category of the summaries of a thread: they are stored in the thread, but are not turns of it."""
Order = Literal["timestamp", "turn_index"]
_CURSOR = re.compile(r"(-?[0-9]{1,16})?\.([0-9]{1,9})")


class FetchedMemory(NamedTuple):
    """A memory, and its vector if that was requested."""

    item: MemoryItem
    vector: Vector | None


class LoggedMemory(NamedTuple):
    """A memory in the log of changes."""

    id: str
    version: int
    """JSON of its last change; the memory may be deleted by then."""


class MemoryListing(list[MemoryItem]):
    """One page of memories.

    Attributes:
        cursor: cursor of the next page; None after the last page.
        total: how many there are on this page and the pages after it.
    """

    def __init__(self, items: Iterable[MemoryItem] = (), *, cursor: str | None, total: int) -> None:
        super().__init__(items)
        self.cursor = cursor
        self.total = total

    def __repr__(self) -> str:
        return f"<{len(self)} of {self.total} memories>"


class UsageCounter:
    """Counts how often memories of one namespace are returned; all stores of a hub share it.

    Counting takes no round trip. Counts are sent together after half a second, and when the hub closes.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: the namespace of the memories.
    """

    def __init__(self, context: KnowledgeContext, namespace: str) -> None:
        keyspace = context.keyspace
        self.used = keyspace.record_part(MEMORY, namespace, "used")
        self.touched = keyspace.record_part(MEMORY, namespace, "touched")
        self._context = context
        self._space = keyspace.space(namespace)
        self._records = keyspace.records(MEMORY, namespace).encode()
        self._scripts = MemoryScripts(context.executor)
        self._waiting: Counter[str] = Counter()
        self._suspects: list[str] = []
        self._place = 0
        self._work: BackgroundTask | None = None
        adapts = context.settings_of(namespace).adaptive_ttl
        self._extender = TtlExtender(context, namespace, self.used) if adapts else None

    @classmethod
    def of(cls, context: KnowledgeContext, namespace: str) -> UsageCounter:
        """Return the counter that all stores of a namespace share in this hub."""
        return context.shared(cls, namespace, lambda: cls(context, namespace))

    def count(self, items: Sequence[MemoryItem]) -> None:
        """Add one use for each of these memories."""
        waiting = self._waiting
        for item in items:
            waiting[item.id] += 1
        if self._extender is not None:
            self._extender.note(items)
        if waiting and (self._work is None or self._work.done):
            with suppress(SharedMemoryError):  # the hub closes
                self._work = self._context.background.start("count uses of memories", self._flush_later())

    async def flush(self) -> None:
        """Send the counts so far. One round trip for every 250 memories, none if there are no counts.

        Raises:
            UnavailableError: the server cannot be reached; the counts are kept and sent later.
        """
        while self._waiting:
            counted = Counter(dict(self._waiting.most_common(MOST_COUNTED_AT_ONCE)))
            for id_ in counted:
                del self._waiting[id_]
            try:
                # A caller that is cancelled here has sent the counts: sending them again would count twice.
                await self._send(counted)
            except (ServerError, AccessDeniedError) as refused:
                # The namespace is being cleared, or this user may only read: these counts can never be sent.
                _logger.info("uses of memories of %s are not counted: %s", self._space.namespace, refused)
            except SharedMemoryError:
                self._waiting.update(counted)
                raise
        if self._extender is not None:
            await self._extender.extend()

    async def _send(self, counted: Mapping[str, int]) -> None:
        terms = dict.fromkeys(self._suspects, 0) | dict(counted)
        there, self._suspects = await self._scripts.memory_use(
            self._space,
            _SIGNATURE,
            used=self.used,
            touched=self.touched,
            records=[self._records + id_.encode() for id_ in terms],
            start=self._place,
            most=LOOKED_AT,
            terms=[part for term in terms.items() for part in term],
        )
        # The check passes over existing memories until the end, then begins again with the oldest. Behind a page that
        # is not full there is nothing: to ask there again would only find what is used all the time.
        self._place = self._place + there if len(self._suspects) == LOOKED_AT else 0

    async def _flush_later(self) -> None:
        try:
            while self._waiting:
                await self._context.clock.sleep(FLUSH_AFTER_S)
                await self._flush_quietly()
        except asyncio.CancelledError:
            await self._flush_quietly()  # the hub closes: its client is still open
            raise

    async def _flush_quietly(self) -> None:
        try:
            await self.flush()
        except SharedMemoryError as error:
            _logger.warning("uses of memories of %s are not sent yet: %s", self._space.namespace, error)


class MemoryReader:
    """Reads memories of one scope.

    Args:
        access: rights and scope of the caller.
    """

    def __init__(self, access: MemoryAccess) -> None:
        self._access = access
        self._context = access.context
        self._namespace = access.namespace
        self._uses = UsageCounter.of(access.context, access.namespace)

    # -- by id

    async def get(self, id_: str, *, embedding: bool = False) -> MemoryItem | None:
        """Return a memory and count that it was returned; None if it is not in this scope. One round trip."""
        fetched = await self._access.retry_after_restore(lambda: self.fetch([id_], embedding=embedding))
        if not fetched:
            return None
        item = fetched[0].item
        self.count_uses([item])
        return item

    def count_uses(self, items: Sequence[MemoryItem]) -> None:
        """Count that memories were returned to a caller. No round trip."""
        self._uses.count(items)

    async def fetch(
        self,
        ids: Sequence[str],
        *,
        filters: MemoryFilter = ANY,
        vectors: bool = False,
        embedding: bool = False,
    ) -> list[FetchedMemory]:
        """Return the memories among some ids that exist and match scope and filter, in the order of the ids.

        One round trip.

        Args:
            ids: ids of memories.
            filters: conditions besides the scope.
            vectors: whether to fetch their vectors too.
            embedding: whether to set the vectors in the items.
        """
        replies = await self._context.client.read_each(self.commands(ids, vectors=vectors or embedding))
        return self.parse(ids, replies, filters=filters, embedding=embedding)

    def commands(self, ids: Iterable[str], *, vectors: bool = False) -> list[Command]:
        """Return the commands that read some memories, for a caller that sends them with others."""
        fields = (*READ_FIELDS, "vector") if vectors else READ_FIELDS
        record = self._context.keyspace.record
        return [("HMGET", record(MEMORY, self._namespace, id_), *fields) for id_ in ids]

    def parse(
        self,
        ids: Iterable[str],
        replies: Iterable[Reply],
        *,
        filters: MemoryFilter = ANY,
        embedding: bool = False,
        most: int | None = None,
    ) -> list[FetchedMemory]:
        """Return the memories in the replies to `commands`; see `fetch`.

        Args:
            ids, replies: in the same order.
            filters, embedding: as `fetch`.
            most: stop after this many.
        """
        fetched: list[FetchedMemory] = []
        for id_, reply in zip(ids, replies, strict=True):
            if len(fetched) == most:
                break
            one = self.parse_one(id_, reply, embedding=embedding)
            if one is not None and self._access.covers(one.item, filters):
                fetched.append(one)
        return fetched

    def parse_one(self, id_: str, reply: Reply, *, embedding: bool = False) -> FetchedMemory | None:
        """Return the memory in one such reply, in any scope; None if it does not exist."""
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

    # -- by their order

    async def recent(self, thread: str, limit: int, order_by: Order) -> list[MemoryItem]:
        """Return the newest memories of a thread, newest first, without its summaries."""
        pages = self.turns(thread) if order_by == "turn_index" else self._newest(MemoryFilter(thread_id=thread))
        recent: list[MemoryItem] = []
        async for page in pages:
            recent += [item for item in page if item.category != SUMMARY]
            if len(recent) >= limit:
                break
        return recent[:limit]

    async def page(self, filters: MemoryFilter, limit: int, cursor: str | None) -> MemoryListing:
        """Return one page of memories, newest timestamp first. Two round trips.

        Raises:
            InvalidError: the cursor is invalid.
        """
        until_ms, skipped = _parse_cursor(cursor)
        matching = self._access.index_filter(filters)
        index = self._context.memories
        await index.ensure(self._namespace)
        here = matching if until_ms is None else matching.also(Between("at", high=until_ms))
        page = await index.matching(self._namespace, here, newest="at", offset=skipped, limit=limit)
        fetched = await self.fetch(page.ids, filters=filters) if page.ids else []
        items = [each.item for each in fetched]
        following = _next_cursor(items, until_ms, skipped, seen=len(page.ids))
        is_last = not page.ids or skipped + len(page.ids) >= page.total
        # Other memories may have the millisecond of the last one: the next page begins there and skips the listed ones.
        return MemoryListing(items, cursor=None if is_last else following, total=page.total - skipped)

    async def _newest(self, filters: MemoryFilter) -> AsyncIterator[list[MemoryItem]]:
        """Yield memories by their timestamp, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self.page(filters, 100, cursor)
            yield page
            if page.cursor is None:
                return
            cursor = page.cursor

    async def turns(self, thread: str) -> AsyncIterator[list[MemoryItem]]:
        """Yield memories of a thread, the last turn first, page by page."""
        at, size, key = 0, 100, self.turns_key(thread)
        while True:
            members = await self.sorted_set("ZRANGE", key, at, at + size - 1, "REV", "WITHSCORES")
            if not members:
                return
            at += size
            ids = [one.id for one in parse_turns(members)]
            thread_only = MemoryFilter(thread_id=thread)
            yield [one.item for one in await self.fetch(ids, filters=thread_only)] if ids else []

    # -- by their last change

    async def logged(self, *, after: int) -> AsyncIterator[list[LoggedMemory]]:
        """Yield all memories of the namespace by their last change, page by page, with recently deleted ones.

        A memory that changes during the read is yielded again. One round trip a page.

        Args:
            after: only changes after this version.
        """
        page = await self._access.retry_after_restore(lambda: self.log_page(after))
        while page:
            yield page
            page = await self.log_page(page[-1].version)

    async def log_page(self, after: int) -> list[LoggedMemory]:
        """Return the next page of that log. One round trip."""
        log = self._context.keyspace.record_log(MEMORY, self._namespace)
        pairs = await self.sorted_set("ZRANGEBYSCORE", log, f"({after}", "+inf", "WITHSCORES", "LIMIT", 0, PAGE)
        return [
            LoggedMemory(id_.decode(), int(float(score))) for id_, score in zip(pairs[::2], pairs[1::2], strict=True)
        ]

    # -- keys

    async def sorted_set(self, *command: Argument) -> list[bytes]:
        """Return the reply to a command that reads a sorted set. One round trip.

        Raises:
            WrongTypeError: another client has written another type to that key.
        """
        try:
            reply = await self._context.client.call(*command)
        except ServerError as error:
            key = f"{self._namespace}:${MEMORY}"
            address = self._context.client.address
            raise public_key_error(error, address, key=key, held="foreign value", wanted="memory") from error
        return [part for part in reply if isinstance(part, bytes)] if isinstance(reply, list) else []

    def turns_key(self, thread: str) -> bytes:
        """Return the key of the sorted set of a thread's turns."""
        return self._context.keyspace.record_item(MEMORY, self._namespace, "turns", thread)


def _parse_cursor(cursor: str | None) -> tuple[int | None, int]:
    """Return (milliseconds up to which to list, how many memories of that millisecond were listed)."""
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


# -- lifetimes of used memories ------------------------------------------------------------------


_PASSED_SHARE = 1 / 8
"""Share of its lifetime that must have passed before a use begins it anew: so a memory is rarely written."""


class TtlExtender:
    """Extends the lifetimes of memories of one namespace; all stores of a hub share it.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: the namespace of the memories.
        used: key of the sorted set of uses.
    """

    def __init__(self, context: KnowledgeContext, namespace: str, used: bytes) -> None:
        self._context = context
        self._namespace = namespace
        self._settings = context.settings_of(namespace)
        self._repository = MemoryRepository.of(context, namespace)
        self._used = used
        # In the order of their first use.
        self._waiting: dict[str, None] = {}

    def note(self, items: Iterable[MemoryItem]) -> None:
        """Note which of the used memories have an adaptive lifetime. No round trip."""
        self._waiting.update({item.id: None for item in items if item.adaptive_ttl})

    async def extend(self) -> None:
        """Extend lifetimes of the noted memories: three round trips for every 64, none without any."""
        while ids := list(self._waiting)[:MOST_AT_ONCE]:
            for id_ in ids:
                del self._waiting[id_]
            try:
                await self._extend(ids)
            except AccessDeniedError as refused:
                # This user may only read.
                _logger.info("lifetimes of memories of %s are not extended: %s", self._namespace, refused)
            except (SharedMemoryError, ServerError) as error:
                self._waiting.update(dict.fromkeys(ids))
                _logger.warning("lifetimes of memories of %s are not extended yet: %s", self._namespace, error)
                return
            except asyncio.CancelledError:
                # The hub closes, and sends once more: an extension that has arrived is not due again.
                self._waiting.update(dict.fromkeys(ids))
                raise

    async def _extend(self, ids: list[str]) -> None:
        held = await self._repository.held(ids)
        if not held:
            return
        times, *left_ms = await self._context.client.read_each(
            [("ZMSCORE", self._used, *held), *(("PTTL", self._repository.record_key(id_)) for id_ in held)]
        )
        uses = times if isinstance(times, list) else [None] * len(held)
        planned = [
            write
            for one, often, left in zip(held.values(), uses, left_ms, strict=True)
            if (write := self._write_of(one, _parse_uses(often), left)) is not None
        ]
        if not planned:
            return
        outcome = await self._repository.write(SHARED_SCOPE.encode(), planned)
        assert isinstance(outcome, MemoryWriteResult)  # there are no conflicts without `seen`
        extended = sum(verdict.word == "ok" for verdict in outcome.verdicts)
        self._context.counters.add("memory_lifetimes_extended", extended)

    def _write_of(self, held: StoredMemory, uses: int, left_ms: Reply) -> MemoryWrite | None:
        """Return the write that begins a lifetime anew; None if it is not due."""
        item = held.item
        default_s = default_ttl(item.memory_type, self._settings)
        if not item.adaptive_ttl or default_s < 0 or not isinstance(left_ms, int) or left_ms <= 0:
            return None
        ttl_s = adapted_ttl(default_s, item.importance, uses)
        if left_ms > ttl_s * 1000 * (1 - _PASSED_SHARE):
            return None
        now = self._context.clock.now()
        write = self._repository.write_of(
            "extended",
            item.model_copy(update={"ttl": ttl_s, "updated_at": now}),
            encode_change("extended", SHARED_SCOPE),
            held.digest,
            held.vector,
            before=held,
            over="*",
            waits=held.vector is None and self._context.embedder is not None,
            turn=item.turn_index or 0,
        )
        return write._replace(ttl_ms=ttl_s * 1000)


def _parse_uses(score: Reply) -> int:
    return round(float(score)) if isinstance(score, bytes | float | int) else 0
