"""Search memories: by words, by meaning, and with the turns around a hit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

from sharedmem.errors import InvalidError, SharedMemoryError
from sharedmem.memory.access import MEMORY, MemoryAccess, check_filter
from sharedmem.memory.embedding_queue import EmbeddingQueue
from sharedmem.memory.ranking import (
    NeighbourTurns,
    RankedMemory,
    RankingWeights,
    diversify_ranking,
    is_role,
    neighbour_ranges,
    rank,
    rank_as_found,
    remove_speakers,
    rerank_by_scores,
)
from sharedmem.memory.reader import FetchedMemory, MemoryReader
from sharedmem.memory.relevance import (
    FIRST_HITS,
    LIFTED,
    Offers,
    RelevanceModel,
    SearchEvidence,
    ServiceReranker,
    Successions,
    learned_weights,
    passage_of,
    relevance,
    relevance_coefficients,
    relevance_features,
    share_of_busiest_thread,
    share_of_question,
    standing_candidates,
    with_successions,
)
from sharedmem.memory.serialization import (
    RankingFeatures,
    decode_features,
    owner_key,
    parse_turns,
    searchable_texts,
)
from sharedmem.models import Hit, MemoryFilter, MemoryItem, SearchCost, SearchMode, Why
from sharedmem.providers.embedding import QueryEmbedding, embed_query
from sharedmem.redis.client import RedisClient
from sharedmem.redis.replies import Command, Reply
from sharedmem.redis.vectors import check_vector
from sharedmem.runtime import metric_key
from sharedmem.runtime.telemetry import ChargedUnits
from sharedmem.search.protocol import IndexQuery, IndexResult, Worded
from sharedmem.text.analysis import contains_phrases, find_phrases, indexed_terms, query_terms
from sharedmem.text.statements import is_lookup

Filters = MemoryFilter | Mapping[str, Any] | None
_OVERFETCH = 2
"""How many more are fetched than requested: some may have expired."""
_RERANKED = 20
"""How many of the best a reranker scores, and how many diversity considers."""
_PHRASE_CANDIDATES = 1000
"""Best memories with all words of the phrases that are read to look for the phrases themselves."""
_PHRASE_PAGE = 100
_STANDING = MemoryFilter(standing=("instruction", "preference"))
_COMMONEST = 20_000
"""Words that more memories of a namespace contain are left out of hybrid searches, if rarer ones have hits."""
_MOST_STANDING = 20
"""Standing memories that are considered by words, and by meaning."""
_NO_HITS = IndexResult([], [], 0, 0)
_UNKNOWN = -1
_SECONDS = {mode: metric_key("search_seconds", mode=mode) for mode in (*get_args(SearchMode), "similar")}
MOST_HITS = 100
LONGEST_QUERY = 10_000
"""Characters of a query that are used, from its start."""
MODES = ("hybrid", "semantic", "keywords")
_SHOWN_HITS = 10
_SHOWN_CHARACTERS = 60

Rerank = Callable[[str, Sequence[MemoryItem]], Awaitable[Sequence[float] | None]]
"""Returns a number for each memory, higher for a memory that answers the query better; such as a cross-encoder.

None leaves the order of the search as it is.
"""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One search."""

    query: str
    """The text that is embedded and that the ranking reads."""
    keywords: str
    """The text whose words are looked for."""
    mode: SearchMode
    limit: int
    filters: MemoryFilter
    threshold: float | None = None
    """Least probability of being relevant."""
    similarity: float | None = None
    """Least cosine similarity of hits by meaning."""
    explain: bool = False
    recipe: RankingWeights | None = None
    """None: the weights that were measured for the embedder."""
    diversity: float | None = None
    rerank: Rerank | ServiceReranker | None = None
    by_time: bool = False
    phrases: tuple[str, ...] = ()
    """Texts that a hit must contain word by word."""


class HitOrder(NamedTuple):
    """How the caller of a search wants the hits to be ranked and explained."""

    explain: bool
    recipe: RankingWeights | None
    """None: the measured weights."""
    diversity: float | None
    rerank: Rerank | Literal[False] | None


def check_query(field: str, text: str) -> str:
    """Return a query without surrounding blanks, cut to the length that a search uses.

    Raises:
        InvalidError: the query is not a text, or is empty.
    """
    if not isinstance(text, str):
        raise InvalidError(field, text, "give a text")
    checked = text[:LONGEST_QUERY].strip()
    if not checked:
        raise InvalidError(field, text, "give words to look for; `list` needs no query")
    # Lone surrogates cannot be encoded.
    return checked.encode(errors="replace").decode()


def check_phrases(field: str, text: str) -> tuple[str, ...]:
    """Return the phrases in quotation marks of a query by words.

    Raises:
        InvalidError: a phrase contains no word that an index has.
    """
    phrases = find_phrases(text)
    for phrase in phrases:
        if not query_terms(phrase):
            advice = f'the phrase "{phrase}" has stop words only, which are in no index; add a word of the text'
            raise InvalidError(field, text, advice)
    return phrases


def check_limit(limit: int, *, most: int = MOST_HITS) -> int:
    """Return a checked number of hits or memories.

    Raises:
        InvalidError: the limit is not a whole number from 1 to `most`.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidError("limit", limit, f"give a whole number from 1 to {most}")
    return limit


def check_share(field: str, value: float | None, *, least: float = 0.0) -> float | None:
    """Return a checked number up to 1, or None.

    Raises:
        InvalidError: the value is not a number, or is out of bounds.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 1:
        raise InvalidError(field, value, f"give a number from {least:g} to 1")
    return float(value)


def check_choice(field: str, value: Any, choices: Sequence[str]) -> None:
    """Reject a value that is not among the choices.

    Raises:
        InvalidError: the value is not one of them.
    """
    if value not in choices:
        raise InvalidError(field, value, f"give one of {', '.join(choices)}")


class SearchHits(list[Hit]):
    """The hits of a search, best first.

    Attributes:
        mode: the mode that was used in the end: `keywords` if there was no vector to search with.
        degraded: why only words were searched although meaning was requested; None if meaning was searched too.
        cost: the cost of the search.
    """

    def __init__(
        self, hits: Iterable[Hit] = (), *, mode: SearchMode, degraded: str | None = None, cost: SearchCost
    ) -> None:
        super().__init__(hits)
        self.mode = mode
        self.degraded = degraded
        self.cost = cost

    def __repr__(self) -> str:
        because = f", by words alone: {self.degraded}" if self.degraded else ""
        shown = [f"  {hit.score:.3f} {hit.item.id} {_shorten(hit.item.memory)!r}" for hit in self[:_SHOWN_HITS]]
        if len(self) > _SHOWN_HITS:
            shown.append(f"  and {len(self) - _SHOWN_HITS} more")
        return "\n".join([f"<{len(self)} hits, {self.mode}{because}", *shown]) + ">"


def _shorten(text: str) -> str:
    """Return the first words of a text."""
    start = " ".join(text[: 4 * _SHOWN_CHARACTERS].split())
    return start if len(start) <= _SHOWN_CHARACTERS else f"{start[:_SHOWN_CHARACTERS].rsplit(' ', 1)[0]} ..."


class SpeakerCache:
    """The authors of one namespace; all searches of a hub share them.

    Args:
        client: client of the server.
        key: key of the hash of authors.
    """

    def __init__(self, client: RedisClient, key: bytes) -> None:
        self._client = client
        self._version = _UNKNOWN
        self.names: tuple[str, ...] = ()
        self.command: Command = ("HKEYS", key)
        """The command that reads the authors."""

    @property
    def is_known(self) -> bool:
        """Whether the authors were ever read."""
        return self._version != _UNKNOWN

    def is_current(self, version: int) -> bool:
        """Return whether the authors were read at the newest change, which has this version."""
        return self._version == version

    def update(self, reply: Reply, version: int) -> None:
        """Set the names from a reply.

        Args:
            reply: the reply to `command`.
            version: version of a change that was made before the command was sent.
        """
        names = reply if isinstance(reply, list) else []
        self.names = tuple([name.decode(errors="replace") for name in names if isinstance(name, bytes)])
        self._version = version

    async def read(self, version: int = 0) -> None:
        """Read the names. One round trip."""
        (reply,) = await self._client.read_each([self.command])
        self.update(reply, version)


class _SearchRun(NamedTuple):
    """The outcome of one search."""

    found: IndexResult
    by_rank: list[RankedMemory]
    """The order of the ranking."""
    ranked: list[RankedMemory]
    """That order with the offers applied."""
    meaning: QueryEmbedding
    round_trips: int
    neighbours: NeighbourTurns
    offers: Offers
    successions: Successions


class MemorySearcher:
    """Searches the memories of one scope.

    Args:
        access: rights and scope of the caller.
        reader: fetches the hits of the index.
    """

    def __init__(self, access: MemoryAccess, reader: MemoryReader) -> None:
        self._access = access
        self._reader = reader
        self._context = access.context
        self._namespace = access.namespace
        self._embedder = access.context.embedder_of(access.namespace)

    @cached_property
    def _speakers(self) -> SpeakerCache:
        return self._context.shared(SpeakerCache, self._namespace, self._unknown_speakers)

    async def search(self, request: SearchRequest, meaning: QueryEmbedding | None = None) -> SearchHits:
        """Search, rank and fetch.

        Args:
            request: the checked request.
            meaning: embedding of the query; None to embed it here.

        Raises:
            AccessDeniedError, UnavailableError: as `Memories.search`.
        """
        clock, mode = self._context.clock, request.mode if meaning is None else "similar"
        began = clock.monotonic()
        try:
            with ChargedUnits() as charged:
                return await self._search(request, meaning, charged)
        finally:
            self._context.counters.observe_at(_SECONDS[mode], clock.monotonic() - began)

    async def _search(
        self, request: SearchRequest, meaning: QueryEmbedding | None, charged: ChargedUnits
    ) -> SearchHits:
        await self._access.enter("read")
        clock = self._context.clock
        began = clock.monotonic()
        run, fetched, round_trips = await self._run(request, meaning)
        if run.offers.candidates:
            offers = run.offers.chosen(request.query, {id_: one.item for id_, one in fetched.items()})
            ranked, successions = offers.applied(run.by_rank, request.limit, explain=request.explain)
            run = run._replace(offers=offers, ranked=ranked, successions=successions)
        order = [ranked for ranked in run.ranked if ranked.id in fetched]
        likely = self._relevance(request, run, order, fetched)
        if request.threshold is not None:
            order = [ranked for ranked in order if likely[ranked.id] >= request.threshold]
        order, successions, further = await self._reordered(request, order, fetched, run)
        order = order[: request.limit]
        degraded = run.meaning.missing if request.mode != "keywords" else None
        if degraded:
            self._context.counters.increment("memory_degraded", reason=run.meaning.reason)
        cost = SearchCost(
            round_trips=round_trips + further,
            milliseconds=round((clock.monotonic() - began) * 1000, 3),
            tokens=run.meaning.tokens,
            request_units=round(charged.units, 2),
        )
        self._reader.count_uses([fetched[ranked.id].item for ranked in order])
        terms = query_terms(request.query)
        hits = [
            Hit(
                item=fetched[ranked.id].item,
                score=likely[ranked.id],
                rank_score=ranked.score,
                why=Why(signals=tuple(ranked.signals), cost=cost) if request.explain else None,
                passage=passage_of(fetched[ranked.id].item.memory, terms),
            )
            for ranked in order
        ]
        hits = with_successions(hits, successions)
        return SearchHits(hits, mode="keywords" if degraded else request.mode, degraded=degraded, cost=cost)

    def _measured_weights(self, found: IndexResult) -> RankingWeights:
        embedder = self._embedder
        return learned_weights(embedder.name if embedder is not None and found.vector else None)

    def _relevance(
        self,
        request: SearchRequest,
        run: _SearchRun,
        order: Sequence[RankedMemory],
        fetched: Mapping[str, FetchedMemory],
    ) -> dict[str, float]:
        """Return the probability of each fetched hit to be relevant, by id."""
        values = [ranked.score for ranked in run.ranked]
        if request.by_time:
            values.sort(reverse=True)
        terms = query_terms(request.query)
        first = [fetched[ranked.id].item for ranked in order[:FIRST_HITS]]
        evidence = SearchEvidence(
            values=values,
            terms=terms,
            words=max((share_of_question(request.query, terms, item) for item in first), default=0.0),
            cosine=run.found.vector[0].score if run.found.vector else 0.0,
            thread=share_of_busiest_thread([one.id for one in run.ranked], run.found, run.neighbours),
        )
        embedder = self._embedder if run.meaning.vector is not None else None
        model: RelevanceModel = "hybrid" if embedder is not None else "words"
        if request.mode != "hybrid":
            model = "keywords" if embedder is None else "semantic" if request.query else "similar"
        coefficients = relevance_coefficients(embedder.name if embedder else None, model)
        return {one.id: relevance(coefficients, relevance_features(evidence, one.score)) for one in order}

    def request(
        self,
        query: str,
        mode: SearchMode | None,
        order: HitOrder,
        *,
        threshold: float | None,
        limit: int | None,
        filters: Filters,
    ) -> SearchRequest:
        """Return the checked request of `Memories.search`."""
        chosen = self._access.settings.search_mode if mode is None else mode
        check_choice("mode", chosen, MODES)
        text = check_query("query", query)
        return SearchRequest(
            query=text,
            keywords=text,
            mode=chosen,
            limit=self.most_hits(limit),
            filters=check_filter(filters),
            threshold=check_share("threshold", threshold),
            explain=order.explain,
            recipe=order.recipe,
            diversity=check_share("diversity", order.diversity),
            rerank=self.reranker(order.rerank, chosen),
            phrases=check_phrases("query", text) if chosen == "keywords" else (),
        )

    def most_hits(self, limit: int | None) -> int:
        """Return how many hits a search may have, by the caller or by the settings.

        Raises:
            InvalidError: the limit is invalid.
        """
        settings = self._access.settings
        return check_limit(settings.search_limit if limit is None else limit, most=settings.search_max_limit)

    def reranker(self, given: Rerank | Literal[False] | None, mode: SearchMode) -> Rerank | ServiceReranker | None:
        """Return the reranker of a search: the caller's, or in hybrid searches that of the settings."""
        if given is not None:
            return given or None
        context, service = self._context, self._context.reranker
        if service is None or mode != "hybrid":
            return None
        budget_ms = context.settings.reranker_budget_ms
        return context.shared(
            ServiceReranker, "", lambda: ServiceReranker(service, context.counters, budget_ms=budget_ms)
        )

    async def search_semantic(
        self, query: str, similarity: float | None, limit: int | None, filters: Filters
    ) -> SearchHits:
        """Search by meaning alone; see `Memories.search_semantic`."""
        text, least = check_query("query", query), check_share("threshold", similarity)
        most, wanted = self.most_hits(limit), check_filter(filters)
        return await self.search(SearchRequest(text, text, "semantic", most, wanted, similarity=least))

    async def search_hybrid(self, query: str, keywords: str | None, limit: int | None, filters: Filters) -> SearchHits:
        """Search by meaning and by words that may differ; see `Memories.search_hybrid`."""
        text = check_query("query", query)
        words = text if keywords is None else check_query("keywords", keywords)
        most, rerank = self.most_hits(limit), self.reranker(None, "hybrid")
        return await self.search(SearchRequest(text, words, "hybrid", most, check_filter(filters), rerank=rerank))

    async def search_keywords(self, phrase: str, order_by: str, limit: int | None, filters: Filters) -> SearchHits:
        """Search by words and phrases; see `Memories.search_keywords`."""
        check_choice("order_by", order_by, ("relevance", "timestamp"))
        text = check_query("phrase", phrase)
        by_time, most, wanted = order_by == "timestamp", self.most_hits(limit), check_filter(filters)
        phrases = check_phrases("phrase", text)
        request = SearchRequest(text, text, "keywords", most, wanted, by_time=by_time, phrases=phrases)
        return await self.search(request)

    async def find_similar(
        self, embedding: Sequence[float], threshold: float, limit: int | None, filters: Filters
    ) -> SearchHits:
        """Return the memories nearest to a vector; see `Memories.find_similar`."""
        least, wanted = check_share("threshold", threshold, least=-1.0), check_filter(filters)
        most = self.most_hits(limit)
        dimension = self._context.memories.family.dimension
        if not dimension:
            raise InvalidError("embedding", "...", "this hub has no embedder, so it keeps no vectors")
        vector = check_vector("embedding", embedding, dimension)
        request = SearchRequest("", "", "semantic", most, wanted, similarity=least)
        return await self.search(request, QueryEmbedding(vector if vector.any() else None))

    async def _run(
        self, request: SearchRequest, meaning: QueryEmbedding | None
    ) -> tuple[_SearchRun, dict[str, FetchedMemory], int]:
        """Return (a search with all authors that its query names, the fetched memories by id, round trips)."""
        speakers = self._speakers
        is_hybrid = request.mode == "hybrid"
        trips = 0
        if is_hybrid and not speakers.is_known:
            await speakers.read()
            trips = 1
        while True:
            asked = remove_speakers(request.query, speakers.names) if is_hybrid else request.query
            # Before the search, which waits for the index first: an embedding may take long.
            embedded = await self._meaning(request, asked) if meaning is None else meaning
            run = await self._access.retry_after_restore(partial(self._search_once, request, embedded), _found_nothing)
            outdated = speakers if is_hybrid and not speakers.is_current(run.found.version) else None
            fetched, fetches = await self._fetch(request, run, outdated)
            trips += run.round_trips + fetches
            # The query names a new author: search once more with this name, as all later searches will.
            if not is_hybrid or asked == remove_speakers(request.query, speakers.names):
                return run, fetched, trips

    def _unknown_speakers(self) -> SpeakerCache:
        # First search of this hub in this namespace: memories may wait for embeddings though no process writes now.
        with suppress(SharedMemoryError):  # the hub closes
            EmbeddingQueue.of(self._context, self._namespace).wake()
        authors = self._context.keyspace.record_part(MEMORY, self._namespace, "authors")
        return SpeakerCache(self._context.client, authors)

    async def _search_once(self, request: SearchRequest, meaning: QueryEmbedding) -> _SearchRun:
        await self._context.memories.ensure(self._namespace)
        found, candidates = await self._found(request, meaning)
        neighbours: dict[tuple[str, int], list[tuple[str, RankingFeatures]]] = {}
        recipe = request.recipe or self._measured_weights(found)
        is_hybrid, latest = request.mode == "hybrid", self._access.settings.latest_truth
        wanted = neighbour_ranges(found, recipe) if is_hybrid else {}
        if wanted:
            neighbours = await self._neighbours(wanted)
        offers = Offers.of(found, candidates, latest=latest) if is_hybrid else Offers()
        by_rank = self._ranked(request, found, neighbours, recipe)
        ranked, successions = offers.applied(by_rank, request.limit, explain=request.explain)
        round_trips = found.round_trips + bool(wanted)
        return _SearchRun(found, by_rank, ranked, meaning, round_trips, neighbours, offers, successions)

    def _standing_query(self, request: SearchRequest, query: IndexQuery) -> IndexQuery | None:
        """Return the query for standing memories, which are offered with any search; None if none are wanted."""
        wanted = request.mode == "hybrid" and self._access.settings.standing_memories and request.limit > LIFTED
        if not wanted or is_lookup(request.query):
            return None
        filters = self._access.index_filter(request.filters).also(*self._access.index_filter(_STANDING).conditions)
        return IndexQuery(query.terms, query.vector, filters=filters, candidates=_MOST_STANDING)

    def _owner(self, request: SearchRequest) -> str:
        """Return whose instructions this search follows: those of its one user, or the actor's."""
        users = (self._access.within.user_id, request.filters.user_id)
        user = next((one for one in users if isinstance(one, str)), None)
        return owner_key(user, self._access.actor.decode())

    async def _meaning(self, request: SearchRequest, text: str) -> QueryEmbedding:
        if request.mode == "keywords":
            return QueryEmbedding()
        return await embed_query(self._embedder, text)

    async def _found(self, request: SearchRequest, meaning: QueryEmbedding) -> tuple[IndexResult, list[str]]:
        """Return (the hits, the ids of standing memories that may be offered). One round trip."""
        least = max(self._context.settings.search_candidates, request.limit + _OVERFETCH)
        by_words = request.mode != "semantic" or meaning.missing is not None
        query = IndexQuery(
            terms=query_terms(request.keywords) if by_words else (),
            vector=meaning.vector,
            filters=self._access.index_filter(request.filters).also(*self._required_words(request)),
            # Only some of the memories that contain the words of a phrase contain the phrase.
            candidates=_PHRASE_CANDIDATES if request.phrases else least,
            commonest=_COMMONEST if request.mode == "hybrid" and meaning.vector is not None else None,
        )
        if not query.terms and query.vector is None:
            return _NO_HITS, []
        standing = self._standing_query(request, query)
        queries = [one for one in (query, standing) if one is not None]
        found, *others = await self._context.memories.search_each(self._namespace, queries)
        offered = standing_candidates(others[0], self._owner(request)) if others else []
        return _above_similarity(found, request.similarity), offered

    def _required_words(self, request: SearchRequest) -> list[Worded]:
        """Return the condition that a memory contains all words of the phrases."""
        terms = indexed_terms(" ".join(request.phrases), self._namespace).split()
        return [Worded(tuple(dict.fromkeys(terms)))] if terms else []

    def _ranked(
        self,
        request: SearchRequest,
        found: IndexResult,
        neighbours: Mapping[tuple[str, int], Sequence[tuple[str, RankingFeatures]]],
        recipe: RankingWeights,
    ) -> list[RankedMemory]:
        if request.mode == "hybrid":
            now_ms = round(self._context.clock.now().timestamp() * 1000)
            return rank(request.query, found, neighbours, recipe, now_ms=now_ms, explain=request.explain)
        if request.by_time:
            newest_first = sorted(found.text, key=lambda hit: (-decode_features(hit.facts).at_ms, hit.id))
            return rank_as_found("text", newest_first, explain=request.explain)
        signal, hits = ("vector", found.vector) if found.vector else ("text", found.text)
        return rank_as_found(signal, hits, explain=request.explain)

    async def _fetch(
        self, request: SearchRequest, run: _SearchRun, outdated: SpeakerCache | None
    ) -> tuple[dict[str, FetchedMemory], int]:
        """Return (the best memories, and the standing ones that may be lifted, as far as they exist; round trips).

        Args:
            request, run: the request and the search so far.
            outdated: the cached speakers, if they are to be read again; this shares the first round trip.
        """
        judged = request.rerank is not None or request.diversity
        wanted = max(request.limit, _RERANKED) if judged else request.limit
        ranked, version = run.ranked, run.found.version
        fetched: dict[str, FetchedMemory] = {}
        standing: list[FetchedMemory] = []
        fetches = at = 0
        while len(fetched) < wanted and at < len(ranked):
            lacking = wanted - len(fetched)
            page = _PHRASE_PAGE if request.phrases else lacking + _OVERFETCH
            ids = [each.id for each in ranked[at : at + page]]
            at, fetches = at + len(ids), fetches + 1
            further = [] if fetches > 1 else [id_ for id_ in run.offers.candidates if id_ not in ids[:lacking]]
            commands = self._reader.commands([*ids, *further], vectors=bool(request.diversity))
            if outdated is not None:
                commands.append(outdated.command)
            replies = await self._context.client.read_each(commands)
            if outdated is not None:
                outdated.update(replies.pop(), version)
                outdated = None
            most = None if request.phrases else lacking
            present = self._reader.parse(ids, replies[: len(ids)], filters=request.filters, most=most)
            standing += self._reader.parse(further, replies[len(ids) :], filters=request.filters)
            if request.phrases:
                fits = (one for one in present if contains_phrases(searchable_texts(one.item), request.phrases))
                present = list(islice(fits, lacking))
            fetched |= {one.item.id: one for one in present}
        if outdated is not None:
            await outdated.read(version)
            fetches += 1
        return fetched | {one.item.id: one for one in standing}, fetches

    async def _reordered(
        self, request: SearchRequest, order: list[RankedMemory], fetched: Mapping[str, FetchedMemory], run: _SearchRun
    ) -> tuple[list[RankedMemory], Successions, int]:
        """Return (the order after reranking and for variety, what replaces what in it, further round trips)."""
        further, successions = 0, run.successions
        if request.rerank is not None:
            # A reranker reads the query only: what is offered with any query is offered after it.
            present = {each.id for each in order}
            best = [each for each in run.by_rank if each.id in present][: max(request.limit, _RERANKED)]
            items = [fetched[each.id].item for each in best]
            if isinstance(request.rerank, ServiceReranker):
                before, further = await self._turns_before(request, items, run)
                scores = await request.rerank.scores(request.query, items, before)
            else:
                scores = await request.rerank(request.query, items)
            if scores is not None:
                reranked = rerank_by_scores(best, _check_scores(scores, len(best)), explain=request.explain)
                offers = run.offers.among(present)
                order, successions = offers.applied(reranked, request.limit, explain=request.explain)
        if request.diversity:
            order = diversify_ranking(order, {id_: one.vector for id_, one in fetched.items()}, request.diversity)
        return order, successions, further

    async def _turns_before(
        self, request: SearchRequest, items: Sequence[MemoryItem], run: _SearchRun
    ) -> tuple[dict[str, MemoryItem], int]:
        """Return (the turn before each turn, by the id of the later one, as far as the search has met it; round trips).

        Turns that the filters or the scope leave out are missing.
        """
        named = [item for item in items if item.author and not is_role(item.author)]
        places = {item.id: (item.thread_id, (item.turn_index or 0) - 1) for item in named}
        ids = {id_: turns[0][0] for id_, place in places.items() if (turns := run.neighbours.get(place))}
        wanted = list(dict.fromkeys(ids.values()))
        if not wanted:
            return {}, 0
        replies = await self._context.client.read_each(self._reader.commands(wanted))
        found = {one.item.id: one.item for one in self._reader.parse(wanted, replies, filters=request.filters)}
        return {id_: found[earlier] for id_, earlier in ids.items() if earlier in found}, 1

    async def _neighbours(
        self, wanted: Mapping[str, Sequence[tuple[int, int]]]
    ) -> dict[tuple[str, int], list[tuple[str, RankingFeatures]]]:
        """Return the turns in some ranges of threads. One round trip."""
        ranges = [(thread, low, high) for thread, places in wanted.items() for low, high in places]
        replies = await self._context.client.read_each(
            [("ZRANGEBYSCORE", self._reader.turns_key(thread), low, high, "WITHSCORES") for thread, low, high in ranges]
        )
        neighbours: dict[tuple[str, int], list[tuple[str, RankingFeatures]]] = {}
        for (thread, _, _), members in zip(ranges, replies, strict=True):
            for id_, turn, facts in parse_turns(members):
                neighbours.setdefault((thread, turn), []).append((id_, decode_features(facts)))
        return neighbours


def _found_nothing(run: _SearchRun) -> bool:
    return not run.ranked


def _above_similarity(found: IndexResult, least: float | None) -> IndexResult:
    if least is None:
        return found
    return found._replace(vector=[hit for hit in found.vector if hit.score >= least])


def _check_scores(scores: Sequence[float], count: int) -> list[float]:
    checked = [float(score) for score in scores]
    if len(checked) != count:
        raise InvalidError("rerank", f"{len(checked)} scores", f"it got {count} memories; return a score for each")
    return checked
