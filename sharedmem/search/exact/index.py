"""The exact index: compare a query with every record, for servers without a query engine."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from sharedmem.clock import Clock
from sharedmem.errors import InvalidError
from sharedmem.models import IndexStatus
from sharedmem.record_family import RecordFamily
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.vectors import Vector, check_vector
from sharedmem.search.exact.mirror import Mirror, MirrorReplicator
from sharedmem.search.exact.queries import (
    best_by_meaning,
    best_by_words,
    check_filter,
    count_by,
    matching_rows,
    record_page,
)
from sharedmem.search.protocol import (
    ALL,
    Every,
    IndexHit,
    IndexProgress,
    IndexQuery,
    IndexResult,
    RecordPage,
    check_page,
)
from sharedmem.text.analysis import namespace_term_prefix

T = TypeVar("T")
MOST_NAMESPACES = 64
MOST_RECORDS = 500_000
_LARGE = 5_000_000
_NUMBERS_WITHOUT_VECTORS = 32


class ExactIndex:
    """An `Index` in this process: a mirror of each namespace that is searched, which follows the log of its changes.

    The first search of a namespace loads its records. A later one reads the changes, in one small round trip, and a
    second one if there are any. A record takes 4 bytes for each number of its vector and about 600 bytes more: 10,000
    records of 256 numbers take 16 MB. At most `MOST_NAMESPACES` namespaces and `MOST_RECORDS` records are mirrored, as
    long as there is more than one namespace; the mirrors not searched for the longest time are dropped.

    Args:
        client: client of the server.
        keyspace: builds keys.
        family: the record family of the index.
        clock: decides which records have expired.
    """

    def __init__(self, client: RedisClient, keyspace: KeySpace, family: RecordFamily, clock: Clock) -> None:
        self._client = client
        self._keyspace = keyspace
        self._family = family
        self._clock = clock
        self._followers: OrderedDict[str, MirrorReplicator] = OrderedDict()

    @property
    def family(self) -> RecordFamily:
        """The record family that it indexes."""
        return self._family

    @property
    def algorithm(self) -> Literal["redisearch", "exact"]:
        """`exact`: this process searches."""
        return "exact"

    async def ensure(self, namespace: str) -> None:
        """Do nothing: the first search loads the namespace."""

    async def search(self, namespace: str, query: IndexQuery) -> IndexResult:
        """See `Index.search`. One round trip, or a few if something has changed."""
        return (await self.search_each(namespace, [query]))[0]

    async def search_each(self, namespace: str, queries: Sequence[IndexQuery]) -> list[IndexResult]:
        """See `Index.search_each`. Round trips as `search`."""
        asks = [self._query_function(namespace, query) for query in queries]
        if not asks:
            return []
        follower = self._follower(namespace)
        trips = await follower.catch_up()
        # Read before the search: changes that arrive during it are found, but are not certain to be.
        version = follower.version
        found = await self._ask(follower, lambda mirror: [ask(mirror) for ask in asks])
        return [IndexResult(text, near, version, trips) for text, near in found]

    async def nearest(self, namespace: str, vector: Vector, *, filters: Every = ALL, k: int = 10) -> IndexResult:
        """See `Index.nearest`. Round trips as `search`."""
        return (await self.nearest_each(namespace, [vector], filters=filters, k=k))[0]

    async def nearest_each(
        self, namespace: str, vectors: Sequence[Vector], *, filters: Every = ALL, k: int = 10
    ) -> list[IndexResult]:
        """See `Index.nearest_each`. Round trips as `search`."""
        if k < 1:
            raise InvalidError("candidates", k, "give at least one")
        checked = [check_vector("vector", vector, self._family.dimension) for vector in vectors]
        check_filter(self._family, filters)

        def ask(mirror: Mirror) -> list[list[IndexHit]]:
            mask = matching_rows(mirror, filters)
            return [best_by_meaning(mirror, vector, mask, k) for vector in checked]

        follower = self._follower(namespace)
        trips = await follower.catch_up()
        version = follower.version
        return [IndexResult([], near, version, trips) for near in await self._ask(follower, ask)]

    async def matching(
        self,
        namespace: str,
        filters: Every,
        *,
        newest: str | None = None,
        oldest: str | None = None,
        offset: int = 0,
        limit: int = 100,
    ) -> RecordPage:
        """See `Index.matching`. Round trips as `search`."""
        check_page(self._family, newest=newest, oldest=oldest, offset=offset, limit=limit)
        check_filter(self._family, filters)
        return await self._asked(
            namespace,
            lambda mirror: record_page(
                mirror, matching_rows(mirror, filters), newest, oldest=oldest, offset=offset, limit=limit
            ),
        )

    async def counts(self, namespace: str, filters: Every, tag: str) -> dict[str, int]:
        """See `Index.counts`. Round trips as `search`."""
        if tag not in self._family.tags:
            raise InvalidError("tag", tag, f"the tags of {self._family.name} are {', '.join(self._family.tags)}")
        check_filter(self._family, filters)
        return await self._asked(namespace, lambda mirror: count_by(mirror, matching_rows(mirror, filters), tag))

    async def promote(self, namespace: str, *, progress: IndexProgress | None = None) -> None:
        """Do nothing: each namespace has its own mirror."""

    async def rebuild(self, namespace: str | None = None, *, progress: IndexProgress | None = None) -> None:
        """Load mirrors again: the namespace's, or all that exist.

        Raises:
            UnavailableError: the server cannot be reached; the next search loads the rest.
        """
        chosen = list(self._followers) if namespace is None else [namespace]
        done = 0
        for name in chosen:
            self._followers.pop(name, None)
            follower = self._follower(name)
            await follower.catch_up()
            done += len(follower.mirror)
            if progress is not None:
                progress(done, done)

    async def status(self) -> list[IndexStatus]:
        """Return the mirrors of this process."""
        return [self._status(namespace, follower.mirror) for namespace, follower in self._followers.items()]

    async def forget(self, namespace: str) -> None:
        """Drop the namespace's mirror."""
        self._followers.pop(namespace, None)

    def _query_function(
        self, namespace: str, query: IndexQuery
    ) -> Callable[[Mirror], tuple[list[IndexHit], list[IndexHit]]]:
        """Return a function that runs a query (by words, by meaning) on a mirror."""
        if query.candidates < 1:
            raise InvalidError("candidates", query.candidates, "give at least one")
        vector = None if query.vector is None else check_vector("vector", query.vector, self._family.dimension)
        prefix = namespace_term_prefix(namespace)
        # A term that is not ASCII is in no record.
        terms = [prefix + term for term in query.terms if term.isascii()]
        check_filter(self._family, query.filters)
        if terms and not query.filters.is_plain:
            raise InvalidError("filters", "...", "a search by words takes tags, intervals and words alone")

        def ask(mirror: Mirror) -> tuple[list[IndexHit], list[IndexHit]]:
            mask = matching_rows(mirror, query.filters)
            text = best_by_words(mirror, terms, mask, query.candidates, commonest=query.commonest)
            near = [] if vector is None else best_by_meaning(mirror, vector, mask, query.candidates)
            return text, near

        return ask

    # -- mirrors ------------------------------------------------------------------------------

    def _follower(self, namespace: str) -> MirrorReplicator:
        follower = self._followers.get(namespace)
        if follower is None:
            follower = MirrorReplicator(self._client, self._keyspace, self._family, namespace, self._clock)
            self._followers[namespace] = follower
        self._followers.move_to_end(namespace)
        self._make_room()
        return follower

    def _make_room(self) -> None:
        records = sum(len(follower.mirror) for follower in self._followers.values())
        while len(self._followers) > 1 and (len(self._followers) > MOST_NAMESPACES or records > MOST_RECORDS):
            _, longest_unused = self._followers.popitem(last=False)
            records -= len(longest_unused.mirror)

    async def _asked(self, namespace: str, ask: Callable[[Mirror], T]) -> T:
        follower = self._follower(namespace)
        await follower.catch_up()
        return await self._ask(follower, ask)

    async def _ask(self, follower: MirrorReplicator, ask: Callable[[Mirror], T]) -> T:
        mirror = follower.mirror

        def guarded() -> T:
            with mirror.guard:
                return ask(mirror)

        if len(mirror.ids) * (self._family.dimension or _NUMBERS_WITHOUT_VECTORS) <= _LARGE:
            return guarded()
        return await asyncio.to_thread(guarded)

    def _status(self, namespace: str, mirror: Mirror) -> IndexStatus:
        return IndexStatus(
            name=f"{self._keyspace.own_index(self._family.name, namespace)}exact",
            family=self._family.name,
            namespaces=(namespace,),
            documents=len(mirror),
            algorithm="exact",
            dimension=self._family.dimension,
            model=self._family.model,
            schema_version=self._family.schema_version,
            failures=mirror.damaged,
            bytes=mirror.nbytes,
            problems=_problems(mirror.damaged),
        )


def _problems(damaged: int) -> tuple[str, ...]:
    if not damaged:
        return ()
    return (f"the vectors of {damaged} records cannot be read: until a new write they are found by words only",)
