"""Episodic memory: the log of events of a session, their summaries, and search."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import orjson

from sharedmem.clock import from_microseconds
from sharedmem.context import HubContext
from sharedmem.coordination.names import NameAccess
from sharedmem.errors import InvalidError
from sharedmem.models import EpisodeEvent
from sharedmem.models.record import of_checked
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.client import RedisClient
from sharedmem.redis.codec import decode_member, encode_member
from sharedmem.redis.keys import SHARED_SCOPE, Target, check_name
from sharedmem.redis.replies import Command, Reply
from sharedmem.redis.scope import Need, Scope
from sharedmem.redis.scripts.knowledge import EpisodeKeys, EpisodeScripts
from sharedmem.redis.service_keys import decoding
from sharedmem.runtime import Counters, measured
from sharedmem.runtime.concurrency import ProcessBound
from sharedmem.text.summaries import MOST_CHARACTERS_READ, MOST_SENTENCES_READ, summarize

if TYPE_CHECKING:
    from sharedmem.providers.protocol import Embedder, OpenEmbedder


_TEXT_FIELDS = ("text", "content", "message")
_SPEAKER_FIELDS = ("by", "role", "name", "actor")


def format_event(event: object) -> str:
    """Return an event as readable text: its speaker and text; other structures field by field.

    Args:
        event: the event: text, or any other value.
    """
    if isinstance(event, str):
        return event
    if not isinstance(event, Mapping):
        return _format_value(event)
    text = _first_text(event, _TEXT_FIELDS)
    speaker = _first_text(event, _SPEAKER_FIELDS)
    if text is None:
        return ", ".join(f"{field}: {_format_value(value)}" for field, value in event.items())
    return f"{speaker}: {text}" if speaker else text


def _first_text(event: Mapping[object, object], fields: Iterable[str]) -> str | None:
    return next((value for field in fields if isinstance(value := event.get(field), str)), None)


def _format_value(value: object) -> str:
    if not isinstance(value, list | tuple | Mapping | bool | None):
        return str(value)
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # what JSON cannot hold, such as an integer beyond 64 bits
        return str(value)


# Events may be large: a page of them stays small enough to hold.
EVENTS_PER_PAGE = 100
_MOST_RANKED = 2000
# Texts that are compared by meaning, the newest: the embedding cache holds no more, and each one may cost a request.
_MOST_EMBEDDED = 256
_SESSIONS_PER_PAGE = 500


class EpisodeSummary(NamedTuple):
    """A stored summary: the version of the last event that it covers, and its text."""

    upto: int
    text: str


class SessionActivity(NamedTuple):
    """A session, and the version of its last event."""

    session: str
    last: int


class EpisodeLog:
    """Reads the episodes of one namespace.

    Args:
        line: the client of the server.
        scope: returns names within an actor's rights.
    """

    def __init__(self, line: RedisClient, scope: Scope) -> None:
        self._client = line
        self._scope = scope

    def place(self, session: str, need: Need) -> tuple[Target, EpisodeKeys]:
        """Return the keys of a session's episode.

        Raises:
            InvalidError: the session's name is invalid.
            AccessDeniedError: this actor does not have this right in the namespace's shared scope.
        """
        target = self._scope.common(check_name("session", session), need)
        part, index = self._scope.keyspace.part, self._index()
        return target, EpisodeKeys(
            part(target, "episode"),
            part(target, "episode.summary"),
            part(index, "episode.sessions"),
            part(index, "episode.endings"),
        )

    async def state(self, keys: EpisodeKeys) -> tuple[EpisodeSummary | None, int]:
        """Return (the stored summary, version of the last event or 0). One round trip."""
        summary, newest = await self._client.read_many(
            [("GET", keys.summary), ("XREVRANGE", keys.episode, "+", "-", "COUNT", 1)]
        )
        events = _parse_events(keys, newest)
        return _parse_kept_summary(keys, summary), version_of(events[0]) if events else 0

    async def following(self, keys: EpisodeKeys, *, since: int, limit: int) -> list[EpisodeEvent]:
        """Return the first events after a version, oldest first; one round trip a hundred of them."""
        found: list[EpisodeEvent] = []
        while len(found) < limit:
            count = min(limit - len(found), EVENTS_PER_PAGE)
            page = await self._client.call_aside("XRANGE", keys.episode, f"({since}-0", "+", "COUNT", count)
            found += _parse_events(keys, page)
            if len(as_list(page)) < count:
                break
            since = version_of(found[-1])
        return found

    async def summary_and_newest(
        self, keys: EpisodeKeys, *, since: int, until: int | None
    ) -> tuple[EpisodeSummary | None, list[EpisodeEvent]]:
        """Return (the stored summary, the newest page of events of a span), newest event first. One round trip."""
        commands: list[Command] = [("GET", keys.summary), self._back(keys, since, until)]
        summary, page = await self._client.read_many(commands, aside=True)
        return _parse_kept_summary(keys, summary), _parse_events(keys, page)

    async def before(self, keys: EpisodeKeys, *, since: int, before: int) -> list[EpisodeEvent]:
        """Return the page of events before a version and after another, newest first. One round trip."""
        page = await self._client.call_aside(*self._back(keys, since, before - 1))
        return _parse_events(keys, page)

    async def session_activity(self) -> AsyncIterator[list[SessionActivity]]:
        """Yield the sessions by their last event, newest first; one round trip a page of five hundred.

        Sessions that get events during the iteration are yielded again at the end, so that none is skipped.
        """
        seen_up_to = 0
        while True:
            newest, below = 0, "+inf"
            while page := await self._activity_page(below, seen_up_to):
                yield page
                newest, below = max(newest, page[0].last), f"({page[-1].last}"
            if not newest or seen_up_to:
                return
            seen_up_to = newest

    async def existing(self, sessions: list[str]) -> list[str]:
        """Return the sessions whose events have not expired. One round trip."""
        commands: list[Command] = [("EXISTS", self.place(session, "read")[1].episode) for session in sessions]
        there = await self._client.read_many(commands)
        return [session for session, exists in zip(sessions, there, strict=True) if exists == 1]

    async def _activity_page(self, below: str, above: int) -> list[SessionActivity]:
        index = self._scope.keyspace.part(self._index(), "episode.sessions")
        span = (below, f"({above}", "WITHSCORES", "LIMIT", 0, _SESSIONS_PER_PAGE)
        flat = as_list(await self._client.call("ZREVRANGEBYSCORE", index, *span))
        pairs = zip(flat[::2], flat[1::2], strict=True)
        with decoding(index):
            return [SessionActivity(text_of(session), int(float(text_of(last)))) for session, last in pairs]

    def _index(self) -> Target:
        """Return the target of the session index: the shared scope itself."""
        return self._scope.common(f"{self._scope.identity.namespace}:{SHARED_SCOPE}", "read")

    @staticmethod
    def _back(keys: EpisodeKeys, since: int, until: int | None) -> Command:
        start = "+" if until is None else f"{until}-0"
        return ("XREVRANGE", keys.episode, start, f"({since}-0", "COUNT", EVENTS_PER_PAGE)


def parse_event(entry: Reply) -> EpisodeEvent:
    """Return the event of a stream entry."""
    cursor, fields = as_list(entry)
    pairs = as_list(fields)
    named = {text_of(pairs[at]): pairs[at + 1] for at in range(0, len(pairs), 2)}
    event = named.get("event")
    return of_checked(
        EpisodeEvent,
        {
            "at": from_microseconds(int(text_of(cursor).partition("-")[0])),
            "actor": text_of(named.get("by", b"")),
            "event": decode_member(event) if isinstance(event, bytes) else None,
            "cursor": text_of(cursor),
        },
    )


def parse_summary(kept: Reply) -> EpisodeSummary | None:
    """Return the summary of `<version> <text>`."""
    if kept is None:
        return None
    upto, _, text = text_of(kept).partition(" ")
    return EpisodeSummary(int(upto), text)


def version_of(event: EpisodeEvent) -> int:
    """Return the version under which an event was appended."""
    return int(event.cursor.partition("-")[0])


def _parse_events(keys: EpisodeKeys, page: Reply) -> list[EpisodeEvent]:
    with decoding(keys.episode):
        return [parse_event(entry) for entry in as_list(page)]


def _parse_kept_summary(keys: EpisodeKeys, kept: Reply) -> EpisodeSummary | None:
    with decoding(keys.summary):
        return parse_summary(kept)


FILTERS = ("session", "actor", "since", "until")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CURSOR = re.compile(r"[0-9]{1,19}(?:-[0-9]{1,19})?")
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class EpisodeFilter:
    """A filter for searches; by default it matches everything."""

    session: str | None = None
    actor: str | None = None
    since: int = 0
    """Match only entries newer than this version."""
    until: int | None = None
    """Match only entries not newer than this version."""


class Finder(Protocol):
    """Finds the texts of events and summaries that match a query."""

    async def find(self, query: str, k: int, wanted: EpisodeFilter) -> list[str]:
        """Return the `k` best matches, best first."""


class _Match(NamedTuple):
    """A match; with equal versions, an event precedes the summary up to it."""

    version: int
    is_event: bool
    text: str


class SubstringFinder:
    """Finds texts that contain the query literally, ignoring case; the newest match is the best.

    It reads sessions one after the other, newest first, a page at a time. In memory are one page and the best `k`. It
    stops at the first session without anything newer than these.
    """

    def __init__(self, log: EpisodeLog) -> None:
        self._log = log

    async def find(self, query: str, k: int, wanted: EpisodeFilter) -> list[str]:
        """Return the `k` newest texts that contain the query, newest first; one round trip a hundred events read."""
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


class FallbackFinder:
    """Finds the newest texts that contain the query, or else the ones that match by words and meaning.

    Args:
        log: the episodes of the namespace.
        embedder: returns the embedder of the namespace; None: the libraries for words and vectors are not installed,
            so only texts that contain the query are found.
    """

    def __init__(self, log: EpisodeLog, embedder: OpenEmbedder | None) -> None:
        self._literal = SubstringFinder(log)
        self._embedder = embedder

    async def find(self, query: str, k: int, wanted: EpisodeFilter) -> list[str]:
        """Return up to `k` texts. Without a literal match it reads the newest 2,000 events again, and ranks them."""
        found = await self._literal.find(query, k, wanted)
        if found or self._embedder is None:
            return found
        from sharedmem.search.scoring import rank_texts  # noqa: PLC0415  # most searches do not need numpy

        newest = await self._literal.find("", _MOST_RANKED, wanted)
        near = await _similarities(query, newest[:_MOST_EMBEDDED], self._embedder())
        return (await asyncio.to_thread(rank_texts, query, newest, near))[:k]


async def _similarities(query: str, texts: list[str], embedder: Embedder | None) -> list[float]:
    """Return the cosine similarity of each text to a query; nothing without an embedder."""
    if embedder is None or not texts:
        return []
    question, documents = await asyncio.gather(embedder.embed([query], purpose="query"), embedder.embed(texts))
    return [float(number) for number in documents.vectors @ question.vectors[0]]


class _Newest:
    """The newest matches so far, at most `k`."""

    def __init__(self, k: int, folded: str, wanted: EpisodeFilter) -> None:
        self._k = k
        self._folded = folded
        self._heap: list[_Match] = []
        self.wanted = wanted

    @property
    def horizon(self) -> int:
        """The version up to which older entries cannot be results any more."""
        oldest = self._heap[0].version - 1 if len(self._heap) == self._k else 0
        return max(oldest, self.wanted.since)

    def look_at(self, events: list[EpisodeEvent]) -> None:
        for event in events:
            if self.wanted.actor in {None, event.actor}:
                self._offer(version_of(event), format_event(event.event), is_event=True)

    def look_at_summary(self, summary: EpisodeSummary | None) -> None:
        # A summary has many authors, so a filter by actor excludes it.
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
    """Parse search filters.

    Args:
        filters: `session` and `actor` by name; `since` and `until` as in `check_moment`.

    Raises:
        InvalidError: a filter is unknown, or its value is invalid.
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
    """Return a moment as a version, which is server time in microseconds.

    Args:
        field: name of the argument, for the error.
        moment: the cursor of an event, a version, a datetime with its zone, or one as ISO 8601 text.

    Raises:
        InvalidError: the moment has none of these forms.
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


class Episodes(ProcessBound):
    """Episodes of one namespace: every actor in it may append to each session, and read all sessions.

    A session expires if nothing was appended for `session_ttl_s`.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: returns names within the actor's rights.
        embedder: returns the embedder that compares events by meaning, or None: then by words alone; without it, only
            texts that contain a query are found.
        finder: another search for `retrieve`.
    """

    def __init__(
        self,
        context: HubContext,
        scope: Scope,
        *,
        embedder: OpenEmbedder | None = None,
        finder: Finder | None = None,
    ) -> None:
        self._counters: Counters = context.counters
        self._names = NameAccess(context, scope)
        self._scripts = EpisodeScripts(context.executor)
        self._log = EpisodeLog(context.client, scope)
        self._finder = finder or FallbackFinder(self._log, embedder)

    @measured("episodes.append_event")
    async def append_event(self, session: str, event: object) -> int:
        """Append an event to a session's episode, with server time and this actor's name. One round trip.

        Args:
            session: a name without colons and blanks; its first event creates the session.
            event: text, or any value that `write` accepts, such as `{"by": "ada", "text": "..."}`, up to the blob
                threshold. Beyond `episode_events` (default 10,000) the oldest events are deleted.

        Returns:
            The number of events in the episode.

        Raises:
            InvalidError: the name is invalid, or the event cannot be encoded or is too large.
            AccessDeniedError, UnavailableError: as `write`.
        """
        target, keys = self._log.place(session, "write")
        coded = encode_member(event)
        settings = self._names.context.settings
        if len(coded) > settings.blob_threshold_bytes:
            advice = (
                f"it takes {len(coded)} bytes, events may take {settings.blob_threshold_bytes}; store large data as"
                " a value and put its key here"
            )
            raise InvalidError("event", "...", advice)
        call = self._scripts.episode_append(
            target.space,
            keys,
            self._names.actor,
            session=session,
            event=coded,
            most=settings.episode_events,
            ttl_ms=settings.session_ttl_s * 1000,
        )
        _, count = await self._names.explained(target, call)
        self._counters.increment("episode_events")
        return count

    @measured("episodes.events")
    async def events(
        self, session: str, *, since: datetime | str | int | None = None, limit: int = 1000
    ) -> list[EpisodeEvent]:
        """Return the events of a session, oldest first; empty without events. One round trip a hundred events.

        Args:
            session: its name.
            since: only events after this: the `cursor` of the last event that was read, a version, or a time with its
                zone (datetime, or ISO 8601 text); None: from the oldest stored event.
            limit: most events to return; continue with `since` set to the cursor of the last one.

        Raises:
            InvalidError: the name, moment or limit is invalid.
            AccessDeniedError, UnavailableError: as `read`.
        """
        target, keys = self._log.place(session, "read")
        after = 0 if since is None else check_moment("since", since)
        call = self._log.following(keys, since=after, limit=_check_count("limit", limit))
        return await self._names.explained(target, call)

    @measured("episodes.sessions")
    async def sessions(self) -> list[str]:
        """Return the sessions that have events, newest event first. Two round trips for each five hundred.

        Raises:
            AccessDeniedError, UnavailableError: as `read`.
        """
        found: dict[str, None] = {}
        async for page in self._log.session_activity():
            found |= dict.fromkeys(await self._log.existing([visit.session for visit in page]))
        return list(found)

    @measured("episodes.summarize_episode")
    async def summarize_episode(self, session: str) -> str | None:
        """Summarise a session in at most seven of its own sentences; return None if it has no events.

        A heuristic that quotes sentences (`knowledge.summary` documents the choice), not a language model: it reads the
        newest 2,000 sentences. The summary is stored and returned from the store until an event is appended: then it
        takes one round trip, otherwise three, and one more for each hundred events read.

        Raises:
            InvalidError: the name is invalid.
            AccessDeniedError, UnavailableError: as `write`, since the summary is stored.
        """
        target, keys = self._log.place(session, "write")
        kept, last = await self._names.explained(target, self._log.state(keys))
        if not last:
            return None
        if kept is not None and kept.upto == last:
            return kept.text
        events = await self._names.explained(target, self._newest(keys))
        if not events:
            return None
        # Hundreds of thousands of characters take a while; other tasks must run during that time.
        summary = await asyncio.to_thread(summarize, [format_event(event.event) for event in events])
        call = self._scripts.episode_summarize(
            target.space,
            keys.episode,
            keys.summary,
            self._names.actor,
            upto=version_of(events[-1]),
            text=summary.encode(errors="replace"),
        )
        await self._names.explained(target, call)
        return summary

    @measured("episodes.retrieve")
    async def retrieve(self, query: str, k: int = 5, filters: Mapping[str, object] | None = None) -> list[str]:
        """Return the newest events and summaries of the namespace that contain a text, ignoring case, as text.

        If none contains it, the newest 2,000 are ranked by words (BM25) and meaning (the newest 256; cosine of at least
        0.5 where no word is shared), fused by reciprocal ranks; this needs the extra `memory`. An event that is not a
        text is searched and returned as `speaker: text`, else as `field: value, ...`.

        Args:
            query: matched literally first, without special characters. An empty text matches the newest entries.
            k: most results to return.
            filters: any of `session`, `actor` (only events have one), `since` (newer than) and `until` (not newer
                than), each a cursor, a version, or a time with its zone. A summary is as old as the last event that it
                covers.

        Returns:
            Texts that contain the query, newest first; else matches by words and meaning, best first. One round trip a
            hundred events read.

        Raises:
            InvalidError: the query is not a text, k is below one, or a filter is unknown or invalid.
            AccessDeniedError, UnavailableError: as `read`; the latter also if the embedder cannot be reached.
        """
        if not isinstance(query, str):
            raise InvalidError("query", query, "give a text")
        return await self._finder.find(query, _check_count("k", k), check_filters(filters))

    async def _newest(self, keys: EpisodeKeys) -> list[EpisodeEvent]:
        """Return the newest events that a summary reads, oldest first."""
        _, page = await self._log.summary_and_newest(keys, since=0, until=None)
        newest, characters = page, _count_characters(page)
        while len(page) == EVENTS_PER_PAGE and len(newest) < MOST_SENTENCES_READ and characters < MOST_CHARACTERS_READ:
            page = await self._log.before(keys, since=0, before=version_of(page[-1]))
            newest, characters = newest + page, characters + _count_characters(page)
        return newest[::-1]

    def __repr__(self) -> str:
        return f"<Episodes of {self._names.scope.identity.namespace}>"


def _count_characters(events: list[EpisodeEvent]) -> int:
    return sum(len(format_event(event.event)) for event in events)


def _check_count(field: str, count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidError(field, count, "give a whole number from one up")
    return count
