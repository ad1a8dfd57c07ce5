"""Search episodes, entities and facts by words and vectors, and retrieve the context for a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sharedmem.errors import InvalidError, UnavailableError, UnsupportedError
from sharedmem.graph.base import EntityLookup, check_limit
from sharedmem.graph.records import (
    KINDS,
    OPEN,
    BitemporalPoint,
    EntityRow,
    EpisodeRow,
    KindCode,
    LookupRequest,
    LookupResult,
    RecordSearch,
    ScoredRecord,
    to_episode,
    to_fact,
    to_stamp,
    version_at,
)
from sharedmem.graph.retrieval.ranking import Weights
from sharedmem.graph.retrieval.retriever import GraphRetriever, RetrievalQuery
from sharedmem.memory.search_types import check_query
from sharedmem.models import ContextSet, Entity, Episode, Fact, GraphHit, GraphKind
from sharedmem.providers.embedding import QueryEmbedding, embed_query
from sharedmem.redis.vectors import Vector, check_vector
from sharedmem.runtime import measured
from sharedmem.text.analysis import query_terms

MOST_HITS = 100
DEEPEST = 6
_MOST_CANDIDATES = 1_000
_OVERFETCH = 4
"""How many times more hits are asked for, when too many of them hold at another time."""
_KIND_CODES: dict[str, tuple[KindCode, ...]] = {"episode": ("e",), "summary": ("s",), "entity": ("n",), "fact": ("f",)}
_PAST_CODES: tuple[KindCode, ...] = ("p",)


class GraphSearch(EntityLookup):
    """Finds what graphs hold."""

    @measured("graph.vector_search")
    async def vector_search(
        self,
        query: str | Sequence[float],
        *,
        group_id: str,
        limit: int = 10,
        kinds: Sequence[GraphKind] = ("episode",),
        as_of: datetime | None = None,
        known_at: datetime | None = None,
    ) -> list[GraphHit]:
        """What is near in meaning, nearest first; a score is the cosine similarity.

        Two round trips; two more where entities are found, and where many hits hold at another time.

        Args:
            query: a text, or a vector as long as the embedder's.
            group_id: whose graph.
            limit: at most so many, 1 to 100.
            kinds: of what: `episode`, `summary`, `entity`, `fact`; what was told directly is found as a fact.
            as_of: facts that were true then, episodes until then; None for now.
            known_at: what was known then; None for now.

        Raises:
            InvalidError: an argument is none, or a moment has no time zone.
            UnsupportedError: there is no embedder.
            UnavailableError: the embedder or the server cannot be reached.
            AccessDeniedError: this actor may not read the namespace's graphs.
        """
        group = await self._enter(group_id, "read")
        search = _search_request(kinds, check_limit(limit, MOST_HITS), as_of, known_at)
        search = replace(search, vector=await self._vector(query))
        return await self._hits(group, search, self._when(as_of, known_at), limit)

    @measured("graph.text_search")
    async def text_search(
        self,
        query: str,
        *,
        group_id: str,
        limit: int = 10,
        kinds: Sequence[GraphKind] = ("episode",),
        as_of: datetime | None = None,
        known_at: datetime | None = None,
    ) -> list[GraphHit]:
        """What holds any of the words of a text, best first; a score is that of BM25. Round trips as `vector_search`.

        Args:
            query: the words; inflected forms count as the same, and nothing in it has a meaning of its own.
            group_id, limit, kinds, as_of, known_at: as `vector_search` takes them.

        Raises:
            InvalidError, AccessDeniedError, UnavailableError: as `vector_search`.
        """
        group = await self._enter(group_id, "read")
        search = _search_request(kinds, check_limit(limit, MOST_HITS), as_of, known_at)
        terms = query_terms(check_query("query", query))
        if not terms:
            return []
        return await self._hits(group, replace(search, terms=terms), self._when(as_of, known_at), limit)

    @measured("graph.retrieve")
    async def retrieve(  # noqa: PLR0913  # each narrows the question
        self,
        query: str,
        *,
        group_id: str,
        k: int = 20,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        depth: int = 2,
        session: str | None = None,
        include_past: bool = False,
        explain: bool = False,
        weights: Weights | None = None,
    ) -> ContextSet:
        """The context for a question: facts, episodes and summaries that help to answer it, best first.

        Found by words, by meaning, and along the facts of the entities that the question names; without a language
        model. At most three round trips. Without an embedder, or while it is down, words and graph decide, and
        `degraded` says why.

        Args:
            query: the question, in everyday language.
            group_id: whose graph.
            k: items at most, 1 to 100.
            as_of: facts that were true then, and episodes until then; None for now.
            known_at: what was known then, whatever has been learned since; None for now.
            depth: steps from the entities that the question names, 1 to 6.
            session: episodes of this one only; facts are those of the group.
            include_past: facts that have ended too, as far as they were not found to be wrong.
            explain: whether each item tells what every signal added to its score.
            weights: other ones than the usual.

        Raises:
            InvalidError: an argument is none, or a moment has no time zone.
            AccessDeniedError: this actor may not read the namespace's graphs.
            UnavailableError: the server cannot be reached, or could not finish in time.
        """
        group = await self._enter(group_id, "read")
        began = self._context.clock.monotonic()
        when, text = self._when(as_of, known_at), check_query("query", query)
        if not isinstance(depth, int) or not 1 <= depth <= DEEPEST:
            raise InvalidError("depth", depth, f"give 1 to {DEEPEST}")
        meaning = await self._meaning(text)
        sought = RetrievalQuery(
            query=text,
            group=group,
            when=when,
            until=OPEN if as_of is None else when.world,
            vector=meaning.vector,
            k=check_limit(k, MOST_HITS),
            depth=depth,
            session=session,
            is_past=include_past or as_of is not None or known_at is not None,
            include_past=include_past,
            explain=explain,
        )
        retrieval = GraphRetriever(self._backend, self._ways.vocabulary, weights or Weights())
        items, entities, round_trips = await retrieval.context(sought)
        return ContextSet(
            query=text,
            group_id=group,
            items=tuple(items),
            entities=entities,
            as_of=as_of,
            known_at=known_at,
            round_trips=round_trips,
            milliseconds=round((self._context.clock.monotonic() - began) * 1000, 3),
            degraded=meaning.missing,
        )

    async def _meaning(self, text: str) -> QueryEmbedding:
        meaning = await embed_query(self._context.embedder_of(self._namespace), text)
        if meaning.missing is not None:
            self._counters.increment("graph_degraded", reason=meaning.reason)
        return meaning

    async def _vector(self, query: str | Sequence[float]) -> Vector | None:
        embedder = self._context.embedder_of(self._namespace)
        if embedder is None:
            raise UnsupportedError("a search by meaning", "set an embedder, or install the extra `local`")
        if not isinstance(query, str):
            return check_vector("query", query, embedder.dimension)
        meaning = await self._meaning(check_query("query", query))
        if meaning.vector is None and meaning.reason != "zero":
            raise UnavailableError("the embedder", meaning.missing or "it gave no vector")
        return meaning.vector

    async def _hits(self, group: str, search: RecordSearch, when: BitemporalPoint, limit: int) -> list[GraphHit]:
        """What a search finds and holds at a time; it asks for more while too little of it does."""
        if search.vector is None and not search.terms:
            return []
        while True:
            (hits,) = await self._backend.search(group, [search])
            found = hits.text or hits.vector
            seen = await self._backend.look(group, _rows_of_hits(found))
            holding = [hit for hit in found if _holds(hit, seen, when, search.until)]
            if len(holding) >= limit or len(found) < search.candidates or search.candidates == _MOST_CANDIDATES:
                return await self._shown(group, holding[:limit], seen, when)
            search = replace(search, candidates=min(search.candidates * _OVERFETCH, _MOST_CANDIDATES))

    async def _shown(
        self, group: str, hits: Sequence[ScoredRecord], seen: LookupResult, when: BitemporalPoint
    ) -> list[GraphHit]:
        rows = [seen.entities[hit.id] for hit in hits if hit.letter == "n"]
        entities = {entity.id: entity for entity in await self._entities(group, rows, when)} if rows else {}
        items = [_item(hit, seen, entities, when, group) for hit in hits]
        return [
            GraphHit(kind=KINDS[hit.letter], item=item, score=hit.score)
            for hit, item in zip(hits, items, strict=True)
            if item is not None
        ]


def _search_request(
    kinds: Sequence[GraphKind], limit: int, as_of: datetime | None, known_at: datetime | None
) -> RecordSearch:
    if isinstance(kinds, str) or not kinds or not all(kind in _KIND_CODES for kind in kinds):
        raise InvalidError("kinds", kinds, f"give a list of {', '.join(_KIND_CODES)}")
    letters = tuple(letter for kind in dict.fromkeys(kinds) for letter in _KIND_CODES[kind])
    is_past = as_of is not None or known_at is not None
    if "f" in letters and is_past:
        letters += _PAST_CODES
    most = limit * _OVERFETCH if is_past else limit
    return RecordSearch(letters, candidates=most, until=None if as_of is None else to_stamp("as_of", as_of))


def _rows_of_hits(hits: Sequence[ScoredRecord]) -> LookupRequest:
    def of(letters: str) -> tuple[str, ...]:
        return tuple(hit.id for hit in hits if hit.letter in letters)

    return LookupRequest(episodes=of("ems"), entities=of("n"), facts=of("fp"))


def _holds(hit: ScoredRecord, seen: LookupResult, when: BitemporalPoint, until: int | None) -> bool:
    """Whether a hit is there, and is to be told of at a time."""
    if hit.letter in {"f", "p"}:
        row = seen.facts.get(hit.id)
        return row is not None and version_at(row, when) is not None
    if hit.letter == "n":
        return _is_known(seen.entities.get(hit.id), when)
    episode = seen.episodes.get(hit.id)
    return episode is not None and _is_in_effect(episode, when, until)


def _is_known(row: EntityRow | None, when: BitemporalPoint) -> bool:
    return row is not None and not row.merged_into and row.recorded <= when.known


def _is_in_effect(row: EpisodeRow, when: BitemporalPoint, until: int | None) -> bool:
    return row.recorded <= when.known < row.undone and (until is None or row.occurred <= until)


def _item(
    hit: ScoredRecord, seen: LookupResult, entities: dict[str, Entity], when: BitemporalPoint, group: str
) -> Episode | Entity | Fact | None:
    if hit.letter == "n":
        return entities.get(hit.id)
    if hit.letter in {"f", "p"}:
        row = seen.facts[hit.id]
        version = version_at(row, when)
        return None if version is None else to_fact(row, version, group)
    return to_episode(seen.episodes[hit.id])
