"""The embedding cache in Redis: a text that one hub has embedded costs the others nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np

from sharedmem.errors import AccessDeniedError, UnavailableError
from sharedmem.providers.embedding import encodable_texts
from sharedmem.providers.embedding_cache import CachedEmbedder, Digest
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import ServerError
from sharedmem.redis.vectors import Vector, from_half, to_half
from sharedmem.runtime import Counters, get_logger

# Whoever may remember in a namespace may also use it.
_FAMILY, _PART = "memory", "embedding"
_READ_AT_ONCE = 500
_log = get_logger("providers")
# The cache is a convenience: whatever ails it, the provider is asked.
_CACHE_ERRORS = (UnavailableError, AccessDeniedError, ServerError)


class SharedCacheEmbedder:
    """An embedder with a cache in Redis behind that of the process; one round trip where the process knows nothing.

    Worth it for remote providers only (`CachedEmbedder.is_remote`): others are quicker than Redis. Vectors are
    rounded to half precision, as everywhere in Redis, also those that come fresh: the same text always gives the
    same vector. Without Redis, or without the right to remember, it goes on without.

    Args:
        inner: the embedder of this process.
        line: to Redis.
        keyspace: spells the keys.
        namespace: whose texts they are; namespaces share nothing here.
        ttl_s: seconds that a vector stays in Redis.
        counters: get `embedding_cache` by outcome: `process`, `team`, or `miss`.
    """

    is_remote = True

    def __init__(
        self,
        inner: CachedEmbedder,
        line: RedisClient,
        keyspace: KeySpace,
        namespace: str,
        *,
        ttl_s: int,
        counters: Counters,
    ) -> None:
        self._inner = inner
        self._client = line
        self._keyspace = keyspace
        self._namespace = namespace
        self._ttl_s = ttl_s
        self._counters = counters
        self._refused: set[str] = set()

    @property
    def name(self) -> str:
        """Provider and model."""
        return self._inner.name

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return self._inner.dimension

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        """As `Embedder.embed`; `tokens` counts what this call sent."""
        sound = encodable_texts(texts)
        digests = [self._inner.digest(text, purpose) for text in sound]
        by_digest = dict(zip(digests, sound, strict=True))
        found = self._inner.remembered(by_digest)
        self._counters.add("embedding_cache", len(found), outcome="process")
        tokens = 0
        if missing := [digest for digest in by_digest if digest not in found]:
            found |= await self._from_redis(missing)
            if unknown := {digest: by_digest[digest] for digest in missing if digest not in found}:
                fresh, tokens = await self._from_provider(unknown, purpose)
                found |= fresh
        rows = [found[digest] for digest in digests]
        return Embeddings(np.array(rows, dtype=np.float32).reshape(len(rows), self.dimension), tokens)

    async def close(self) -> None:
        """The inner one belongs to the hub, which closes it."""

    async def _from_provider(self, texts: Mapping[Digest, str], purpose: Purpose) -> tuple[dict[Digest, Vector], int]:
        vectors, tokens = await self._inner.embed(list(texts.values()), purpose=purpose)
        halves = {digest: to_half(row) for digest, row in zip(texts, vectors, strict=True)}
        fresh = {digest: from_half(half) for digest, half in halves.items()}
        self._inner.remember(fresh)
        await self._keep(halves)
        return fresh, tokens

    async def _from_redis(self, digests: Sequence[Digest]) -> dict[Digest, Vector]:
        found: dict[Digest, Vector] = {}
        if "read" in self._refused:
            return found
        for start in range(0, len(digests), _READ_AT_ONCE):
            page = digests[start : start + _READ_AT_ONCE]
            try:
                replies = await self._client.call("MGET", *map(self._key, page))
            except _CACHE_ERRORS as error:
                self._note("read", error)
                return found
            assert isinstance(replies, list)
            for digest, reply in zip(page, replies, strict=True):
                # Two bytes a number; whatever else lies there was not put there by us.
                if isinstance(reply, bytes) and len(reply) == 2 * self.dimension:
                    found[digest] = from_half(reply)
        self._inner.remember(found)
        self._counters.add("embedding_cache", len(found), outcome="team")
        return found

    async def _keep(self, halves: Mapping[Digest, bytes]) -> None:
        if "write" in self._refused:
            return
        pairs = [(self._key(digest), half) for digest, half in halves.items()]
        for start in range(0, len(pairs), _READ_AT_ONCE):
            # Of one tick of the event loop: the line sends them together.
            kept = [self._client.call("SET", *pair, "EX", self._ttl_s) for pair in pairs[start : start + _READ_AT_ONCE]]
            for outcome in await asyncio.gather(*kept, return_exceptions=True):
                if isinstance(outcome, _CACHE_ERRORS):
                    self._note("write", outcome)
                    return
                if isinstance(outcome, BaseException):
                    raise outcome

    def _key(self, digest: Digest) -> bytes:
        return self._keyspace.record_item(_FAMILY, self._namespace, _PART, digest.hex())

    def _note(self, what: str, error: Exception) -> None:
        # Rights stay as they are: this is told once.
        if isinstance(error, AccessDeniedError):
            self._refused.add(what)
        self._counters.increment("embedding_cache_failures", call=what)
        _log.warning("the team's embedding cache cannot be used (%s): %s", what, error)

    def __repr__(self) -> str:
        return f"<TeamEmbedder of {self.name} in {self._namespace!r}>"
