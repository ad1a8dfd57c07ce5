"""Retrieval: what words, meaning and graph find for a question, in three round trips at most."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from sharedmem.knowledge.graph.paths import Reach, nearness_of
from sharedmem.knowledge.graph.protocol import GraphBackend
from sharedmem.knowledge.graph.records import Candidate, Edge, FactRow, Hits, Letter, Search, Seen, Walked, Wanted, When
from sharedmem.knowledge.graph.relations import Vocabulary
from sharedmem.knowledge.graph.retrieving.asking import Asking
from sharedmem.knowledge.graph.retrieving.ranking import Pool, Question, Shares, rank
from sharedmem.knowledge.graph.retrieving.recognising import partly_named, recognised, runs_of
from sharedmem.knowledge.graph.retrieving.telling import Around, items_of
from sharedmem.knowledge.graph.retrieving.weights import Weights
from sharedmem.knowledge.graph.times import OPEN
from sharedmem.knowledge.graph.views import ATTRIBUTE
from sharedmem.models import ContextItem
from sharedmem.search.analysis import query_terms
from sharedmem.search.fusion import shares_by_rank, summed
from sharedmem.wire.vectors import Vector

FAN_OUT = 25
"""Facts of one entity that are walked along."""
MOST_WALKED = 100
"""Facts in all, nearest first: more than are ever answered."""
MOST_STARTS = 8
_CANDIDATES = 50
_CANDIDATES_OF_THE_PAST = 100
"""Much of what is found may hold at another time."""
_GUESSED_STARTS = 2
"""Where the walk begins when a question names nobody: at the entities that resemble it most."""
_SPARE = 10
"""How many more rows are fetched than answered: some say nothing new."""
_SPARE_OF_THE_PAST = 4
"""How many times more are fetched than answered, where some hold at another time."""
_EPISODES: tuple[Letter, ...] = ("e", "s")
_NO_WALK = Walked([], truncated=False)


@dataclass(frozen=True, slots=True)
class Sought:
    """What is asked."""

    query: str
    group: str
    when: When
    until: int
    """Episodes that occurred later are out."""
    vector: Vector | None
    k: int
    depth: int
    session: str | None = None
    is_past: bool = False
    """Whether facts that do not hold now may be meant."""
    include_past: bool = False
    explain: bool = False


class Retrieved(NamedTuple):
    """What was found."""

    items: list[ContextItem]
    entities: dict[str, str]
    """Ids of those that the question names, by name."""
    round_trips: int


class _Heard(NamedTuple):
    """What the first round trip tells."""

    named: dict[str, str]
    episodes: Hits
    facts: Hits
    entities: Hits


class Retrieval:
    """Finds the context for questions.

    Args:
        backend: keeps the graphs.
        vocabulary: whose words tell which relation a question asks for.
        weights: of the signals.
    """

    def __init__(self, backend: GraphBackend, vocabulary: Vocabulary, weights: Weights) -> None:
        self._backend = backend
        self._vocabulary = vocabulary
        self._weights = weights

    async def context(self, sought: Sought) -> Retrieved:
        """What is worth knowing for a question, best first.

        Raises:
            UnavailableError: the server cannot be reached, or could not finish in time.
        """
        terms = query_terms(sought.query)
        heard = await self._hear(sought, terms)
        # `What was in order 7?` does not ask who ordered something.
        asking = Asking(self._vocabulary, set(terms).difference(query_terms(" ".join(heard.named))))
        words, meaning = self._shares(heard, "text"), self._shares(heard, "vector")
        named = list(dict.fromkeys(heard.named.values()))[:MOST_STARTS]
        wanted = _wanted(heard, summed(words, meaning), sought)
        starts = named or wanted.entities[:_GUESSED_STARTS]
        walked, attributes, seen = await asyncio.gather(
            self._walk(sought, starts), self._attributes(sought, named), self._backend.look(sought.group, wanted)
        )
        reach = Reach(starts, walked.edges)
        edges = [*chain.from_iterable(attributes), *(edge for _, edge in walked.edges)]
        rows, trips = await self._rows(sought, edges, reach, seen, asking)
        meant = heard.named or _partly_named(sought, starts, seen)
        pool = Pool(rows, seen.episodes, seen.entities, words, meaning, _nearness(reach, edges, is_known=bool(meant)))
        question = Question(meant, sought.when, sought.until, asking.overlap, sought.include_past)
        ranked = rank(question, pool, self._weights, k=sought.k)
        ends = {edge.fact: edge.entity for edge in reversed(edges)}
        around = Around(reach, ends, rows) if meant else Around()
        return Retrieved(items_of(ranked, pool, around, sought.group, explain=sought.explain), meant, trips)

    async def _hear(self, sought: Sought, terms: tuple[str, ...]) -> _Heard:
        runs = runs_of(sought.query)
        seen, hits = await asyncio.gather(
            self._backend.look(sought.group, Wanted(names=tuple(dict.fromkeys(run.name for run in runs)))),
            self._backend.search(sought.group, _searches(sought, terms)),
        )
        return _Heard(recognised(runs, seen.names), *hits)

    async def _walk(self, sought: Sought, starts: Sequence[str]) -> Walked:
        if not starts:
            return _NO_WALK
        return await self._backend.walk(
            sought.group, starts, when=sought.when, depth=sought.depth, fan_out=FAN_OUT, limit=MOST_WALKED
        )

    async def _attributes(self, sought: Sought, named: Sequence[str]) -> list[list[Edge]]:
        """The attributes of those whom a question names.

        Facts of the relation that it asks for are found by their words alone: an entity may have so many facts that
        looking among them for those of one type would hold up the server.
        """
        return await asyncio.gather(
            *(
                self._backend.edges(sought.group, entity, when=sought.when, limit=FAN_OUT, types=(ATTRIBUTE,))
                for entity in named
            )
        )

    async def _rows(
        self, sought: Sought, edges: Sequence[Edge], reach: Reach, seen: Seen, asking: Asking
    ) -> tuple[Mapping[str, FactRow], int]:
        """(the facts that were found in any way, round trips so far)."""
        distances = reach.distances
        best = sorted(
            edges, key=lambda edge: (distances.get(edge.entity, 0), -asking.overlap(edge.type), -edge.version.start)
        )[: 2 * sought.k]
        ways = chain.from_iterable(reach.to(edge.entity) for edge in best)
        missing = tuple(dict.fromkeys(edge.fact for edge in (*best, *ways) if edge.fact not in seen.facts))
        if not missing:
            return seen.facts, 2
        further = await self._backend.look(sought.group, Wanted(facts=missing))
        return {**seen.facts, **further.facts}, 3

    def _shares(self, heard: _Heard, leg: str) -> dict[str, float]:
        weight = self._weights.words if leg == "text" else self._weights.meaning
        shares: dict[str, float] = {}
        for hits in (heard.episodes, heard.facts, heard.entities):
            found: list[Candidate] = getattr(hits, leg)
            shares |= shares_by_rank(found, weight, k=self._weights.rrf_k)
        return shares


def _searches(sought: Sought, terms: tuple[str, ...]) -> list[Search]:
    most = _CANDIDATES_OF_THE_PAST if sought.is_past else _CANDIDATES
    facts: tuple[Letter, ...] = ("f", "p") if sought.is_past else ("f",)
    until = None if sought.until == OPEN else sought.until
    return [
        Search(_EPISODES, terms, sought.vector, most, session=sought.session, until=until),
        # Facts that are yet to begin are few, and fall out when they are ranked: not to look for their start halves it.
        Search(facts, terms, sought.vector, most, until=until),
        Search(("n",), terms, sought.vector, _SPARE),
    ]


def _partly_named(sought: Sought, starts: Sequence[str], seen: Seen) -> dict[str, str]:
    """Whom a question names by a part of the name, of those where the walk has begun on the chance of it."""
    known = {id_: row.name for id_, row in seen.entities.items() if not row.merged_into}
    return {name: id_ for name, id_ in partly_named(sought.query, known).items() if id_ in starts}


def _nearness(reach: Reach, edges: Sequence[Edge], *, is_known: bool) -> dict[str, float]:
    near = nearness_of(reach, edges)
    # Who is only guessed to be meant is as far away as a neighbour of somebody named.
    return near if is_known else {id_: value / 2 for id_, value in near.items()}


def _wanted(heard: _Heard, shares: Shares, sought: Sought) -> Wanted:
    """The rows of the best hits; of more of them where many may hold at another time."""

    def best(hits: Hits, most: int) -> tuple[str, ...]:
        ids = {hit.id for hit in (*hits.text, *hits.vector)}
        return tuple(sorted(ids, key=lambda id_: (-shares[id_], id_))[:most])

    most = sought.k * (_SPARE_OF_THE_PAST if sought.is_past else 1) + _SPARE
    entities = (*heard.named.values(), *best(heard.entities, _SPARE))
    return Wanted(
        episodes=best(heard.episodes, most),
        facts=best(heard.facts, most),
        entities=tuple(dict.fromkeys(entities)),
    )
