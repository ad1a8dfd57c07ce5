"""The operations of episodic memory: events of sessions, their summaries, finding things again."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sharedmem.faces.operations.row import Operation
from sharedmem.models import EpisodeEvent, Record

# -- requests: field names are those of the calls' arguments, where their meaning and limits stand ------


class OnEpisodes(Record):
    """All sessions of the namespace."""


class OnSession(Record):
    """A session."""

    session: str


class EventAppend(OnSession):
    """An event for the end of a session's episode."""

    event: Any


class EventList(OnSession):
    """Which events of a session to list."""

    since: datetime | str | int | None = None
    limit: int = 1000


class Retrieve(Record):
    """What to look for, and where."""

    query: str
    k: int = 5
    filters: dict[str, Any] | None = None


# -- rows -----------------------------------------------------------------------------------------

EPISODE_APPEND = Operation(
    "episode.append",
    "Put an event at the end of a session's episode, and tell how many it keeps.",
    "write",
    EventAppend,
    int,
    lambda store, ask: store.episodes.append_event(ask.session, ask.event),
)
EPISODE_EVENTS = Operation(
    "episode.events",
    "The events of a session, oldest first.",
    "read",
    EventList,
    list[EpisodeEvent],
    lambda store, ask: store.episodes.events(ask.session, since=ask.since, limit=ask.limit),
)
EPISODE_SESSIONS = Operation(
    "episode.sessions",
    "The sessions that have events, the one with the newest event first.",
    "read",
    OnEpisodes,
    list[str],
    lambda store, _: store.episodes.sessions(),
)
EPISODE_SUMMARIZE = Operation(
    "episode.summarize",
    "What a session was about in some of its own sentences, or nothing when it has no events.",
    "write",
    OnSession,
    str | None,
    lambda store, ask: store.episodes.summarize_episode(ask.session),
)
EPISODE_RETRIEVE = Operation(
    "episode.retrieve",
    "The newest events and summaries that hold a piece of text.",
    "read",
    Retrieve,
    list[str],
    lambda store, ask: store.episodes.retrieve(ask.query, ask.k, ask.filters),
)

ROWS = tuple(row for row in list(globals().values()) if isinstance(row, Operation))
