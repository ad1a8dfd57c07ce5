"""The ranking: one order for facts, episodes, summaries and entities. Pure, and quick: rows in, places out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import exp2
from typing import Any, NamedTuple

import orjson

from sharedmem.knowledge.graph.records import EntityRow, EpisodeRow, FactRow, Version, When
from sharedmem.knowledge.graph.retrieving.weights import Weights
from sharedmem.knowledge.graph.times import UNKNOWN_START
from sharedmem.knowledge.graph.views import version_at, version_known
from sharedmem.models import GraphKind
from sharedmem.search.analysis import query_terms

Shares = Mapping[str, float]
Signals = dict[str, float]
_MICROSECONDS = 1_000_000
_LOOKED_THROUGH = 2_000
"""Characters of an episode in which names are looked for."""
_LONGEST_STATEMENT = 300
"""Characters; of a longer text not all words are compared, and it says more than a fact does."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked."""

    named: Mapping[str, str]
    """Ids of those whom it names, by name as names are compared."""
    when: When
    until: int
    """Episodes that occurred later are out; OPEN when nothing is said of a time."""
    asks_for: Callable[[str], float]
    """How much it asks for a type of relation: the share of the type's words that are among its own."""
    include_past: bool = False

    def is_named(self, row: FactRow) -> bool:
        """Whether it names an end of a fact."""
        return row.source in self.named.values() or row.target in self.named.values()

    def mentioned(self, row: EpisodeRow, entities: Sequence[str]) -> float:
        """Which share of those whom it names an episode mentions, as far as that was extracted or stands there."""
        if not self.named:
            return 0.0
        text = row.text[:_LOOKED_THROUGH].casefold()
        return sum(id_ in entities or name in text for name, id_ in self.named.items()) / len(self.named)


@dataclass(slots=True)
class Pool:
    """What was found."""

    facts: Mapping[str, FactRow]
    episodes: Mapping[str, EpisodeRow]
    entities: Mapping[str, EntityRow]
    words: Shares
    """What the search by words gives to each record, by id."""
    meaning: Shares
    nearness: Mapping[str, float] = field(default_factory=dict)
    """Of the entities and facts that were walked to, by id: 1 where the walk began, less the farther away."""


class Ranked(NamedTuple):
    """A record in its place."""

    kind: GraphKind
    id: str
    score: float
    signals: Signals
    """What each of them added to the score."""
    version: Version | None = None
    """Of a fact."""


def rank(question: Question, pool: Pool, weights: Weights, *, k: int) -> list[Ranked]:
    """The best of what was found, without what says nothing new.

    Args:
        question: what is asked; nothing is answered that does not hold at its time.
        pool: what was found.
        weights: of the signals.
        k: how many at most.

    Returns:
        Best first; ties by kind and id. Takes about half a millisecond for 100 records.
    """
    judge = _Judge(question, pool, weights)
    scored = sorted([*judge.facts(), *judge.episodes(), *judge.entities()], key=lambda one: (-one.score, *one[:2]))
    return list(islice(_new(scored, pool, judge, k), k))


class _Judge:
    """Scores records, one kind after the other."""

    def __init__(self, question: Question, pool: Pool, weights: Weights) -> None:
        self._question = question
        self._pool = pool
        self._weights = weights
        self.bodies: dict[str, dict[str, Any]] = {}
        """Of the episodes that may be answered, by id."""

    def facts(self) -> Iterator[Ranked]:
        question = self._question
        holding = version_known if question.include_past else version_at
        for id_, row in self._pool.facts.items():
            version = holding(row, question.when)
            if version is not None:
                yield _ranked("fact", id_, self._of_fact(row, version), version)

    def episodes(self) -> Iterator[Ranked]:
        question = self._question
        for id_, row in self._pool.episodes.items():
            if row.recorded <= question.when.known < row.undone and row.occurred <= question.until:
                body = self.bodies[id_] = orjson.loads(row.body)
                kind: GraphKind = "summary" if row.letter == "s" else "episode"
                yield _ranked(kind, id_, self._of_episode(row, body))

    def entities(self) -> Iterator[Ranked]:
        question = self._question
        for id_, row in self._pool.entities.items():
            # What is known of others stands in facts and episodes.
            if row.summary and not row.merged_into and row.recorded <= question.when.known:
                yield _ranked("entity", id_, self._of_entity(id_))

    def is_distant(self, id_: str) -> bool:
        """Whether an episode is older than the half-life."""
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
        """1 for this moment, halved with each half-life of distance from it."""
        age_s = abs(self._question.when.world - stamp) / _MICROSECONDS
        return exp2(-age_s / self._weights.half_life_s)


def _ranked(kind: GraphKind, id_: str, signals: Signals, version: Version | None = None) -> Ranked:
    told = {name: value for name, value in signals.items() if value}
    return Ranked(kind, id_, sum(told.values()), told, version)


def _new(scored: Sequence[Ranked], pool: Pool, judge: _Judge, k: int) -> Iterator[Ranked]:
    """Those that say something which none of the others says."""
    triples: set[tuple[str, ...]] = set()
    needless = _summed_up(scored[: 2 * k], judge) | _said_by_facts(scored[:k], pool)
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


def _summed_up(best: Iterable[Ranked], judge: _Judge) -> set[str]:
    """The episodes of long ago for which a summary stands that is to be answered."""
    covered = (judge.bodies[one.id].get("covers", ()) for one in best if one.kind == "summary")
    return {id_ for ids in covered for id_ in ids if id_ in judge.bodies and judge.is_distant(id_)}


def _said_by_facts(best: Iterable[Ranked], pool: Pool) -> set[str]:
    """The episodes whose every word stands in facts that are to be answered."""
    said: dict[str, set[str]] = {}
    for row in [pool.facts[one.id] for one in best if one.kind == "fact"]:
        for episode in pool.episodes.keys() & set(row.episodes):
            words = f"{row.text} {row.source_name} {row.type.replace('_', ' ')} {row.target_name}"
            said.setdefault(episode, set()).update(query_terms(words))
    return {id_ for id_, words in said.items() if _says_no_more(pool.episodes[id_].text, words)}


def _says_no_more(text: str, words: set[str]) -> bool:
    return len(text) < _LONGEST_STATEMENT and words.issuperset(query_terms(text))
