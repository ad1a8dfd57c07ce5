"""Embed texts: batches and queries, with the caches of this process and of the team in Redis."""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from threading import Lock
from typing import NamedTuple, Self

import numpy as np

from sharedmem.clock import Clock
from sharedmem.errors import AccessDeniedError, ConfigError, InvalidError, SharedMemoryError, UnavailableError
from sharedmem.providers.protocol import Embedder, Embeddings, Purpose
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import ServerError
from sharedmem.redis.vectors import Matrix, Vector, from_half, normalize, to_half
from sharedmem.runtime import Counters, get_logger

_UNEVEN = 1e-3


def encodable_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts as UTF-8 can encode them; a lone surrogate becomes a question mark.

    Raises:
        InvalidError: the argument is one text, or contains something that is not a text.
    """
    if isinstance(texts, str):
        raise InvalidError("texts", texts, "give a list of texts, also for a single one")
    for text in texts:
        if not isinstance(text, str):
            raise InvalidError("texts", text, "give texts")
    return [text if text.isascii() else text.encode("utf-8", "replace").decode() for text in texts]


def non_blank_positions(texts: Sequence[str]) -> list[int]:
    """Return the positions of the texts that are not blank: only these are sent to a provider."""
    return [position for position, text in enumerate(texts) if text.strip()]


def spread_rows(rows: Matrix, positions: Sequence[int], count: int) -> Matrix:
    """Return the rows at their positions among `count`; zeros elsewhere."""
    if len(positions) == count:
        return rows
    spread_out = np.zeros((count, rows.shape[1]), dtype=np.float32)
    spread_out[list(positions)] = rows
    return spread_out


def check_rows(made: object, *, count: int, dimension: int, name: str) -> Matrix:
    """Return the vectors of a user's embedder, at unit length.

    Raises:
        ConfigError: their number or dimension is wrong, or they contain values that are not finite.
    """
    try:
        rows = np.asarray(made, dtype=np.float32)
    except (TypeError, ValueError):
        raise ConfigError("embedder", name, "it returns something other than a matrix of numbers") from None
    if rows.shape != (count, dimension):
        problem = f"for {count} texts it must return vectors of shape {(count, dimension)}, and returns {rows.shape}"
        raise ConfigError("embedder", name, problem)
    lengths = np.linalg.norm(rows, axis=1)
    if not np.isfinite(lengths).all():
        raise ConfigError("embedder", name, "it returns vectors with numbers that are not finite")
    return normalize(rows) if (np.abs(lengths - 1) > _UNEVEN).any() else rows


QUERY_TIMEOUT_S = 5.0
"""How long a search waits for the provider: after that it searches by words only."""


class QueryEmbedding(NamedTuple):
    """The embedding of a query."""

    vector: Vector | None = None
    """A unit vector."""
    tokens: int = 0
    """Tokens sent to the provider."""
    missing: str | None = None
    """Why there is no vector, as a sentence; empty if there is one or none was requested."""
    reason: str = ""
    """The same as one word, for counters."""


async def embed_query(embedder: Embedder | None, text: str, *, purpose: Purpose = "query") -> QueryEmbedding:
    """Embed a text; never fails.

    Args:
        embedder: the embedder; None without an embedder.
        text: a query, or a document.
        purpose: which of both it is.
    """
    if embedder is None:
        return QueryEmbedding(missing="there is no embedder; set one, or install the extra `local`", reason="none")
    try:
        async with asyncio.timeout(QUERY_TIMEOUT_S):
            embeddings = await embedder.embed([text], purpose=purpose)
    except TimeoutError:
        return QueryEmbedding(missing=f"{embedder.name} did not answer within {QUERY_TIMEOUT_S:g} s", reason="slow")
    except (SharedMemoryError, OSError) as error:
        return QueryEmbedding(missing=f"{embedder.name} failed: {error}", reason="failed")
    vector: Vector = embeddings.vectors[0]
    if not vector.any():
        return QueryEmbedding(
            tokens=embeddings.tokens, missing="the query has no meaning to the embedder", reason="zero"
        )
    return QueryEmbedding(vector, embeddings.tokens)


Digest = bytes
# An actor that may write memories in a namespace may also use its cache.
_FAMILY, _PART = "memory", "embedding"
_READ_AT_ONCE = 500
_log = get_logger("providers")
# Without the cache the provider is called.
_CACHE_ERRORS = (UnavailableError, AccessDeniedError, ServerError)


class _CachedVector(NamedTuple):
    vector: Vector
    until_s: float


class CachedEmbedder:
    """An embedder with a cache; equal texts that are requested at the same time are sent once.

    Threads may share it: each event loop sends its own requests, since another loop could not wake it, and all
    share the cached results.

    Args:
        inner: the embedder for texts that are not cached.
        clock: for the age of an entry.
        ttl_s: seconds that a vector is cached; 0 for no cache.
        items: most cached vectors; beyond that the least recently used are dropped.
        counters: count `embedding_cache` by outcome: `process`, or `miss`.
    """

    def __init__(self, inner: Embedder, *, clock: Clock, ttl_s: float, items: int, counters: Counters) -> None:
        self._inner = inner
        self._clock = clock
        self._ttl_s = ttl_s
        self._items = items if ttl_s > 0 else 0
        self._counters = counters
        self._kept: OrderedDict[Digest, _CachedVector] = OrderedDict()
        self._lock = Lock()
        self._asked: dict[tuple[asyncio.AbstractEventLoop, Digest], asyncio.Future[Vector]] = {}
        # The mark of all cached entries: the time of a result shows whether it was cached.
        self._mark = b""

    def within(self, namespace: str) -> Self:
        """Return the embedder for one namespace: it uses no cache entries of other namespaces; the memory is shared."""
        view = copy.copy(self)
        vars(view)["_mark"] = sha256(namespace.encode()).digest()
        return view

    @property
    def name(self) -> str:
        """Provider and model."""
        return self._inner.name

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return self._inner.dimension

    @property
    def is_remote(self) -> bool:
        """Whether texts are sent to another machine, so that a cache in Redis is faster."""
        return bool(getattr(self._inner, "is_remote", True))

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        """Embed texts, see `Embedder.embed`; `tokens` counts what this call sent."""
        sound = encodable_texts(texts)
        digests = [self.digest(text, purpose) for text in sound]
        by_digest = dict(zip(digests, sound, strict=True))
        found = self.remembered(by_digest)
        tokens = asked = 0
        loop = asyncio.get_running_loop()
        while missing := [digest for digest in by_digest if digest not in found]:
            # Registered before anything is awaited: the caller that sends the request removes it when the result
            # arrives.
            under_way = {digest: self._asked.get((loop, self._mark + digest)) for digest in missing}
            theirs = {digest: answer for digest, answer in under_way.items() if answer is not None}
            if mine := {digest: by_digest[digest] for digest in missing if digest not in theirs}:
                fresh, spent = await self._ask(mine, purpose)
                found |= fresh
                tokens, asked = tokens + spent, asked + len(mine)
            found |= await _received_vectors(theirs)
        self._counters.add("embedding_cache", len(by_digest) - asked, outcome="process")
        self._counters.add("embedding_cache", asked, outcome="miss")
        return Embeddings(_stack([found[digest] for digest in digests], self.dimension), tokens)

    async def close(self) -> None:
        """Close the inner embedder, and drop the cache."""
        self._kept.clear()
        await self._inner.close()

    def digest(self, text: str, purpose: Purpose) -> Digest:
        """Return the cache key of a text."""
        return sha256(f"{self.name}\0{purpose}\0{text}".encode()).digest()

    def remembered(self, digests: Iterable[Digest]) -> dict[Digest, Vector]:
        """Return the cached vectors among these."""
        now = self._clock.monotonic()
        found: dict[Digest, Vector] = {}
        with self._lock:
            for digest in digests:
                marked = self._mark + digest
                kept = self._kept.get(marked)
                if kept is None:
                    continue
                if kept.until_s <= now:
                    del self._kept[marked]
                    continue
                self._kept.move_to_end(marked)
                found[digest] = kept.vector
        return found

    def remember(self, vectors: Mapping[Digest, Vector]) -> None:
        """Cache vectors from elsewhere."""
        if not self._items:
            return
        until_s = self._clock.monotonic() + self._ttl_s
        with self._lock:
            for digest, vector in vectors.items():
                self._kept[self._mark + digest] = _CachedVector(vector, until_s)
                self._kept.move_to_end(self._mark + digest)
            while len(self._kept) > self._items:
                self._kept.popitem(last=False)

    async def _ask(self, texts: Mapping[Digest, str], purpose: Purpose) -> tuple[dict[Digest, Vector], int]:
        loop = asyncio.get_running_loop()
        answers: dict[Digest, asyncio.Future[Vector]] = {digest: loop.create_future() for digest in texts}
        self._asked.update({(loop, self._mark + digest): answer for digest, answer in answers.items()})
        try:
            made, tokens = await self._inner.embed(list(texts.values()), purpose=purpose)
            vectors = check_rows(made, count=len(texts), dimension=self.dimension, name=self.name)
        except BaseException as error:
            self._fail_waiters(answers, error)
            raise
        finally:
            for digest in texts:
                del self._asked[loop, self._mark + digest]
        # Copies: a row would keep the whole matrix in memory.
        fresh = {digest: _freeze(row) for digest, row in zip(texts, vectors, strict=True)}
        self.remember(fresh)
        for digest, answer in answers.items():
            answer.set_result(fresh[digest])
        return fresh, tokens

    @staticmethod
    def _fail_waiters(answers: Mapping[Digest, asyncio.Future[Vector]], error: BaseException) -> None:
        """Wake the waiting callers. If the sending caller was cancelled, the others send the request themselves."""
        for answer in answers.values():
            if isinstance(error, Exception):
                answer.set_exception(error)
                answer.exception()  # mark it as retrieved, also without waiting callers
            else:
                answer.cancel()

    def __repr__(self) -> str:
        return f"<CachedEmbedder of {self.name}, {len(self._kept)} of {self._items} remembered>"


async def _received_vectors(asked: Mapping[Digest, asyncio.Future[Vector]]) -> dict[Digest, Vector]:
    """Return the results of other callers' requests, as far as they succeeded; raise their error."""
    if asked:
        await asyncio.wait(asked.values())
    return {digest: answer.result() for digest, answer in asked.items() if not answer.cancelled()}


def _freeze(row: Vector) -> Vector:
    vector = row.copy()
    vector.flags.writeable = False
    return vector


def _stack(vectors: Sequence[Vector], dimension: int) -> Matrix:
    return np.stack(vectors) if vectors else np.zeros((0, dimension), dtype=np.float32)


class SharedCacheEmbedder:
    """An embedder with a cache in Redis behind that of the process; one round trip if the process has no entry.

    Useful for remote providers only (`CachedEmbedder.is_remote`): others are faster than Redis. Vectors are
    rounded to half precision, as everywhere in Redis, also those just computed: the same text always has the
    same vector. Without Redis, or without the right to write there, it works without this cache.

    Args:
        inner: the embedder of this process.
        client: to Redis.
        keyspace: builds keys.
        namespace: namespace of the texts; namespaces share nothing here.
        ttl_s: seconds that a vector is stored in Redis.
        counters: count `embedding_cache` by outcome: `process`, `team`, or `miss`.
    """

    is_remote = True

    def __init__(
        self,
        inner: CachedEmbedder,
        client: RedisClient,
        keyspace: KeySpace,
        namespace: str,
        *,
        ttl_s: int,
        counters: Counters,
    ) -> None:
        self._inner = inner
        self._client = client
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
        """Embed texts, see `Embedder.embed`; `tokens` counts what this call sent."""
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
        """Do nothing: the inner embedder belongs to the hub, which closes it."""

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
                # Two bytes for each number; any other value was written by another client.
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
            # Commands of one tick of the event loop: the client sends them together.
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
        # Rights do not change: this is logged once.
        if isinstance(error, AccessDeniedError):
            self._refused.add(what)
        self._counters.increment("embedding_cache_failures", call=what)
        _log.warning("the team's embedding cache cannot be used (%s): %s", what, error)

    def __repr__(self) -> str:
        return f"<TeamEmbedder of {self.name} in {self._namespace!r}>"
