"""Queries on a mirror: the best by words, the best by meaning, and the records that match filters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sharedmem.errors import InvalidError
from sharedmem.record_family import RecordFamily
from sharedmem.redis.vectors import Vector
from sharedmem.search.exact.mirror import Mask, Mirror, RowNumbers
from sharedmem.search.protocol import (
    Between,
    Condition,
    Either,
    Every,
    IndexHit,
    Inverse,
    RecordPage,
    Tagged,
    Worded,
    without_frequent_terms,
)
from sharedmem.search.scoring import Floats, inverse_document_frequency, term_score

_DIGITS = 6
"""Digits to which scores are compared: equal scores must not differ by the order of their additions."""
_WORDS = "terms"
_FEW = 4
"""If fewer than one in so many rows match, these are copied before the multiplication."""


def check_filter(family: RecordFamily, condition: Condition) -> None:
    """Reject a filter on a field that the family does not have.

    Raises:
        InvalidError: the filter names no tag or number of the family.
    """
    if isinstance(condition, Every | Either):
        for part in condition.conditions:
            check_filter(family, part)
        return
    if isinstance(condition, Inverse):
        check_filter(family, condition.condition)
        return
    if isinstance(condition, Worded):
        if condition.field != _WORDS:
            raise InvalidError("filter", condition.field, f"the words of {family.name} are in {_WORDS}")
        return
    known = family.tags if isinstance(condition, Tagged) else family.numbers
    if condition.field not in known:
        kind = "tags" if isinstance(condition, Tagged) else "numbers"
        raise InvalidError("filter", condition.field, f"the {kind} of {family.name} are {', '.join(known) or 'none'}")
    if isinstance(condition, Between) and any(
        end is not None and math.isnan(end) for end in (condition.low, condition.high)
    ):
        raise InvalidError(f"filter {condition.field}", math.nan, "give a number")


def matching_rows(mirror: Mirror, condition: Condition) -> Mask:
    """Return which rows are living and match the condition."""
    mask = mirror.living.copy()
    _apply_condition(mirror, mask, condition)
    return mask


def best_by_words(
    mirror: Mirror, terms: Sequence[str], mask: Mask, k: int, *, commonest: int | None = None
) -> list[IndexHit]:
    """Return the `k` records with the highest BM25, by statistics of the whole namespace; see `Query.commonest`."""
    scores = np.zeros(len(mask))
    holders = (
        {term: _document_frequency(mirror, term) for term in terms}
        if commonest is not None
        else dict.fromkeys(terms, 0)
    )
    for term in without_frequent_terms(holders, commonest):
        _add_term_scores(mirror, term, scores)
    slots = np.flatnonzero(mask & (scores > 0))
    return _best_hits(mirror, slots, np.round(scores[slots], _DIGITS), k)


def best_by_meaning(mirror: Mirror, vector: Vector, mask: Mask, k: int) -> list[IndexHit]:
    """Return the `k` records with the highest cosine similarity; records without a vector are left out.

    Nothing is near to a vector of zeros.
    """
    if not vector.any():
        return []
    slots = np.flatnonzero(mask & mirror.has_vector)
    is_cheaper_apart = len(slots) * _FEW < len(mask)
    # `vecdot` and not `@`, which uses several threads: on a busy machine they wait for each other.
    similarities = (
        np.vecdot(mirror.vectors[slots], vector) if is_cheaper_apart else np.vecdot(mirror.vectors, vector)[slots]
    )
    rounded = np.round(similarities.astype(np.float64), _DIGITS)
    return _best_hits(mirror, slots, np.clip(rounded, -1.0, 1.0), k)


def record_page(
    mirror: Mirror, mask: Mask, newest: str | None, *, oldest: str | None = None, offset: int, limit: int
) -> RecordPage:
    """Return some of the records in the mask; by a number, highest or lowest first, if one is named, then by id."""
    slots = np.flatnonzero(mask)
    last = offset + limit
    by = newest or oldest
    if by is None:
        return RecordPage([mirror.ids[slot] for slot in slots[offset:last]], len(slots))
    numbers = mirror.numbers[by].rows[slots]
    keys = np.where(np.isnan(numbers), -np.inf, numbers if oldest is None else -numbers)
    return RecordPage([id_ for _, id_, _ in _rank_rows(mirror, slots, keys, last)[offset:]], len(slots))


def count_by(mirror: Mirror, mask: Mask, tag: str) -> dict[str, int]:
    """Return how many records of the mask have each value of a tag; `""`: records without a value."""
    counts: dict[str, int] = {}
    without = mask.copy()
    postings = mirror.tags[tag]
    for value in postings:
        slots, _ = postings.of(value)
        without[slots] = False
        if count := int(np.count_nonzero(mask[slots])):
            counts[str(value)] = count
    if count := int(np.count_nonzero(without)):
        counts[""] = count
    return counts


def _apply_condition(mirror: Mirror, mask: Mask, condition: Condition) -> None:
    match condition:
        case Every(conditions):
            for part in conditions:
                _apply_condition(mirror, mask, part)
        case Either(conditions):
            found = np.zeros(len(mask), dtype=np.bool_)
            for part in conditions:
                found |= _mask_of(mirror, part)
            mask &= found
        case Inverse(inner):
            mask &= ~_mask_of(mirror, inner)
        case Tagged():
            mask &= _tag_mask(mirror, condition)
        case Between():
            mask &= _range_mask(mirror, condition)
        case Worded():
            mask &= _words_mask(mirror, condition)


def _mask_of(mirror: Mirror, condition: Condition) -> Mask:
    mask = np.ones(len(mirror.ids), dtype=np.bool_)
    _apply_condition(mirror, mask, condition)
    return mask


def _words_mask(mirror: Mirror, condition: Worded) -> Mask:
    mask = np.full(len(mirror.ids), fill_value=bool(condition.terms))
    for term in condition.terms:
        holds = np.zeros(len(mask), dtype=np.bool_)
        holds[mirror.words.of(term.encode())[0]] = True
        mask &= holds
    return mask


def _tag_mask(mirror: Mirror, condition: Tagged) -> Mask:
    mask = np.zeros(len(mirror.ids), dtype=np.bool_)
    for value in condition.values:
        slots, _ = mirror.tags[condition.field].of(value)
        mask[slots] = True
    return mask


def _range_mask(mirror: Mirror, condition: Between) -> Mask:
    numbers = mirror.numbers[condition.field].rows
    mask: Mask = ~np.isnan(numbers)
    if condition.low is not None:
        mask &= numbers >= condition.low
    if condition.high is not None:
        mask &= numbers <= condition.high
    return mask


def _document_frequency(mirror: Mirror, term: str) -> int:
    slots, _ = mirror.words.of(term.encode())
    return int(np.count_nonzero(mirror.living[slots]))


def _add_term_scores(mirror: Mirror, term: str, scores: Floats) -> None:
    slots, times = mirror.words.of(term.encode())
    lives = mirror.living[slots]
    slots, times = slots[lives], times[lives]
    if len(slots):
        weight = inverse_document_frequency(len(mirror), len(slots))
        scores[slots] += weight * term_score(times.astype(np.float64), mirror.lengths[slots], mirror.average_length)


def _best_hits(mirror: Mirror, slots: RowNumbers, scores: Floats, k: int) -> list[IndexHit]:
    return [IndexHit(id_, -below, mirror.facts[slot]) for below, id_, slot in _rank_rows(mirror, slots, scores, k)]


def _rank_rows(mirror: Mirror, slots: RowNumbers, scores: Floats, k: int) -> list[tuple[float, str, int]]:
    """Return (negative score, id, row) of the `k` highest scores, highest first; ties by id."""
    if k < 1:
        return []
    if k < len(slots):
        # Include every tie with the last one, so that the id decides.
        places = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
        slots, scores = slots[places], scores[places]
    named = zip((-scores).tolist(), [mirror.ids[slot] for slot in slots.tolist()], slots.tolist(), strict=True)
    return sorted(named)[:k]
