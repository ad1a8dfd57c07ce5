"""Rank search results: fuse words and meaning, lend scores to neighbouring turns, apply factors, rerank, explain.

Pure functions; nothing here waits. A search (`memory/search.py`) goes these steps:

1. `remove_speakers(query, authors)` is what to embed; `authors` are those of the namespace.
   The words to look for come from the whole query.
2. The index returns the hits by words and by meaning.
3. `neighbour_ranges(found, recipe)` says which turns around the hits to fetch.
4. `rank(query, found, neighbours, recipe, now_ms=...)` orders the hits **and the neighbours that gain by them**.
   No filter has seen these neighbours: the search checks them when it fetches them.

What is known of each memory are its `RankingFeatures`, which stand in its record (`memory/serialization.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import exp2
from typing import Literal, NamedTuple

import numpy as np

from sharedmem.memory.serialization import RankingFeatures, decode_features
from sharedmem.models import Signal
from sharedmem.redis.vectors import Vector
from sharedmem.search.protocol import IndexHit, IndexResult
from sharedmem.search.scoring import min_max_scores, reciprocal_rank_scores, scores_by_best, select_diverse, sum_scores
from sharedmem.text.analysis import WORD
from sharedmem.text.dates import datetime_from_ms, find_query_dates

Fusion = Literal["weighted", "rrf"]


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """All weights of the ranking. A factor of 1 or a weight of 0 takes a signal out."""

    fusion: Fusion = "weighted"
    """`rrf`: by ranks alone, right where words and vectors are equally strong."""
    text: float = 0.6
    """Weight of BM25, divided by the best hit's."""
    vector: float = 0.4
    """Weight of the cosine similarity, stretched so that the hits fill 0 to 1."""
    rrf_k: int = 60
    author: float = 2.0
    """Factor for what somebody said whom the query names."""
    previous: tuple[float, ...] = (0.5, 0.25)
    """How much of its score the turn before lends, the one before that, and so on."""
    following: tuple[float, ...] = (0.4, 0.2)
    """How much the turn behind lends, and so on."""
    answer: float = 1.5
    """Factor for what a turn that asks lends to those behind it."""
    talkative: float = 80.0
    """Words at which a turn lends half, and takes half; long turns speak for themselves."""
    thread: float = 0.25
    """What a turn gains in the thread in which most was found, as a share of its score; less in other threads."""
    question: float = 0.85
    """Factor for turns that ask."""
    date: float = 1.5
    """Factor for what was said in the month or on the day that the query names."""
    recency: float = 0.0
    """What a memory of this moment gains, as a share of its score; older ones gain less."""
    half_life_s: float = 2_592_000.0
    """Age in seconds at which it gains half of that."""
    importance: dict[str, float] = field(default_factory=dict)
    """Factors by importance (`low`, `medium`, `high`, `critical`); 1 for those left out."""


# -- names in queries -------------------------------------------------------------------------------

_POSSESSIVE = r"(?:['\u2019]s?)?"
_FIRST_PERSON = frozenset({"i", "me", "my", "mine", "myself"})
_SECOND_PERSON = frozenset({"you", "your", "yours", "yourself"})
# Who is meant by a pronoun, of those who have no name: users ask, agents are asked.
_PRONOUNS = {"user": _FIRST_PERSON, "agent": _SECOND_PERSON, "assistant": _SECOND_PERSON}
_ROLES = frozenset({*_PRONOUNS, "tool", "system"})


def remove_speakers(query: str, authors: Iterable[str]) -> str:
    """Return the query without names of those who speak: said in nearly every turn, they tell an embedder nothing.

    Args:
        query: what is asked.
        authors: who speaks there; roles such as `user` are no names.

    Returns:
        What to embed: the query itself when it consists of names only.
    """
    left = query
    for author in authors:
        name = _name_pattern(author)
        if name is not None:
            left = name.sub(" ", left)
    left = " ".join(left.split())
    return left if WORD.search(left) else query


def names_author(query: str, author: str) -> bool:
    """Return whether the query is about what this author said: by name, or by a pronoun where there is only a role."""
    pronouns = _PRONOUNS.get(author)
    if pronouns is not None:
        return not pronouns.isdisjoint(WORD.findall(query.lower()))
    name = _name_pattern(author)
    return name is not None and name.search(query) is not None


@lru_cache(maxsize=4096)
def _name_pattern(author: str) -> re.Pattern[str] | None:
    """Finds a name: all of it in any case, or its first part written as the name is (`Ada` of `Ada Lovelace`)."""
    parts = WORD.findall(author)
    if not parts or author.lower() in _ROLES:
        return None
    whole = r"[\W_]+".join(parts)
    spellings = [f"(?i:{whole})"]
    if len(parts) > 1 and parts[0].istitle():
        spellings.append(parts[0])
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(spellings)}){_POSSESSIVE}(?![^\W_])")


# -- factors, signals and the order -----------------------------------------------------------------


class RankingFactor(NamedTuple):
    """One of them; 1 where it does not apply."""

    name: str
    value: float


class RankingFactors:
    """The factors of one search.

    Args:
        query: what was asked, whole.
        threads: how much was found in each thread.
        recipe: the weights.
        now_ms: milliseconds since 1970.
    """

    def __init__(self, query: str, threads: Mapping[str, float], recipe: RankingWeights, now_ms: int) -> None:
        self._query = query
        self._recipe = recipe
        self._now_ms = now_ms
        self._dates = find_query_dates(query) if recipe.date != 1.0 else ()
        most = max(threads.values(), default=0.0)
        self._by_thread = {thread: 1.0 + recipe.thread * much / most for thread, much in threads.items() if most > 0}
        self._by_author: dict[str | None, float] = {None: 1.0}

    @property
    def touch_only_turns(self) -> bool:
        """Whether all of them are 1 for a memory that is no turn of a conversation."""
        return not (self._dates or self._recipe.recency or self._recipe.importance)

    def product(self, known: RankingFeatures) -> float:
        """Return all of them."""
        recipe = self._recipe
        product = 1.0
        if known.author is not None:
            product = self._author(known.author) * self._by_thread.get(known.thread, 1.0)
            if known.asks:
                product *= recipe.question
        if self._dates:
            product *= self._date(known.at_ms)
        if recipe.recency:
            product *= self._recency(known.at_ms)
        if recipe.importance:
            product *= recipe.importance.get(known.importance, 1.0)
        return product

    def each(self, known: RankingFeatures) -> tuple[RankingFactor, ...]:
        """Return one by one; their product is `product`."""
        recipe = self._recipe
        said = known.author is not None
        return (
            RankingFactor("author", self._author(known.author)),
            RankingFactor("thread", self._by_thread.get(known.thread, 1.0) if said else 1.0),
            RankingFactor("question", recipe.question if said and known.asks else 1.0),
            RankingFactor("date", self._date(known.at_ms)),
            RankingFactor("recency", self._recency(known.at_ms)),
            RankingFactor("importance", recipe.importance.get(known.importance, 1.0)),
        )

    def _author(self, author: str | None) -> float:
        known = self._by_author.get(author)
        if known is None:
            named = author is not None and names_author(self._query, author)
            known = self._by_author[author] = self._recipe.author if named else 1.0
        return known

    def _date(self, at_ms: int) -> float:
        if not self._dates:
            return 1.0
        at = datetime_from_ms(at_ms)
        return self._recipe.date if any(date.covers(at) for date in self._dates) else 1.0

    def _recency(self, at_ms: int) -> float:
        if not self._recipe.recency:
            return 1.0
        # A clock that runs ahead makes nothing newer than now.
        age_s = max(0, self._now_ms - at_ms) / 1000
        return 1.0 + self._recipe.recency * exp2(-age_s / self._recipe.half_life_s)


class SignalExplanations:
    """The signals of one search.

    Args:
        found: what the index answered.
        text, vector: what the two searches contribute, by id.
        recipe: the weights.
    """

    def __init__(
        self, found: IndexResult, text: Mapping[str, float], vector: Mapping[str, float], recipe: RankingWeights
    ) -> None:
        self._searches = (
            ("text", _hit_places(found.text), text, recipe.text),
            ("vector", _hit_places(found.vector), vector, recipe.vector),
        )

    def of(self, id_: str, gained: float, factors: Iterable[RankingFactor]) -> tuple[Signal, ...]:
        """Return every signal that had a part in the score; the contributions add up to it.

        Args:
            id_: of the memory.
            gained: what its neighbours lent it.
            factors: applied in this order.
        """
        signals = []
        score = gained
        for name, places, shares, weight in self._searches:
            if id_ in places:
                rank, raw = places[id_]
                share = shares.get(id_, 0.0)
                score += share
                signals.append(Signal(name=name, score=raw, rank=rank, weight=weight, contribution=share))
        if gained:
            signals.append(Signal(name="neighbours", score=gained, weight=1.0, contribution=gained))
        for name, value in factors:
            if value != 1.0:
                signals.append(Signal(name=name, score=value, weight=value, contribution=score * (value - 1)))
                score *= value
        return tuple(signals)


def _hit_places(hits: Sequence[IndexHit]) -> dict[str, tuple[int, float]]:
    return {hit.id: (place, hit.score) for place, hit in enumerate(hits, 1)}


NeighbourTurns = Mapping[tuple[str, int], Sequence[tuple[str, RankingFeatures]]]
"""The memories at a turn of a thread, by thread and turn index."""


class RankedMemory(NamedTuple):
    """A memory in its place."""

    id: str
    score: float
    signals: tuple[Signal, ...]
    """Why, when that was asked; what they contributed adds up to the score."""


_unexplained = partial(tuple.__new__, RankedMemory)
"""One of its parts, in a third of the time: there are hundreds a search."""


def neighbour_ranges(found: IndexResult, recipe: RankingWeights) -> dict[str, list[tuple[int, int]]]:
    """Return which turns around those that were found the ranking wants to know.

    Returns:
        For each thread, closed ranges of turn indexes, rising and apart.
    """
    before, behind = len(recipe.following), len(recipe.previous)
    positions: dict[str, set[int]] = {}
    known = map(decode_features, [hit[2] for hits in (found.vector, found.text) for hit in hits])
    for turn in [facts for facts in known if facts.author is not None]:
        positions.setdefault(turn.thread, set()).add(turn.position)
    return {
        thread: _merge_ranges((max(0, at - before), at + behind) for at in sorted(places))
        for thread, places in positions.items()
        if before or behind
    }


def _merge_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in ranges:
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], high
        else:
            merged.append((low, high))
    return merged


def rank(
    query: str,
    found: IndexResult,
    neighbours: NeighbourTurns,
    recipe: RankingWeights,
    *,
    now_ms: int,
    limit: int | None = None,
    explain: bool = False,
) -> list[RankedMemory]:
    """Put in order what was found, and the neighbours that gain by it.

    Args:
        query: what was asked, whole.
        found: what the index answered.
        neighbours: the turns that `neighbour_ranges` named, as far as they are there.
        recipe: the weights.
        now_ms: milliseconds since 1970, for the recency.
        limit: how many are told; None for all.
        explain: whether to tell every signal.

    Returns:
        Best first; ties by id. Takes about a millisecond for 200 hits and their neighbours.
    """
    facts = _features_by_id(found)
    text, vector = _shares(found, recipe)
    own = sum_scores(vector, text)
    lent = _lent_scores(own, facts, recipe)
    for turn in lent:
        for id_, known in neighbours.get(turn, ()):
            facts.setdefault(id_, known)
    threads = _score_by_thread(own, facts)
    factors = RankingFactors(query, threads, recipe, now_ms)
    if threads or not factors.touch_only_turns:
        scored = [
            (-(own.get(id_, 0.0) + _borrowed_score(known, lent, recipe)) * factors.product(known), id_)
            for id_, known in facts.items()
        ]
    else:
        scored = [(-score, id_) for id_, score in own.items()]
    order = sorted(scored)[:limit]
    if not explain:
        return [_unexplained((id_, -score, ())) for score, id_ in order]
    reasons = SignalExplanations(found, text, vector, recipe)
    return [
        RankedMemory(id_, -score, reasons.of(id_, _borrowed_score(facts[id_], lent, recipe), factors.each(facts[id_])))
        for score, id_ in order
    ]


def _features_by_id(found: IndexResult) -> dict[str, RankingFeatures]:
    encoded = {id_: facts for id_, _, facts in found.vector}
    encoded.update([(id_, facts) for id_, _, facts in found.text])
    return dict(zip(encoded, map(decode_features, encoded.values()), strict=True))


def _shares(found: IndexResult, recipe: RankingWeights) -> tuple[dict[str, float], dict[str, float]]:
    """Return what words and meaning contribute, by id."""
    if recipe.fusion == "rrf":
        by_rank = partial(reciprocal_rank_scores, k=recipe.rrf_k)
        return by_rank(found.text, recipe.text), by_rank(found.vector, recipe.vector)
    return scores_by_best(found.text, recipe.text), min_max_scores(found.vector, recipe.vector)


def _lent_scores(
    own: Mapping[str, float], facts: Mapping[str, RankingFeatures], recipe: RankingWeights
) -> dict[tuple[str, int], float]:
    """Return what turns lend to those around them, by thread and turn index of the receiver."""
    ahead = [(-distance, weight) for distance, weight in enumerate(recipe.following, 1)]
    behind = list(enumerate(recipe.previous, 1))
    told = [*ahead, *behind]
    asked = [*ahead, *((distance, weight * recipe.answer) for distance, weight in behind)]
    lent: dict[tuple[str, int], float] = {}
    for id_, known in facts.items():
        if known.author is None:
            continue
        thread, position = known.thread, known.position
        spare = own[id_] * _gate(known.tokens, recipe.talkative)
        for step, weight in asked if known.asks else told:
            turn = thread, position + step
            lent[turn] = lent.get(turn, 0.0) + weight * spare
    return lent


def _score_by_thread(own: Mapping[str, float], facts: Mapping[str, RankingFeatures]) -> dict[str, float]:
    """Return how much was found of what was said in each thread."""
    threads: dict[str, float] = {}
    for id_, score in own.items():
        known = facts[id_]
        if known.author is not None:
            threads[known.thread] = threads.get(known.thread, 0.0) + score
    return threads


def _borrowed_score(known: RankingFeatures, lent: Mapping[tuple[str, int], float], recipe: RankingWeights) -> float:
    if known.author is None:
        return 0.0
    return lent.get((known.thread, known.position), 0.0) * _gate(known.tokens, recipe.talkative)


@lru_cache(maxsize=4096)
def _gate(tokens: int, talkative: float) -> float:
    """Return which part of a lent score passes."""
    return 1 / (1 + (tokens / talkative) ** 3)


# -- reranking --------------------------------------------------------------------------------------

FIRST_RANK_WEIGHT = 0.3
"""How much the first order counts beside a reranker's."""


def rerank_by_scores(order: Sequence[RankedMemory], scores: Sequence[float], *, explain: bool) -> list[RankedMemory]:
    """Return the order that a reranker's scores and the first scores make together.

    Args:
        order: what it judged, best first.
        scores: its score for each.
        explain: whether to tell what it contributed.
    """
    first = _stretch_scores([ranked.score for ranked in order])
    second = _stretch_scores(scores)
    places = {index: place for place, index in enumerate(sorted(range(len(scores)), key=lambda i: -scores[i]), 1)}
    judged = []
    for index, ranked in enumerate(order):
        gain = (1 - FIRST_RANK_WEIGHT) * second[index]
        total = FIRST_RANK_WEIGHT * first[index] + gain
        signals = ranked.signals
        if explain:
            signals = (
                *_scale_signals(signals, FIRST_RANK_WEIGHT * first[index]),
                _reranker_signal(scores[index], places[index], gain),
            )
        judged.append(RankedMemory(ranked.id, total, signals))
    return sorted(judged, key=lambda ranked: (-ranked.score, ranked.id))


def _reranker_signal(score: float, place: int, gain: float) -> Signal:
    return Signal(name="reranker", score=score, rank=place, weight=1 - FIRST_RANK_WEIGHT, contribution=gain)


def _scale_signals(signals: Sequence[Signal], total: float) -> list[Signal]:
    """Signals whose contributions add up to a total."""
    whole = sum(signal.contribution for signal in signals)
    factor = total / whole if whole else 0.0
    return [signal.model_copy(update={"contribution": signal.contribution * factor}) for signal in signals]


def _stretch_scores(scores: Sequence[float]) -> list[float]:
    """Scores between 0 and 1."""
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return [(score - low) / (high - low) if high > low else 1.0 for score in scores]


def diversify_ranking(
    order: Sequence[RankedMemory], vectors: Mapping[str, Vector | None], diversity: float
) -> list[RankedMemory]:
    """Return an order in which each says something else than those before it (maximal marginal relevance, greedily).

    Args:
        order: best first.
        vectors: unit vectors by id; what has none is like nothing else.
        diversity: 0 to 1, how much likeness to those before counts against the score.
    """
    dimension = max((len(vector) for vector in vectors.values() if vector is not None), default=1)
    matrix = np.zeros((len(order), dimension), dtype=np.float32)
    for place, ranked in enumerate(order):
        if (vector := vectors.get(ranked.id)) is not None:
            matrix[place] = vector
    places = select_diverse([ranked.score for ranked in order], matrix, balance=1 - diversity, k=len(order))
    return [order[place] for place in places]
