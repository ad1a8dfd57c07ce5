"""The backend that keeps graphs in Redis itself, with or without a query engine there."""

from __future__ import annotations

from typing import Literal

from sharedmem.knowledge.graph.redis.committing import Committing
from sharedmem.knowledge.graph.redis.edges import Edges
from sharedmem.knowledge.graph.redis.listing import Listing
from sharedmem.knowledge.graph.redis.looking import Looking
from sharedmem.knowledge.graph.redis.search import Searching


class RedisBackend(Looking, Committing, Searching, Edges, Listing):
    """A `GraphBackend` over the records, sorted sets and scripts of `lua/graph_*.lua`."""

    @property
    def name(self) -> Literal["redis"]:
        """Who keeps the graphs."""
        return "redis"

    async def close(self) -> None:
        """Nothing to give back: the connection is the hub's."""
