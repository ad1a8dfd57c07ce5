"""The exact index: compare a query with every record, for servers without a query engine.

It searches in this process, over a mirror of a namespace's records: the best by words, the best by meaning, and the
records that match filters.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import numpy as np

from sharedmem.clock import Clock
from sharedmem.errors import InvalidError
from sharedmem.models import IndexStatus
from sharedmem.record_family import RecordFamily
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.vectors import Vector, check_vector
from sharedmem.search.exact_mirror import Mask, Mirror, MirrorReplicator, RowNumbers
from sharedmem.search.protocol import (
    ALL,
    Between,
    Condition,
    Either,
    Every,
    IndexHit,
    IndexProgress,
    IndexQuery,
    IndexResult,
    Inverse,
    RecordPage,
    Tagged,
    Worded,
    check_page,
    without_frequent_terms,
)
from sharedmem.search.scoring import Floats, inverse_document_frequency, term_score
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

    def count_writes(self, namespace: str, count: int) -> None:
        """Do nothing: the index of each namespace is its own, and grows with it."""

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


# -- queries on a mirror -------------------------------------------------------------------------


_DIGITS = 6
"""Digits to which scores are compared: equal scores must not differ by the order of their additions."""
_WORDS = "terms"
_FEW = 4
"""If fewer than one in so many rows match, these are copied before the multiplication."""


def check_filter(family: RecordFamily, condition: Condition) -> None:
    """Reject a filter on a field that the family does not have.

    Raises:
        InvalidError: the filter names no tag or number of the family.
    """
    if isinstance(condition, Every | Either):
        for part in condition.conditions:
            check_filter(family, part)
        return
    if isinstance(condition, Inverse):
        check_filter(family, condition.condition)
        return
    if isinstance(condition, Worded):
        if condition.field != _WORDS:
            raise InvalidError("filter", condition.field, f"the words of {family.name} are in {_WORDS}")
        return
    known = family.tags if isinstance(condition, Tagged) else family.numbers
    if condition.field not in known:
        kind = "tags" if isinstance(condition, Tagged) else "numbers"
        raise InvalidError("filter", condition.field, f"the {kind} of {family.name} are {', '.join(known) or 'none'}")
    if isinstance(condition, Between) and any(
        end is not None and math.isnan(end) for end in (condition.low, condition.high)
    ):
        raise InvalidError(f"filter {condition.field}", math.nan, "give a number")


def matching_rows(mirror: Mirror, condition: Condition) -> Mask:
    """Return which rows are living and match the condition."""
    mask = mirror.living.copy()
    _apply_condition(mirror, mask, condition)
    return mask


def best_by_words(
    mirror: Mirror, terms: Sequence[str], mask: Mask, k: int, *, commonest: int | None = None
) -> list[IndexHit]:
    """Return the `k` records with the highest BM25, by statistics of the whole namespace; see `Query.commonest`."""
    scores = np.zeros(len(mask))
    holders = (
        {term: _document_frequency(mirror, term) for term in terms}
        if commonest is not None
        else dict.fromkeys(terms, 0)
    )
    for term in without_frequent_terms(holders, commonest):
        _add_term_scores(mirror, term, scores)
    slots = np.flatnonzero(mask & (scores > 0))
    return _best_hits(mirror, slots, np.round(scores[slots], _DIGITS), k)


def best_by_meaning(mirror: Mirror, vector: Vector, mask: Mask, k: int) -> list[IndexHit]:
    """Return the `k` records with the highest cosine similarity; records without a vector are left out.

    Nothing is near to a vector of zeros.
    """
    if not vector.any():
        return []
    slots = np.flatnonzero(mask & mirror.has_vector)
    is_cheaper_apart = len(slots) * _FEW < len(mask)
    # `vecdot` and not `@`, which uses several threads: on a busy machine they wait for each other.
    similarities = (
        np.vecdot(mirror.vectors[slots], vector) if is_cheaper_apart else np.vecdot(mirror.vectors, vector)[slots]
    )
    rounded = np.round(similarities.astype(np.float64), _DIGITS)
    return _best_hits(mirror, slots, np.clip(rounded, -1.0, 1.0), k)


def record_page(
    mirror: Mirror, mask: Mask, newest: str | None, *, oldest: str | None = None, offset: int, limit: int
) -> RecordPage:
    """Return some of the records in the mask; by a number, highest or lowest first, if one is named, then by id."""
    slots = np.flatnonzero(mask)
    last = offset + limit
    by = newest or oldest
    if by is None:
        return RecordPage([mirror.ids[slot] for slot in slots[offset:last]], len(slots))
    numbers = mirror.numbers[by].rows[slots]
    keys = np.where(np.isnan(numbers), -np.inf, numbers if oldest is None else -numbers)
    return RecordPage([id_ for _, id_, _ in _rank_rows(mirror, slots, keys, last)[offset:]], len(slots))


def count_by(mirror: Mirror, mask: Mask, tag: str) -> dict[str, int]:
    """Return how many records of the mask have each value of a tag; `""`: records without a value."""
    counts: dict[str, int] = {}
    without = mask.copy()
    postings = mirror.tags[tag]
    for value in postings:
        slots, _ = postings.of(value)
        without[slots] = False
        if count := int(np.count_nonzero(mask[slots])):
            counts[str(value)] = count
    if count := int(np.count_nonzero(without)):
        counts[""] = count
    return counts


def _apply_condition(mirror: Mirror, mask: Mask, condition: Condition) -> None:
    match condition:
        case Every(conditions):
            for part in conditions:
                _apply_condition(mirror, mask, part)
        case Either(conditions):
            found = np.zeros(len(mask), dtype=np.bool_)
            for part in conditions:
                found |= _mask_of(mirror, part)
            mask &= found
        case Inverse(inner):
            mask &= ~_mask_of(mirror, inner)
        case Tagged():
            mask &= _tag_mask(mirror, condition)
        case Between():
            mask &= _range_mask(mirror, condition)
        case Worded():
            mask &= _words_mask(mirror, condition)


def _mask_of(mirror: Mirror, condition: Condition) -> Mask:
    mask = np.ones(len(mirror.ids), dtype=np.bool_)
    _apply_condition(mirror, mask, condition)
    return mask


def _words_mask(mirror: Mirror, condition: Worded) -> Mask:
    mask = np.full(len(mirror.ids), fill_value=bool(condition.terms))
    for term in condition.terms:
        holds = np.zeros(len(mask), dtype=np.bool_)
        holds[mirror.words.of(term.encode())[0]] = True
        mask &= holds
    return mask


def _tag_mask(mirror: Mirror, condition: Tagged) -> Mask:
    mask = np.zeros(len(mirror.ids), dtype=np.bool_)
    for value in condition.values:
        slots, _ = mirror.tags[condition.field].of(value)
        mask[slots] = True
    return mask


def _range_mask(mirror: Mirror, condition: Between) -> Mask:
    numbers = mirror.numbers[condition.field].rows
    mask: Mask = ~np.isnan(numbers)
    if condition.low is not None:
        mask &= numbers >= condition.low
    if condition.high is not None:
        mask &= numbers <= condition.high
    return mask


def _document_frequency(mirror: Mirror, term: str) -> int:
    slots, _ = mirror.words.of(term.encode())
    return int(np.count_nonzero(mirror.living[slots]))


def _add_term_scores(mirror: Mirror, term: str, scores: Floats) -> None:
    slots, times = mirror.words.of(term.encode())
    lives = mirror.living[slots]
    slots, times = slots[lives], times[lives]
    if len(slots):
        weight = inverse_document_frequency(len(mirror), len(slots))
        scores[slots] += weight * term_score(times.astype(np.float64), mirror.lengths[slots], mirror.average_length)


def _best_hits(mirror: Mirror, slots: RowNumbers, scores: Floats, k: int) -> list[IndexHit]:
    return [IndexHit(id_, -below, mirror.facts[slot]) for below, id_, slot in _rank_rows(mirror, slots, scores, k)]


def _rank_rows(mirror: Mirror, slots: RowNumbers, scores: Floats, k: int) -> list[tuple[float, str, int]]:
    """Return (negative score, id, row) of the `k` highest scores, highest first; ties by id."""
    if k < 1:
        return []
    if k < len(slots):
        # Include every tie with the last one, so that the id decides.
        places = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
        slots, scores = slots[places], scores[places]
    named = zip((-scores).tolist(), [mirror.ids[slot] for slot in slots.tolist()], slots.tolist(), strict=True)
    return sorted(named)[:k]
