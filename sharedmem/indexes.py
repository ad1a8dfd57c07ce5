"""`hub.indexes`: the search indexes of a server, their state, and rebuilding them while they are used."""

from __future__ import annotations

from collections.abc import Mapping

from sharedmem.errors import ConfigError, InvalidError
from sharedmem.graph.backends.redis_writer import GRAPH_VECTORS
from sharedmem.index_maintenance import RecordReindexer, Reindexer, VectorSource
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.embedding_queue import MemoryReindexer
from sharedmem.memory.repository import unreadable_memories
from sharedmem.models import IndexStatus
from sharedmem.redis.keys import check_name
from sharedmem.redis.scripts.knowledge import GRAPH_FAMILY
from sharedmem.runtime.concurrency import ProcessBound
from sharedmem.search.protocol import Index, IndexProgress


class Indexes(ProcessBound):
    """Every index of a hub: of memories, of the semantic cache, of knowledge graphs and of synthesised notes.

    Args:
        context: dependencies that the hub shares with its stores.
        vectors: sources of vectors by family, other than those of memories and graphs.
    """

    def __init__(self, context: KnowledgeContext, vectors: Mapping[str, VectorSource] | None = None) -> None:
        self._context = context
        self._indexes = {
            index.family.name: index for index in (context.memories, context.answers, context.graphs, context.notes)
        }
        self._vectors = {GRAPH_FAMILY: GRAPH_VECTORS, **(vectors or {})}

    async def all(self) -> list[IndexStatus]:
        """Return every index with its documents, failures and problems. A few round trips.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        return [status for index in self._indexes.values() for status in await index.status()]

    async def check(self, namespace: str) -> list[str]:
        """Return the problems with the search of a namespace, in sentences; create its index if it does not exist.

        Args:
            namespace: the namespace to check.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        check_name("namespace", namespace)
        found = []
        for index in self._indexes.values():
            try:
                await index.ensure(namespace)
            except ConfigError as error:
                found.append(str(error))
        shown = [status for status in await self.all() if not status.namespaces or namespace in status.namespaces]
        reported = [f"{status.name}: {it}" for status in shown for it in status.problems if it not in found]
        return found + reported + unreadable_memories(self._context, namespace).problems()

    async def promote(self, namespace: str, *, family: str = "memory", progress: IndexProgress | None = None) -> None:
        """Build an index for a namespace alone, while it is used; do nothing if it has one.

        Args:
            namespace: name of the namespace.
            family: `memory`, `cache`, `graph` or `note`.
            progress: called with (documents done, documents in all).

        Raises:
            InvalidError: there is no such family.
            UnavailableError: the server cannot be reached; call it again to go on.
        """
        await self._of(family).promote(check_name("namespace", namespace), progress=progress)

    async def rebuild(
        self, namespace: str | None = None, *, family: str = "memory", progress: IndexProgress | None = None
    ) -> None:
        """Build a new index beside the old one, and switch to it when it is complete.

        If the old index was made for another embedder, its memories, notes or records of graphs get new vectors. Until
        then, searches find them by their words. Notes of an earlier release get the words that they lack.

        Args:
            namespace: the namespace whose index is rebuilt, its own or the shared one; None for the shared one.
            family: `memory`, `cache`, `graph` or `note`.
            progress: called with (documents done, documents in all), then likewise for the new vectors.

        Raises:
            InvalidError: there is no such family.
            UnavailableError: server or embedding provider cannot be reached; call it again to go on.
            LimitedError, ConfigError: the embedding provider rejected a request.
        """
        checked = None if namespace is None else check_name("namespace", namespace)
        index = self._of(family)
        reindexer = self._reindexer(index, checked)
        if reindexer is not None:
            await reindexer.forget()
        await index.rebuild(checked, progress=progress)
        if reindexer is not None:
            await reindexer.embed(progress)

    def _reindexer(self, index: Index, namespace: str | None) -> Reindexer | None:
        """Return the object that embeds the records again; None for the semantic cache, whose answers expire soon."""
        if index is self._context.memories:
            return MemoryReindexer(self._context, namespace)
        vectors = self._vectors.get(index.family.name)
        return None if vectors is None else RecordReindexer(self._context, index, namespace, vectors)

    def _of(self, family: str) -> Index:
        if family not in self._indexes:
            raise InvalidError("family", family, f"give one of {', '.join(self._indexes)}")
        return self._indexes[family]

    def __repr__(self) -> str:
        return f"<Indexes of {', '.join(self._indexes)}>"
