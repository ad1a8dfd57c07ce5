"""Read episodes: the events of a session page by page, their text, and sessions by their last event."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import NamedTuple

import orjson

from sharedmem.clock import from_microseconds
from sharedmem.models import EpisodeEvent
from sharedmem.redis.change_stream import as_list, text_of
from sharedmem.redis.client import RedisClient
from sharedmem.redis.codec import decode_member
from sharedmem.redis.keys import SHARED_SCOPE, Target, check_name
from sharedmem.redis.replies import Command, Reply
from sharedmem.redis.scope import Need, Scope
from sharedmem.redis.scripts.episodes import EpisodeKeys
from sharedmem.redis.service_keys import decoding

_TEXT_FIELDS = ("text", "content", "message")
_SPEAKER_FIELDS = ("by", "role", "name", "actor")


def format_event(event: object) -> str:
    """An event as people would tell it: its text, with who said it before it; other structures field by field.

    Args:
        event: what an agent has appended: text, or any value that can be shared.
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
_SESSIONS_PER_PAGE = 500


class EpisodeSummary(NamedTuple):
    """A summary as it is kept: up to which event it goes, and what it says."""

    upto: int
    text: str


class SessionActivity(NamedTuple):
    """A session, and the version of its last event."""

    session: str
    last: int


class EpisodeLog:
    """Reads the episodes of one namespace.

    Args:
        line: the way to the server.
        scope: hands out the names within an actor's rights.
    """

    def __init__(self, line: RedisClient, scope: Scope) -> None:
        self._client = line
        self._scope = scope

    def place(self, session: str, need: Need) -> tuple[Target, EpisodeKeys]:
        """Where a session's episode lies.

        Raises:
            InvalidError: the session's name is none.
            AccessDeniedError: this actor has no such right to the namespace's shared scope.
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
        """(the summary that is kept, version of the last event or 0). One round trip."""
        summary, newest = await self._client.read_many(
            [("GET", keys.summary), ("XREVRANGE", keys.episode, "+", "-", "COUNT", 1)]
        )
        events = _parse_events(keys, newest)
        return _parse_kept_summary(keys, summary), version_of(events[0]) if events else 0

    async def following(self, keys: EpisodeKeys, *, since: int, limit: int) -> list[EpisodeEvent]:
        """The first events after a version, oldest first; one round trip a hundred of them."""
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
        """(the summary that is kept, the newest page of events of a span), newest event first. One round trip."""
        commands: list[Command] = [("GET", keys.summary), self._back(keys, since, until)]
        summary, page = await self._client.read_many(commands, aside=True)
        return _parse_kept_summary(keys, summary), _parse_events(keys, page)

    async def before(self, keys: EpisodeKeys, *, since: int, before: int) -> list[EpisodeEvent]:
        """The page of events before a version and after another, newest first. One round trip."""
        page = await self._client.call_aside(*self._back(keys, since, before - 1))
        return _parse_events(keys, page)

    async def session_activity(self) -> AsyncIterator[list[SessionActivity]]:
        """The sessions by their last event, newest first; one round trip a page of five hundred.

        Those that get events meanwhile come again at the end, so that none is passed over.
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
        """Those of some sessions whose events have not expired. One round trip."""
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
        """What the index of sessions lies beside: the shared scope itself."""
        return self._scope.common(f"{self._scope.identity.namespace}:{SHARED_SCOPE}", "read")

    @staticmethod
    def _back(keys: EpisodeKeys, since: int, until: int | None) -> Command:
        start = "+" if until is None else f"{until}-0"
        return ("XREVRANGE", keys.episode, start, f"({since}-0", "COUNT", EVENTS_PER_PAGE)


def parse_event(entry: Reply) -> EpisodeEvent:
    """The event of a stream entry."""
    cursor, fields = as_list(entry)
    pairs = as_list(fields)
    named = {text_of(pairs[at]): pairs[at + 1] for at in range(0, len(pairs), 2)}
    event = named.get("event")
    return EpisodeEvent.model_construct(
        at=from_microseconds(int(text_of(cursor).partition("-")[0])),
        actor=text_of(named.get("by", b"")),
        event=decode_member(event) if isinstance(event, bytes) else None,
        cursor=text_of(cursor),
    )


def parse_summary(kept: Reply) -> EpisodeSummary | None:
    """The summary of `<version> <text>`."""
    if kept is None:
        return None
    upto, _, text = text_of(kept).partition(" ")
    return EpisodeSummary(int(upto), text)


def version_of(event: EpisodeEvent) -> int:
    """The version under which an event was appended."""
    return int(event.cursor.partition("-")[0])


def _parse_events(keys: EpisodeKeys, page: Reply) -> list[EpisodeEvent]:
    with decoding(keys.episode):
        return [parse_event(entry) for entry in as_list(page)]


def _parse_kept_summary(keys: EpisodeKeys, kept: Reply) -> EpisodeSummary | None:
    with decoding(keys.summary):
        return parse_summary(kept)
