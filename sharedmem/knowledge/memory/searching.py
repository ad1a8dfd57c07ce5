"""Searching: memories are found again by words, by meaning, and by who said what to whom around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple

from sharedmem.errors import InvalidError, SharedMemoryError
from sharedmem.knowledge.memory.answers import Hits
from sharedmem.knowledge.memory.asking import (
    MODES,
    Request,
    Rerank,
    check_choice,
    check_limit,
    check_query,
    check_share,
)
from sharedmem.knowledge.memory.base import check_filter
from sharedmem.knowledge.memory.crowd import Crowd
from sharedmem.knowledge.memory.meaning import Meaning, meaning_of
from sharedmem.knowledge.memory.narrowing import rendered
from sharedmem.knowledge.memory.pending import Pending
from sharedmem.knowledge.memory.reordering import diversified, reranked
from sharedmem.knowledge.memory.shelf import Kept, Shelf
from sharedmem.knowledge.scoring import (
    Facts,
    Ranked,
    Recipe,
    decode_facts,
    rank,
    speakers_removed,
    wanted_neighbours,
)
from sharedmem.models import Hit, MemoryFilter, SearchCost, SearchMode, Signal, Why
from sharedmem.search.analysis import query_terms
from sharedmem.search.protocol import Candidate, Found, Query
from sharedmem.telemetry import measured
from sharedmem.wire.vectors import check_vector

Filters = MemoryFilter | Mapping[str, Any] | None

_GHOSTS = 2
"""How many more are fetched than asked for: some may have expired."""
_JUDGED = 20
"""How many of the best a reranker judges, and among how many variety is looked for."""
_NOTHING = Found([], [], 0, 0)


class _Course(NamedTuple):
    """How a search went."""

    found: Found
    ranked: list[Ranked]
    meaning: Meaning
    round_trips: int


class Searching(Shelf):
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
        recipe: Recipe | None = None,
        diversity: float | None = None,
        rerank: Rerank | None = None,
    ) -> Hits:
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
            Request(
                query=text,
                keywords=text,
                mode=mode,
                limit=check_limit(limit),
                filters=check_filter(filters),
                threshold=_checked_threshold(threshold, mode),
                explain=explain,
                recipe=recipe or Recipe(),
                diversity=check_share("diversity", diversity),
                rerank=rerank,
            )
        )

    async def search_semantic(
        self, query: str, *, threshold: float | None = None, limit: int = 10, filters: Filters = None
    ) -> Hits:
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
    ) -> Hits:
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
        return await self._answer(Request(text, words, "hybrid", check_limit(limit), check_filter(filters)))

    async def search_keywords(
        self,
        phrase: str,
        *,
        order_by: Literal["relevance", "timestamp"] = "relevance",
        limit: int = 10,
        filters: Filters = None,
    ) -> Hits:
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
        request = Request(text, text, "keywords", check_limit(limit), check_filter(filters), by_time=by_time)
        return await self._answer(request)

    @measured("memory.find_similar")
    async def find_similar(
        self, embedding: Sequence[float], *, threshold: float = 0.0, limit: int = 10, filters: Filters = None
    ) -> Hits:
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
        dimension = self._minds.memories.family.dimension
        if not dimension:
            raise InvalidError("embedding", "...", "this hub has no embedder, so it keeps no vectors")
        vector = check_vector("embedding", embedding, dimension)
        least = check_share("threshold", threshold, least=-1.0)
        request = Request("", "", "semantic", check_limit(limit), check_filter(filters), threshold=least)
        return await self._answer(request, Meaning(vector if vector.any() else None))

    async def _answer(self, request: Request, meaning: Meaning | None = None) -> Hits:
        await self._enter("read")
        clock = self._minds.clock
        began = clock.monotonic()
        course, kept, round_trips = await self._settled(request, meaning)
        order = [ranked for ranked in course.ranked if ranked.id in kept]
        order = (await self._reordered(request, order, kept))[: request.limit]
        degraded = course.meaning.missing if request.mode != "keywords" else None
        if degraded:
            self._minds.counters.increment("memory_degraded", reason=course.meaning.reason)
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
        return Hits(hits, mode="keywords" if degraded else request.mode, degraded=degraded, cost=cost)

    async def _settled(self, request: Request, meaning: Meaning | None) -> tuple[_Course, dict[str, Kept], int]:
        """(a search that knew everybody whom its query names, what it found by id, round trips)."""
        crowd = self._minds.shared(Crowd, self._namespace, self._unknown_crowd)
        is_hybrid = request.mode == "hybrid"
        trips = await self._meet(crowd) if is_hybrid else 0
        while True:
            asked = speakers_removed(request.query, crowd.names) if is_hybrid else request.query
            course = await self._surely(partial(self._searched, request, asked, meaning), _is_nothing)
            outdated = crowd if is_hybrid and not crowd.is_current(course.found.version) else None
            kept, fetches = await self._collected(request, course, outdated)
            trips += course.round_trips + fetches
            # Somebody has spoken for the first time whom the query names: once more, as it is in all later searches.
            if not is_hybrid or asked == speakers_removed(request.query, crowd.names):
                return course, kept, trips

    def _unknown_crowd(self) -> Crowd:
        # The first search of this hub here: embeddings may wait though nobody writes any more.
        with suppress(SharedMemoryError):  # the hub closes
            Pending.of(self._minds, self._namespace).wake()
        return Crowd(self._minds.line, self._authors_key())

    async def _meet(self, crowd: Crowd) -> int:
        """Know who speaks, if that was never asked; the round trips that it took."""
        if crowd.is_known:
            return 0
        await crowd.look()
        return 1

    async def _searched(self, request: Request, asked: str, meaning: Meaning | None) -> _Course:
        await self._minds.memories.ensure(self._namespace)
        if meaning is None:
            meaning = await self._meaning(request, asked)
        found = await self._found(request, meaning)
        neighbours: dict[tuple[str, int], list[tuple[str, Facts]]] = {}
        wanted = wanted_neighbours(found, request.recipe) if request.mode == "hybrid" else {}
        if wanted:
            neighbours = await self._neighbours(wanted)
        ranked = self._ranked(request, found, neighbours)
        return _Course(found, ranked, meaning, found.round_trips + bool(wanted))

    async def _meaning(self, request: Request, text: str) -> Meaning:
        if request.mode == "keywords":
            return Meaning()
        return await meaning_of(self._minds.embedder_of(self._namespace), text)

    async def _found(self, request: Request, meaning: Meaning) -> Found:
        settings = self._minds.settings
        by_words = request.mode != "semantic" or meaning.missing is not None
        query = Query(
            terms=query_terms(request.keywords) if by_words else (),
            vector=meaning.vector,
            filters=rendered(self._within, request.filters),
            candidates=max(settings.search_candidates, request.limit + _GHOSTS),
        )
        if not query.terms and query.vector is None:
            return _NOTHING
        return _near_enough(await self._minds.memories.search(self._namespace, query), request.threshold)

    def _ranked(
        self, request: Request, found: Found, neighbours: Mapping[tuple[str, int], Sequence[tuple[str, Facts]]]
    ) -> list[Ranked]:
        if request.mode == "hybrid":
            now_ms = round(self._minds.clock.now().timestamp() * 1000)
            return rank(request.query, found, neighbours, request.recipe, now_ms=now_ms, explain=request.explain)
        if request.by_time:
            newest_first = sorted(found.text, key=lambda hit: (-decode_facts(hit.facts).at_ms, hit.id))
            return _as_found("text", newest_first, explain=request.explain)
        signal, hits = ("vector", found.vector) if found.vector else ("text", found.text)
        return _as_found(signal, hits, explain=request.explain)

    async def _collected(
        self, request: Request, course: _Course, outdated: Crowd | None
    ) -> tuple[dict[str, Kept], int]:
        """(what is still there of the best, by id; round trips).

        Args:
            request, course: what was asked, and how it went.
            outdated: the crowd, if it is to hear who speaks by now; that shares the first round trip.
        """
        judged = request.rerank is not None or request.diversity
        wanted = max(request.limit, _JUDGED) if judged else request.limit
        ranked, version = course.ranked, course.found.version
        kept: dict[str, Kept] = {}
        fetches = at = 0
        while len(kept) < wanted and at < len(ranked):
            lacking = wanted - len(kept)
            ids = [each.id for each in ranked[at : at + lacking + _GHOSTS]]
            at, fetches = at + len(ids), fetches + 1
            looks = self._looks(ids, vectors=bool(request.diversity))
            if outdated is not None:
                looks.append(outdated.question)
            replies = await self._minds.line.read_each(looks)
            if outdated is not None:
                outdated.hear(replies.pop(), version)
                outdated = None
            kept |= {one.item.id: one for one in self._taken(ids, replies, filters=request.filters, most=lacking)}
        if outdated is not None:
            await outdated.look(version)
            fetches += 1
        return kept, fetches

    async def _reordered(self, request: Request, order: list[Ranked], kept: Mapping[str, Kept]) -> list[Ranked]:
        if request.rerank is not None:
            best = order[: max(request.limit, _JUDGED)]
            scores = await request.rerank(request.query, [kept[each.id].item for each in best])
            order = reranked(best, _checked_scores(scores, len(best)), explain=request.explain)
        if request.diversity:
            order = diversified(order, {id_: one.vector for id_, one in kept.items()}, request.diversity)
        return order

    async def _neighbours(
        self, wanted: Mapping[str, Sequence[tuple[int, int]]]
    ) -> dict[tuple[str, int], list[tuple[str, Facts]]]:
        """The turns in some ranges of threads. One round trip."""
        ranges = [(thread, low, high) for thread, places in wanted.items() for low, high in places]
        replies = await self._minds.line.read_each(
            [("ZRANGEBYSCORE", self._turns_key(thread), low, high) for thread, low, high in ranges]
        )
        neighbours: dict[tuple[str, int], list[tuple[str, Facts]]] = {}
        for (thread, _, _), members in zip(ranges, replies, strict=True):
            for member in members if isinstance(members, list) else ():
                assert isinstance(member, bytes)
                id_, _, facts = member.partition(b" ")
                decoded = decode_facts(facts)
                neighbours.setdefault((thread, decoded.position), []).append((id_.decode(), decoded))
        return neighbours


def _is_nothing(course: _Course) -> bool:
    return not course.ranked


def _near_enough(found: Found, threshold: float | None) -> Found:
    if threshold is None:
        return found
    return found._replace(vector=[hit for hit in found.vector if hit.score >= threshold])


def _as_found(signal: str, hits: Sequence[Candidate], *, explain: bool) -> list[Ranked]:
    """What one search found, in its order."""
    if not explain:
        return [Ranked(hit.id, hit.score, ()) for hit in hits]
    return [
        Ranked(
            hit.id,
            hit.score,
            (Signal(name=signal, score=hit.score, rank=place, weight=1.0, contribution=hit.score),),
        )
        for place, hit in enumerate(hits, 1)
    ]


def _checked_threshold(threshold: float | None, mode: SearchMode) -> float | None:
    if threshold is not None and mode == "keywords":
        raise InvalidError("threshold", threshold, "it is a cosine similarity, and mode keywords compares no vectors")
    return check_share("threshold", threshold)


def _checked_scores(scores: Sequence[float], count: int) -> list[float]:
    checked = [float(score) for score in scores]
    if len(checked) != count:
        raise InvalidError("rerank", f"{len(checked)} scores", f"it was given {count} memories; answer as many scores")
    return checked
