"""Retrieve the context for a question in at most three round trips: recognise entities, search, walk, format."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from sharedmem.graph.entity_versions import with_state_at
from sharedmem.graph.names import normalize_name, normalize_part
from sharedmem.graph.protocol import GraphBackend
from sharedmem.graph.ranking import (
    CandidatePool,
    RankedRecord,
    RankingQuery,
    RelationMatcher,
    Shares,
    Weights,
    rank,
)
from sharedmem.graph.records import (
    ATTRIBUTE_PREFIX,
    OPEN,
    BitemporalPoint,
    Edge,
    FactRow,
    KindCode,
    LookupRequest,
    LookupResult,
    RecordHits,
    RecordSearch,
    ScoredRecord,
    WalkResult,
    from_stamp,
)
from sharedmem.graph.relations import SUMMARY_RELATION, Vocabulary
from sharedmem.graph.traversal import ShortestPaths, nearness_by_id, path_steps
from sharedmem.models import ContextItem, Step
from sharedmem.models.graph import context_line
from sharedmem.providers.chunks import count_tokens
from sharedmem.providers.embedding import QueryEmbedding, embed_query
from sharedmem.providers.protocol import Embedder
from sharedmem.redis.vectors import Vector
from sharedmem.runtime import Counters
from sharedmem.search.scoring import reciprocal_rank_scores, sum_scores
from sharedmem.text.analysis import STOP_WORDS, query_terms

LONGEST_RUN = 6
"""Most words of a name in a lookup."""
MOST_WORDS = 64
"""Words of a question that are used, from its start."""
_SHORTEST_PART = 3
_DIGIT = re.compile(r"\d")
_POSSESSIVE, _POSSESSIVE_ENDS = re.compile(r"['\u2019]s?$"), "s'\u2019"


class WordRun(NamedTuple):
    """Consecutive words of a question."""

    name: str
    """As a normalised name."""
    first: int
    """Position of its first word."""
    length: int


def word_runs(query: str) -> list[WordRun]:
    """Return every run of words of a question that could be a name, longest first; `Ada's` also as `Ada`."""
    words = normalize_name(query).split(" ")[:MOST_WORDS]
    return [
        WordRun(name, first, length)
        for length in range(min(LONGEST_RUN, len(words)), 0, -1)
        for first in range(len(words) - length + 1)
        for name in _spellings(" ".join(words[first : first + length]))
    ]


def match_entities(runs: Iterable[WordRun], known: Mapping[str, str]) -> dict[str, str]:
    """Return the ids of the entities that a question names, by name; of names within names the longest counts.

    Args:
        runs: longest first.
        known: ids of entities by name.
    """
    taken: set[int] = set()
    found: dict[str, str] = {}
    for run in runs:
        places = range(run.first, run.first + run.length)
        if run.name in known and taken.isdisjoint(places):
            taken.update(places)
            found[run.name] = known[run.name]
    return found


def match_partial_names(query: str, known: Mapping[str, str]) -> dict[str, str]:
    """Return ids by a partial name in a question, such as `Ada` of `Ada Lovelace`, if only one entity can be meant.

    Args:
        query: a partial name must look like a name: with a capital letter or a digit, and not as first word.
        known: names of the entities that resemble the question most, by id.
    """
    spoken_words = {
        _strip_possessive(normalize_name(word))
        for word in query.split()[1:]
        if word[0].isupper() or _DIGIT.search(word)
    }
    bearers: dict[str, list[str]] = {}
    for id_, name in known.items():
        for part in spoken_words.intersection(normalize_name(name).split(" ")):
            bearers.setdefault(part, []).append(id_)
    return {part: ids[0] for part, ids in bearers.items() if len(ids) == 1 and len(part) >= _SHORTEST_PART}


def _strip_possessive(name: str) -> str:
    return _POSSESSIVE.sub("", name)


def _spellings(words: str) -> Iterator[str]:
    name = normalize_part(words)
    if not name or name in STOP_WORDS:
        return
    yield name
    bare = _strip_possessive(name) if name[-1] in _POSSESSIVE_ENDS else ""
    if bare and bare != name and bare not in STOP_WORDS:
        yield bare


@dataclass(slots=True)
class WalkOrigins:
    """The paths of a walk, if it began at entities that the question names."""

    reach: ShortestPaths = field(default_factory=lambda: ShortestPaths((), ()))
    nearer_ends: Mapping[str, str] = field(default_factory=dict)
    """For each fact of the walk, by its id: the entity through which it was reached."""
    rows: Mapping[str, FactRow] = field(default_factory=dict)
    """Rows of the facts on the paths."""


def format_items(
    ranked: Iterable[RankedRecord], pool: CandidatePool, around: WalkOrigins, group: str, *, explain: bool
) -> list[ContextItem]:
    """Return the items of the result.

    Args:
        ranked: the records, in their order.
        pool: their rows.
        around: the paths of the walk.
        group: group of the graph.
        explain: whether each item has the contribution of every signal to its score.
    """
    return [_item(one, pool, around, group, {"signals": one.signals} if explain else {}) for one in ranked]


def _item(
    one: RankedRecord, pool: CandidatePool, around: WalkOrigins, group: str, more: Mapping[str, Any]
) -> ContextItem:
    if one.kind == "fact":
        return _fact_item(one, pool.facts[one.id], around, group, more)
    if one.kind == "entity":
        return _entity_item(one, pool, around, group, more)
    row = pool.episodes[one.id]
    text = f"{row.source}: {row.text}" if one.kind == "episode" else row.text
    occurred_at, origin = from_stamp(row.occurred), (one.id,)
    return ContextItem(
        kind=one.kind,
        id=one.id,
        text=text,
        score=one.score,
        occurred_at=occurred_at,
        episode_ids=origin,
        tokens=_count_line(context_line(text, occurred_at=occurred_at, episode_ids=origin)),
        **more,
    )


def _fact_item(
    one: RankedRecord, row: FactRow, around: WalkOrigins, group: str, more: Mapping[str, Any]
) -> ContextItem:
    assert one.version is not None
    end = around.nearer_ends.get(one.id)
    path, distance = _path_to(end, around, group)
    since, until = from_stamp(one.version.start), from_stamp(one.version.end)
    line = context_line(row.text, valid_from=since, valid_to=until, episode_ids=row.episodes)
    return ContextItem(
        kind="fact",
        id=one.id,
        text=row.text,
        score=one.score,
        valid_from=since,
        valid_to=until,
        episode_ids=row.episodes,
        path=path,
        distance=distance,
        tokens=_count_line(line),
        **more,
    )


def _entity_item(
    one: RankedRecord, pool: CandidatePool, around: WalkOrigins, group: str, more: Mapping[str, Any]
) -> ContextItem:
    row = pool.entities[one.id]
    path, distance = _path_to(one.id, around, group)
    text = f"{row.name}: {row.summary}"
    return ContextItem(
        kind="entity",
        id=one.id,
        text=text,
        score=one.score,
        path=path,
        distance=distance,
        tokens=_count_line(context_line(text)),
        **more,
    )


def _count_line(line: str) -> int:
    # One more for the end of the line.
    return count_tokens(line) + 1


def _path_to(entity: str | None, around: WalkOrigins, group: str) -> tuple[tuple[Step, ...], int | None]:
    if entity is None or entity not in around.reach.distances:
        return (), None
    return path_steps(around.reach.to(entity), around.rows, group), around.reach.distances[entity]


FAN_OUT = 25
"""Most facts of one entity in a walk."""
MOST_WALKED = 100
"""Facts in all, nearest first: more than are ever returned."""
MOST_STARTS = 8
_CANDIDATES = 50
_CANDIDATES_OF_THE_PAST = 100
"""Many hits may hold at another time."""
_GUESSED_STARTS = 2
"""Starts of the walk if a question names no entity: the entities that resemble it most."""
_SPARE = 10
"""How many more rows are fetched than returned: some say nothing new."""
_SPARE_OF_THE_PAST = 4
"""How many times more are fetched than returned, if some hold at another time."""
_EPISODES: tuple[KindCode, ...] = ("e", "s")
_NO_WALK = WalkResult([], truncated=False)


@dataclass(frozen=True, slots=True)
class RetrievalQuery:
    """The query of one retrieval."""

    query: str
    group: str
    when: BitemporalPoint
    until: int
    """Later episodes are left out."""
    vector: Vector | None
    k: int
    depth: int
    session: str | None = None
    is_past: bool = False
    """Whether facts that do not hold now may be meant."""
    include_past: bool = False
    explain: bool = False


class RetrievalResult(NamedTuple):
    """The result of one retrieval."""

    items: list[ContextItem]
    entities: dict[str, str]
    """Ids of the entities that the question names, by name."""
    round_trips: int


async def embed_question(embedder: Embedder | None, text: str, counters: Counters) -> QueryEmbedding:
    """Return the vector of a question, or the reason for none, which is counted as `graph_degraded`."""
    meaning = await embed_query(embedder, text)
    if meaning.missing is not None:
        counters.increment("graph_degraded", reason=meaning.reason)
    return meaning


class _FirstResults(NamedTuple):
    """The results of the first round trip."""

    named: dict[str, str]
    episodes: RecordHits
    facts: RecordHits
    entities: RecordHits


class GraphRetriever:
    """Finds the context for questions.

    Args:
        backend: stores the graphs.
        vocabulary: relation types, to recognise the relation that a question asks for.
        weights: weights of the signals.
    """

    def __init__(self, backend: GraphBackend, vocabulary: Vocabulary, weights: Weights) -> None:
        self._backend = backend
        self._vocabulary = vocabulary
        self._weights = weights

    async def context(self, sought: RetrievalQuery) -> RetrievalResult:
        """Return the context for a question, best first.

        Raises:
            UnavailableError: the server cannot be reached, or could not finish in time.
        """
        terms = query_terms(sought.query)
        results = await self._first_results(sought, terms)
        # `What was in order 7?` does not ask for the relation "ordered".
        asking = RelationMatcher(self._vocabulary, set(terms).difference(query_terms(" ".join(results.named))))
        words, meaning = self._shares(results, "text"), self._shares(results, "vector")
        named = list(dict.fromkeys(results.named.values()))[:MOST_STARTS]
        wanted = _rows_to_load(results, sum_scores(words, meaning), sought)
        starts = named or wanted.entities[:_GUESSED_STARTS]
        walked, attributes, seen = await asyncio.gather(
            self._walk(sought, starts), self._attributes(sought, named), self._backend.look(sought.group, wanted)
        )
        reach = ShortestPaths(starts, walked.edges)
        edges = [*chain.from_iterable(attributes), *(edge for _, edge in walked.edges)]
        rows, trips = await self._rows(sought, edges, reach, seen, asking)
        meant = results.named or _partially_named(sought, starts, seen)
        pool = CandidatePool(
            # A link to a summary says nothing that the summary itself does not say.
            {id_: row for id_, row in rows.items() if row.type != SUMMARY_RELATION},
            seen.episodes,
            {id_: with_state_at(row, sought.when) for id_, row in seen.entities.items()},
            words,
            meaning,
            _nearness(reach, edges, is_known=bool(meant)),
        )
        question = RankingQuery(meant, sought.when, sought.until, asking.overlap, sought.include_past)
        ranked = rank(question, pool, self._weights, k=sought.k)
        ends = {edge.fact: edge.entity for edge in reversed(edges)}
        around = WalkOrigins(reach, ends, rows) if meant else WalkOrigins()
        return RetrievalResult(format_items(ranked, pool, around, sought.group, explain=sought.explain), meant, trips)

    async def _first_results(self, sought: RetrievalQuery, terms: tuple[str, ...]) -> _FirstResults:
        runs = word_runs(sought.query)
        seen, hits = await asyncio.gather(
            self._backend.look(sought.group, LookupRequest(names=tuple(dict.fromkeys(run.name for run in runs)))),
            self._backend.search(sought.group, _searches(sought, terms)),
        )
        return _FirstResults(match_entities(runs, seen.names), *hits)

    async def _walk(self, sought: RetrievalQuery, starts: Sequence[str]) -> WalkResult:
        if not starts:
            return _NO_WALK
        return await self._backend.walk(
            sought.group, starts, when=sought.when, depth=sought.depth, fan_out=FAN_OUT, limit=MOST_WALKED
        )

    def _attributes(self, sought: RetrievalQuery, named: Sequence[str]) -> Awaitable[list[list[Edge]]]:
        """Return the attributes of the entities that a question names.

        Facts of the relation that it asks for are found by their words alone: an entity may have so many facts that
        a search among them for one type would block the server.
        """
        return asyncio.gather(
            *(
                self._backend.edges(sought.group, entity, when=sought.when, limit=FAN_OUT, types=(ATTRIBUTE_PREFIX,))
                for entity in named
            )
        )

    async def _rows(
        self,
        sought: RetrievalQuery,
        edges: Sequence[Edge],
        reach: ShortestPaths,
        seen: LookupResult,
        asking: RelationMatcher,
    ) -> tuple[Mapping[str, FactRow], int]:
        """Return (all facts found, round trips so far)."""
        distances = reach.distances
        best = sorted(
            edges, key=lambda edge: (distances.get(edge.entity, 0), -asking.overlap(edge.type), -edge.version.start)
        )[: 2 * sought.k]
        ways = chain.from_iterable(reach.to(edge.entity) for edge in best)
        missing = tuple(dict.fromkeys(edge.fact for edge in (*best, *ways) if edge.fact not in seen.facts))
        if not missing:
            return seen.facts, 2
        further = await self._backend.look(sought.group, LookupRequest(facts=missing))
        return {**seen.facts, **further.facts}, 3

    def _shares(self, results: _FirstResults, leg: str) -> dict[str, float]:
        weight = self._weights.words if leg == "text" else self._weights.meaning
        shares: dict[str, float] = {}
        for hits in (results.episodes, results.facts, results.entities):
            found: list[ScoredRecord] = getattr(hits, leg)
            shares |= reciprocal_rank_scores(found, weight, k=self._weights.rrf_k)
        return shares


def _searches(sought: RetrievalQuery, terms: tuple[str, ...]) -> list[RecordSearch]:
    most = _CANDIDATES_OF_THE_PAST if sought.is_past else _CANDIDATES
    facts: tuple[KindCode, ...] = ("f", "p") if sought.is_past else ("f",)
    until = None if sought.until == OPEN else sought.until
    return [
        RecordSearch(_EPISODES, terms, sought.vector, most, session=sought.session, until=until, with_letters=False),
        # Future facts are few, and the ranking drops them: without a condition on the start the filter takes half the
        # time.
        RecordSearch(facts, terms, sought.vector, most, until=until, with_letters=False),
        RecordSearch(("n",), terms, sought.vector, _SPARE, with_letters=False),
    ]


def _partially_named(sought: RetrievalQuery, starts: Sequence[str], seen: LookupResult) -> dict[str, str]:
    """Return the entities that a question names partly, among those where the walk began on a guess."""
    known = {id_: row.name for id_, row in seen.entities.items() if not row.merged_into}
    return {name: id_ for name, id_ in match_partial_names(sought.query, known).items() if id_ in starts}


def _nearness(reach: ShortestPaths, edges: Sequence[Edge], *, is_known: bool) -> dict[str, float]:
    near = nearness_by_id(reach, edges)
    # A guessed entity is as far away as a neighbour of a named one.
    return near if is_known else {id_: value / 2 for id_, value in near.items()}


def _rows_to_load(results: _FirstResults, shares: Shares, sought: RetrievalQuery) -> LookupRequest:
    """Return the rows of the best hits; more of them if many may hold at another time."""

    def best(hits: RecordHits, most: int) -> tuple[str, ...]:
        ids = {hit.id for hit in (*hits.text, *hits.vector)}
        return tuple(sorted(ids, key=lambda id_: (-shares[id_], id_))[:most])

    most = sought.k * (_SPARE_OF_THE_PAST if sought.is_past else 1) + _SPARE
    entities = (*results.named.values(), *best(results.entities, _SPARE))
    return LookupRequest(
        episodes=best(results.episodes, most),
        facts=best(results.facts, most),
        entities=tuple(dict.fromkeys(entities)),
        with_claims=False,
    )
