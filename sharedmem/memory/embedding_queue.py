"""Embed memories, at once or later: a queue for provider outages, and new vectors for a new embedder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sharedmem.clock import Clock
from sharedmem.errors import AccessDeniedError, ConfigError, LimitedError, SharedMemoryError, UnavailableError
from sharedmem.index_maintenance import IndexedRecords
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.repository import MemoryRepository
from sharedmem.memory.validation import NewMemory
from sharedmem.providers.protocol import Embedder, Embeddings
from sharedmem.redis.keys import SHARED_SCOPE
from sharedmem.runtime.concurrency import BackgroundTask
from sharedmem.search.protocol import IndexProgress

EMBED_TIMEOUT_S = 5.0
"""How long an `add` waits for the provider, per hundred texts."""
_CLAIMED_AT_ONCE = 64
_LEASE_MS = 60_000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 60.0
_WORKER = SHARED_SCOPE.encode()
_TEXTS_PER_TIMEOUT = 100


class ProviderOutage:
    """Whether the provider of a hub is known to be unavailable, so that no further call waits for it."""

    def __init__(self) -> None:
        self.lasts = False


class EmbeddingQueue:
    """Embeds the memories of one namespace: at once, or later if the provider is unavailable.

    Several hubs may work on the queue; each embedding is made by one of them.

    Args:
        repository: the repository of the namespace.
    """

    def __init__(self, repository: MemoryRepository) -> None:
        self._repository = repository
        self._context = context = repository.context
        self._embedder = context.embedder_of(repository.namespace)
        # All namespaces of a hub have one provider.
        self._outage = context.shared(ProviderOutage, "", ProviderOutage)
        self._work: BackgroundTask | None = None

    @classmethod
    def of(cls, context: KnowledgeContext, namespace: str) -> EmbeddingQueue:
        """Return the queue that all stores of a namespace share in this hub."""
        return context.shared(cls, namespace, lambda: cls(MemoryRepository.of(context, namespace)))

    async def embed(self, drafts: Sequence[NewMemory]) -> None:
        """Embed the drafts that have no vector; if the provider is unavailable, mark them to be embedded later.

        Raises:
            ConfigError: the provider refuses the key or model, or the vectors do not have the dimension of the index.
        """
        lacking = [draft for draft in drafts if draft.vector is None and not draft.is_embedded and not draft.waits]
        if self._embedder is None or not lacking:
            return
        if not self._outage.lasts and await _try_embed(self._embedder, lacking, self._context.clock):
            return
        self._outage.lasts = True
        for draft in lacking:
            draft.waits = True

    def wake(self) -> None:
        """Start embedding queued memories until the queue is empty."""
        if self._embedder is not None and (self._work is None or self._work.done):
            self._work = self._context.background.start(f"embed memories of {self._repository.namespace}", self._run())

    async def drain(self, progress: IndexProgress | None = None) -> None:
        """Embed all queued memories that no other hub has claimed.

        Args:
            progress: called with (how many are embedded, how many were queued).

        Raises:
            UnavailableError, LimitedError, ConfigError: the provider failed; the memories stay queued.
        """
        waiting, done = await self._context.client.call("ZCARD", self._repository.pending_key), 0
        while isinstance(found := await self._repository.claim(_CLAIMED_AT_ONCE, _LEASE_MS), list):
            await self._embed_waiting(found)
            done += len(found)
            if progress is not None:
                progress(done, max(done, waiting if isinstance(waiting, int) else 0))

    async def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                found = await self._repository.claim(_CLAIMED_AT_ONCE, _LEASE_MS)
                if isinstance(found, list):
                    await self._embed_waiting(found)
            except AccessDeniedError:
                return  # this hub may only read; other hubs embed them
            except (SharedMemoryError, OSError) as error:
                await self._context.clock.sleep(max(pause_s, _retry_after_s(error)))
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                continue
            pause_s = _FIRST_PAUSE_S
            if found == 0:
                return
            if isinstance(found, int):
                await self._context.clock.sleep(min(found / 1000, _LONGEST_PAUSE_S))

    async def _embed_waiting(self, ids: list[str]) -> None:
        assert self._embedder is not None
        held = await self._repository.held(ids)
        # Memories that were deleted or have no meaning leave the queue.
        gone = [id_ for id_ in ids if id_ not in held]
        if gone:
            await self._context.client.call("ZREM", self._repository.pending_key, *gone)
        found = list(held.values())
        if not found:
            return
        try:
            made = await self._embedder.embed([one.item.memory for one in found])
        except (SharedMemoryError, OSError):
            await self._give_back(ids)
            raise
        _check_dimension(self._embedder, made)
        self._outage.lasts = False
        pairs = list(zip(found, made.vectors, strict=True))
        await self._repository.embed(_WORKER, [(one, vector) for one, vector in pairs if vector.any()])
        mute = [one.item.id for one, vector in pairs if not vector.any()]
        if mute:
            await self._context.client.call("ZREM", self._repository.pending_key, *mute)

    async def _give_back(self, ids: list[str]) -> None:
        """Return claimed memories to the queue: other hubs may claim them at once, this hub after its pause."""
        pairs = [part for id_ in ids for part in (0, id_)]
        await self._context.client.call("ZADD", self._repository.pending_key, "XX", *pairs)


async def _try_embed(embedder: Embedder, drafts: Sequence[NewMemory], clock: Clock) -> bool:
    began = clock.monotonic()
    # A provider in this process needs time to load its model, and is never unavailable.
    is_remote = getattr(embedder, "is_remote", True)
    patience_s = EMBED_TIMEOUT_S * max(1.0, len(drafts) / _TEXTS_PER_TIMEOUT) if is_remote else None
    try:
        async with asyncio.timeout(patience_s):
            made = await embedder.embed([draft.item.memory for draft in drafts])
    except (UnavailableError, LimitedError, TimeoutError, OSError):
        return False
    _check_dimension(embedder, made)
    # A text without a meaning has a vector of zeros: it is near to nothing, and stays so.
    for draft, vector in zip(drafts, made.vectors, strict=True):
        draft.is_embedded = True
        draft.vector = vector if vector.any() else None
    if made.tokens:
        _measure(drafts, made.tokens, (clock.monotonic() - began) * 1000)
    return True


def _measure(drafts: Sequence[NewMemory], tokens: int, milliseconds: float) -> None:
    """Note what a request to the provider took: the share of each text in its tokens, and its time."""
    whole = sum(len(draft.item.memory) for draft in drafts)
    for draft in drafts:
        share = tokens * len(draft.item.memory) / whole
        draft.measure({"input_tokens": share, "latency_ms": milliseconds})


def _check_dimension(embedder: Embedder, made: Embeddings) -> None:
    # The index silently leaves out a vector of another length.
    if made.vectors.shape[1:] != (embedder.dimension,):
        shape = made.vectors.shape
        problem = f"{embedder.name} returned vectors of shape {shape}, expected {embedder.dimension} numbers each"
        raise ConfigError("embedder", "the embedder", problem)


def _retry_after_s(error: Exception) -> float:
    """Return the seconds that a provider asked to wait before a retry."""
    return error.retry_after if isinstance(error, LimitedError) else 0.0


class MemoryReindexer:
    """Embeds the memories of one index again, before and after the index is rebuilt.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: the namespace of the index; None for the index that small namespaces share.
    """

    def __init__(self, context: KnowledgeContext, namespace: str | None) -> None:
        self._context = context
        self._searched = IndexedRecords(context, context.memories, namespace)
        self._namespaces: list[str] = []

    async def forget(self) -> None:
        """Delete the vectors that do not fit: these memories are found by words until they have new vectors.

        This runs before the index is rebuilt, so no memory is missed if the process ends in between.
        """
        if self._context.embedder is None:
            return
        self._namespaces, every = await self._searched.begin()
        for namespace in self._namespaces:
            async for ids in self._searched.pages(namespace):
                await self._forget(namespace, ids, every=every)

    async def embed(self, progress: IndexProgress | None) -> None:
        """Embed all queued memories.

        Raises:
            UnavailableError, LimitedError, ConfigError: the provider failed; the memories stay queued.
        """
        for namespace in self._namespaces:
            await EmbeddingQueue.of(self._context, namespace).drain(progress)

    async def _forget(self, namespace: str, ids: list[str], *, every: bool) -> None:
        chosen = await self._searched.with_unusable_vectors(namespace, ids, every=every)
        if not chosen:
            return
        # Queue them first: a memory without a vector that is not queued would never get one.
        waiting = [part for id_, _ in chosen for part in (0, id_)]
        await self._context.client.call("ZADD", MemoryRepository.of(self._context, namespace).pending_key, *waiting)
        await asyncio.gather(*(self._context.client.call("HDEL", key, "vector") for _, key in chosen))
