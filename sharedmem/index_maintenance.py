"""Embed the records of an index again, for another embedder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from sharedmem.context import ServerContext
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import IndexStatus
from sharedmem.providers.protocol import Embedder
from sharedmem.redis.replies import Argument
from sharedmem.redis.vectors import to_half
from sharedmem.search.protocol import Index, IndexProgress

_PAGE = 200
_BYTES_A_NUMBER = 2


class IndexedRecords:
    """The records of one family that are searched in one index.

    Args:
        context: dependencies that the hub shares with its stores.
        index: index of the family.
        namespace: namespace of the index; None for the index that small namespaces share.
    """

    def __init__(self, context: KnowledgeContext, index: Index, namespace: str | None) -> None:
        self._client = context.client
        self._keyspace = context.keyspace
        self._index = index
        self._family = index.family
        self._namespace = namespace

    async def begin(self) -> tuple[list[str], bool]:
        """Return (the namespaces that are searched there, whether all their vectors are those of another embedder)."""
        status = await self._status()
        namespaces = [namespace async for namespace in self._sharing(status)]
        return namespaces, status is not None and status.model != self._family.model

    async def pages(self, namespace: str) -> AsyncIterator[list[str]]:
        """Yield the ids of a namespace's records, recently deleted ones included."""
        log, first = self._keyspace.record_log(self._family.name, namespace), 0
        while isinstance(page := await self._client.call("ZRANGE", log, first, first + _PAGE - 1), list) and page:
            yield [id_.decode() for id_ in page if isinstance(id_, bytes)]
            first += _PAGE

    async def with_unusable_vectors(self, namespace: str, ids: list[str], *, every: bool) -> list[tuple[str, bytes]]:
        """Return (id, key) of the records with a vector of the wrong model, or with any vector if `every`."""
        keys = [self._keyspace.record(self._family.name, namespace, id_) for id_ in ids]
        lengths = await self._client.read_each([("HSTRLEN", key, "vector") for key in keys])
        fitting = {0, _BYTES_A_NUMBER * self._family.dimension}
        found = zip(ids, keys, lengths, strict=True)
        return [(id_, key) for id_, key, length in found if every or length not in fitting]

    async def _status(self) -> IndexStatus | None:
        found = await self._index.status()
        own = [one for one in found if self._namespace is not None and self._namespace in one.namespaces]
        shared = [one for one in found if not one.namespaces]
        return next(iter(own + shared), None)

    async def _sharing(self, status: IndexStatus | None) -> AsyncIterator[str]:
        if self._namespace is not None and (status is None or status.namespaces):
            yield self._namespace
            return
        # No namespace is named `*`; here it is a glob for all of them.
        async for keys in self._client.scan(self._keyspace.record_log(self._family.name, "*"), near=None):
            for key in keys:
                namespace = key.decode().partition("}:$")[0].partition(":{")[2]
                place = self._keyspace.record_place(self._family.name, namespace)
                if await self._client.call("GET", place) is None:
                    yield namespace


_FIELDS = ("body", "version", "vector")


class _UnembeddedRecord(NamedTuple):
    """A record without a vector."""

    id: str
    key: bytes
    version: bytes
    text: str


class VectorSource(NamedTuple):
    """The text that the vectors of one family are computed from, and the script that writes them."""

    text: Callable[[str, bytes], str]
    """Return the text to embed, of a record's id and body; empty if another client wrote the body."""
    write: Callable[[ServerContext, str, Sequence[bytes], Sequence[Argument]], Awaitable[object]]
    """Write vectors: context, namespace, keys (of the records, then of the log), and (id, version, vector) of each."""
    prepare: Callable[[KnowledgeContext, str], Awaitable[object]] | None = None
    """Called with each namespace before its records are embedded."""


class Reindexer(Protocol):
    """The records of one family that share one index, before and after it is rebuilt."""

    async def forget(self) -> None:
        """Delete the vectors that do not fit the embedder, before the index is rebuilt."""

    async def embed(self, progress: IndexProgress | None) -> None:
        """Embed the records without a vector, after the index was rebuilt; repeat it to go on."""


class RecordReindexer:
    """The records of one family that share one index, before and after it is rebuilt.

    Args:
        context: dependencies that the hub shares with its stores.
        index: index of the family.
        namespace: namespace of the index; None for the index that small namespaces share.
        vectors: source of the vectors.
    """

    def __init__(self, context: KnowledgeContext, index: Index, namespace: str | None, vectors: VectorSource) -> None:
        self._context = context
        self._family = index.family.name
        self._records = IndexedRecords(context, index, namespace)
        self._vectors = vectors
        self._namespaces: list[str] = []

    async def forget(self) -> None:
        """Delete the vectors that do not fit; until they have new ones, searches find the records by words."""
        self._namespaces, every = await self._records.begin()
        if self._context.embedder is None:
            return
        for namespace in self._namespaces:
            async for ids in self._records.pages(namespace):
                chosen = await self._records.with_unusable_vectors(namespace, ids, every=every)
                await asyncio.gather(*(self._context.client.call("HDEL", key, "vector") for _, key in chosen))

    async def embed(self, progress: IndexProgress | None) -> None:
        """Embed all records without a vector; repeat the call to go on.

        Raises:
            UnavailableError, LimitedError, ConfigError: the server or the provider fails.
        """
        for namespace in self._namespaces:
            if self._vectors.prepare is not None:
                await self._vectors.prepare(self._context, namespace)
            embedder = self._context.embedder_of(namespace)
            log = self._context.keyspace.record_log(self._family, namespace)
            total, done = await self._context.client.call("ZCARD", log), 0
            pages = [page async for page in self._records.pages(namespace)] if embedder is not None else []
            for ids in pages:
                if embedder is not None:
                    await self._embed(namespace, embedder, await self._unembedded(namespace, ids))
                done += len(ids)
                if progress is not None and isinstance(total, int):
                    progress(done, max(total, done))

    async def _unembedded(self, namespace: str, ids: list[str]) -> list[_UnembeddedRecord]:
        keys = [self._context.keyspace.record(self._family, namespace, id_) for id_ in ids]
        replies = await self._context.client.read_each([("HMGET", key, *_FIELDS) for key in keys], aside=True)
        found = []
        for id_, key, reply in zip(ids, keys, replies, strict=True):
            body, version, vector = reply if isinstance(reply, list) else (None, None, None)
            if isinstance(body, bytes) and isinstance(version, bytes) and vector is None:
                found.append(_UnembeddedRecord(id_, key, version, self._vectors.text(id_, body)))
        return found

    async def _embed(self, namespace: str, embedder: Embedder, records: list[_UnembeddedRecord]) -> None:
        wanted = [one for one in records if one.text]
        if not wanted:
            return
        embeddings = await embedder.embed([one.text for one in wanted])
        given = [pair for pair in zip(wanted, embeddings.vectors, strict=True) if pair[1].any()]
        if not given:
            return
        words: list[Argument] = []
        for one, vector in given:
            words += (one.id, one.version, to_half(vector))
        log = self._context.keyspace.record_log(self._family, namespace)
        await self._vectors.write(self._context, namespace, [*(one.key for one, _ in given), log], words)
