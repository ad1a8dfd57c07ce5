"""Common parts of commits to a group: embeddings of texts, retries on conflict, splitting into batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain, islice
from typing import TypeVar

import orjson

from sharedmem.errors import ConflictError, SharedMemoryError
from sharedmem.graph.protocol import GraphBackend
from sharedmem.graph.records import CommitRequest, EpisodeRow, FactRow, Row, StaleGroup
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.redis.vectors import Vector, to_half


class TextEmbeddings:
    """Embeddings of texts, as far as an embedder is available.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: namespace of the texts.
    """

    def __init__(self, context: KnowledgeContext, namespace: str) -> None:
        self._counters = context.counters
        self._embedder = context.embedder_of(namespace)

    async def of(self, texts: Iterable[str]) -> dict[str, Vector]:
        """Return unit vectors of some texts; texts without a meaning for the embedder are left out.

        Never fails: a text without a vector is found by its words. Failures are counted as `graph_unembedded`.
        """
        wanted = [text for text in dict.fromkeys(texts) if text.strip()]
        if self._embedder is None or not wanted:
            return {}
        try:
            embeddings = await self._embedder.embed(wanted)
        except SharedMemoryError:
            self._counters.add("graph_unembedded", len(wanted))
            return {}
        pairs = zip(wanted, embeddings.vectors, strict=True)
        return {text: vector for text, vector in pairs if vector.any()}

    async def halves(self, texts: Iterable[str]) -> dict[str, bytes]:
        """Return vectors as `of` does, in half precision, as Redis stores them."""
        return {text: to_half(vector) for text, vector in (await self.of(texts)).items()}


_MOST_TRIES = 200
T = TypeVar("T")


class CommitRetries:
    """Turns of the tasks of one hub that change the same group: without turns they would only collide."""

    def __init__(self, context: KnowledgeContext) -> None:
        self._context = context
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @classmethod
    def of(cls, context: KnowledgeContext, namespace: str) -> CommitRetries:
        """Return the instance that all stores of a namespace share in this hub."""
        return context.shared(cls, namespace, lambda: cls(context))

    async def until_written(self, group: str, attempt: Callable[[], Awaitable[T | StaleGroup]]) -> T:
        """Repeat an attempt until no other writer was faster; return its result.

        Args:
            group: the group that is changed.
            attempt: reads, decides and commits; returns `StaleGroup` if it must read again.

        Raises:
            ConflictError: other writers were faster too often.
        """
        async with self._turn(group):
            outcome = await attempt()
            return await self._retry(group, attempt) if isinstance(outcome, StaleGroup) else outcome

    async def _retry(self, group: str, attempt: Callable[[], Awaitable[T | StaleGroup]]) -> T:
        # The first retry at once: the faster writer is done by now.
        for pause in chain((0.0,), islice(self._context.client.pauses(), _MOST_TRIES - 1)):
            self._context.counters.increment("graph_conflicts")
            await self._context.clock.sleep(pause)
            outcome = await attempt()
            if not isinstance(outcome, StaleGroup):
                return outcome
        advice = f"other writers keep changing the same entities of group {group!r}; try again later"
        raise ConflictError(advice)

    @asynccontextmanager
    async def _turn(self, group: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(group, asyncio.Lock())
        self._users[group] = self._users.get(group, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[group] -= 1
            if not self._users[group]:
                del self._locks[group], self._users[group]


RECORDS_AT_ONCE = 400
"""Records that one commit of a larger step writes."""


def with_stored_vector(row: FactRow, held: FactRow | None) -> FactRow:
    """Return a new state of a fact with the version and the vector of the stored one."""
    return row if held is None else replace(row, version=held.version, vector=held.vector)


def body_with_facts(row: EpisodeRow, *, ended: set[str], come: Iterable[str]) -> bytes:
    """Return the body of an episode with the ids of the facts that follow from it now."""
    body = orjson.loads(row.body)
    before = body.get("fact_ids", [])
    fresh = [id_ for id_ in come if id_ not in before]
    if ended.isdisjoint(before) and not fresh:
        return row.body
    body["fact_ids"] = [*(id_ for id_ in before if id_ not in ended), *fresh]
    return orjson.dumps(body)


def split_commit(changes: CommitRequest) -> list[CommitRequest]:
    """Return the changes in parts that one commit may write: the episodes first, then the facts."""
    former = {(type(row), row.id): row for row in changes.former}
    left: list[Row] = [*changes.episodes, *changes.facts]
    taken = {(type(row), row.id) for row in left}
    removed = [row for key, row in former.items() if key not in taken]
    every = [*left, *removed]
    return [
        replace(
            changes,
            episodes=tuple(row for row in some if isinstance(row, EpisodeRow)),
            facts=tuple(row for row in some if isinstance(row, FactRow) and (FactRow, row.id) in taken),
            former=tuple(former[type(row), row.id] for row in some if (type(row), row.id) in former),
        )
        for some in (every[first : first + RECORDS_AT_ONCE] for first in range(0, len(every), RECORDS_AT_ONCE))
    ]


class BatchedCommits:
    """Writes steps of any size.

    Args:
        backend: stores the graph.
        meanings: vectors for new facts.
    """

    def __init__(self, backend: GraphBackend, meanings: TextEmbeddings) -> None:
        self._backend = backend
        self._meanings = meanings

    async def write(
        self, group: str, changes: CommitRequest, former: Mapping[str, FactRow], *, seen: int
    ) -> bool | StaleGroup:
        """Write a step. After an interruption between two commits, a repeated step finds what is left to do.

        Args:
            group: group of the graph.
            changes: the episodes and facts.
            former: the stored facts by id, so that vectors are made only for new ones.
            seen: a version that includes everything that was read.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        embedded = await self._embedded(changes, former)
        for piece in split_commit(embedded):
            outcome = await self._backend.commit(group, piece, seen=seen)
            if isinstance(outcome, StaleGroup):
                return outcome
            # No other writer was in between: otherwise this part would have found its lines changed.
            seen = outcome.version
        return True

    async def _embedded(self, changes: CommitRequest, former: Mapping[str, FactRow]) -> CommitRequest:
        fresh = [row.text for row in changes.facts if row.id not in former]
        halves = await self._meanings.halves(fresh)
        facts = tuple(row if row.id in former else replace(row, vector=halves.get(row.text)) for row in changes.facts)
        return replace(changes, facts=facts)
