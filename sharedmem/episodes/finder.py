"""Find texts in episodes: the finder protocol, its filters, and a substring finder that returns the newest first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heappush, heappushpop
from typing import NamedTuple, Protocol, cast

from sharedmem.episodes.event_log import EVENTS_PER_PAGE, EpisodeLog, EpisodeSummary, format_event, version_of
from sharedmem.errors import InvalidError
from sharedmem.models import EpisodeEvent
from sharedmem.redis.keys import check_name

FILTERS = ("session", "actor", "since", "until")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CURSOR = re.compile(r"[0-9]{1,19}(?:-[0-9]{1,19})?")
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class EpisodeFilter:
    """Where to look: everywhere, unless it says otherwise."""

    session: str | None = None
    actor: str | None = None
    since: int = 0
    """Only what is newer than this version."""
    until: int | None = None
    """Only what is not newer than this version."""


class Finder(Protocol):
    """Finds the texts of events and summaries that answer a query."""

    async def find(self, query: str, k: int, wanted: EpisodeFilter) -> list[str]:
        """The `k` best answers, best first."""


class _Match(NamedTuple):
    """A find; of one version, an event comes before the summary up to it."""

    version: int
    is_event: bool
    text: str


class SubstringFinder:
    """Finds what holds the query as it stands, whatever the case; the newest is the best.

    Sessions are read one after the other, newest first, a page at a time: it holds one page and the best `k`,
    and stops at the first session that has nothing newer than these.
    """

    def __init__(self, log: EpisodeLog) -> None:
        self._log = log

    async def find(self, query: str, k: int, wanted: EpisodeFilter) -> list[str]:
        """The `k` newest texts that hold the query; one round trip a hundred events looked at."""
        best = _Newest(k, query.casefold(), wanted)
        if wanted.session is not None:
            await self._search(wanted.session, best)
        else:
            await self._search_all(best)
        return best.texts()

    async def _search_all(self, best: _Newest) -> None:
        async for page in self._log.session_activity():
            for session, last in page:
                if last <= best.horizon:
                    return
                await self._search(session, best)

    async def _search(self, session: str, best: _Newest) -> None:
        keys = self._log.place(session, "read")[1]
        summary, events = await self._log.summary_and_newest(keys, since=best.wanted.since, until=best.wanted.until)
        best.look_at_summary(summary)
        while events:
            best.look_at(events)
            oldest = version_of(events[-1])
            if len(events) < EVENTS_PER_PAGE or oldest <= best.horizon:
                return
            events = await self._log.before(keys, since=best.wanted.since, before=oldest)


class _Newest:
    """The newest matches so far, at most `k`."""

    def __init__(self, k: int, folded: str, wanted: EpisodeFilter) -> None:
        self._k = k
        self._folded = folded
        self._heap: list[_Match] = []
        self.wanted = wanted

    @property
    def horizon(self) -> int:
        """What is not newer than this is not wanted any more."""
        oldest = self._heap[0].version - 1 if len(self._heap) == self._k else 0
        return max(oldest, self.wanted.since)

    def look_at(self, events: list[EpisodeEvent]) -> None:
        for event in events:
            if self.wanted.actor in {None, event.actor}:
                self._offer(version_of(event), format_event(event.event), is_event=True)

    def look_at_summary(self, summary: EpisodeSummary | None) -> None:
        # A summary has many authors: who asks for one actor's words is not served by it.
        if summary is None or self.wanted.actor is not None or summary.upto <= self.wanted.since:
            return
        if self.wanted.until is None or summary.upto <= self.wanted.until:
            self._offer(summary.upto, summary.text, is_event=False)

    def texts(self) -> list[str]:
        return [match.text for match in sorted(self._heap, reverse=True)]

    def _offer(self, version: int, text: str, *, is_event: bool) -> None:
        match = _Match(version, is_event, text)
        if self._folded not in text.casefold() or match in self._heap:
            return
        if len(self._heap) < self._k:
            heappush(self._heap, match)
        else:
            heappushpop(self._heap, match)


def check_filters(filters: Mapping[str, object] | None) -> EpisodeFilter:
    """What filters mean.

    Args:
        filters: `session` and `actor` by name; `since` and `until` as in `check_moment`.

    Raises:
        InvalidError: an unknown filter, or a value that is none.
    """
    given = {name: value for name, value in (filters or {}).items() if value is not None}
    if unknown := sorted(given.keys() - set(FILTERS)):
        raise InvalidError("filters", unknown[0], f"there is no such filter; use {', '.join(FILTERS)}")
    names = {name: check_name(name, cast("str", given[name])) for name in ("session", "actor") if name in given}
    until = given.get("until")
    return EpisodeFilter(
        **names,
        since=check_moment("since", given.get("since", 0)),
        until=None if until is None else check_moment("until", until),
    )


def check_moment(field: str, moment: object) -> int:
    """The version that a moment stands for, which is server time in microseconds.

    Args:
        field: what it is for, told in the error.
        moment: the cursor of an event, a version, a datetime with its zone, or one as ISO 8601 text.

    Raises:
        InvalidError: it is none of these.
    """
    if isinstance(moment, str):
        if _CURSOR.fullmatch(moment):
            return min(int(moment.partition("-")[0]), _LARGEST)
        moment = _parse_time(moment)
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return max((moment - _EPOCH) // timedelta(microseconds=1), 0)
    if isinstance(moment, int) and not isinstance(moment, bool) and 0 <= moment <= _LARGEST:
        return moment
    raise InvalidError(field, moment, "give the cursor of an event, a version, or a time with its zone")


def _parse_time(text: str) -> object:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text
