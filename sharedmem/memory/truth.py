"""What a search offers beside its ranking: standing instructions of the caller, and the latest of statements.

Pure functions over ranked memories and their features, so they cost no round trip. A statement replaces an older one of
the same owner about the same subject and attribute (`text.claims`). Nothing is left out: the older one follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sharedmem.memory.ranking import RankedMemory
from sharedmem.memory.serialization import RankingFeatures, decode_features
from sharedmem.models import Signal
from sharedmem.search.protocol import IndexResult
from sharedmem.search.scoring import reciprocal_rank_scores, sum_scores

LIFTED = 2
"""Standing memories that a search lifts."""
_LAST_PLACE = 10
"""They become the last ones of so many hits, or of those that are requested."""
_ABOUT = 12
"""Characters of an encoded claim that say what it is about; the others are its value."""


class Successions(NamedTuple):
    """Which memories of a result replace which."""

    superseded_by: dict[str, str]
    supersedes: dict[str, tuple[str, ...]]


def best_standing(found: IndexResult, owner: str) -> list[str]:
    """Return the ids of the standing memories of an owner that have most to do with a query, at most `LIFTED`.

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
    return sorted(chosen, key=lambda id_: (-scores[id_], id_))[:LIFTED]


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


def _value(known: RankingFeatures, about: str) -> str:
    return next((claim for claim in known.claims if claim.startswith(about)), "")


def _with_score(ranked: RankedMemory, score: float, name: str, *, explain: bool) -> RankedMemory:
    gain = score - ranked.score
    signals = (*ranked.signals, Signal(name=name, score=1.0, weight=gain, contribution=gain)) if explain else ()
    return RankedMemory(ranked.id, score, signals)
