"""Standing queries: an event for each memory that begins to match, changes, or stops matching."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from sharedmem.errors import InvalidError, SharedMemoryError
from sharedmem.memory.access import MEMORY, MemoryAccess, check_filter, matches_filter
from sharedmem.memory.reader import FetchedMemory, LoggedMemory, MemoryReader
from sharedmem.memory.search import Filters, check_query, check_share
from sharedmem.memory.serialization import decode_version, indexed_text
from sharedmem.models import MemoryEvent, MemoryFilter, MemoryItem
from sharedmem.providers.embedding import embed_query
from sharedmem.redis.change_stream import BATCH, as_list, newest_cursor, parse_changes, text_of
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import Space
from sharedmem.redis.replies import LostError, Reply, ServerError
from sharedmem.redis.vectors import Vector
from sharedmem.runtime import get_logger
from sharedmem.runtime.concurrency import Background, BackgroundTask, ProcessBound
from sharedmem.text.analysis import document_terms, query_terms

# The read is repeated this often without changes, so that a silently broken connection is noticed.
_WAIT_S = 2.0
_ABOUT_MEMORY = "memory."
_logger = get_logger("memory")


class ChangeNotifier:
    """Notifies waiters of one namespace that memories have changed; the log of memories lists the changes.

    Args:
        client: client of the server.
        background: reads the stream while there are waiters.
        space: the keys of the namespace.
    """

    def __init__(self, client: RedisClient, background: Background, space: Space) -> None:
        self._client = client
        self._background = background
        self._space = space
        self._waiters = 0
        self._task: BackgroundTask | None = None
        self._changed = asyncio.Event()
        self.clearings = 0
        """How often the namespace was cleared while there were waiters."""

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow the stream for the length of the block."""
        self._waiters += 1
        if self._task is None or self._task.done:
            self._task = self._background.start("follow memories", self._follow())
        try:
            yield
        finally:
            self._waiters -= 1

    async def rest(self) -> None:
        """Stop following if there are no waiters any more."""
        if self._waiters == 0 and self._task is not None:
            task, self._task = self._task, None
            await task.stop()

    @property
    def next_change(self) -> asyncio.Event:
        """Return an event for the next change; get it before reading, so that no change is missed in between."""
        return self._changed

    def _signal_change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _follow(self) -> None:
        cursor: str | None = None
        pauses = self._client.pauses()
        while True:
            try:
                if cursor is None:
                    cursor = await newest_cursor(self._client, self._space)
                    self._signal_change()  # a waiter may have missed changes since its last read
                cursor = await self._next(cursor)
                pauses = self._client.pauses()
            except (LostError, ServerError, SharedMemoryError) as error:
                _logger.warning("standing queries of %s: %s", self._space.namespace, error)
                cursor = None
                await asyncio.sleep(next(pauses))

    async def _next(self, cursor: str) -> str:
        """Wait for changes after a cursor; return the cursor after them."""
        wait_ms = int(_WAIT_S * 1000)
        command = ("XREAD", "BLOCK", wait_ms, "COUNT", BATCH, "STREAMS", self._space.changes, cursor)
        entries = _parse_entries(await self._client.block(*command, wait_s=_WAIT_S))
        changes = [change for entry in entries for change in parse_changes(entry)]
        self.clearings += sum(change.operation == "clear" for change in changes)
        # Beyond a full batch, entries may have been trimmed unread.
        if len(changes) >= BATCH or any(_is_relevant(change.operation) for change in changes):
            self._signal_change()
        return text_of(as_list(entries[-1])[0]) if entries else cursor


def _is_relevant(operation: str) -> bool:
    return operation.startswith(_ABOUT_MEMORY) or operation == "clear"


def _parse_entries(reply: Reply) -> list[Reply]:
    streams = as_list(reply)
    return as_list(as_list(streams[0])[1]) if streams else []


MatchEvent = Literal["written", "changed", "withdrawn"]


@dataclass(frozen=True)
class QueryMatcher:
    """The query of a subscriber, to compare with memories."""

    terms: tuple[str, ...]
    """Words of the query."""
    vector: Vector | None = field(repr=False)
    """Embedding of the query; None to compare words."""
    threshold: float
    filters: Sequence[MemoryFilter] = ()

    def likeness(self, item: MemoryItem | None, vector: Vector | None) -> float | None:
        """Return the likeness of a memory to the query; None if it is missing, filtered out or below the threshold.

        Args:
            item: the memory.
            vector: its embedding; without it, the likeness is the share of the query's words that it contains.
        """
        if item is None or not all(matches_filter(each, item) for each in self.filters):
            return None
        if self.vector is not None and vector is not None:
            likeness = float(self.vector @ vector)
        elif self.terms:
            likeness = len(set(self.terms) & set(document_terms(indexed_text(item)))) / len(self.terms)
        else:
            return None
        return likeness if likeness >= self.threshold else None


def match_event(before: float | None, after: float | None) -> MatchEvent | None:
    """Return the event for a memory by its likeness before and after; None if it did not match at either time."""
    if after is not None:
        return "written" if before is None else "changed"
    return None if before is None else "withdrawn"


_MOST_REMEMBERED = 100_000


@dataclass(frozen=True)
class MemoryTransition:
    """The former and the current state of a memory."""

    logged: LoggedMemory
    was: MemoryItem | None
    now: FetchedMemory | None
    is_embedded: bool = False
    """Whether only its vector has changed."""
    is_expired: bool = False


class TransitionReader:
    """Reads the changes of the memories of one scope.

    Args:
        access: rights and scope of the caller.
        reader: reads memories of this scope.
    """

    def __init__(self, access: MemoryAccess, reader: MemoryReader) -> None:
        self._access = access
        self._reader = reader
        self._context = access.context
        self._namespace = access.namespace

    async def transitions(self, after: int) -> tuple[list[LoggedMemory], list[MemoryTransition]]:
        """Return (the memories changed after a version, at most a page; their states then and now)."""
        page = await self._reader.log_page(after)
        if not page:
            return [], []
        keyspace, space = self._context.keyspace, self._namespace
        ids = [logged.id for logged in page]
        past = [("LRANGE", keyspace.record_item(MEMORY, space, "history", id_), 0, -1) for id_ in ids]
        replies = await self._context.client.read_each([*self._reader.commands(ids, vectors=True), *past])
        changes = []
        for number, logged in enumerate(page):
            history = replies[len(page) + number]
            entries = [entry for entry in history if isinstance(entry, bytes)] if isinstance(history, list) else []
            changes.append(self._transition(logged, self._reader.parse_one(logged.id, replies[number]), entries, after))
        return page, changes

    def _transition(
        self, logged: LoggedMemory, now: FetchedMemory | None, history: list[bytes], after: int
    ) -> MemoryTransition:
        if now is not None and now.item.version <= after:
            return MemoryTransition(logged, now.item, now, is_embedded=True)
        past = [decode_version(logged.id, self._namespace, entry) for entry in history]
        was = next((each for each in past if each.version <= after), None)
        is_deleted = bool(past) and past[0].change == "deleted"
        return MemoryTransition(
            logged,
            was.item if was is not None and was.change != "deleted" else None,
            now,
            is_expired=now is None and not is_deleted,
        )

    async def events(
        self, interest: QueryMatcher, changes: list[MemoryTransition], matched: dict[str, None]
    ) -> AsyncIterator[MemoryEvent]:
        """Yield the events of these transitions for one subscriber.

        Args:
            interest: the query.
            changes: in their order.
            matched: ids of matching memories in the events so far; this method updates it.
        """
        vectors = await self._vectors_of([change.was for change in changes if change.was and not change.is_embedded])
        for change in changes:
            id_ = change.logged.id
            before = interest.likeness(change.was, vectors.get(id_)) if not change.is_expired else None
            if change.is_expired and id_ in matched:
                before = 1.0  # the former state was deleted with the memory
            after = interest.likeness(*change.now) if change.now else None
            event = match_event(before, after)
            _note_match(matched, id_, still=after is not None)
            if event is not None:
                yield MemoryEvent(
                    event=event,
                    id=id_,
                    item=self._seen(change.now),
                    similarity=after,
                    cursor=str(change.logged.version),
                )

    def _seen(self, now: FetchedMemory | None) -> MemoryItem | None:
        # A memory that has left the scope must not be visible in it.
        return now.item if now is not None and self._access.covers(now.item) else None

    def now_us(self) -> float:
        """Return the present moment in microseconds since 1970, comparable with versions."""
        return self._context.clock.now().timestamp() * 1_000_000

    async def _vectors_of(self, items: list[MemoryItem]) -> dict[str, Vector]:
        """Return embeddings of former states; without a provider that answers, words decide."""
        embedder = self._context.embedder_of(self._namespace)
        if not items or embedder is None:
            return {}
        found = {}
        for item in items:
            vector = (await embed_query(embedder, item.memory or item.content, purpose="document")).vector
            if vector is not None:
                found[item.id] = vector
        return found

    async def newest(self) -> int:
        """Return the version of the namespace's newest change of a memory."""
        log = self._context.keyspace.record_log(MEMORY, self._namespace)
        newest = await self._context.client.call("ZREVRANGE", log, 0, 0, "WITHSCORES")
        assert isinstance(newest, list)
        return int(float(newest[1])) if len(newest) > 1 and isinstance(newest[1], bytes) else 0


def _note_match(matched: dict[str, None], id_: str, *, still: bool) -> None:
    matched.pop(id_, None)
    if still:
        matched[id_] = None
    if len(matched) > _MOST_REMEMBERED:
        del matched[next(iter(matched))]


EventCallback = Callable[[MemoryEvent], Awaitable[None] | None]
DEFAULT_THRESHOLD = 0.5
# Ids of deleted memories stay in the log for a day; a little less, since clocks differ.
_DELETIONS_REMEMBERED = timedelta(hours=23, minutes=55)
_CURSOR = re.compile(r"[0-9]{1,17}")


class StandingQuery(ProcessBound):
    """The events of one standing query, as an async iterator of `MemoryEvent`.

    Args:
        transitions: reads the changes of memories in its scope.
        interest: the query.
        notifier: notifies when memories have changed.
        cursor: the version up to which all events were delivered.
        looked_at: when that was so, in microseconds since 1970.
    """

    def __init__(
        self,
        transitions: TransitionReader,
        interest: QueryMatcher,
        notifier: ChangeNotifier,
        *,
        cursor: int,
        looked_at: float,
    ) -> None:
        self._transitions = transitions
        self._interest = interest
        self._notifier = notifier
        self._cursor = cursor
        self._clearings = notifier.clearings
        self._events: deque[MemoryEvent] = deque()
        self._matched: dict[str, None] = {}
        self._looked_at = looked_at

    @property
    def cursor(self) -> str:
        """Where this query began to look, before the first event is read: `since` of another subscription."""
        return str(self._cursor)

    def __aiter__(self) -> AsyncIterator[MemoryEvent]:
        return self

    async def __anext__(self) -> MemoryEvent:
        while not self._events:
            next_change = self._notifier.next_change
            if not await self._look() and not self._events:
                await next_change.wait()
        return self._events.popleft()

    async def _look(self) -> bool:
        """Return whether anything has changed. Two round trips, one if nothing has."""
        since_us, self._looked_at = self._looked_at, self._transitions.now_us()
        cleared, self._clearings = self._notifier.clearings != self._clearings, self._notifier.clearings
        if cleared or self._looked_at - since_us > _DELETIONS_REMEMBERED / timedelta(microseconds=1):
            self._events.append(_gap_event(self._cursor))
        page, changes = await self._transitions.transitions(self._cursor)
        if page:
            async for event in self._transitions.events(self._interest, changes, self._matched):
                self._events.append(event)
            self._cursor = page[-1].version
        return bool(page)


class MemorySubscriptions:
    """Standing queries over the memories of one scope.

    Args:
        access: rights and scope of the caller.
        reader: reads memories of this scope.
    """

    def __init__(self, access: MemoryAccess, reader: MemoryReader) -> None:
        self._access = access
        self._reader = reader
        self._context = access.context
        self._namespace = access.namespace

    @asynccontextmanager
    async def subscribe(
        self,
        query: str,
        callback: EventCallback | None,
        *,
        threshold: float,
        filters: Filters,
        since: str | int | None,
    ) -> AsyncIterator[StandingQuery]:
        """Follow a query for the length of the block; see `Memories.subscribe`."""
        text, least = check_query("query", query), check_share("threshold", threshold) or 0.0
        wanted, cursor = check_filter(filters), None if since is None else _check_cursor(since)
        context, space = self._context, self._access.scope.home
        transitions = TransitionReader(self._access, self._reader)
        meaning = await embed_query(context.embedder_of(self._namespace), text)
        interest = QueryMatcher(query_terms(text), meaning.vector, least, (self._access.within, wanted))
        notifier = context.shared(
            ChangeNotifier, self._namespace, lambda: ChangeNotifier(context.client, context.background, space)
        )
        try:
            with notifier.followed():
                begin = await transitions.newest() if cursor is None else cursor
                looked_at = transitions.now_us() if cursor is None else cursor
                standing = StandingQuery(transitions, interest, notifier, cursor=begin, looked_at=looked_at)
                work = context.background.start("deliver memory events", self._call_each(standing, callback))
                try:
                    yield standing
                finally:
                    await work.stop()
        finally:
            await notifier.rest()

    async def _call_each(self, standing: StandingQuery, callback: EventCallback | None) -> None:
        if callback is None:
            return
        async for event in standing:
            try:
                answer = callback(event)
                if inspect.isawaitable(answer):
                    await answer
            except Exception:
                self._context.counters.increment("callback_failures")
                _logger.exception("the callback of a standing query failed; the query continues")


def _check_cursor(since: str | int) -> int:
    """Return the version in the cursor of an event.

    Raises:
        InvalidError: `since` is not such a cursor.
    """
    if isinstance(since, bool) or _CURSOR.fullmatch(str(since)) is None:
        raise InvalidError("since", since, "give the cursor of an event, or None for from now on")
    return int(since)


def _gap_event(cursor: int) -> MemoryEvent:
    return MemoryEvent(event="gap", id="", item=None, similarity=None, cursor=str(cursor))
