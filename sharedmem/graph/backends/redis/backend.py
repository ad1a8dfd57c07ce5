"""The graph backend in Redis, with or without a query engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from sharedmem.graph.backends.redis.index_check import IndexCheck
from sharedmem.graph.backends.redis.reader import EdgeWalks, GroupListing, RecordSearches
from sharedmem.graph.backends.redis.writer import CommitWriter
from sharedmem.graph.protocol import GraphProgress
from sharedmem.graph.records import LookupRequest, LookupResult, RecordHits, RecordSearch
from sharedmem.models import GraphStats


class RedisBackend(CommitWriter, RecordSearches, EdgeWalks, GroupListing, IndexCheck):
    """A `GraphBackend` over the records, sorted sets and scripts of `lua/graph_*.lua`.

    Every call of a user begins with one of those below. Where a durable tier stands behind, and they find nothing,
    they make sure that Redis has not been emptied.
    """

    @property
    def name(self) -> Literal["redis"]:
        """Who keeps the graphs."""
        return "redis"

    async def look(self, group: str, wanted: LookupRequest) -> LookupResult:
        """See `GraphBackend.look`. One round trip; two where the group is not known."""
        look = partial(super().look, group, wanted)
        return await self._context.retry_after_restore(self._namespace, look, lambda seen: not seen.version)

    async def search(self, group: str, searches: Sequence[RecordSearch]) -> list[RecordHits]:
        """See `GraphBackend.search`. One round trip; two where nothing is found."""
        look = partial(super().search, group, searches)
        return await self._context.retry_after_restore(self._namespace, look, lambda hits: not any(map(any, hits)))

    async def listed(
        self, group: str, kind: str, *, after: str = "", limit: int = 100, session: str | None = None
    ) -> tuple[list[str], str]:
        """See `GraphBackend.listed`. One round trip; two where there is nothing."""
        look = partial(super().listed, group, kind, after=after, limit=limit, session=session)
        return await self._context.retry_after_restore(self._namespace, look, lambda page: not page[0])

    async def stats(self, group: str) -> GraphStats:
        """See `GraphBackend.stats`. One round trip; two where the group is not known."""
        look = partial(super().stats, group)
        return await self._context.retry_after_restore(
            self._namespace, look, lambda stats: not stats.entities + stats.episodes
        )

    async def groups(self) -> list[str]:
        """See `GraphBackend.groups`. One round trip; two where there are none."""
        return await self._context.retry_after_restore(self._namespace, super().groups, lambda groups: not groups)

    async def delete(self, group: str, *, progress: GraphProgress | None = None) -> int:
        """See `GraphBackend.delete`."""
        delete = partial(super().delete, group, progress=progress)
        return await self._context.retry_after_restore(self._namespace, delete, lambda deleted: not deleted)

    async def close(self) -> None:
        """Nothing to give back: the connection is the hub's."""
