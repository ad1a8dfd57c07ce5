"""Calibration: a curve over thresholds, and the one to choose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharedmem import InvalidError
from sharedmem.providers.calibration import (
    LabelledPair,
    advise_threshold,
    pair_similarities,
    read_pairs,
    threshold_curve,
)
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.providers.protocol import UNMEASURED, thresholds_of

SAME = LabelledPair("where is it", "where might it be", same=True)
DIFFERENT = LabelledPair("where is it", "why is it there", same=False)
GUARDED = LabelledPair("take 2 mg", "take 20 mg", same=False)


def test_the_curve_tells_what_a_threshold_lets_through() -> None:
    pairs = [SAME, SAME, DIFFERENT, GUARDED]

    (point,) = threshold_curve(pairs, [0.99, 0.8, 0.95, 0.97], thresholds=[0.9])

    assert (point.threshold, point.same_hit, point.different_hit) == (0.9, 0.5, 1.0)
    assert (point.same_hit_guarded, point.different_hit_guarded) == (0.5, 0.5)


def test_the_advice_is_the_lowest_threshold_with_few_enough_mistakes() -> None:
    pairs, near = [SAME] * 4 + [DIFFERENT] * 100, [0.97, 0.94, 0.91, 0.2] + [0.9 - 0.001 * step for step in range(100)]

    strict, lenient = (
        advise_threshold(pairs, near, max_false_hits=0),
        advise_threshold(pairs, near, max_false_hits=0.03),
    )

    assert strict is not None
    assert lenient is not None
    assert (strict.threshold, strict.same_hit, strict.different_hit) == (0.901, 0.75, 0.0)
    assert (lenient.threshold, lenient.different_hit) == (0.898, 0.03)
    assert (strict.is_certain, lenient.is_certain) == (False, True)


def test_no_threshold_is_advised_where_none_is_safe() -> None:
    assert advise_threshold([SAME, DIFFERENT], [1.0, 1.0], max_false_hits=0) is None


@given(st.lists(st.floats(0.6, 1), min_size=2, max_size=40), st.floats(0, 0.9))
def test_what_is_advised_keeps_to_what_is_tolerated(near: list[float], tolerated: float) -> None:
    pairs = [SAME if number % 2 else DIFFERENT for number in range(len(near))]

    advised = advise_threshold(pairs, near, max_false_hits=tolerated)

    assert advised is None or advised.different_hit <= tolerated
    points = threshold_curve(pairs, near)
    assert [point.same_hit for point in points] == sorted(point.same_hit for point in points)


@pytest.mark.parametrize(
    ("pairs", "near", "told"),
    [
        ([SAME], [0.9], "labelled different"),
        ([DIFFERENT], [0.9], "labelled same"),
        ([SAME, DIFFERENT], [0.9], "each of 2 pairs"),
        ([SAME, DIFFERENT], [0.9, float("nan")], "finite"),
    ],
)
def test_what_cannot_be_judged_is_refused(pairs: list[LabelledPair], near: list[float], told: str) -> None:
    with pytest.raises(InvalidError, match=told):
        threshold_curve(pairs, near)


@pytest.mark.parametrize("share", [-0.1, 1, float("nan"), True])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(InvalidError, match="max_false_hits"):
        advise_threshold([SAME, DIFFERENT], [0.9, 0.8], max_false_hits=share)


def test_lines_that_hold_no_pair_are_told_by_number() -> None:
    lines = [
        b'{"a": "x", "b": "y", "same": true}',
        b"",
        b'{"a": "x", "b": "y", "same": 0, "more": 1}',
        b"no json",
        b'{"a": "x", "b": "y"}',
        b'{"a": "", "b": "y", "same": 1}',
        b'{"a": "x", "b": 7, "same": 1}',
        b'{"a": "x", "b": "y", "same": 2}',
        b'{"a": "x", "b": "y", "same": "yes"}',
        b"[1, 2]",
        b"\xff",
    ]

    found = read_pairs(lines)

    assert found.good == [LabelledPair("x", "y", same=True), LabelledPair("x", "y", same=False)]
    assert found.bad_lines == [4, 5, 6, 7, 8, 9, 10, 11]


async def test_similarities_come_in_the_order_of_the_pairs() -> None:
    pairs = [LabelledPair(f"word{number} alone", f"word{number} alone", same=True) for number in range(300)]
    pairs[7] = LabelledPair("entirely", "something else", same=False)
    told: list[int] = []

    near = await pair_similarities(HashingEmbedder(), pairs, progress=told.append)

    assert near[6] == near[8] == pytest.approx(1)
    assert near[7] < 0.9
    assert told[-1] == len(near) == 300


def test_embedders_that_were_measured_have_their_threshold() -> None:
    """docs/cache.md: the table of calibrated defaults."""
    assert thresholds_of("wordllama:l2_supercat-256").cache == 0.976
    assert thresholds_of("openai:text-embedding-3-small") == UNMEASURED
