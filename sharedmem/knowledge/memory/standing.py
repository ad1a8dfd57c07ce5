"""Standing queries: who asked once is told of every memory that comes to match, changes, or matches no more."""

from __future__ import annotations

import inspect
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sharedmem.errors import InvalidError
from sharedmem.knowledge.memory.asking import check_query, check_share
from sharedmem.knowledge.memory.base import MEMORY, check_filter
from sharedmem.knowledge.memory.documents import version_of
from sharedmem.knowledge.memory.meaning import meaning_of
from sharedmem.knowledge.memory.noticing import Interest, event_of
from sharedmem.knowledge.memory.shelf import Kept, Logged, Shelf
from sharedmem.knowledge.memory.wakes import Wakes
from sharedmem.models import MemoryEvent, MemoryFilter, MemoryItem
from sharedmem.search.analysis import query_terms
from sharedmem.telemetry import get_logger
from sharedmem.wire.vectors import Vector

EventCallback = Callable[[MemoryEvent], Awaitable[None] | None]
DEFAULT_THRESHOLD = 0.5
# Ids of deleted memories stay in the log for a day; a little less, since clocks differ.
_KEPT_DELETIONS = timedelta(hours=23, minutes=55)
_MOST_REMEMBERED = 100_000
_CURSOR = re.compile(r"[0-9]{1,17}")
_logger = get_logger("memory")


@dataclass(frozen=True)
class _Story:
    """What a memory was when it was last looked at, and what it is."""

    logged: Logged
    was: MemoryItem | None
    now: Kept | None
    is_embedded: bool = False
    """Nothing but its vector is new."""
    is_expired: bool = False


class StandingQuery:
    """The events of one standing query, as an async iterator of `MemoryEvent`.

    Args:
        shelf: fetches memories, within its scope.
        interest: what is asked.
        wakes: tells when memories have changed.
        cursor: the version up to which everything was told.
        looked_at: when that was so, in microseconds since 1970.
    """

    def __init__(self, shelf: Standing, interest: Interest, wakes: Wakes, *, cursor: int, looked_at: float) -> None:
        self._shelf = shelf
        self._interest = interest
        self._wakes = wakes
        self._cursor = cursor
        self._clearings = wakes.clearings
        self._events: deque[MemoryEvent] = deque()
        self._matched: dict[str, None] = {}
        self._looked_at = looked_at

    def __aiter__(self) -> AsyncIterator[MemoryEvent]:
        return self

    async def __anext__(self) -> MemoryEvent:
        while not self._events:
            bell = self._wakes.bell
            if not await self._look() and not self._events:
                await bell.wait()
        return self._events.popleft()

    async def _look(self) -> bool:
        """Whether something had changed. Two round trips, one when nothing had."""
        since_us, self._looked_at = self._looked_at, self._shelf.now_us()
        cleared, self._clearings = self._wakes.clearings != self._clearings, self._wakes.clearings
        if cleared or self._looked_at - since_us > _KEPT_DELETIONS / timedelta(microseconds=1):
            self._events.append(_gap(self._cursor))
        page, stories = await self._shelf.stories(self._cursor)
        if page:
            async for event in self._shelf.told(self._interest, stories, self._matched):
                self._events.append(event)
            self._cursor = page[-1].version
        return bool(page)


class Standing(Shelf):
    """Takes standing queries."""

    @asynccontextmanager
    async def subscribe(
        self,
        query: str,
        callback: EventCallback | None = None,
        *,
        threshold: float = DEFAULT_THRESHOLD,
        filters: MemoryFilter | Mapping[str, Any] | None = None,
        since: str | int | None = None,
    ) -> AsyncIterator[StandingQuery]:
        """Be told of matching memories for the length of the block, whoever writes them, in whatever process.

        Several changes of one memory between two looks are told as one. That a memory has expired is told, late, where
        this very subscription told of it.

        Args:
            query: what to hear of, in everyday language.
            callback: called with each event, one after the other; without it, iterate over what the block gives.
                When it fails, that is logged and counted (`callback_failures`), and the subscription goes on.
            threshold: least likeness, 0 to 1: cosine similarity to the query; where there is no vector, the share of
                the query's words that the memory holds.
            filters: which memories are meant.
            since: `cursor` of the last event seen, also by an earlier process; None from now on. Nothing is missed
                in between. After more than a day, or when the namespace is cleared, an event `gap` comes first:
                memories may be gone without a word; look again at what matches.

        Yields:
            An async iterator of `MemoryEvent`: `written` when a memory comes to match, `changed` when one that
            matched still does, `withdrawn` when it is deleted or matches no more.

        Raises:
            InvalidError: an argument is none.
            AccessDeniedError: this actor may not read the namespace.
            UnavailableError: the server stayed away.
        """
        await self._enter("read")
        text = check_query("query", query)
        least = check_share("threshold", threshold) or 0.0
        asked = check_filter(filters)
        cursor = None if since is None else _checked_cursor(since)
        minds, space = self._minds, self._scope.home
        meaning = await meaning_of(minds.embedder_of(self._namespace), text)
        interest = Interest(query_terms(text), meaning.vector, least, (self._within, asked))
        wakes = minds.shared(Wakes, self._namespace, lambda: Wakes(minds.line, minds.background, space))
        try:
            with wakes.attended():
                begin = await self._newest() if cursor is None else cursor
                looked_at = self.now_us() if cursor is None else cursor
                standing = StandingQuery(self, interest, wakes, cursor=begin, looked_at=looked_at)
                work = minds.background.start("deliver memory events", self._call_each(standing, callback))
                try:
                    yield standing
                finally:
                    await work.stop()
        finally:
            await wakes.rest()

    async def stories(self, after: int) -> tuple[list[Logged], list[_Story]]:
        """(the memories changed after a version, at most a page; what they were then and are now)."""
        page = await self._log_page(after)
        if not page:
            return [], []
        keyspace, space = self._minds.keyspace, self._namespace
        ids = [logged.id for logged in page]
        past = [("LRANGE", keyspace.record_item(MEMORY, space, "history", id_), 0, -1) for id_ in ids]
        replies = await self._minds.line.read_each([*self._looks(ids, vectors=True), *past])
        stories = []
        for number, logged in enumerate(page):
            history = replies[len(page) + number]
            entries = [entry for entry in history if isinstance(entry, bytes)] if isinstance(history, list) else []
            stories.append(self._story(logged, self._kept(logged.id, replies[number]), entries, after))
        return page, stories

    def _story(self, logged: Logged, now: Kept | None, history: list[bytes], after: int) -> _Story:
        if now is not None and now.item.version <= after:
            return _Story(logged, now.item, now, is_embedded=True)
        past = [version_of(logged.id, self._namespace, entry) for entry in history]
        was = next((each for each in past if each.version <= after), None)
        is_deleted = bool(past) and past[0].change == "deleted"
        return _Story(
            logged,
            was.item if was is not None and was.change != "deleted" else None,
            now,
            is_expired=now is None and not is_deleted,
        )

    async def told(
        self, interest: Interest, stories: list[_Story], matched: dict[str, None]
    ) -> AsyncIterator[MemoryEvent]:
        """The events that these stories are to somebody.

        Args:
            interest: what is asked.
            stories: in their order.
            matched: ids of what was told of and not withdrawn; kept up to date.
        """
        vectors = await self._vectors_of([story.was for story in stories if story.was and not story.is_embedded])
        for story in stories:
            id_ = story.logged.id
            before = interest.likeness(story.was, vectors.get(id_)) if not story.is_expired else None
            if story.is_expired and id_ in matched:
                before = 1.0  # what it was has gone with it
            after = interest.likeness(*story.now) if story.now else None
            event = event_of(before, after)
            _note(matched, id_, still=after is not None)
            if event is not None:
                yield MemoryEvent(
                    event=event, id=id_, item=self._seen(story.now), similarity=after, cursor=str(story.logged.version)
                )

    def _seen(self, now: Kept | None) -> MemoryItem | None:
        # What has left the scope is nobody's business there any more.
        return now.item if now is not None and self._admits(MemoryFilter(), now.item) else None

    def now_us(self) -> float:
        """The present moment in microseconds since 1970, comparable with versions."""
        return self._minds.clock.now().timestamp() * 1_000_000

    async def _vectors_of(self, items: list[MemoryItem]) -> dict[str, Vector]:
        """Meanings of what memories once were; without a provider that answers, words decide."""
        embedder = self._minds.embedder_of(self._namespace)
        if not items or embedder is None:
            return {}
        found = {}
        for item in items:
            vector = (await meaning_of(embedder, item.memory or item.content, purpose="document")).vector
            if vector is not None:
                found[item.id] = vector
        return found

    async def _newest(self) -> int:
        """The version of the namespace's newest change of a memory."""
        log = self._minds.keyspace.record_log(MEMORY, self._namespace)
        newest = await self._minds.line.call("ZREVRANGE", log, 0, 0, "WITHSCORES")
        assert isinstance(newest, list)
        return int(float(newest[1])) if len(newest) > 1 and isinstance(newest[1], bytes) else 0

    async def _call_each(self, standing: StandingQuery, callback: EventCallback | None) -> None:
        if callback is None:
            return
        async for event in standing:
            try:
                answer = callback(event)
                if inspect.isawaitable(answer):
                    await answer
            except Exception:
                self._minds.counters.increment("callback_failures")
                _logger.exception("the callback of a standing query failed; the query goes on")


def _checked_cursor(since: str | int) -> int:
    if isinstance(since, bool) or _CURSOR.fullmatch(str(since)) is None:
        raise InvalidError("since", since, "give the cursor of an event, or None for from now on")
    return int(since)


def _note(matched: dict[str, None], id_: str, *, still: bool) -> None:
    matched.pop(id_, None)
    if still:
        matched[id_] = None
    if len(matched) > _MOST_REMEMBERED:
        del matched[next(iter(matched))]


def _gap(cursor: int) -> MemoryEvent:
    return MemoryEvent(event="gap", id="", item=None, similarity=None, cursor=str(cursor))
