"""Vectors made anew: after a change of the embedder, and for what got none while that was away."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from sharedmem.knowledge.minds import Minds
from sharedmem.knowledge.searched import Searched
from sharedmem.providers.protocol import Embedder
from sharedmem.search.protocol import Index, IndexProgress
from sharedmem.wire.replies import Argument
from sharedmem.wire.vectors import to_half

_FIELDS = ("body", "version", "vector")


class _Bare(NamedTuple):
    """A record without a vector."""

    id: str
    key: bytes
    version: bytes
    text: str


class RevectoredRecords(ABC):
    """The records of one family that are searched in one index, before and after it is built anew.

    Args:
        minds: what the hub lends.
        index: of the family.
        namespace: whose index; None for the one that small namespaces share.
    """

    def __init__(self, minds: Minds, index: Index, namespace: str | None) -> None:
        self._minds = minds
        self._family = index.family.name
        self._searched = Searched(minds, index, namespace)
        self._namespaces: list[str] = []

    @abstractmethod
    def _text(self, id_: str, body: bytes) -> str:
        """What the vector of a record is made of; nothing where another client has written."""

    @abstractmethod
    async def _give(self, namespace: str, keys: Sequence[bytes], vectors: Sequence[Argument]) -> None:
        """Write vectors down.

        Args:
            namespace: whose.
            keys: of the records, and that of the log.
            vectors: id, version and vector of each.
        """

    async def forget(self) -> None:
        """Take away the vectors that do not fit; words find these records meanwhile, where they have any."""
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
            log = self._minds.keyspace.record_log(self._family, namespace)
            total, done = await self._minds.line.call("ZCARD", log), 0
            pages = [page async for page in self._searched.pages(namespace)] if embedder is not None else []
            for ids in pages:
                if embedder is not None:
                    await self._embed(namespace, embedder, await self._bare(namespace, ids))
                done += len(ids)
                if progress is not None and isinstance(total, int):
                    progress(done, max(total, done))

    async def _bare(self, namespace: str, ids: list[str]) -> list[_Bare]:
        keys = [self._minds.keyspace.record(self._family, namespace, id_) for id_ in ids]
        replies = await self._minds.line.read_each([("HMGET", key, *_FIELDS) for key in keys], aside=True)
        found = []
        for id_, key, reply in zip(ids, keys, replies, strict=True):
            body, version, vector = reply if isinstance(reply, list) else (None, None, None)
            if isinstance(body, bytes) and isinstance(version, bytes) and vector is None:
                found.append(_Bare(id_, key, version, self._text(id_, body)))
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
        log = self._minds.keyspace.record_log(self._family, namespace)
        await self._give(namespace, [*(one.key for one, _ in given), log], words)
