"""Operations of episodic memory: events of sessions, and their summaries."""

from __future__ import annotations

from datetime import datetime

from sharedmem.api.operation import Facet
from sharedmem.episodes.episodes import Episodes

_episodes = Facet("episodes", lambda store, _: store.episodes)

_episodes.operation("episode.sessions", Episodes.sessions, "GET /episodes", paging="recent")
_episodes.operation(
    "episode.search", Episodes.retrieve, "POST /episodes/search", needs="read", formerly=["episode.retrieve"]
)
_episodes.operation("episode.append", Episodes.append_event, "POST /episodes/{session}/events", answer="length")
_episodes.operation(
    "episode.events", Episodes.events, "GET /episodes/{session}/events", fields={"since": datetime | str | int | None}
)
_episodes.operation(
    "episode.summarize", Episodes.summarize_episode, "POST /episodes/{session}/summary", answer="summary"
)

FACETS = (_episodes,)
