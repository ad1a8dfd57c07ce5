"""Standing queries: who asked once is told of every memory that comes to match, changes, or matches no more."""

from __future__ import annotations

import inspect
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from sharedmem.errors import InvalidError
from sharedmem.knowledge.memory.asking import check_query, check_share
from sharedmem.knowledge.memory.base import check_filter
from sharedmem.knowledge.memory.chronicle import Chronicle
from sharedmem.knowledge.memory.meaning import meaning_of
from sharedmem.knowledge.memory.noticing import Interest
from sharedmem.knowledge.memory.shelf import Shelf
from sharedmem.knowledge.memory.wakes import Wakes
from sharedmem.models import MemoryEvent, MemoryFilter
from sharedmem.process_bound import ProcessBound
from sharedmem.search.analysis import query_terms
from sharedmem.telemetry import get_logger

EventCallback = Callable[[MemoryEvent], Awaitable[None] | None]
DEFAULT_THRESHOLD = 0.5
# Ids of deleted memories stay in the log for a day; a little less, since clocks differ.
_KEPT_DELETIONS = timedelta(hours=23, minutes=55)
_CURSOR = re.compile(r"[0-9]{1,17}")
_logger = get_logger("memory")


class StandingQuery(ProcessBound):
    """The events of one standing query, as an async iterator of `MemoryEvent`.

    Args:
        chronicle: tells what has become of memories, within its scope.
        interest: what is asked.
        wakes: tells when memories have changed.
        cursor: the version up to which everything was told.
        looked_at: when that was so, in microseconds since 1970.
    """

    def __init__(
        self, chronicle: Chronicle, interest: Interest, wakes: Wakes, *, cursor: int, looked_at: float
    ) -> None:
        self._chronicle = chronicle
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
        since_us, self._looked_at = self._looked_at, self._chronicle.now_us()
        cleared, self._clearings = self._wakes.clearings != self._clearings, self._wakes.clearings
        if cleared or self._looked_at - since_us > _KEPT_DELETIONS / timedelta(microseconds=1):
            self._events.append(_gap(self._cursor))
        page, stories = await self._chronicle.stories(self._cursor)
        if page:
            async for event in self._chronicle.told(self._interest, stories, self._matched):
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
        chronicle = Chronicle(minds, self._scope, self._within)
        meaning = await meaning_of(minds.embedder_of(self._namespace), text)
        interest = Interest(query_terms(text), meaning.vector, least, (self._within, asked))
        wakes = minds.shared(Wakes, self._namespace, lambda: Wakes(minds.line, minds.background, space))
        try:
            with wakes.attended():
                begin = await chronicle.newest() if cursor is None else cursor
                looked_at = chronicle.now_us() if cursor is None else cursor
                standing = StandingQuery(chronicle, interest, wakes, cursor=begin, looked_at=looked_at)
                work = minds.background.start("deliver memory events", self._call_each(standing, callback))
                try:
                    yield standing
                finally:
                    await work.stop()
        finally:
            await wakes.rest()

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


def _gap(cursor: int) -> MemoryEvent:
    return MemoryEvent(event="gap", id="", item=None, similarity=None, cursor=str(cursor))
