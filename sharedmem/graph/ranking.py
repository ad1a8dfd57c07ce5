"""Rank facts, episodes, summaries and entities in one order: signals, weights, removal of repetitions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from math import exp2
from typing import Any, NamedTuple

import orjson

from sharedmem.graph.records import (
    UNKNOWN_START,
    BitemporalPoint,
    EntityRow,
    EpisodeRow,
    FactRow,
    Version,
    version_at,
    version_known,
)
from sharedmem.graph.relations import Vocabulary
from sharedmem.models import GraphKind
from sharedmem.text.analysis import has_other_terms, query_terms


@dataclass(frozen=True, slots=True)
class Weights:
    """The most that each signal adds to a score; 0 disables it."""

    words: float = 0.6
    """First place by BM25. More than meaning, as measured for memories (docs/retrieval.md): names and ids decide."""
    meaning: float = 0.4
    """First place by cosine similarity."""
    rrf_k: int = 10
    """Constant of the reciprocal ranks. With the usual 60, meant for lists of a thousand, the last of 50 hits keeps
    more than half of the first hit's score, and a record anywhere in both lists beats the best of either."""
    near: float = 0.4
    """A fact with an entity that the question names; half of it or less one step away. As much as the best
    meaning: with twice that, all facts of an entity would come before the one episode that answers."""
    answer: float = 0.6
    """A fact with such an entity in the very relation that the question asks for. As much as the best words,
    as the words of a relation (`lives_in`) are rarely in the text of an episode."""
    mention: float = 0.3
    """An episode that mentions every entity which the question names; less for some of them. Below `near`, as a fact
    says more about them in fewer words."""
    stranger: float = 0.8
    """Share of words and meaning that a record without connection to the named entities loses: it mostly
    shares part of their names. With less, records two steps away are hidden by namesakes."""
    fresh: float = 0.1
    """A record that has just begun or happened; it decides among equals."""
    recent: float = 0.2
    """A recent episode, in its original words."""
    distant: float = 0.2
    """A summary of the distant past; with `recent` it lets summaries win over old raw episodes."""
    half_life_s: float = 30 * 86_400.0
    """Age at which fresh and recent have lost half; from there on a summary replaces the episodes that it covers."""


class RelationMatcher:
    """The relation that the words of a question ask for.

    Args:
        vocabulary: the names of relations from either end.
        terms: the words, as `text.analysis` spells them.
    """

    def __init__(self, vocabulary: Vocabulary, terms: Iterable[str]) -> None:
        self._vocabulary = vocabulary
        self._terms = frozenset(terms)
        self._overlaps: dict[str, float] = {}

    def overlap(self, type_: str) -> float:
        """Return the share of a relation's words that the question contains; of its two names the greater share.

        `Who employs Bo?` asks for `works_for` as much as `Where does Bo work?`.
        """
        found = self._overlaps.get(type_)
        if found is None:
            declared = self._vocabulary.declared(type_)
            found = self._overlaps[type_] = max(map(self._share, (declared.name, declared.inverse or "")))
        return found

    def _share(self, name: str) -> float:
        words = _words_of(name)
        return len(words & self._terms) / len(words) if words else 0.0


@lru_cache(maxsize=4096)
def _words_of(type_: str) -> frozenset[str]:
    return frozenset(query_terms(type_.replace("_", " ")))


Shares = Mapping[str, float]
Signals = dict[str, float]
_MICROSECONDS = 1_000_000
_LOOKED_THROUGH = 2_000
"""Characters of an episode in which names are searched for."""
_LONGEST_STATEMENT = 300
"""Characters; of a longer text not all words are compared, and it says more than a fact does."""


@dataclass(frozen=True, slots=True)
class RankingQuery:
    """The query of one ranking."""

    named: Mapping[str, str]
    """Ids of the named entities, by normalised name."""
    when: BitemporalPoint
    until: int
    """Later episodes are left out; OPEN if no time is given."""
    asks_for: Callable[[str], float]
    """How much it asks for a type of relation: the share of the type's words that are among its own."""
    include_past: bool = False

    def is_named(self, row: FactRow) -> bool:
        """Return whether it names an end of a fact."""
        return row.source in self.named.values() or row.target in self.named.values()

    def mentioned(self, row: EpisodeRow, entities: Sequence[str]) -> float:
        """Return the share of its named entities that an episode mentions, as extracted or in its text."""
        if not self.named:
            return 0.0
        text = row.text[:_LOOKED_THROUGH].casefold()
        return sum(id_ in entities or name in text for name, id_ in self.named.items()) / len(self.named)


@dataclass(slots=True)
class CandidatePool:
    """The candidates of a ranking."""

    facts: Mapping[str, FactRow]
    episodes: Mapping[str, EpisodeRow]
    entities: Mapping[str, EntityRow]
    words: Shares
    """Scores of the search by words, by id."""
    meaning: Shares
    nearness: Mapping[str, float] = field(default_factory=dict)
    """Of the entities and facts that were reached, by id: 1 where the walk began, less the farther away."""


class RankedRecord(NamedTuple):
    """A record in the ranking."""

    kind: GraphKind
    id: str
    score: float
    signals: Signals
    """What each signal added to the score."""
    version: Version | None = None
    """Version of a fact."""


def rank(question: RankingQuery, pool: CandidatePool, weights: Weights, *, k: int) -> list[RankedRecord]:
    """Return the best candidates, without repetitions.

    Args:
        question: the query; records that do not hold at its time are left out.
        pool: the candidates.
        weights: weights of the signals.
        k: most records.

    Returns:
        Best first; ties by kind and id. Takes about half a millisecond for 100 records.
    """
    judge = _Scorer(question, pool, weights)
    scored = sorted([*judge.facts(), *judge.episodes(), *judge.entities()], key=_place)
    best = islice(_without_repetitions(scored, pool, judge, k), k)
    return [one._replace(signals={name: value for name, value in one.signals.items() if value}) for one in best]


def _place(one: RankedRecord) -> tuple[float, str, str]:
    return -one.score, one.kind, one.id


class _Scorer:
    """Scores records, one kind after the other."""

    def __init__(self, question: RankingQuery, pool: CandidatePool, weights: Weights) -> None:
        self._question = question
        self._pool = pool
        self._weights = weights
        self.bodies: dict[str, dict[str, Any]] = {}
        """Episodes that may be returned, by id."""

    def facts(self) -> Iterator[RankedRecord]:
        question = self._question
        holding = version_known if question.include_past else version_at
        for id_, row in self._pool.facts.items():
            version = holding(row, question.when)
            if version is not None:
                signals = self._of_fact(row, version)
                yield RankedRecord("fact", id_, sum(signals.values()), signals, version)

    def episodes(self) -> Iterator[RankedRecord]:
        question = self._question
        for id_, row in self._pool.episodes.items():
            if row.recorded <= question.when.known < row.undone and row.occurred <= question.until:
                body = self.bodies[id_] = orjson.loads(row.body)
                kind: GraphKind = "summary" if row.letter == "s" else "episode"
                signals = self._of_episode(row, body)
                yield RankedRecord(kind, id_, sum(signals.values()), signals)

    def entities(self) -> Iterator[RankedRecord]:
        question = self._question
        for id_, row in self._pool.entities.items():
            # Knowledge of other entities is in facts and episodes.
            if row.summary and not row.merged_into and row.recorded <= question.when.known:
                signals = self._of_entity(id_)
                yield RankedRecord("entity", id_, sum(signals.values()), signals)

    def is_distant(self, id_: str) -> bool:
        """Return whether an episode is older than the half-life."""
        return self._freshness(self._pool.episodes[id_].occurred) < 0.5

    def _of_fact(self, row: FactRow, version: Version) -> Signals:
        weights, question = self._weights, self._question
        signals = self._found(row.id)
        is_named = question.is_named(row)
        near = 1.0 if is_named else self._pool.nearness.get(row.id, 0.0)
        signals["near"] = weights.near * near
        if question.named and not near:
            signals["stranger"] = -weights.stranger * sum(signals.values())
        if is_named:
            signals["answer"] = weights.answer * question.asks_for(row.type)
        if version.start != UNKNOWN_START:
            signals["fresh"] = weights.fresh * self._freshness(version.start)
        return signals

    def _of_episode(self, row: EpisodeRow, body: Mapping[str, Any]) -> Signals:
        weights, question = self._weights, self._question
        signals = self._found(row.id)
        signals["mention"] = weights.mention * question.mentioned(row, body.get("entities", ()))
        if question.named and not signals["mention"]:
            signals["stranger"] = -weights.stranger * sum(signals.values())
        fresh = self._freshness(row.occurred)
        signals["fresh"] = weights.fresh * fresh
        if row.letter == "s":
            signals["distant"] = weights.distant * (1 - fresh)
        else:
            signals["recent"] = weights.recent * fresh
        return signals

    def _of_entity(self, id_: str) -> Signals:
        is_named = id_ in self._question.named.values()
        near = 1.0 if is_named else self._pool.nearness.get(id_, 0.0)
        return self._found(id_) | {"near": self._weights.near * near}

    def _found(self, id_: str) -> Signals:
        return {"words": self._pool.words.get(id_, 0.0), "meaning": self._pool.meaning.get(id_, 0.0)}

    def _freshness(self, stamp: int) -> float:
        """Return 1 for this moment, halved with each half-life of distance from it."""
        age_s = abs(self._question.when.world - stamp) / _MICROSECONDS
        return exp2(-age_s / self._weights.half_life_s)


def _without_repetitions(
    scored: Sequence[RankedRecord], pool: CandidatePool, judge: _Scorer, k: int
) -> Iterator[RankedRecord]:
    """Yield the records that say something which none of the others says."""
    triples: set[tuple[str, ...]] = set()
    needless = _summarized_episodes(scored[: 2 * k], judge) | _episodes_in_facts(scored[:k], pool)
    for one in scored:
        if one.kind != "fact":
            if one.id not in needless:
                yield one
            continue
        row = pool.facts[one.id]
        triple = (row.source, row.type, row.target, row.value)
        if triple not in triples:
            triples.add(triple)
            yield one


def _summarized_episodes(best: Iterable[RankedRecord], judge: _Scorer) -> set[str]:
    """Return the old episodes that a returned summary replaces."""
    covered = (judge.bodies[one.id].get("covers", ()) for one in best if one.kind == "summary")
    return {id_ for ids in covered for id_ in ids if id_ in judge.bodies and judge.is_distant(id_)}


def _episodes_in_facts(best: Iterable[RankedRecord], pool: CandidatePool) -> set[str]:
    """Return the episodes whose every word is in returned facts."""
    words_by_episode: dict[str, set[str]] = {}
    for row in [pool.facts[one.id] for one in best if one.kind == "fact"]:
        words: tuple[str, ...] | None = None
        for episode in row.episodes:
            if episode in pool.episodes:
                words = words or query_terms(
                    f"{row.text} {row.source_name} {row.type.replace('_', ' ')} {row.target_name}"
                )
                words_by_episode.setdefault(episode, set()).update(words)
    return {id_ for id_, words in words_by_episode.items() if _adds_nothing(pool.episodes[id_].text, words)}


def _adds_nothing(text: str, words: set[str]) -> bool:
    return len(text) < _LONGEST_STATEMENT and not has_other_terms(text, words)
