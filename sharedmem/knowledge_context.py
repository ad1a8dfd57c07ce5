"""The dependencies that a hub shares with the memory, cache, graphs and synthesis of its stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from sharedmem.context import HubContext
from sharedmem.providers.embedding import CachedEmbedder, SharedCacheEmbedder
from sharedmem.providers.protocol import Embedder, LanguageModel, Reranker, dedup_similarity
from sharedmem.redis.durability import RecordTier
from sharedmem.search.protocol import Index


@dataclass(frozen=True, kw_only=True)
class KnowledgeContext(HubContext):
    """The dependencies that a hub shares with the memory, cache, graphs and synthesis of its stores."""

    memories: Index
    answers: Index
    """Index of the semantic cache."""
    graphs: Index
    """Index of the knowledge graphs."""
    notes: Index
    """Index of the notes that synthesis made."""
    embedder: Embedder | None
    """None: searches find records by their words alone."""
    model: LanguageModel
    reranker: Reranker | None
    """None: searches keep the order of the ranking, unless a call brings its own reranker."""
    record_tier: RecordTier
    """The durable tier of records, if the setting `memory_durability` allows records there."""
    endings: list[Callable[[], Awaitable[None]]] = field(default_factory=list, repr=False)
    """Each is awaited before the hub closes, while its connections are still open."""

    @property
    def embedder_name(self) -> str:
        """The name of the embedder; empty without one."""
        return "" if self.embedder is None else self.embedder.name

    def dedup_similarity(self, namespace: str) -> float:
        """Return the similarity from which memories of a namespace are merged."""
        return dedup_similarity(self.settings_of(namespace), self.embedder_name)

    def embedder_of(self, namespace: str) -> Embedder | None:
        """Return the embedder with a namespace's embedding cache: in this process and, where that is faster, in Redis.

        Namespaces share no cache: response times would reveal what another tenant has embedded.
        """
        whole, ttl_s = self.embedder, self.settings.embedding_cache_s
        if not isinstance(whole, CachedEmbedder):
            return whole
        embedder = self.shared(CachedEmbedder, namespace, lambda: whole.within(namespace))
        if not embedder.is_remote or not ttl_s:
            return embedder

        def make() -> SharedCacheEmbedder:
            return SharedCacheEmbedder(
                embedder, self.client, self.keyspace, namespace, ttl_s=ttl_s, counters=self.counters
            )

        return self.shared(SharedCacheEmbedder, namespace, make)

    async def end_work(self) -> None:
        """Wait a few seconds until workers have finished their tasks; the providers are still open."""
        await asyncio.gather(*(end() for end in self.endings))

    async def close(self) -> None:
        """Close the providers, once no work needs them any more."""
        async with AsyncExitStack() as steps:
            steps.push_async_callback(self.model.close)
            if self.reranker is not None:
                steps.push_async_callback(self.reranker.close)
            if self.embedder is not None:
                steps.push_async_callback(self.embedder.close)
