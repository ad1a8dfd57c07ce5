"""Rank search results: fuse words and meaning, add scores of neighbouring turns, apply factors, rerank, explain.

Pure functions without I/O. A search (`memory/search.py`) runs these steps:

1. `remove_speakers(query, authors)` returns the text to embed; `authors` are the authors of the namespace.
   The words to look for come from the whole query.
2. The index returns the hits by words and by meaning.
3. `neighbour_ranges(found, recipe)` says which turns around the hits to fetch.
4. `rank(query, found, neighbours, recipe, now_ms=...)` orders the hits **and the neighbours that gain by them**.
   Filters have not checked these neighbours: the search checks them when it fetches them.

The ranking reads the `RankingFeatures` of each memory, which are stored in its record (`memory/serialization.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from math import exp2
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from sharedmem.memory.serialization import RankingFeatures, decode_features
from sharedmem.models import Signal
from sharedmem.models.record import all_of_checked
from sharedmem.redis.vectors import Vector
from sharedmem.search.protocol import IndexHit, IndexResult
from sharedmem.search.scoring import min_max_scores, reciprocal_rank_scores, scores_by_best, select_diverse, sum_scores
from sharedmem.text.analysis import WORD
from sharedmem.text.fact_tokens import datetime_from_ms, find_query_dates
from sharedmem.text.statements import NAME, NUMBER, TIME, attribute_fits, decode_told, query_cues

Fusion = Literal["weighted", "rrf"]


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """All weights of the ranking. A factor of 1 or a weight of 0 disables a signal."""

    fusion: Fusion = "weighted"
    """`rrf`: by ranks alone; for words and vectors that are equally strong."""
    text: float = 0.6
    """Weight of BM25, divided by the BM25 of the best hit."""
    vector: float = 0.5
    """Weight of the cosine similarity, scaled so that the hits fill 0 to 1."""
    rrf_k: int = 60
    author: float = 2.4
    """Factor for turns of an author whom the query names."""
    previous: tuple[float, ...] = (0.625, 0.25)
    """Shares of its score that a turn gives to the turn after it, to the one after that, and so on."""
    following: tuple[float, ...] = (0.4, 0.2)
    """Shares of its score that a turn gives to the turn before it, and so on."""
    answer: float = 1.2
    """Factor for the share that a question gives to the turns after it."""
    talkative: float = 80.0
    """Words at which a turn gives and receives half of its share; long turns are less dependent on their neighbours."""
    thread: float = 0.25
    """Gain, as a share of the score, in the thread with the highest sum of scores; less in other threads."""
    question: float = 0.85
    """Factor for turns that are questions."""
    date: float = 1.5
    """Factor for turns in the month or on the day that the query names."""
    time: float = 2.2
    """Factor for turns that contain a time, if the query asks when or how long."""
    number: float = 1.2
    """Factor for turns that contain a number, if the query asks how many or how much."""
    name: float = 1.1
    """Factor for turns that contain a name, if the query asks what, which, who or where."""
    length: float = 0.2
    """Loss of turns of fewer than 25 words: the exponent of their share of 25."""
    attribute: float = 0.5
    """Weight of how well a short statement that is no turn fits what a question about a person asks for, 0 to 1."""
    recency: float = 0.0
    """Gain of a memory of this moment, as a share of its score; older ones gain less."""
    half_life_s: float = 2_592_000.0
    """Age in seconds at which a memory gains half of that."""
    importance: dict[str, float] = field(default_factory=dict)
    """Factors by importance (`low`, `medium`, `high`, `critical`); 1 for a missing one."""


# -- names in queries -------------------------------------------------------------------------------

_POSSESSIVE = r"(?:['\u2019]s?)?"
_FIRST_PERSON = frozenset({"i", "me", "my", "mine", "myself"})
_SECOND_PERSON = frozenset({"you", "your", "yours", "yourself"})
# Roles that a pronoun in a query means: "I" is the user, "you" is the agent.
_PRONOUNS = {"user": _FIRST_PERSON, "agent": _SECOND_PERSON, "assistant": _SECOND_PERSON}
_ROLES = frozenset({*_PRONOUNS, "tool", "system"})


def remove_speakers(query: str, authors: Iterable[str]) -> str:
    """Return the query without names of authors: they are in nearly every turn, so they do not help an embedder.

    Args:
        query: the query.
        authors: authors of turns; roles such as `user` are not names.

    Returns:
        The text to embed: the query itself if it consists of names only.
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


def is_role(author: str) -> bool:
    """Return whether an author is a role such as `user`, which names nobody."""
    return author.lower() in _ROLES


@lru_cache(maxsize=4096)
def _name_pattern(author: str) -> re.Pattern[str] | None:
    """Return a pattern for a name: all of it in any case, or its first part as spelled (`Ada` of `Ada Lovelace`)."""
    parts = WORD.findall(author)
    if not parts or is_role(author):
        return None
    whole = r"[\W_]+".join(parts)
    spellings = [f"(?i:{whole})"]
    if len(parts) > 1 and parts[0].istitle():
        spellings.append(parts[0])
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(spellings)}){_POSSESSIVE}(?![^\W_])")


_TELLING_WORDS = 25
"""Words from which a turn is not short any more."""

# -- factors, signals and the order -----------------------------------------------------------------


class RankingFactor(NamedTuple):
    """One factor; 1 if it does not apply."""

    name: str
    value: float


class RankingFactors:
    """The factors of one search.

    Args:
        query: the whole query.
        threads: the sum of scores in each thread.
        recipe: the weights.
        now_ms: milliseconds since 1970.
    """

    def __init__(self, query: str, threads: Mapping[str, float], recipe: RankingWeights, now_ms: int) -> None:
        self._query = query
        self._recipe = recipe
        self._now_ms = now_ms
        self._dates = find_query_dates(query) if recipe.date != 1.0 else ()
        asked = query_cues(query)
        weights = (("time", TIME, recipe.time), ("number", NUMBER, recipe.number), ("name", NAME, recipe.name))
        self._cues = tuple((name, kind, weight) for name, kind, weight in weights if asked & kind)
        most = max(threads.values(), default=0.0)
        self._by_thread = {thread: 1.0 + recipe.thread * much / most for thread, much in threads.items() if most > 0}
        self._by_author: dict[str | None, float] = {None: 1.0}

    @property
    def touch_only_turns(self) -> bool:
        """Whether all factors are 1 for a memory that is not a turn of a conversation."""
        return not (self._dates or self._recipe.recency or self._recipe.importance)

    def product(self, known: RankingFeatures) -> float:
        """Return the product of all factors."""
        recipe = self._recipe
        product = 1.0
        if known.author is not None:
            product = self._author(known.author) * self._by_thread.get(known.thread, 1.0)
            if known.asks:
                product *= recipe.question
            product *= _length_factor(known.tokens, recipe.length)
            for _, kind, weight in self._cues:
                if known.cues & kind:
                    product *= weight
        if self._dates:
            product *= self._date(known.at_ms)
        if recipe.recency:
            product *= self._recency(known.at_ms)
        if recipe.importance:
            product *= recipe.importance.get(known.importance, 1.0)
        return product

    def each(self, known: RankingFeatures) -> tuple[RankingFactor, ...]:
        """Return the single factors; their product is `product`."""
        recipe = self._recipe
        is_turn = known.author is not None
        return (
            RankingFactor("author", self._author(known.author)),
            RankingFactor("thread", self._by_thread.get(known.thread, 1.0) if is_turn else 1.0),
            RankingFactor("question", recipe.question if is_turn and known.asks else 1.0),
            RankingFactor("length", _length_factor(known.tokens, recipe.length) if is_turn else 1.0),
            *(
                RankingFactor(name, weight if is_turn and known.cues & kind else 1.0)
                for name, kind, weight in self._cues
            ),
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
        # With a clock that is ahead, a memory is at most as new as now.
        age_s = max(0, self._now_ms - at_ms) / 1000
        return 1.0 + self._recipe.recency * exp2(-age_s / self._recipe.half_life_s)


@lru_cache(maxsize=4096)
def _length_factor(tokens: int, exponent: float) -> float:
    """Return the factor for a turn with so many words: below 1 for a short one."""
    return float(((1 + min(tokens, _TELLING_WORDS)) / (1 + _TELLING_WORDS)) ** exponent)


class SignalExplanations:
    """The signals of one search, to explain scores.

    Args:
        found: the result of the index.
        text, vector: the contributions of the two searches, by id.
        recipe: the weights.
        fits: the contributions of what is asked for, by id.
    """

    def __init__(
        self,
        found: IndexResult,
        text: Mapping[str, float],
        vector: Mapping[str, float],
        recipe: RankingWeights,
        fits: Mapping[str, float],
    ) -> None:
        self._fits = fits
        self._fit_weight = recipe.attribute
        self._searches = (
            ("text", _hit_places(found.text), text, recipe.text),
            ("vector", _hit_places(found.vector), vector, recipe.vector),
        )

    def of(self, id_: str, gained: float, factors: Iterable[RankingFactor]) -> tuple[Signal, ...]:
        """Return every signal that contributed to the score; the contributions add up to it.

        Args:
            id_: id of the memory.
            gained: the score that it received from its neighbours.
            factors: applied in this order.
        """
        signals: list[dict[str, Any]] = []

        def add(name: str, value: float, weight: float, contribution: float, rank: int | None = None) -> None:
            fields = {"name": name, "score": value, "rank": rank, "weight": weight, "contribution": contribution}
            signals.append(fields)

        score = gained
        for name, places, shares, weight in self._searches:
            if id_ in places:
                rank, raw = places[id_]
                share = shares.get(id_, 0.0)
                score += share
                add(name, raw, weight, share, rank)
        if fit := self._fits.get(id_):
            score += fit
            weight = self._fit_weight
            add("attribute", fit / weight, weight, fit)
        if gained:
            add("neighbours", gained, 1.0, gained)
        for name, value in factors:
            if value != 1.0:
                add(name, value, value, score * (value - 1))
                score *= value
        return tuple(all_of_checked(Signal, signals))


def _hit_places(hits: Sequence[IndexHit]) -> dict[str, tuple[int, float]]:
    return {hit.id: (place, hit.score) for place, hit in enumerate(hits, 1)}


NeighbourTurns = Mapping[tuple[str, int], Sequence[tuple[str, RankingFeatures]]]
"""The memories at a turn of a thread, by thread and turn index."""


class _DeferredSignals(Sequence[Signal]):
    """Signals that are made when they are read: a search ranks hundreds of memories and returns few."""

    def __init__(self, make: Callable[[], Sequence[Signal]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> Sequence[Signal]:
        return self._make()

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, index: int) -> Signal: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Signal]: ...
    def __getitem__(self, index: int | slice) -> Signal | Sequence[Signal]:
        return self._made[index]


class RankedMemory(NamedTuple):
    """A memory with its score in the ranking."""

    id: str
    score: float
    signals: Sequence[Signal]
    """The signals, if an explanation was requested; their contributions add up to the score."""


_unexplained = partial(tuple.__new__, RankedMemory)
"""Builds a named tuple in a third of the time: there are hundreds in a search."""


def neighbour_ranges(found: IndexResult, recipe: RankingWeights) -> dict[str, list[tuple[int, int]]]:
    """Return the turns around the hits that the ranking needs.

    Returns:
        For each thread, closed ranges of turn indexes, ascending and disjoint.
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
    """Rank the hits, and the neighbours that gain by them.

    Args:
        query: the whole query.
        found: the result of the index.
        neighbours: the turns that `neighbour_ranges` returned, as far as they exist.
        recipe: the weights.
        now_ms: milliseconds since 1970, for the recency.
        limit: most memories to return; None for all.
        explain: whether to return every signal.

    Returns:
        Best first; ties by id. Takes about a millisecond for 200 hits and their neighbours.
    """
    facts = _features_by_id(found)
    text, vector = _shares(found, recipe)
    fits = _attribute_scores(query, facts, found, recipe)
    own = sum_scores(sum_scores(vector, text), fits)
    received = _neighbour_scores(own, facts, recipe)
    for turn in received:
        for id_, known in neighbours.get(turn, ()):
            facts.setdefault(id_, known)
    threads = _score_by_thread(own, facts)
    factors = RankingFactors(query, threads, recipe, now_ms)
    if threads or not factors.touch_only_turns:
        scored = [
            (-(own.get(id_, 0.0) + _score_from_neighbours(known, received, recipe)) * factors.product(known), id_)
            for id_, known in facts.items()
        ]
    else:
        scored = [(-score, id_) for id_, score in own.items()]
    order = sorted(scored)[:limit]
    if not explain:
        return [_unexplained((id_, -score, ())) for score, id_ in order]
    reasons = SignalExplanations(found, text, vector, recipe, fits)

    def explain_one(id_: str) -> Sequence[Signal]:
        known = facts[id_]
        return reasons.of(id_, _score_from_neighbours(known, received, recipe), factors.each(known))

    return [RankedMemory(id_, -score, _DeferredSignals(partial(explain_one, id_))) for score, id_ in order]


def _features_by_id(found: IndexResult) -> dict[str, RankingFeatures]:
    encoded = {id_: facts for id_, _, facts in found.vector}
    encoded.update([(id_, facts) for id_, _, facts in found.text])
    return dict(zip(encoded, map(decode_features, encoded.values()), strict=True))


def _shares(found: IndexResult, recipe: RankingWeights) -> tuple[dict[str, float], dict[str, float]]:
    """Return the contributions of words and of meaning, by id."""
    if recipe.fusion == "rrf":
        by_rank = partial(reciprocal_rank_scores, k=recipe.rrf_k)
        return by_rank(found.text, recipe.text), by_rank(found.vector, recipe.vector)
    return scores_by_best(found.text, recipe.text), min_max_scores(found.vector, recipe.vector)


def _attribute_scores(
    query: str, facts: Mapping[str, RankingFeatures], found: IndexResult, recipe: RankingWeights
) -> dict[str, float]:
    """Return the contributions of what is asked for, by id."""
    if not recipe.attribute:
        return {}
    told = {id_: decode_told(known.told) for id_, known in facts.items() if known.told}
    fits = attribute_fits(query, told, {hit.id for hit in found.text}) if told else {}
    return {id_: recipe.attribute * fit for id_, fit in fits.items()}


def _neighbour_scores(
    own: Mapping[str, float], facts: Mapping[str, RankingFeatures], recipe: RankingWeights
) -> dict[tuple[str, int], float]:
    """Return the scores that turns give to their neighbours, by thread and turn index of the receiver."""
    ahead = [(-distance, weight) for distance, weight in enumerate(recipe.following, 1)]
    behind = list(enumerate(recipe.previous, 1))
    plain_steps = [*ahead, *behind]
    question_steps = [*ahead, *((distance, weight * recipe.answer) for distance, weight in behind)]
    received: dict[tuple[str, int], float] = {}
    for id_, known in facts.items():
        if known.author is None:
            continue
        thread, position = known.thread, known.position
        spare = own[id_] * _gate(known.tokens, recipe.talkative)
        for step, weight in question_steps if known.asks else plain_steps:
            turn = thread, position + step
            received[turn] = received.get(turn, 0.0) + weight * spare
    return received


def _score_by_thread(own: Mapping[str, float], facts: Mapping[str, RankingFeatures]) -> dict[str, float]:
    """Return the sum of scores of the turns in each thread."""
    threads: dict[str, float] = {}
    for id_, score in own.items():
        known = facts[id_]
        if known.author is not None:
            threads[known.thread] = threads.get(known.thread, 0.0) + score
    return threads


def _score_from_neighbours(
    known: RankingFeatures, received: Mapping[tuple[str, int], float], recipe: RankingWeights
) -> float:
    if known.author is None:
        return 0.0
    return received.get((known.thread, known.position), 0.0) * _gate(known.tokens, recipe.talkative)


@lru_cache(maxsize=4096)
def _gate(tokens: int, talkative: float) -> float:
    """Return the share of a neighbour's score that passes."""
    return 1 / (1 + (tokens / talkative) ** 3)


def rank_as_found(signal: str, hits: Sequence[IndexHit], *, explain: bool) -> list[RankedMemory]:
    """Return the hits of one search, in its order."""
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


# -- reranking --------------------------------------------------------------------------------------

FIRST_RANK_WEIGHT = 0.4
"""Weight of the first order beside a reranker's: below a half, so that the reranker decides. See docs/providers.md."""


def rerank_by_scores(order: Sequence[RankedMemory], scores: Sequence[float], *, explain: bool) -> list[RankedMemory]:
    """Return the order by a reranker's scores combined with the first scores.

    Args:
        order: the memories that the reranker scored, best first.
        scores: its score for each.
        explain: whether to return its contribution.
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
    """Return signals whose contributions add up to a total."""
    whole = sum(signal.contribution for signal in signals)
    factor = total / whole if whole else 0.0
    return [signal.model_copy(update={"contribution": signal.contribution * factor}) for signal in signals]


def _stretch_scores(scores: Sequence[float]) -> list[float]:
    """Return scores between 0 and 1."""
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return [(score - low) / (high - low) if high > low else 1.0 for score in scores]


def diversify_ranking(
    order: Sequence[RankedMemory], vectors: Mapping[str, Vector | None], diversity: float
) -> list[RankedMemory]:
    """Return an order in which each memory differs from those before it (maximal marginal relevance, greedily).

    Args:
        order: best first.
        vectors: unit vectors by id; a memory without one is like no other.
        diversity: 0 to 1, weight of the likeness to those before against the score.
    """
    dimension = max((len(vector) for vector in vectors.values() if vector is not None), default=1)
    matrix = np.zeros((len(order), dimension), dtype=np.float32)
    for place, ranked in enumerate(order):
        if (vector := vectors.get(ranked.id)) is not None:
            matrix[place] = vector
    places = select_diverse([ranked.score for ranked in order], matrix, balance=1 - diversity, k=len(order))
    return [order[place] for place in places]
