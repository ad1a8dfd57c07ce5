"""Search memories: by words, by meaning, and by who said what around a turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple

from sharedmem.errors import InvalidError, SharedMemoryError
from sharedmem.memory.base import check_filter
from sharedmem.memory.embedding_queue import EmbeddingQueue
from sharedmem.memory.filters import to_index_filter
from sharedmem.memory.ranking import (
    RankedMemory,
    RankingFeatures,
    RankingWeights,
    decode_features,
    diversify_ranking,
    neighbour_ranges,
    rank,
    remove_speakers,
    rerank_by_scores,
)
from sharedmem.memory.reader import FetchedMemory, MemoryFetcher
from sharedmem.memory.search_types import (
    MODES,
    Rerank,
    SearchHits,
    SearchRequest,
    check_choice,
    check_limit,
    check_query,
    check_share,
)
from sharedmem.models import Hit, MemoryFilter, SearchCost, SearchMode, Signal, Why
from sharedmem.providers.embedding import QueryEmbedding, embed_query
from sharedmem.redis.client import RedisClient
from sharedmem.redis.replies import Command, Reply
from sharedmem.redis.vectors import check_vector
from sharedmem.runtime import measured
from sharedmem.search.protocol import IndexHit, IndexQuery, IndexResult
from sharedmem.text.analysis import query_terms

_UNKNOWN = -1


class SpeakerCache:
    """The authors of one namespace; all searches of a hub share what they know.

    Args:
        line: the way to the server.
        key: the hash of authors.
    """

    def __init__(self, line: RedisClient, key: bytes) -> None:
        self._client = line
        self._version = _UNKNOWN
        self.names: tuple[str, ...] = ()
        self.question: Command = ("HKEYS", key)
        """What to ask the server."""

    @property
    def is_known(self) -> bool:
        """Whether anything was ever heard."""
        return self._version != _UNKNOWN

    def is_current(self, version: int) -> bool:
        """Whether nothing has changed since it was heard who speaks: `version` is that of the newest change."""
        return self._version == version

    def hear(self, reply: Reply, version: int) -> None:
        """Learn who speaks.

        Args:
            reply: to the question.
            version: of a change that was there before it was asked.
        """
        names = reply if isinstance(reply, list) else []
        self.names = tuple([name.decode(errors="replace") for name in names if isinstance(name, bytes)])
        self._version = version

    async def look(self, version: int = 0) -> None:
        """Ask who speaks. One round trip."""
        (reply,) = await self._client.read_each([self.question])
        self.hear(reply, version)


Filters = MemoryFilter | Mapping[str, Any] | None

_OVERFETCH = 2
"""How many more are fetched than asked for: some may have expired."""
_RERANKED = 20
"""How many of the best a reranker judges, and among how many variety is looked for."""
_NO_HITS = IndexResult([], [], 0, 0)


class _SearchRun(NamedTuple):
    """How a search went."""

    found: IndexResult
    ranked: list[RankedMemory]
    meaning: QueryEmbedding
    round_trips: int


class MemorySearcher(MemoryFetcher):
    """Finds memories."""

    @measured("memory.search")
    async def search(
        self,
        query: str,
        *,
        limit: int = 10,
        mode: SearchMode = "hybrid",
        filters: Filters = None,
        threshold: float | None = None,
        explain: bool = False,
        recipe: RankingWeights | None = None,
        diversity: float | None = None,
        rerank: Rerank | None = None,
    ) -> SearchHits:
        """What is remembered that answers a query, best first.

        Two round trips; three where turns of a conversation are found. What has expired, is deleted or has left the
        scope by then is replaced by the next best, for one round trip more.

        Args:
            query: what is looked for, in everyday language; the first 10,000 characters and 32 telling words count.
            limit: at most so many, 1 to 100.
            mode: `hybrid` by words and by meaning; `semantic` by meaning alone, where a score is the cosine
                similarity; `keywords` by words alone, any of them.
            filters: which memories are meant, a `MemoryFilter` or a mapping with its fields.
            threshold: cosine similarity, 0 to 1: what is found by meaning must reach it. None takes the nearest.
            explain: whether each hit tells every signal's score, rank and weight, and the cost.
            recipe: other weights of the ranking than the measured ones.
            diversity: 0 to 1, how much variety among the answers counts against how well they answer.
            rerank: a coroutine function of the query and the best 20 memories that answers a score for each.

        Returns:
            A list of `Hit` that also says the `mode`, the `cost`, and in `degraded` why it was searched by words
            alone: without an embedder, while the provider is down or slow, for a query without a meaning.

        Raises:
            InvalidError: the query is empty, or another argument is none.
            AccessDeniedError: this actor may not read the namespace.
            UnavailableError: the server stayed away, or could not finish in time.
        """
        check_choice("mode", mode, MODES)
        text = check_query("query", query)
        return await self._answer(
            SearchRequest(
                query=text,
                keywords=text,
                mode=mode,
                limit=check_limit(limit),
                filters=check_filter(filters),
                threshold=_check_threshold(threshold, mode),
                explain=explain,
                recipe=recipe or RankingWeights(),
                diversity=check_share("diversity", diversity),
                rerank=rerank,
            )
        )

    async def search_semantic(
        self, query: str, *, threshold: float | None = None, limit: int = 10, filters: Filters = None
    ) -> SearchHits:
        """What means about the same as a query; `search` with mode `semantic`.

        Args:
            query, limit, filters: as `search` takes them.
            threshold: least cosine similarity, 0 to 1.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `search`.
        """
        return await self.search(query, threshold=threshold, limit=limit, filters=filters, mode="semantic")

    async def search_hybrid(
        self, query: str, *, keywords: str | None = None, limit: int = 10, filters: Filters = None
    ) -> SearchHits:
        """What means about the same as a query, or holds some words; `search` where the words differ from the query.

        Args:
            query: what is meant.
            keywords: the words to look for; those of the query when not given.
            limit, filters: as `search` takes them.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `search`.
        """
        text = check_query("query", query)
        words = text if keywords is None else check_query("keywords", keywords)
        return await self._answer(SearchRequest(text, words, "hybrid", check_limit(limit), check_filter(filters)))

    async def search_keywords(
        self,
        phrase: str,
        *,
        order_by: Literal["relevance", "timestamp"] = "relevance",
        limit: int = 10,
        filters: Filters = None,
    ) -> SearchHits:
        """What holds any of the words of a phrase.

        Args:
            phrase: the words; inflected forms count as the same.
            order_by: `relevance` by BM25; `timestamp` puts the newest of the best matches (`search_candidates`) first.
            limit, filters: as `search` takes them.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `search`.
        """
        check_choice("order_by", order_by, ("relevance", "timestamp"))
        text = check_query("phrase", phrase)
        by_time = order_by == "timestamp"
        request = SearchRequest(text, text, "keywords", check_limit(limit), check_filter(filters), by_time=by_time)
        return await self._answer(request)

    @measured("memory.find_similar")
    async def find_similar(
        self, embedding: Sequence[float], *, threshold: float = 0.0, limit: int = 10, filters: Filters = None
    ) -> SearchHits:
        """The memories nearest to a vector. Two round trips.

        Args:
            embedding: as long as the embedder's; of any length above zero in space.
            threshold: least cosine similarity, -1 to 1.
            limit, filters: as `search` takes them.

        Returns:
            A score is the cosine similarity. Nothing is near to a vector of zeros.

        Raises:
            InvalidError: the vector has another dimension, or holds what is no finite number; also as `search`.
            AccessDeniedError, UnavailableError: as `search`.
        """
        dimension = self._context.memories.family.dimension
        if not dimension:
            raise InvalidError("embedding", "...", "this hub has no embedder, so it keeps no vectors")
        vector = check_vector("embedding", embedding, dimension)
        least = check_share("threshold", threshold, least=-1.0)
        request = SearchRequest("", "", "semantic", check_limit(limit), check_filter(filters), threshold=least)
        return await self._answer(request, QueryEmbedding(vector if vector.any() else None))

    async def _answer(self, request: SearchRequest, meaning: QueryEmbedding | None = None) -> SearchHits:
        await self._enter("read")
        clock = self._context.clock
        began = clock.monotonic()
        course, kept, round_trips = await self._settled(request, meaning)
        order = [ranked for ranked in course.ranked if ranked.id in kept]
        order = (await self._reordered(request, order, kept))[: request.limit]
        degraded = course.meaning.missing if request.mode != "keywords" else None
        if degraded:
            self._context.counters.increment("memory_degraded", reason=course.meaning.reason)
        cost = SearchCost(
            round_trips=round_trips,
            milliseconds=round((clock.monotonic() - began) * 1000, 3),
            tokens=course.meaning.tokens,
        )
        self._uses.count([ranked.id for ranked in order])
        hits = [
            Hit(
                item=kept[ranked.id].item,
                score=ranked.score,
                why=Why(signals=ranked.signals, cost=cost) if request.explain else None,
            )
            for ranked in order
        ]
        return SearchHits(hits, mode="keywords" if degraded else request.mode, degraded=degraded, cost=cost)

    async def _settled(
        self, request: SearchRequest, meaning: QueryEmbedding | None
    ) -> tuple[_SearchRun, dict[str, FetchedMemory], int]:
        """(a search that knew everybody whom its query names, what it found by id, round trips)."""
        crowd = self._context.shared(SpeakerCache, self._namespace, self._unknown_speakers)
        is_hybrid = request.mode == "hybrid"
        trips = await self._load_speakers(crowd) if is_hybrid else 0
        while True:
            asked = remove_speakers(request.query, crowd.names) if is_hybrid else request.query
            course = await self._retry_after_restore(partial(self._searched, request, asked, meaning), _found_nothing)
            outdated = crowd if is_hybrid and not crowd.is_current(course.found.version) else None
            kept, fetches = await self._collected(request, course, outdated)
            trips += course.round_trips + fetches
            # Somebody has spoken for the first time whom the query names: once more, as it is in all later searches.
            if not is_hybrid or asked == remove_speakers(request.query, crowd.names):
                return course, kept, trips

    def _unknown_speakers(self) -> SpeakerCache:
        # The first search of this hub here: embeddings may wait though nobody writes any more.
        with suppress(SharedMemoryError):  # the hub closes
            EmbeddingQueue.of(self._context, self._namespace).wake()
        return SpeakerCache(self._context.client, self._authors_key())

    async def _load_speakers(self, crowd: SpeakerCache) -> int:
        """Know who speaks, if that was never asked; the round trips that it took."""
        if crowd.is_known:
            return 0
        await crowd.look()
        return 1

    async def _searched(self, request: SearchRequest, asked: str, meaning: QueryEmbedding | None) -> _SearchRun:
        await self._context.memories.ensure(self._namespace)
        if meaning is None:
            meaning = await self._meaning(request, asked)
        found = await self._found(request, meaning)
        neighbours: dict[tuple[str, int], list[tuple[str, RankingFeatures]]] = {}
        wanted = neighbour_ranges(found, request.recipe) if request.mode == "hybrid" else {}
        if wanted:
            neighbours = await self._neighbours(wanted)
        ranked = self._ranked(request, found, neighbours)
        return _SearchRun(found, ranked, meaning, found.round_trips + bool(wanted))

    async def _meaning(self, request: SearchRequest, text: str) -> QueryEmbedding:
        if request.mode == "keywords":
            return QueryEmbedding()
        return await embed_query(self._context.embedder_of(self._namespace), text)

    async def _found(self, request: SearchRequest, meaning: QueryEmbedding) -> IndexResult:
        settings = self._context.settings
        by_words = request.mode != "semantic" or meaning.missing is not None
        query = IndexQuery(
            terms=query_terms(request.keywords) if by_words else (),
            vector=meaning.vector,
            filters=to_index_filter(self._within, request.filters),
            candidates=max(settings.search_candidates, request.limit + _OVERFETCH),
        )
        if not query.terms and query.vector is None:
            return _NO_HITS
        return _above_threshold(await self._context.memories.search(self._namespace, query), request.threshold)

    def _ranked(
        self,
        request: SearchRequest,
        found: IndexResult,
        neighbours: Mapping[tuple[str, int], Sequence[tuple[str, RankingFeatures]]],
    ) -> list[RankedMemory]:
        if request.mode == "hybrid":
            now_ms = round(self._context.clock.now().timestamp() * 1000)
            return rank(request.query, found, neighbours, request.recipe, now_ms=now_ms, explain=request.explain)
        if request.by_time:
            newest_first = sorted(found.text, key=lambda hit: (-decode_features(hit.facts).at_ms, hit.id))
            return _rank_as_found("text", newest_first, explain=request.explain)
        signal, hits = ("vector", found.vector) if found.vector else ("text", found.text)
        return _rank_as_found(signal, hits, explain=request.explain)

    async def _collected(
        self, request: SearchRequest, course: _SearchRun, outdated: SpeakerCache | None
    ) -> tuple[dict[str, FetchedMemory], int]:
        """(what is still there of the best, by id; round trips).

        Args:
            request, course: what was asked, and how it went.
            outdated: the crowd, if it is to hear who speaks by now; that shares the first round trip.
        """
        judged = request.rerank is not None or request.diversity
        wanted = max(request.limit, _RERANKED) if judged else request.limit
        ranked, version = course.ranked, course.found.version
        kept: dict[str, FetchedMemory] = {}
        fetches = at = 0
        while len(kept) < wanted and at < len(ranked):
            lacking = wanted - len(kept)
            ids = [each.id for each in ranked[at : at + lacking + _OVERFETCH]]
            at, fetches = at + len(ids), fetches + 1
            looks = self._looks(ids, vectors=bool(request.diversity))
            if outdated is not None:
                looks.append(outdated.question)
            replies = await self._context.client.read_each(looks)
            if outdated is not None:
                outdated.hear(replies.pop(), version)
                outdated = None
            kept |= {one.item.id: one for one in self._taken(ids, replies, filters=request.filters, most=lacking)}
        if outdated is not None:
            await outdated.look(version)
            fetches += 1
        return kept, fetches

    async def _reordered(
        self, request: SearchRequest, order: list[RankedMemory], kept: Mapping[str, FetchedMemory]
    ) -> list[RankedMemory]:
        if request.rerank is not None:
            best = order[: max(request.limit, _RERANKED)]
            scores = await request.rerank(request.query, [kept[each.id].item for each in best])
            order = rerank_by_scores(best, _check_scores(scores, len(best)), explain=request.explain)
        if request.diversity:
            order = diversify_ranking(order, {id_: one.vector for id_, one in kept.items()}, request.diversity)
        return order

    async def _neighbours(
        self, wanted: Mapping[str, Sequence[tuple[int, int]]]
    ) -> dict[tuple[str, int], list[tuple[str, RankingFeatures]]]:
        """The turns in some ranges of threads. One round trip."""
        ranges = [(thread, low, high) for thread, places in wanted.items() for low, high in places]
        replies = await self._context.client.read_each(
            [("ZRANGEBYSCORE", self._turns_key(thread), low, high) for thread, low, high in ranges]
        )
        neighbours: dict[tuple[str, int], list[tuple[str, RankingFeatures]]] = {}
        for (thread, _, _), members in zip(ranges, replies, strict=True):
            for member in members if isinstance(members, list) else ():
                assert isinstance(member, bytes)
                id_, _, facts = member.partition(b" ")
                decoded = decode_features(facts)
                neighbours.setdefault((thread, decoded.position), []).append((id_.decode(), decoded))
        return neighbours


def _found_nothing(course: _SearchRun) -> bool:
    return not course.ranked


def _above_threshold(found: IndexResult, threshold: float | None) -> IndexResult:
    if threshold is None:
        return found
    return found._replace(vector=[hit for hit in found.vector if hit.score >= threshold])


def _rank_as_found(signal: str, hits: Sequence[IndexHit], *, explain: bool) -> list[RankedMemory]:
    """What one search found, in its order."""
    if not explain:
        return [RankedMemory(hit.id, hit.score, ()) for hit in hits]
    return [
        RankedMemory(
            hit.id,
            hit.score,
            (Signal(name=signal, score=hit.score, rank=place, weight=1.0, contribution=hit.score),),
        )
        for place, hit in enumerate(hits, 1)
    ]


def _check_threshold(threshold: float | None, mode: SearchMode) -> float | None:
    if threshold is not None and mode == "keywords":
        raise InvalidError("threshold", threshold, "it is a cosine similarity, and mode keywords compares no vectors")
    return check_share("threshold", threshold)


def _check_scores(scores: Sequence[float], count: int) -> list[float]:
    checked = [float(score) for score in scores]
    if len(checked) != count:
        raise InvalidError("rerank", f"{len(checked)} scores", f"it was given {count} memories; answer as many scores")
    return checked
