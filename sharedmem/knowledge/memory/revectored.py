"""Vectors of memories made anew: those of another embedder can be compared with nothing, and do not fit."""

from __future__ import annotations

import asyncio

from sharedmem.knowledge.memory.desk import Desk
from sharedmem.knowledge.memory.pending import Pending
from sharedmem.knowledge.minds import Minds
from sharedmem.knowledge.searched import Searched
from sharedmem.search.protocol import IndexProgress


class Revectored:
    """The memories that are searched in one index, before and after it is built anew.

    Args:
        minds: what the hub lends.
        namespace: whose index; None for the one that small namespaces share.
    """

    def __init__(self, minds: Minds, namespace: str | None) -> None:
        self._minds = minds
        self._searched = Searched(minds, minds.memories, namespace)
        self._namespaces: list[str] = []

    async def forget(self) -> None:
        """Take away the vectors that do not fit: words find these memories, which wait for their new vectors.

        That comes before the index is built, so that nothing is forgotten should the process end in between.
        """
        if self._minds.embedder is None:
            return
        self._namespaces, every = await self._searched.begin()
        for namespace in self._namespaces:
            async for ids in self._searched.pages(namespace):
                await self._forget(namespace, ids, every=every)

    async def embed(self, progress: IndexProgress | None) -> None:
        """Give all that wait their vectors.

        Raises:
            UnavailableError, LimitedError, ConfigError: the provider does not; they go on waiting.
        """
        for namespace in self._namespaces:
            await Pending.of(self._minds, namespace).work_off(progress)

    async def _forget(self, namespace: str, ids: list[str], *, every: bool) -> None:
        chosen = await self._searched.misfits(namespace, ids, every=every)
        if not chosen:
            return
        # They wait first: one without a vector that nobody knows of would stay without.
        waiting = [part for id_, _ in chosen for part in (0, id_)]
        await self._minds.line.call("ZADD", Desk.of(self._minds, namespace).pending_key, *waiting)
        await asyncio.gather(*(self._minds.line.call("HDEL", key, "vector") for _, key in chosen))
