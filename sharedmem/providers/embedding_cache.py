"""The embedding cache of a process: concurrent requests for the same text share one call."""

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
from sharedmem.providers.embedding import check_rows, encodable_texts
from sharedmem.providers.protocol import Embedder, Embeddings, Purpose
from sharedmem.redis.vectors import Matrix, Vector
from sharedmem.runtime import Counters

Digest = bytes


class _CachedVector(NamedTuple):
    vector: Vector
    until_s: float


class CachedEmbedder:
    """An embedder that remembers; equal texts that are asked for at the same time are asked for once.

    Threads may share it: each event loop asks for itself, since it could not be woken by another one, and what came
    back serves all.

    Args:
        inner: who is asked for what is not remembered.
        clock: tells how old an entry is.
        ttl_s: seconds that a vector is remembered; 0 for not at all.
        items: vectors that are remembered; beyond it those go that were not used for longest.
        counters: get `embedding_cache` by outcome: `process`, or `miss`.
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
        # What all that is remembered here is marked with: the time of an answer tells whether it was remembered.
        self._mark = b""

    def within(self, namespace: str) -> Self:
        """The same embedder for one namespace: of what others have embedded it knows nothing; memory is shared."""
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
        """Whether texts travel to another machine, so that a cache in Redis is quicker."""
        return bool(getattr(self._inner, "is_remote", True))

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        """As `Embedder.embed`; `tokens` counts what this call sent."""
        sound = encodable_texts(texts)
        digests = [self.digest(text, purpose) for text in sound]
        by_digest = dict(zip(digests, sound, strict=True))
        found = self.remembered(by_digest)
        tokens = asked = 0
        loop = asyncio.get_running_loop()
        while missing := [digest for digest in by_digest if digest not in found]:
            # Held before anything is awaited: who asked for it forgets it when the answer is there.
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
        """Close the inner one, and forget."""
        self._kept.clear()
        await self._inner.close()

    def digest(self, text: str, purpose: Purpose) -> Digest:
        """What a text is remembered by."""
        return sha256(f"{self.name}\0{purpose}\0{text}".encode()).digest()

    def remembered(self, digests: Iterable[Digest]) -> dict[Digest, Vector]:
        """Which of them this process knows, with their vectors."""
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
        """Keep vectors that were got elsewhere."""
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
        """Tell those who wait; whoever was cancelled is nobody else's failure, and the others ask themselves."""
        for answer in answers.values():
            if isinstance(error, Exception):
                answer.set_exception(error)
                answer.exception()  # taken note of, also when nobody waits
            else:
                answer.cancel()

    def __repr__(self) -> str:
        return f"<CachedEmbedder of {self.name}, {len(self._kept)} of {self._items} remembered>"


async def _received_vectors(asked: Mapping[Digest, asyncio.Future[Vector]]) -> dict[Digest, Vector]:
    """What others have asked for, as far as they got it; raises the error that they got."""
    if asked:
        await asyncio.wait(asked.values())
    return {digest: answer.result() for digest, answer in asked.items() if not answer.cancelled()}


def _freeze(row: Vector) -> Vector:
    vector = row.copy()
    vector.flags.writeable = False
    return vector


def _stack(vectors: Sequence[Vector], dimension: int) -> Matrix:
    return np.stack(vectors) if vectors else np.zeros((0, dimension), dtype=np.float32)
