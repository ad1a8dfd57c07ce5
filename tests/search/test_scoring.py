"""Fusion and variety: rankings are united and thinned out by rules that hold for any scores."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharedmem.redis.vectors import Matrix, normalize
from sharedmem.search.protocol import IndexHit
from sharedmem.search.scoring import min_max_scores, reciprocal_rank_scores, scores_by_best, select_diverse, sum_scores

SCORES = st.floats(0.001, 100, allow_nan=False)
NAMES = st.text("abcdefgh", min_size=1, max_size=2)


def ranked(scores: dict[str, float]) -> list[IndexHit]:
    return [IndexHit(id_, score, b"") for id_, score in sorted(scores.items(), key=lambda one: (-one[1], one[0]))]


HITS = st.dictionaries(NAMES, SCORES, max_size=12).map(ranked)


def fusions(text: list[IndexHit], vector: list[IndexHit]) -> list[dict[str, float]]:
    return [
        sum_scores(reciprocal_rank_scores(text, 0.6), reciprocal_rank_scores(vector, 0.4)),
        sum_scores(scores_by_best(text, 0.6), min_max_scores(vector, 0.4)),
    ]


def test_reciprocal_ranks_are_added_up() -> None:
    text = [IndexHit("a", 9.0, b""), IndexHit("b", 1.0, b"")]
    vector = [IndexHit("c", 0.9, b""), IndexHit("a", 0.8, b"")]

    fused = sum_scores(reciprocal_rank_scores(text), reciprocal_rank_scores(vector))

    assert fused == pytest.approx({"a": 1 + 61 / 62, "b": 61 / 62, "c": 1.0})


def test_the_weighted_sum_divides_words_by_the_best_and_stretches_meaning() -> None:
    text = [IndexHit("a", 8.0, b""), IndexHit("b", 2.0, b"")]
    vector = [IndexHit("b", 0.9, b""), IndexHit("c", 0.6, b""), IndexHit("a", 0.5, b"")]

    assert scores_by_best(text, 0.6) == pytest.approx({"a": 0.6, "b": 0.15})
    assert min_max_scores(vector, 0.4) == pytest.approx({"a": 0.0, "b": 0.4, "c": 0.1})


def test_equally_near_hits_all_count_as_nearest() -> None:
    assert min_max_scores([IndexHit("a", 0.5, b""), IndexHit("b", 0.5, b"")]) == {"a": 1.0, "b": 1.0}


def test_scores_of_zero_are_no_division_by_zero() -> None:
    assert scores_by_best([IndexHit("a", 0.0, b"")]) == {"a": 0.0}


@given(HITS, HITS)
def test_what_is_fused_is_the_union_without_doubles(text: list[IndexHit], vector: list[IndexHit]) -> None:
    expected = {hit.id for hit in [*text, *vector]}

    for fused in fusions(text, vector):
        assert set(fused) == expected


@given(HITS, HITS)
def test_who_is_ahead_in_every_search_is_ahead_in_the_end(text: list[IndexHit], vector: list[IndexHit]) -> None:
    behind = len(text) + len(vector)
    places = [{hit.id: place for place, hit in enumerate(hits)} for hits in (text, vector)]

    for fused in fusions(text, vector):
        for (one, score), (other, other_score) in product(fused.items(), repeat=2):
            if all(place.get(one, behind) <= place.get(other, behind) for place in places):
                assert score >= other_score - 1e-12


@given(HITS, HITS, st.data())
def test_to_rise_in_one_search_never_lowers_a_record(
    text: list[IndexHit], vector: list[IndexHit], data: st.DataObject
) -> None:
    if not text:
        return
    risen = data.draw(st.sampled_from(text))
    others = [hit for hit in text if hit.id != risen.id]
    place = data.draw(st.integers(0, text.index(risen)))
    better = [*others[:place], risen, *others[place:]]

    before = sum_scores(reciprocal_rank_scores(text), reciprocal_rank_scores(vector))
    after = sum_scores(reciprocal_rank_scores(better), reciprocal_rank_scores(vector))

    assert after[risen.id] >= before[risen.id]


# -- variety --------------------------------------------------------------------------------------


@st.composite
def scored_vectors(draw: st.DrawFn) -> tuple[list[float], Matrix]:
    count = draw(st.integers(0, 10))
    seed = draw(st.integers(0, 2**32 - 1))
    scores = draw(st.lists(SCORES, min_size=count, max_size=count))
    return scores, normalize(np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32))


@given(scored_vectors(), st.floats(0, 1))
def test_variety_reorders_and_neither_adds_nor_loses(hits: tuple[list[float], Matrix], balance: float) -> None:
    scores, vectors = hits

    order = select_diverse(scores, vectors, balance=balance, k=len(scores))

    assert sorted(order) == list(range(len(scores)))


@given(scored_vectors())
def test_with_relevance_alone_the_order_is_that_of_relevance(hits: tuple[list[float], Matrix]) -> None:
    scores, vectors = hits

    order = select_diverse(scores, vectors, balance=1.0, k=len(scores))

    assert [scores[place] for place in order] == sorted(scores, reverse=True)


@given(scored_vectors(), st.floats(0, 1), st.integers(0, 12))
def test_fewer_are_the_first_of_more(hits: tuple[list[float], Matrix], balance: float, k: int) -> None:
    scores, vectors = hits

    everyone = select_diverse(scores, vectors, balance=balance, k=len(scores))

    assert select_diverse(scores, vectors, balance=balance, k=k) == everyone[:k]


def test_a_repetition_stands_behind_something_else() -> None:
    vectors = normalize(np.array([[1, 0], [1, 0.01], [0, 1]], dtype=np.float32))

    assert select_diverse([1.0, 0.99, 0.5], vectors, balance=0.5, k=3) == [0, 2, 1]
