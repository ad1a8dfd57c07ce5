"""The backend that keeps graphs in Redis itself, with or without a query engine there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from sharedmem.knowledge.graph.protocol import GraphProgress
from sharedmem.knowledge.graph.records import Hits, Search, Seen, Wanted
from sharedmem.knowledge.graph.redis.committing import Committing
from sharedmem.knowledge.graph.redis.edges import Edges
from sharedmem.knowledge.graph.redis.index_check import IndexCheck
from sharedmem.knowledge.graph.redis.listing import Listing
from sharedmem.knowledge.graph.redis.search import Searching
from sharedmem.models import GraphStats


class RedisBackend(Committing, Searching, Edges, Listing, IndexCheck):
    """A `GraphBackend` over the records, sorted sets and scripts of `lua/graph_*.lua`.

    Every call of a user begins with one of those below. Where a durable tier stands behind, and they find nothing,
    they make sure that Redis has not been emptied.
    """

    @property
    def name(self) -> Literal["redis"]:
        """Who keeps the graphs."""
        return "redis"

    async def look(self, group: str, wanted: Wanted) -> Seen:
        """See `GraphBackend.look`. One round trip; two where the group is not known."""
        look = partial(super().look, group, wanted)
        return await self._minds.surely(self._namespace, look, lambda seen: not seen.version)

    async def search(self, group: str, searches: Sequence[Search]) -> list[Hits]:
        """See `GraphBackend.search`. One round trip; two where nothing is found."""
        look = partial(super().search, group, searches)
        return await self._minds.surely(self._namespace, look, lambda hits: not any(map(any, hits)))

    async def listed(
        self, group: str, kind: str, *, after: str = "", limit: int = 100, session: str | None = None
    ) -> tuple[list[str], str]:
        """See `GraphBackend.listed`. One round trip; two where there is nothing."""
        look = partial(super().listed, group, kind, after=after, limit=limit, session=session)
        return await self._minds.surely(self._namespace, look, lambda page: not page[0])

    async def stats(self, group: str) -> GraphStats:
        """See `GraphBackend.stats`. One round trip; two where the group is not known."""
        look = partial(super().stats, group)
        return await self._minds.surely(self._namespace, look, lambda stats: not stats.entities + stats.episodes)

    async def groups(self) -> list[str]:
        """See `GraphBackend.groups`. One round trip; two where there are none."""
        return await self._minds.surely(self._namespace, super().groups, lambda groups: not groups)

    async def delete(self, group: str, *, progress: GraphProgress | None = None) -> int:
        """See `GraphBackend.delete`."""
        delete = partial(super().delete, group, progress=progress)
        return await self._minds.surely(self._namespace, delete, lambda deleted: not deleted)

    async def close(self) -> None:
        """Nothing to give back: the connection is the hub's."""
