"""Vectors of graphs made anew."""

from __future__ import annotations

from collections.abc import Sequence

from sharedmem.knowledge.graph.records import EntityRow, Row
from sharedmem.knowledge.graph.redis.rows import decode
from sharedmem.knowledge.graph.resolving import entity_text
from sharedmem.knowledge.minds import Minds
from sharedmem.knowledge.revectoring import RevectoredRecords
from sharedmem.wire.graphing import Graphing
from sharedmem.wire.keys import SHARED_SCOPE
from sharedmem.wire.replies import Argument


class RevectoredGraphs(RevectoredRecords):
    """The records of graphs that are searched in one index, before and after it is built anew.

    Args:
        minds: what the hub lends.
        namespace: whose index; None for the one that small namespaces share.
    """

    def __init__(self, minds: Minds, namespace: str | None) -> None:
        super().__init__(minds, minds.graphs, namespace)
        self._graphing = Graphing(minds.sender)

    def _text(self, id_: str, body: bytes) -> str:
        try:
            row: Row = decode(id_.split("/", 2)[1], body, version=0)
        except (ValueError, IndexError):
            return ""
        return entity_text(row) if isinstance(row, EntityRow) else row.text

    async def _give(self, namespace: str, keys: Sequence[bytes], vectors: Sequence[Argument]) -> None:
        space = self._minds.keyspace.space(namespace)
        await self._graphing.graph_embed(space, SHARED_SCOPE.encode(), keys=keys, vectors=vectors)
