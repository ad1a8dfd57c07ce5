"""The RediSearch index: by words and by meaning in one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from sharedmem.context import ServerContext
from sharedmem.errors import InvalidError, SharedMemoryError, UnavailableError
from sharedmem.models import IndexStatus
from sharedmem.record_family import RecordFamily
from sharedmem.redis.replies import Argument, Command, Reply, ServerError, public_error
from sharedmem.redis.vectors import Vector, check_vector, to_half
from sharedmem.runtime import get_logger
from sharedmem.runtime.concurrency import BackgroundTask
from sharedmem.search.protocol import (
    ALL,
    Every,
    IndexHit,
    IndexProgress,
    IndexQuery,
    IndexResult,
    RecordPage,
    check_page,
    without_frequent_terms,
)
from sharedmem.search.redisearch.index_router import IndexLocation, IndexRouter
from sharedmem.search.redisearch.queries import (
    NO_FILTER,
    OverflowGuard,
    RenderedFilter,
    ScoredTerms,
    count_by_value,
    count_documents_with,
    has_zero_distance,
    hybrid_policy,
    named_hits,
    near_hits,
    newest_version,
    overflowed_terms,
    parse_counts,
    render_filter,
    scored_hits,
    search_by_filter,
    search_by_vector,
    search_by_words,
    top_score,
    top_score_query,
    within_namespace,
)
from sharedmem.search.redisearch.server import IndexLayout, IndexOverview, IndexServer, is_missing, parse_index_info
from sharedmem.text.analysis import namespace_term_prefix

_log = get_logger("search")
_FREQUENCY_TTL_S = 60.0
_MOST_FREQUENCIES = 10_000


class DocumentFrequencyCache:
    """Counts of the words of queries, cached for a while."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, float]] = {}

    def unknown(self, terms: Sequence[str], now: float) -> list[str]:
        """Return the words that must be counted."""
        return [term for term in terms if self._counts.get(term, (0, 0.0))[1] < now]

    def learn(self, terms: Sequence[str], counts: Sequence[int], now: float) -> None:
        """Store for a while how many records contain each word."""
        if len(self._counts) > _MOST_FREQUENCIES:
            self._counts.clear()
        self._counts |= {term: (count, now + _FREQUENCY_TTL_S) for term, count in zip(terms, counts, strict=True)}

    def of(self, terms: Sequence[str]) -> dict[str, int]:
        """Return the last count of records that contain each word."""
        return {term: self._counts.get(term, (0, 0.0))[0] for term in terms}


_PROMOTION_LEASE_MS = 600_000
_MOST_TRIES = 5
_TIMEOUT_FACTOR = 5
"""A search waits for an index that is being built as many times as long as a search may take."""
_MOST_REMEMBERED = 1000
_REMEMBERED_S = 60.0

T = TypeVar("T")


class _QueryPlan(NamedTuple):
    """The searches of one query."""

    terms: list[str]
    words: ScoredTerms
    """The same words, with those separated that add nothing to a score."""
    vector: bytes | None
    filters: RenderedFilter
    policy: str
    limit: int
    uncounted: tuple[str, ...] = ()
    """Words whose records are counted together with the search, for the next search."""
    directed: bool = False
    """Whether vectors of zeros are left out, which takes the server longer."""
    with_facts: bool = True
    leaves_out: bool = False
    """Whether common words may be left out, which depends on the size of the namespace."""

    @property
    def has_words(self) -> bool:
        return any(self.words)


class RediSearchIndex:
    """An `Index` on a server with a query engine.

    Args:
        context: the server, and the settings: how long a search may take, and from how many records a namespace has
            an index of its own, which then is approximate.
        family: the record family of the index.
        on_cluster: whether the server is a cluster, on which each namespace has its own index.
    """

    def __init__(self, context: ServerContext, family: RecordFamily, *, on_cluster: bool) -> None:
        client, keyspace, settings = context.client, context.keyspace, context.settings
        self._context = context
        self._client = client
        self._keyspace = keyspace
        self._family = family
        self._promoters: dict[str, IndexPromoter] = {}
        self._timeout = ("TIMEOUT", settings.search_timeout_ms)
        self._timeout_s = settings.search_timeout_ms / 1000
        self._on_cluster = on_cluster
        self._layout = IndexLayout(keyspace, family)
        self._server = IndexServer(
            client, self._layout, patience_s=_TIMEOUT_FACTOR * self._timeout_s, on_cluster=on_cluster
        )
        self._placement = IndexRouter(
            client, keyspace, family, settings, server=self._server, layout=self._layout, on_cluster=on_cluster
        )
        self._overview = IndexOverview(
            client, keyspace, family, server=self._server, layout=self._layout, on_cluster=on_cluster
        )
        self._worn = OverflowGuard()
        self._holders = DocumentFrequencyCache()
        self._matched: dict[tuple[str, RenderedFilter], tuple[int, float]] = {}
        # Records of each namespace, recently deleted ones included, as the last search that leaves out words saw them.
        self._sizes: dict[str, int] = {}

    @property
    def family(self) -> RecordFamily:
        """The record family that it indexes."""
        return self._family

    @property
    def algorithm(self) -> Literal["redisearch", "exact"]:
        """`redisearch`: the server searches."""
        return "redisearch"

    async def ensure(self, namespace: str) -> None:
        """See `Index.ensure`. No round trip if the namespace was seen on this connection."""
        await self._placement.of(namespace)

    async def search(self, namespace: str, query: IndexQuery) -> IndexResult:
        """See `Index.search`. The location of a namespace is read once per connection, and not counted."""
        return (await self.search_each(namespace, [query]))[0]

    async def search_each(self, namespace: str, queries: Sequence[IndexQuery]) -> list[IndexResult]:
        """See `Index.search_each`. One round trip; more if one query needs more, see `search`."""
        if not queries:
            return []
        asked: list[_QueryPlan] = []
        spent = 0
        for query in queries:
            legs, more = await self._plan_query(namespace, query)
            asked.append(legs)
            spent += more
        return [
            await self._retry_without_overflowed(namespace, legs, found)
            for legs, found in zip(asked, await self._once(namespace, asked, spent), strict=True)
        ]

    async def nearest(self, namespace: str, vector: Vector, *, filters: Every = ALL, k: int = 10) -> IndexResult:
        """See `Index.nearest`."""
        return await self.search(namespace, IndexQuery(vector=vector, filters=filters, candidates=k))

    async def nearest_each(
        self, namespace: str, vectors: Sequence[Vector], *, filters: Every = ALL, k: int = 10
    ) -> list[IndexResult]:
        """See `Index.nearest_each`. One round trip; more if vectors of zeros fill the hits, see `nearest`."""
        if k < 1:
            raise InvalidError("candidates", k, "give at least one")
        wanted = render_filter(filters, self._family)
        policy, spent = await self._policy(namespace, filters)
        asked = [self._as_bytes(vector) for vector in vectors]
        log, home = self._keyspace.record_log(self._family.name, namespace), self._home(namespace)

        def commands(place: IndexLocation) -> list[Command]:
            here = self._within(namespace, wanted, place)
            near = (search_by_vector(one, here, k=k, policy=policy) for one in asked if one is not None)
            return [("ZRANGE", log, 0, 0, "REV", "WITHSCORES"), *(self._searching(place, one) for one in near)]

        (newest, *replies), trips = await self._asked(namespace, commands)
        version, spent = newest_version(newest, log), spent + trips
        answers = iter(replies)
        found = [
            IndexResult([], [] if one is None else near_hits(next(answers), home), version, spent) for one in asked
        ]
        if not any(has_zero_distance(reply, len(near_hits(reply, home))) for reply in replies):
            return found
        return [await self.nearest(namespace, vector, filters=filters, k=k) for vector in vectors]

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
        """See `Index.matching`. One round trip."""
        check_page(self._family, newest=newest, oldest=oldest, offset=offset, limit=limit)
        wanted = render_filter(filters, self._family)
        return await self._page(namespace, wanted, newest=newest, oldest=oldest, offset=offset, limit=limit)

    async def counts(self, namespace: str, filters: Every, tag: str) -> dict[str, int]:
        """See `Index.counts`. One round trip; the server reads every record that matches the filters."""
        if tag not in self._family.tags:
            raise InvalidError("tag", tag, f"the tags of {self._family.name} are {', '.join(self._family.tags)}")

        wanted = render_filter(filters, self._family)

        def commands(place: IndexLocation) -> list[Command]:
            query = count_by_value(self._within(namespace, wanted, place), tag)
            return [("FT.AGGREGATE", place.searched, *query, *self._timeout)]

        replies, _ = await self._asked(namespace, commands)
        return parse_counts(replies[0])

    def count_writes(self, namespace: str, count: int) -> None:
        """See `Index.count_writes`. No round trip; now and then the size is checked in the background."""
        promoter = self._promoters.get(namespace)
        if promoter is None:
            promoter = self._promoters[namespace] = IndexPromoter(self._context, self, namespace)
        promoter.count_writes(count)

    async def promote(self, namespace: str, *, progress: IndexProgress | None = None) -> None:
        """See `Index.promote`. Records are indexed in the new one, leave the shared one, and are indexed once more."""
        await self._translated(self._placement.promote(namespace, progress=progress))

    async def rebuild(self, namespace: str | None = None, *, progress: IndexProgress | None = None) -> None:
        """See `Index.rebuild`. This also makes an index approximate (HNSW) after it has grown, or exact again."""
        await self._translated(self._placement.rebuild(namespace, progress=progress))

    async def status(self) -> list[IndexStatus]:
        """See `Index.status`. A few round trips an index."""
        return await self._translated(self._overview.statuses())

    async def forget(self, namespace: str) -> None:
        """See `Index.forget`."""
        self._promoters.pop(namespace, None)
        await self._translated(self._placement.forget(namespace))

    # -- queries ------------------------------------------------------------------------------

    async def _plan_query(self, namespace: str, query: IndexQuery) -> tuple[_QueryPlan, int]:
        """Return (the searches for a query, round trips that the decision took)."""
        if query.candidates < 1:
            raise InvalidError("candidates", query.candidates, "give at least one")
        every = _prefix_terms(query.terms, namespace)
        if every and not query.filters.is_plain:
            raise InvalidError("filters", "...", "a search by words takes tags, intervals and words alone")
        commonest = self._commonest(namespace, query, every)
        terms = without_frequent_terms(self._holders.of(every), commonest)
        uncounted = () if commonest is None else tuple(self._holders.unknown(every, _loop_time()))
        vector = self._as_bytes(query.vector)
        wanted = render_filter(query.filters, self._family)
        policy, spent = await self._policy(namespace, query.filters) if vector else ("", 0)
        words = self._worn.split_overflowed(terms, _loop_time())
        plan = _QueryPlan(
            terms, words, vector, wanted, policy, query.candidates, uncounted, with_facts=query.with_facts
        )
        return plan._replace(leaves_out=query.commonest is not None), spent

    def _commonest(self, namespace: str, query: IndexQuery, terms: Sequence[str]) -> int | None:
        """Return from how many records on a word is left out; None if no word can be left out."""
        if query.commonest is None or len(terms) < 2:
            return None
        return query.commonest if self._sizes.get(namespace, query.commonest + 1) > query.commonest else None

    async def _retry_without_overflowed(self, namespace: str, legs: _QueryPlan, found: IndexResult) -> IndexResult:
        """Return the result; search again if it shows unknown words with overflowing scores."""
        if not found.text or not self._worn.is_suspicious(namespace, found.text[0].score, _loop_time()):
            return found
        if not await self._find_overflowed(namespace, legs.words.scoring):
            return found._replace(round_trips=found.round_trips + 1)
        again = legs._replace(uncounted=(), words=self._worn.split_overflowed(legs.terms, _loop_time()))
        return (await self._once(namespace, [again], found.round_trips + 1))[0]

    async def _once(self, namespace: str, asked: Sequence[_QueryPlan], spent: int) -> list[IndexResult]:
        log = self._keyspace.record_log(self._family.name, namespace)
        uncounted = list(dict.fromkeys(term for legs in asked for term in legs.uncounted))
        sized = any(legs.leaves_out for legs in asked)

        def commands(place: IndexLocation) -> list[Command]:
            each = (self._searches(namespace, legs, place) for legs in asked)
            here = self._within(namespace, NO_FILTER, place)
            counts = (self._searching(place, count_documents_with(term, here)) for term in uncounted)
            size = [("ZCARD", log)] if sized else []
            return [("ZRANGE", log, 0, 0, "REV", "WITHSCORES"), *size, *chain.from_iterable(each), *counts]

        (newest, *replies), trips = await self._asked(namespace, commands)
        version, spent, answers = newest_version(newest, log), spent + trips, iter(replies)
        if sized:
            self._note_size(namespace, next(answers))
        # In the order of the commands: the words of a query before its meaning.
        read = [self._read(namespace, legs, answers) for legs in asked]
        self._holders.learn(uncounted, [top_score(reply)[0] for reply in answers], _loop_time())
        return [
            (await self._once(namespace, [legs._replace(directed=True, uncounted=())], spent))[0]
            if was_spoiled
            else IndexResult(text, near, version, spent)
            for legs, (text, near, was_spoiled) in zip(asked, read, strict=True)
        ]

    def _note_size(self, namespace: str, size: Reply) -> None:
        assert isinstance(size, int)
        if len(self._sizes) >= _MOST_REMEMBERED:
            self._sizes.clear()
        self._sizes[namespace] = size

    def _searches(self, namespace: str, legs: _QueryPlan, place: IndexLocation) -> Iterator[Command]:
        here = self._within(namespace, legs.filters, place)
        if legs.has_words:
            words = search_by_words(
                *legs.words, here, scorer=self._server.scorer, limit=legs.limit, with_facts=legs.with_facts
            )
            yield self._searching(place, words)
        if legs.vector:
            near = search_by_vector(
                legs.vector,
                here,
                k=legs.limit,
                policy=legs.policy,
                directed=legs.directed,
                with_facts=legs.with_facts,
            )
            yield self._searching(place, near)

    def _read(
        self, namespace: str, legs: _QueryPlan, answers: Iterator[Reply]
    ) -> tuple[list[IndexHit], list[IndexHit], bool]:
        """Return (hits by words, hits by meaning, whether vectors of zeros filled the hits)."""
        home = self._home(namespace)
        text = scored_hits(next(answers), home, with_facts=legs.with_facts) if legs.has_words else []
        if not legs.vector:
            return text, [], False
        reply = next(answers)
        near = near_hits(reply, home)
        return text, near, not legs.directed and has_zero_distance(reply, len(near))

    async def _find_overflowed(self, namespace: str, terms: list[str]) -> bool:
        """Return whether any of these terms has overflowed; these are remembered."""

        def commands(place: IndexLocation) -> list[Command]:
            here = self._within(namespace, NO_FILTER, place)
            each = (self._searching(place, top_score_query(term, here, scorer=self._server.scorer)) for term in terms)
            return [("FT.INFO", place.searched), *each]

        (facts, *replies), _ = await self._asked(namespace, commands)
        documents = parse_index_info(facts).documents
        overflowed = overflowed_terms(terms, replies, documents)
        if overflowed:
            self._worn.remember(overflowed, _loop_time())
        else:
            self._worn.note_plausible(namespace, documents, _loop_time())
        return bool(overflowed)

    async def _asked(
        self, namespace: str, commands: Callable[[IndexLocation], list[Command]]
    ) -> tuple[list[Reply], int]:
        """Return (replies, round trips) of commands sent to the index in which the namespace is searched.

        Raises:
            UnavailableError: the server could not finish in time, or the namespace keeps moving.
        """
        for trip in range(1, _MOST_TRIES + 1):
            place = await self._placement.of(namespace)
            began = _loop_time()
            try:
                *replies, named = await self._client.read_many(
                    [*commands(place), ("GET", self._placement.key(namespace))]
                )
            except ServerError as error:
                if not is_missing(error):
                    raise self._public(error) from error
                self._placement.forget_location(namespace)
                continue
            if named == place.named:
                self._check_time(began)
                return replies, trip
            self._placement.forget_location(namespace)
        raise UnavailableError(f"search in {namespace!r}", "its index keeps moving; try again in a moment")

    async def _policy(self, namespace: str, filters: Every) -> tuple[str, int]:
        """Return (how an approximate index should search, round trips that the decision took).

        Numbers are ignored: each moment in a filter would have to be counted again.
        """
        place = await self._placement.of(namespace)
        if place.algorithm == "FLAT":
            return "", 0
        wanted = render_filter(filters.of_tags(), self._family)
        if not wanted.text:
            return hybrid_policy(None), 0
        now = _loop_time()
        matching, until = self._matched.get((namespace, wanted), (0, 0.0))
        spent = int(until < now)
        if spent:
            matching = (await self._page(namespace, wanted, offset=0, limit=0)).total
            if len(self._matched) >= _MOST_REMEMBERED:
                self._matched.clear()
            self._matched[namespace, wanted] = matching, now + _REMEMBERED_S
        return hybrid_policy(matching), spent

    async def _page(
        self,
        namespace: str,
        wanted: RenderedFilter,
        *,
        newest: str | None = None,
        oldest: str | None = None,
        offset: int,
        limit: int,
    ) -> RecordPage:
        def commands(place: IndexLocation) -> list[Command]:
            here = self._within(namespace, wanted, place)
            query = search_by_filter(here, newest=newest, oldest=oldest, offset=offset if limit else 0, limit=limit)
            return [self._searching(place, query)]

        replies, _ = await self._asked(namespace, commands)
        return named_hits(replies[0], self._home(namespace))

    def _searching(self, place: IndexLocation, query: tuple[Argument, ...]) -> Command:
        return ("FT.SEARCH", place.searched, *query, *self._timeout)

    def _within(self, namespace: str, wanted: RenderedFilter, place: IndexLocation) -> RenderedFilter:
        return within_namespace(wanted, namespace) if place.named is None else wanted

    def _home(self, namespace: str) -> bytes:
        return self._keyspace.records(self._family.name, namespace).encode()

    def _as_bytes(self, vector: Vector | None) -> bytes | None:
        """Return the vector as the server takes it; None if nothing can be near to it.

        Raises:
            InvalidError: the vector has another dimension, or contains something other than finite numbers.
        """
        if vector is None:
            return None
        dimension = self._family.dimension
        if not dimension:
            raise InvalidError("vector", "...", f"no vectors of {self._family.name} are stored: there is no embedder")
        if vector.shape != (dimension,) or not np.isfinite(vector).all():
            check_vector("vector", vector, dimension)
        return to_half(vector) if vector.any() else None

    def _check_time(self, began: float) -> None:
        # Such a server silently returns the hits that it has found until then.
        if not self._server.fails_on_timeout and _loop_time() - began >= self._timeout_s:
            raise self._too_slow()

    def _too_slow(self) -> UnavailableError:
        return UnavailableError(
            "the search", f"the server could not finish within {self._timeout_s:g} s (search_timeout_ms)"
        )

    def _public(self, error: ServerError) -> Exception:
        if "timeout limit" in error.text.lower():
            return self._too_slow()
        return public_error(error, self._client.address)

    async def _translated(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except ServerError as error:
            raise self._public(error) from error


class IndexPromoter:
    """Promotes one namespace when this hub has written enough records there.

    Args:
        context: the server and the settings.
        index: the index.
        namespace: namespace of the records.
    """

    def __init__(self, context: ServerContext, index: RediSearchIndex, namespace: str) -> None:
        self._context = context
        self._index = index
        self._namespace = namespace
        # The size is checked each time that a tenth of the threshold was written, so promotion is at most so late.
        self._every = max(1, context.settings.promote_above // 10)
        self._unseen = self._every
        self._stage = 0
        self._work: BackgroundTask | None = None

    def count_writes(self, count: int) -> None:
        """Count written records; now and then check the size in the background."""
        self._unseen += count
        if self._unseen >= self._every and (self._work is None or self._work.done):
            self._unseen = 0
            self._work = self._context.background.start(
                f"tend the index of {self._namespace}", self._promote_if_grown()
            )

    async def _promote_if_grown(self) -> None:
        keyspace, line, family = self._context.keyspace, self._context.client, self._index.family.name
        log = keyspace.record_log(family, self._namespace)
        size = await line.call("ZCARD", log)
        stage = self._stage_of(size) if isinstance(size, int) else 0
        # Promotion reads every record: once for the namespace's own index, and once to make that approximate.
        if stage <= self._stage:
            return
        # One hub does it; if it dies, another hub continues after the lease has expired.
        turn = keyspace.record_part(family, self._namespace, "tending")
        if await line.call("SET", turn, "1", "NX", "PX", _PROMOTION_LEASE_MS) is None:
            return
        try:
            await self._index.promote(self._namespace)
            self._stage = stage
        except SharedMemoryError as error:
            # Searches still use the present index; the next check tries again.
            _log.warning("the index of %s (%s) could not be promoted: %s", self._namespace, family, error)
            self._context.counters.increment("index_tending_failures", family=family)
        finally:
            await line.call("DEL", turn)
            if not await line.call("ZCARD", log):
                await self._index.forget(self._namespace)  # the namespace was cleared meanwhile

    def _stage_of(self, size: int) -> int:
        settings = self._context.settings
        return (size > settings.promote_above) + (size > max(settings.promote_above, settings.hnsw_above))


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _prefix_terms(terms: tuple[str, ...], namespace: str) -> list[str]:
    """Return the words as the namespace's records contain them; a word that is not ASCII matches nothing."""
    prefix = namespace_term_prefix(namespace)
    return [prefix + term for term in terms if term.isascii() and term.isalnum() and term == term.lower()]
