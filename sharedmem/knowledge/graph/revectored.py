"""Vectors of graphs made anew: after a change of the embedder, and for what got none while that was away."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from sharedmem.errors import InternalError
from sharedmem.knowledge.graph.family import GRAPH
from sharedmem.knowledge.graph.records import EntityRow, Row
from sharedmem.knowledge.graph.redis.rows import decode
from sharedmem.knowledge.graph.resolving import entity_text
from sharedmem.knowledge.minds import Minds
from sharedmem.knowledge.searched import Searched
from sharedmem.providers.protocol import Embedder
from sharedmem.search.protocol import IndexProgress
from sharedmem.wire.graphing import Graphing
from sharedmem.wire.keys import SHARED_SCOPE
from sharedmem.wire.replies import Argument
from sharedmem.wire.vectors import to_half

_FIELDS = ("body", "version", "vector")


class _Bare(NamedTuple):
    """A record without a vector."""

    id: str
    key: bytes
    version: bytes
    text: str


class RevectoredGraphs:
    """The records of graphs that are searched in one index, before and after it is built anew.

    Args:
        minds: what the hub lends.
        namespace: whose index; None for the one that small namespaces share.
    """

    def __init__(self, minds: Minds, namespace: str | None) -> None:
        self._minds = minds
        self._graphing = Graphing(minds.sender)
        self._searched = Searched(minds, minds.graphs, namespace)
        self._namespaces: list[str] = []

    async def forget(self) -> None:
        """Take away the vectors that do not fit; words find these records meanwhile."""
        if self._minds.embedder is None:
            return
        self._namespaces, every = await self._searched.begin()
        for namespace in self._namespaces:
            async for ids in self._searched.pages(namespace):
                chosen = await self._searched.misfits(namespace, ids, every=every)
                await asyncio.gather(*(self._minds.line.call("HDEL", key, "vector") for _, key in chosen))

    async def embed(self, progress: IndexProgress | None) -> None:
        """Give all that have none their vectors; may be called again to go on.

        Raises:
            UnavailableError, LimitedError, ConfigError: the provider does not.
        """
        for namespace in self._namespaces:
            embedder = self._minds.embedder_of(namespace)
            log = self._minds.keyspace.record_log(GRAPH, namespace)
            total, done = await self._minds.line.call("ZCARD", log), 0
            pages = [page async for page in self._searched.pages(namespace)] if embedder is not None else []
            for ids in pages:
                if embedder is not None:
                    await self._embed(namespace, embedder, await self._bare(namespace, ids))
                done += len(ids)
                if progress is not None and isinstance(total, int):
                    progress(done, max(total, done))

    async def _bare(self, namespace: str, ids: list[str]) -> list[_Bare]:
        keys = [self._minds.keyspace.record(GRAPH, namespace, id_) for id_ in ids]
        replies = await self._minds.line.read_each([("HMGET", key, *_FIELDS) for key in keys], aside=True)
        found = []
        for id_, key, reply in zip(ids, keys, replies, strict=True):
            body, version, vector = reply if isinstance(reply, list) else (None, None, None)
            if isinstance(body, bytes) and isinstance(version, bytes) and vector is None:
                found.append(_Bare(id_, key, version, _text(id_, body)))
        return found

    async def _embed(self, namespace: str, embedder: Embedder, bare: list[_Bare]) -> None:
        wanted = [one for one in bare if one.text]
        if not wanted:
            return
        embeddings = await embedder.embed([one.text for one in wanted])
        given = [pair for pair in zip(wanted, embeddings.vectors, strict=True) if pair[1].any()]
        if not given:
            return
        words: list[Argument] = []
        for one, vector in given:
            words += (one.id, one.version, to_half(vector))
        await self._graphing.graph_embed(
            self._minds.keyspace.space(namespace),
            SHARED_SCOPE.encode(),
            keys=[*(one.key for one, _ in given), self._minds.keyspace.record_log(GRAPH, namespace)],
            vectors=words,
        )


def _text(id_: str, body: bytes) -> str:
    """What the vector of a record is made of; nothing where another client has written."""
    try:
        row: Row = decode(id_.split("/", 2)[1], body, version=0)
    except (InternalError, IndexError):
        return ""
    return entity_text(row) if isinstance(row, EntityRow) else row.text
