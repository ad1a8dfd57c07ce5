"""`store.episodes`: the events of each session, summaries of them, and retrieval."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime

from sharedmem.context import HubContext
from sharedmem.coordination.names import NameAccess
from sharedmem.episodes.event_log import EVENTS_PER_PAGE, EpisodeLog, format_event, version_of
from sharedmem.episodes.finder import Finder, SubstringFinder, check_filters, check_moment
from sharedmem.errors import InvalidError
from sharedmem.models import EpisodeEvent
from sharedmem.redis.codec import encode_member
from sharedmem.redis.scope import Scope
from sharedmem.redis.scripts.episodes import EpisodeKeys, EpisodeScripts
from sharedmem.runtime.process_bound import ProcessBound
from sharedmem.text.summary import MOST_CHARACTERS_READ, MOST_SENTENCES_READ, summarize


class Episodes(ProcessBound):
    """Episodes of one namespace: every actor of it may append to each session, and read all.

    A session is forgotten when nothing was appended for `session_ttl_s`.

    Args:
        context: what the hub shares with its stores.
        scope: hands out names within the actor's rights.
        finder: how `retrieve` finds; None looks for the query as a piece of text.
    """

    def __init__(self, context: HubContext, scope: Scope, *, finder: Finder | None = None) -> None:
        self._names = NameAccess(context, scope)
        self._scripts = EpisodeScripts(context.executor)
        self._log = EpisodeLog(context.client, scope)
        self._finder = finder or SubstringFinder(self._log)

    async def append_event(self, session: str, event: object) -> int:
        """Put an event at the end of a session's episode, with server time and this actor's name. One round trip.

        Args:
            session: a name without colons and blanks; made by its first event.
            event: text, or any value that `write` takes, such as `{"by": "ada", "text": "..."}`, up to the blob
                threshold. Beyond `episode_events` (default 10,000) the oldest events go.

        Returns:
            How many events the episode keeps.

        Raises:
            InvalidError: the name is none, or the event cannot be coded or is too large.
            AccessDeniedError, UnavailableError: as `write`.
        """
        target, keys = self._log.place(session, "write")
        coded = encode_member(event)
        settings = self._names.context.settings
        if len(coded) > settings.blob_threshold_bytes:
            advice = (
                f"it takes {len(coded)} bytes, events may take {settings.blob_threshold_bytes}; store what is large as"
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
        return (await self._names.explained(target, call))[1]

    async def events(
        self, session: str, *, since: datetime | str | int | None = None, limit: int = 1000
    ) -> list[EpisodeEvent]:
        """The events of a session, oldest first; empty when it has none. One round trip a hundred events.

        Args:
            session: its name.
            since: only events after this: the `cursor` of the last one seen, a version, or a time with its zone
                (datetime, or ISO 8601 text); None from the oldest kept.
            limit: at most so many; go on with `since` set to the cursor of the last one.

        Raises:
            InvalidError: the name, moment or limit is none.
            AccessDeniedError, UnavailableError: as `read`.
        """
        target, keys = self._log.place(session, "read")
        after = 0 if since is None else check_moment("since", since)
        call = self._log.following(keys, since=after, limit=_check_count("limit", limit))
        return await self._names.explained(target, call)

    async def sessions(self) -> list[str]:
        """The sessions that have events, the one with the newest event first. Two round trips five hundred.

        Raises:
            AccessDeniedError, UnavailableError: as `read`.
        """
        found: dict[str, None] = {}
        async for page in self._log.session_activity():
            found |= dict.fromkeys(await self._log.existing([visit.session for visit in page]))
        return list(found)

    async def summarize_episode(self, session: str) -> str | None:
        """What a session was about, in at most seven of its own sentences; None when it has no events.

        A heuristic that quotes (`knowledge.summary` says how it chooses), no model of language: it reads the newest
        2,000 sentences. The summary is kept and answered from the store until something is appended: one round trip
        then, else three, and one more for each hundred events read.

        Raises:
            InvalidError: the name is none.
            AccessDeniedError, UnavailableError: as `write`, since the summary is kept.
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
        # Hundreds of thousands of characters take a while, in which other tasks go on.
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

    async def retrieve(self, query: str, k: int = 5, filters: Mapping[str, object] | None = None) -> list[str]:
        """The newest events and summaries of the namespace that hold a piece of text, in any case, as text.

        An event that is no text is searched and answered as `speaker: text`, else as `field: value, ...`.

        Args:
            query: looked for as it stands; nothing in it has a meaning of its own. Empty text finds the newest.
            k: at most so many answers.
            filters: any of `session`, `actor` (events alone have one), `since` (newer than) and `until` (not newer
                than), each a cursor, a version, or a time with its zone. A summary is as old as the last event
                it tells of.

        Returns:
            Newest first. One round trip a hundred events looked at; holds one page and the answers in memory.

        Raises:
            InvalidError: the query is no text, k is below one, or a filter is unknown or none.
            AccessDeniedError, UnavailableError: as `read`.
        """
        if not isinstance(query, str):
            raise InvalidError("query", query, "give a text")
        return await self._finder.find(query, _check_count("k", k), check_filters(filters))

    async def _newest(self, keys: EpisodeKeys) -> list[EpisodeEvent]:
        """As many of the newest events as a summary reads, oldest first."""
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
