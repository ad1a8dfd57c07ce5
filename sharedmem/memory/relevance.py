"""What follows the ranking: relevance and passages of hits, standing instructions, latest statements, and reranking.

`Hit.score` is the calibrated probability that a hit is relevant.

A rank value says which of two hits of one search is better, and nothing about whether any of them answers the query. A
logistic model turns it into a probability. The model reads few numbers, which mean the same in a small and in a large
namespace:

`share`     natural logarithm of the hit's rank value divided by the best one's
`place`     1 divided by the place of the hit
`lead`      how far the best rank value is above the tenth, as a share of the best
`length`    natural logarithm of the number of significant words in the query
`thread`    share of the first ten hits that are turns of one conversation
`words`     most of these words that one of the first three hits contains, as a share; or how well it fits what a
            question about a person asks for, if it is a short statement
`cosine`    the highest cosine similarity to the query
`both`      `words` times `cosine`

Only `share` and `place` differ between the hits of a search, so the probability never rises along the order of ranks.
Coefficients are measured by `benchmarks/learn_ranking.py` for each embedder and mode, and kept in `learned.toml`.

Standing instructions of the caller are lifted. A statement replaces an older one of the same owner about the same
subject and attribute (`text.statements`); nothing is left out: the older one follows. A search never fails because of
the reranker of the settings.
"""

from __future__ import annotations

import asyncio
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cache
from math import exp, log
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from sharedmem.errors import SharedMemoryError
from sharedmem.memory.ranking import NeighbourTurns, RankedMemory, RankingWeights, is_role
from sharedmem.memory.serialization import (
    RankingFeatures,
    decode_features,
    is_short_statement,
    searchable_texts,
    standing_of,
)
from sharedmem.models import Hit, MemoryItem, Passage, Signal
from sharedmem.providers.protocol import Reranker
from sharedmem.runtime import Counters, get_logger
from sharedmem.search.protocol import IndexResult
from sharedmem.search.scoring import reciprocal_rank_scores, sum_scores
from sharedmem.text.analysis import find_passage, query_terms, share_of_terms
from sharedmem.text.statements import Standing, best_match

RelevanceModel = Literal["hybrid", "semantic", "similar", "words", "keywords"]
"""Which search the coefficients are for: `similar` has no query, and `words` is a hybrid search without a vector."""
Coefficients = Mapping[str, float]
WEIGHTS = "weights"
"""The part of a table with the weights of the ranking."""
OTHER = "other"
"""The table of embedders that were not measured: it does not read cosine similarities."""
WITHOUT_EMBEDDER = "none"
FIRST_HITS = 3
"""Best hits whose texts are compared with the words of the query."""
_TENTH = 9
_FIRST_TEN = 10
_LEAST_SHARE = 1e-3
_FILE = Path(__file__).with_name("learned.toml")


class SearchEvidence(NamedTuple):
    """What a search as a whole says about the relevance of its hits."""

    values: Sequence[float]
    """The rank values of all that was found, highest first."""
    terms: Sequence[str]
    """Significant words of the query, as stems."""
    words: float
    """Most of these words that one of the first hits contains, as a share."""
    cosine: float
    """The highest cosine similarity to the query; 0 without vectors."""
    thread: float = 0.0
    """See `share_of_busiest_thread`."""


@cache
def learned_tables() -> Mapping[str, Mapping[str, Any]]:
    """Return what was measured, by embedder and model."""
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


@cache
def embedder_table(embedder: str) -> str:
    """Return the name of the table for an embedder: its own, else that of embedders that were not measured."""
    return next((name for name in learned_tables() if embedder.startswith(name)), OTHER)


@cache
def learned_weights(embedder: str | None) -> RankingWeights:
    """Return the weights of the ranking that were measured for an embedder, or for none."""
    table = learned_tables()[WITHOUT_EMBEDDER if embedder is None else embedder_table(embedder)]
    found: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in table.get(WEIGHTS, {}).items()
    }
    return replace(RankingWeights(), **found)


def relevance_coefficients(embedder: str | None, model: RelevanceModel) -> Coefficients:
    """Return the coefficients for a search.

    Args:
        embedder: name of the embedder; None if no vectors were compared.
        model: the kind of search.
    """
    is_by_words = embedder is None or model in {"words", "keywords"}
    table = WITHOUT_EMBEDDER if is_by_words else embedder_table(embedder or "")
    found: Coefficients = learned_tables()[table][model]
    return found


def relevance_features(evidence: SearchEvidence, value: float) -> dict[str, float]:
    """Return the numbers that the model reads for a hit with this rank value."""
    values = evidence.values
    best, tenth = values[0], values[min(_TENTH, len(values) - 1)]
    is_positive = best > 0
    return {
        "share": log(max(value / best, _LEAST_SHARE)) if is_positive else 0.0,
        "place": 1 / _place(values, value),
        "lead": min((best - tenth) / best, 1.0) if is_positive else 0.0,
        "length": log(max(len(evidence.terms), 1)),
        "thread": evidence.thread,
        "words": evidence.words,
        "cosine": evidence.cosine,
        "both": evidence.words * evidence.cosine,
    }


def relevance(coefficients: Coefficients, features: Mapping[str, float]) -> float:
    """Return the probability, from 0 to 1, that a hit with these features is relevant."""
    weights = ((name, weight) for name, weight in coefficients.items() if name != "constant")
    total = coefficients["constant"] + sum(weight * features[name] for name, weight in weights)
    return 1 / (1 + exp(-max(min(total, 50.0), -50.0)))


def share_of_question(query: str, terms: Sequence[str], item: MemoryItem) -> float:
    """Return the share of a query's words that a memory has with its author, or how well it fits what is asked for."""
    share = share_of_terms(terms, "\n".join([item.author or "", *searchable_texts(item)]))
    return max(share, best_match(query, item.memory)) if is_short_statement(item) else share


def share_of_busiest_thread(order: Sequence[str], found: IndexResult, neighbours: NeighbourTurns) -> float:
    """Return the share of the first ten hits that are turns of the thread which most of them belong to.

    Args:
        order: ids, best first.
        found: the result of the index.
        neighbours: the turns around its hits, which may be hits too.
    """
    first = set(order[:_FIRST_TEN])
    known = {
        hit.id: decode_features(hit.facts) for hits in (found.vector, found.text) for hit in hits if hit.id in first
    }
    if len(known) < len(first):
        known |= {id_: features for turns in neighbours.values() for id_, features in turns if id_ in first}
    threads = Counter(features.thread for features in known.values() if features.author is not None)
    return max(threads.values(), default=0) / max(len(first), 1)


def _place(values: Sequence[float], value: float) -> int:
    """Return the place, from 1, of the first hit with this rank value or a lower one."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] > value:
            low = middle + 1
        else:
            high = middle
    return low + 1


# -- standing instructions and the latest of statements ------------------------------------------


LIFTED = 2
"""Standing memories that a search lifts."""
_MOST_CANDIDATES = 8
"""Standing memories whose texts are read to choose them."""
_LAST_PLACE = 10
"""They become the last ones of so many hits, or of those that are requested."""
_ABOUT = 12
"""Characters of an encoded claim that say what it is about; the others are its value."""


class Successions(NamedTuple):
    """Which memories of a result replace which."""

    superseded_by: dict[str, str]
    supersedes: dict[str, tuple[str, ...]]


def standing_candidates(found: IndexResult, owner: str) -> list[str]:
    """Return the ids of the standing memories of an owner that have most to do with a query, a few of them.

    Args:
        found: the standing memories that were found by words and by meaning.
        owner: `serialization.owner_key` of the user or actor who searches; instructions of others are left out.
    """
    legs = [
        [hit for hit in hits if decode_features(hit.facts).standing.endswith(f":{owner}")]
        for hits in (found.text, found.vector)
    ]
    scores = sum_scores(*(reciprocal_rank_scores(hits) for hits in legs))
    # An instruction may be about anything; a preference has to have a word in common with the query.
    worded = {hit.id for hit in found.text}
    kinds = {hit.id: decode_features(hit.facts).standing for hits in legs for hit in hits}
    chosen = [id_ for id_ in scores if id_ in worded or kinds[id_].startswith("instruction")]
    return sorted(chosen, key=lambda id_: (-scores[id_], id_))[:_MOST_CANDIDATES]


class Offers(NamedTuple):
    """What a hybrid search does with an order, be it that of the ranking or of a reranker."""

    candidates: Sequence[str] = ()
    """Ids of the standing memories of which some may be lifted, best first; `chosen` reads their texts."""
    standing: Sequence[str] = ()
    """Ids of those to lift, best first."""
    claims: Mapping[str, RankingFeatures] = MappingProxyType({})
    """Features of the statements among the hits, of which the latest comes first."""

    @classmethod
    def of(cls, found: IndexResult, candidates: Sequence[str], *, latest: bool) -> Offers:
        """Return the offers of a search.

        Args:
            found: the result of the index.
            candidates: ids of the standing memories that may be lifted, best first.
            latest: whether the latest of statements come first.
        """
        claims = {}
        if latest:
            hits = (*found.vector, *found.text)
            claims = {hit.id: known for hit in hits if (known := decode_features(hit.facts)).claims}
        return cls(candidates, (), claims)

    def applied(
        self, order: Sequence[RankedMemory], limit: int, *, explain: bool
    ) -> tuple[list[RankedMemory], Successions]:
        """Return (the order with the latest of statements first and standing memories lifted, what replaces what)."""
        ranked, successions = list(order), Successions({}, {})
        if len(self.claims) > 1:
            ranked, successions = latest_first(order, self.claims, explain=explain)
        return lift_standing(ranked, self.standing, limit, explain=explain), successions

    def among(self, present: AbstractSet[str]) -> Offers:
        """Return the offers without standing memories that were left out."""
        return Offers(self.candidates, [id_ for id_ in self.standing if id_ in present], self.claims)

    def chosen(self, query: str, items: Mapping[str, MemoryItem]) -> Offers:
        """Return the offers with the standing memories to lift, at most `LIFTED`.

        A preference has to have a word of the query in its own sentence: the other sentences of its text may be about
        anything. Instructions about another topic ("when I ask about libraries") come last.

        Args:
            query: the query of the search.
            items: the candidates that exist, by id.
        """
        terms = frozenset(query_terms(query))
        known = [(id_, one) for id_ in self.candidates if id_ in items and (one := standing_of(items[id_])) is not None]
        fitting = [id_ for id_, one in known if standing_applies(one, terms)]
        others = [id_ for id_, one in known if one.kind == "instruction" and id_ not in fitting]
        return Offers(self.candidates, [*fitting, *others][:LIFTED], self.claims)


def standing_applies(standing: Standing, terms: AbstractSet[str]) -> bool:
    """Return whether a standing memory has to do with a query: one about everything always has.

    Args:
        standing: the instruction or preference.
        terms: significant words of the query, as stems.
    """
    about_everything = standing.kind == "instruction" and not standing.topic
    return about_everything or not standing.terms.isdisjoint(terms)


def lift_standing(
    order: Sequence[RankedMemory], chosen: Sequence[str], limit: int, *, explain: bool
) -> list[RankedMemory]:
    """Return the order with some standing memories among the hits, behind those that answer the query best.

    Args:
        order: best first; a chosen memory need not be among them.
        chosen: ids, best first.
        limit: most hits of the search; a search for one hit lifts nothing.
        explain: whether the gain becomes a signal.
    """
    first = min(limit, _LAST_PLACE) - len(chosen)
    if first < 1 or not chosen:
        return list(order)
    before, wanted = order[:first], [id_ for id_ in chosen if id_ not in {each.id for each in order[:first]}]
    own = {each.id: each for each in order}
    least = before[-1].score if before else 0.0
    lifted = [
        _with_score(own.get(id_, RankedMemory(id_, 0.0, ())), least, "standing", explain=explain) for id_ in wanted
    ]
    return [*before, *lifted, *(each for each in order[first:] if each.id not in wanted)]


def latest_first(
    order: Sequence[RankedMemory], features: Mapping[str, RankingFeatures], *, explain: bool
) -> tuple[list[RankedMemory], Successions]:
    """Return the order with each statement before the older ones that it replaces, and which replace which."""
    places: dict[str, list[int]] = {}
    for place, each in enumerate(order):
        known = features.get(each.id)
        for claim in known.claims if known is not None else ():
            places.setdefault(claim[:_ABOUT], []).append(place)
    found = Successions({}, {})
    ranked = list(order)
    for about, several in places.items():
        if len(several) > 1:
            _replace(ranked, [order[place].id for place in several], about, features, found, explain=explain)
    return ranked, found


def _replace(
    ranked: list[RankedMemory],
    ids: Sequence[str],
    about: str,
    features: Mapping[str, RankingFeatures],
    found: Successions,
    *,
    explain: bool,
) -> None:
    newest = max(ids, key=lambda id_: (features[id_].at_ms, id_))
    value = _value(features[newest], about)
    older = [
        id_ for id_ in ids if features[id_].at_ms < features[newest].at_ms and _value(features[id_], about) != value
    ]
    older = [id_ for id_ in older if id_ not in found.superseded_by]
    if not older:
        return
    found.superseded_by.update(dict.fromkeys(older, newest))
    found.supersedes[newest] = (*found.supersedes.get(newest, ()), *older)
    at = {each.id: place for place, each in enumerate(ranked)}
    first = min(at[id_] for id_ in older)
    if first < at[newest]:
        moved = ranked.pop(at[newest])
        ranked.insert(first, _with_score(moved, ranked[first].score, "latest", explain=explain))


def with_successions(hits: Sequence[Hit], found: Successions) -> list[Hit]:
    """Return the hits with what they are and replace; only hits of this result are named."""
    present = {hit.item.id for hit in hits}
    marked = []
    for hit in hits:
        id_, standing = hit.item.id, standing_of(hit.item)
        newer = found.superseded_by.get(id_)
        changes = {
            "standing": None if standing is None else standing.kind,
            "supersedes": tuple(older for older in found.supersedes.get(id_, ()) if older in present),
            "superseded_by": newer if newer in present else None,
        }
        marked.append(hit.model_copy(update=changes) if any(changes.values()) else hit)
    return marked


def _value(known: RankingFeatures, about: str) -> str:
    return next((claim for claim in known.claims if claim.startswith(about)), "")


def _with_score(ranked: RankedMemory, score: float, name: str, *, explain: bool) -> RankedMemory:
    gain = score - ranked.score
    signals = (*ranked.signals, Signal(name=name, score=1.0, weight=gain, contribution=gain)) if explain else ()
    return RankedMemory(ranked.id, score, signals)


# -- the reranker of the settings ----------------------------------------------------------------


_log = get_logger("memory")
_LONGEST_BEFORE = 300
"""Characters of the turn before that a reranker reads, from its end."""


class ServiceReranker:
    """The reranker of a hub, for its searches.

    Args:
        reranker: scores the texts of memories.
        counters: count `memory_not_reranked` by reason: `slow` or `failed`.
        budget_ms: milliseconds that a search waits for the scores.
    """

    def __init__(self, reranker: Reranker, counters: Counters, *, budget_ms: int) -> None:
        self._reranker = reranker
        self._counters = counters
        self._budget_ms = budget_ms
        self._is_failing = False

    async def scores(
        self, query: str, items: Sequence[MemoryItem], before: Mapping[str, MemoryItem]
    ) -> Sequence[float] | None:
        """Return a score for each memory; None if the service fails or is slow, so that the first order stays.

        Args:
            query: the query of the search.
            items: the best memories by the first order.
            before: the turns before turns of a conversation, by the id of the later one.
        """
        texts = [_text_in_context(item, before.get(item.id)) for item in items]
        try:
            async with asyncio.timeout(self._budget_ms / 1000):
                scores = await self._reranker.score(query, texts)
        except TimeoutError:
            self._report("slow", f"it did not answer within {self._budget_ms:,} ms, reranker_budget_ms")
            return None
        except (SharedMemoryError, OSError) as error:
            self._report("failed", str(error))
            return None
        self._is_failing = False
        return scores

    def _report(self, reason: str, why: str) -> None:
        """Count a failure, and log it unless the failure before was logged and no success came between."""
        self._counters.increment("memory_not_reranked", reason=reason)
        if not self._is_failing:
            _log.warning("searches are not reranked: %s: %s", self._reranker.name, why)
        self._is_failing = True


def _text_in_context(item: MemoryItem, before: MemoryItem | None) -> str:
    """Return the text that a reranker reads: of a turn with its author, behind the end of the turn before it.

    An answer such as `Yes, in May` means nothing without its question. Turns of authors without a name are read alone:
    their context made the order worse where user and assistant speak in pages.
    """
    text = "\n".join(searchable_texts(item))
    if item.author is None or is_role(item.author):
        return text
    said = f"{item.author}: {text}"
    return said if before is None else f"{before.author}: {before.memory[-_LONGEST_BEFORE:]}\n{said}"


# -- passages ------------------------------------------------------------------------------------


def passage_of(text: str, terms: Sequence[str]) -> Passage | None:
    """Return the part of a long text that has to do with the terms of a query; see `Hit.passage`."""
    span = find_passage(terms, text)
    return None if span is None else Passage(start=span[0], end=span[1], text=text[span[0] : span[1]])
