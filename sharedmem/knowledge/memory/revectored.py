"""Vectors made anew: those of another embedder can be compared with nothing, and do not fit into the index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sharedmem.knowledge.memory.desk import Desk
from sharedmem.knowledge.memory.pending import Pending
from sharedmem.knowledge.minds import Minds
from sharedmem.models import IndexStatus
from sharedmem.search.protocol import IndexProgress

_PAGE = 200
_BYTES_A_NUMBER = 2


class Revectored:
    """The memories that are searched in one index, before and after it is built anew.

    Args:
        minds: what the hub lends.
        namespace: whose index; None for the one that small namespaces share.
    """

    def __init__(self, minds: Minds, namespace: str | None) -> None:
        self._minds = minds
        self._namespace = namespace
        self._namespaces: list[str] = []

    async def forget(self) -> None:
        """Take away the vectors that do not fit: words find these memories, which wait for their new vectors.

        That comes before the index is built, so that nothing is forgotten should the process end in between.
        """
        if self._minds.embedder is None:
            return
        searched = await self._searched()
        self._namespaces = [namespace async for namespace in self._sharing(searched)]
        every = searched is not None and searched.model != self._minds.memories.family.model
        for namespace in self._namespaces:
            async for ids in self._ids(namespace):
                await self._forget(namespace, ids, every=every)

    async def embed(self, progress: IndexProgress | None) -> None:
        """Give all that wait their vectors.

        Raises:
            UnavailableError, LimitedError, ConfigError: the provider does not; they go on waiting.
        """
        for namespace in self._namespaces:
            await Pending.of(self._minds, namespace).work_off(progress)

    async def _searched(self) -> IndexStatus | None:
        found = await self._minds.memories.status()
        own = [one for one in found if self._namespace is not None and self._namespace in one.namespaces]
        shared = [one for one in found if not one.namespaces]
        return next(iter(own + shared), None)

    async def _sharing(self, searched: IndexStatus | None) -> AsyncIterator[str]:
        """The namespaces that are searched in that index."""
        if self._namespace is not None and (searched is None or searched.namespaces):
            yield self._namespace
            return
        keyspace = self._minds.keyspace
        # A star is a name that no namespace has, and here a glob for all of them.
        async for keys in self._minds.line.scan(keyspace.record_log("memory", "*"), near=None):
            for key in keys:
                namespace = key.decode().partition("}:$")[0].partition(":{")[2]
                if await self._minds.line.call("GET", keyspace.record_place("memory", namespace)) is None:
                    yield namespace

    async def _ids(self, namespace: str) -> AsyncIterator[list[str]]:
        log, first = self._minds.keyspace.record_log("memory", namespace), 0
        while isinstance(page := await self._minds.line.call("ZRANGE", log, first, first + _PAGE - 1), list) and page:
            yield [id_.decode() for id_ in page if isinstance(id_, bytes)]
            first += _PAGE

    async def _forget(self, namespace: str, ids: list[str], *, every: bool) -> None:
        line, keyspace = self._minds.line, self._minds.keyspace
        keys = [keyspace.record("memory", namespace, id_) for id_ in ids]
        lengths = await line.read_each([("HSTRLEN", key, "vector") for key in keys])
        fitting = {0, _BYTES_A_NUMBER * self._minds.memories.family.dimension}
        chosen = [
            (id_, key) for id_, key, length in zip(ids, keys, lengths, strict=True) if every or length not in fitting
        ]
        if not chosen:
            return
        # They wait first: one without a vector that nobody knows of would stay without.
        waiting = [part for id_, _ in chosen for part in (0, id_)]
        await line.call("ZADD", Desk.of(self._minds, namespace).pending_key, *waiting)
        await asyncio.gather(*(line.call("HDEL", key, "vector") for _, key in chosen))
