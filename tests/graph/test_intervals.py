"""The interval algebra of one line: what holds when, as known when."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.example_budget import example_count
from support.graph_claims import claim_lists, make_claim, make_end_claim

from sharedmem.graph.projection import PlacedClaim, Span, SpanHistory, compute_spans, intersect_spans
from sharedmem.graph.records import LATEST, OPEN, UNKNOWN_START, Claim, to_stamp

FIRST = to_stamp("moment", datetime.min.replace(tzinfo=UTC))
LAST = to_stamp("moment", datetime.max.replace(tzinfo=UTC))


def standing(claims: list[Claim]) -> list[PlacedClaim]:
    return [PlacedClaim(claim.target or claim.value, claim) for claim in claims]


def shown(claims: list[Claim], *, known: int = LATEST) -> list[tuple[str, int, int]]:
    return [(span.other, span.start, span.end) for span in compute_spans(standing(claims), known=known)]


def rome(day: int, **more: int | str) -> Claim:
    return make_claim("anna lives_in rome", day=day, **more)  # type: ignore[arg-type]  # keywords as `make_claim` has them


def oslo(day: int, **more: int | str) -> Claim:
    return make_claim("anna lives_in oslo", day=day, **more)  # type: ignore[arg-type]  # likewise


class Case(NamedTuple):
    sentence: str
    claims: list[Claim]
    holds: list[tuple[str, int, int]]


CASES = [
    Case("no claims", [], []),
    Case("one claim holds without an end", [rome(3)], [("rome", 3, OPEN)]),
    Case("one claim holds until before its end", [rome(3, until=5)], [("rome", 3, 5)]),
    Case("a claim that ends as it begins says nothing", [rome(3, until=3)], []),
    Case(
        "a claim that ends as it begins cuts nothing either",
        [rome(1), oslo(3, until=3, recorded=9)],
        [("rome", 1, OPEN)],
    ),
    Case("a later target ends the earlier one", [rome(1), oslo(5)], [("rome", 1, 5), ("oslo", 5, OPEN)]),
    Case(
        "an earlier target that is learned late ends where the later one begins",
        [oslo(5), rome(1, recorded=9)],
        [("rome", 1, 5), ("oslo", 5, OPEN)],
    ),
    Case(
        "what was ended by another does not come back when that ends",
        [rome(1), oslo(5, until=7)],
        [("rome", 1, 5), ("oslo", 5, 7)],
    ),
    Case(
        "an end before the next target stays as it was said",
        [rome(1, until=3), oslo(5)],
        [("rome", 1, 3), ("oslo", 5, OPEN)],
    ),
    Case(
        "there and back again gives two spans of one target",
        [rome(1), oslo(3), rome(5)],
        [("rome", 1, 3), ("oslo", 3, 5), ("rome", 5, OPEN)],
    ),
    Case("of equal starts the one said last counts", [rome(1, recorded=9), oslo(1, recorded=2)], [("rome", 1, OPEN)]),
    Case(
        "of equal starts said at once the later episode counts",
        [rome(1, by="a#0"), oslo(1, by="b#0")],
        [("oslo", 1, OPEN)],
    ),
    Case(
        "of equal starts in one episode the later statement counts, the tenth after the second",
        [rome(1, by="a#10"), oslo(1, by="a#2")],
        [("rome", 1, OPEN)],
    ),
    Case(
        "a claim that loses at an equal start ends no span later",
        [oslo(1, recorded=1), rome(1, recorded=2), rome(4)],
        [("rome", 1, OPEN)],
    ),
    Case("the same said again is one span", [rome(1), rome(4)], [("rome", 1, OPEN)]),
    Case("the same said again for longer reaches further", [rome(1, until=5), rome(3, until=9)], [("rome", 1, 9)]),
    Case(
        "of ends that differ the one said last counts, the shorter too",
        [rome(1, until=9, recorded=1), rome(1, until=4, recorded=2)],
        [("rome", 1, 4)],
    ),
    Case(
        "an end that is corrected and learned in the other order stays corrected",
        [rome(3, until=9, recorded=1), rome(1, until=4, recorded=2)],
        [("rome", 1, 4)],
    ),
    Case("what carries on where a span ends joins it", [rome(1, until=4), rome(4)], [("rome", 1, OPEN)]),
    Case(
        "what carries on does so even if the end was said later",
        [rome(4, recorded=1), rome(1, until=4, recorded=9)],
        [("rome", 1, OPEN)],
    ),
    Case("a gap makes two spans", [rome(1, until=4), rome(5)], [("rome", 1, 4), ("rome", 5, OPEN)]),
    Case("an ending ends what it names", [rome(1), make_end_claim("anna lives_in rome", day=4)], [("rome", 1, 4)]),
    Case(
        "an ending that names nothing ends whatever holds",
        [oslo(1), make_end_claim("anna lives_in", day=4)],
        [("oslo", 1, 4)],
    ),
    Case(
        "an ending of another target ends nothing",
        [oslo(1), make_end_claim("anna lives_in rome", day=4)],
        [("oslo", 1, OPEN)],
    ),
    Case(
        "an ending that comes too late ends nothing",
        [oslo(1, until=3), make_end_claim("anna lives_in", day=4)],
        [("oslo", 1, 3)],
    ),
    Case("an ending of nothing at all is no harm", [make_end_claim("anna lives_in", day=4)], []),
    Case(
        "an end and a new beginning at one moment go on",
        [rome(1), make_end_claim("anna lives_in rome", day=4), rome(4)],
        [("rome", 1, OPEN)],
    ),
    Case(
        "after an end a later beginning is a span of its own",
        [rome(1), make_end_claim("anna lives_in", day=4), rome(6)],
        [("rome", 1, 4), ("rome", 6, OPEN)],
    ),
    Case(
        "an ending at the start of what holds ends only what was before",
        [rome(4), make_end_claim("anna lives_in", day=4)],
        [("rome", 4, OPEN)],
    ),
    Case(
        "an unknown start comes before every other",
        [rome(UNKNOWN_START, recorded=5), oslo(1, recorded=2)],
        [("rome", UNKNOWN_START, 1), ("oslo", 1, OPEN)],
    ),
    Case(
        "of unknown starts the one said last counts",
        [rome(UNKNOWN_START, recorded=5), oslo(UNKNOWN_START, recorded=2)],
        [("rome", UNKNOWN_START, OPEN)],
    ),
    Case(
        "the first moment of year 1 and the last one of year 9999 are moments like others",
        [rome(FIRST), oslo(LAST)],
        [("rome", FIRST, LAST), ("oslo", LAST, OPEN)],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.sentence for case in CASES])
@pytest.mark.parametrize("backwards", [False, True], ids=["in order", "backwards"])
def test_what_holds_follows_from_what_was_said(case: Case, backwards: bool) -> None:
    claims = case.claims[::-1] if backwards else case.claims

    assert shown(claims) == case.holds


def test_only_what_was_recorded_and_not_yet_retracted_counts() -> None:
    claims = [rome(1, recorded=3, retracted=6), oslo(1, recorded=2)]

    answers = {known: shown(claims, known=known) for known in (1, 2, 3, 5, 6)}

    assert answers == {
        1: [],
        2: [("oslo", 1, OPEN)],
        3: [("rome", 1, OPEN)],
        5: [("rome", 1, OPEN)],
        6: [("oslo", 1, OPEN)],
    }


def test_a_span_names_every_claim_that_says_so_and_no_other() -> None:
    first, loser, again = rome(1, by="a#0"), oslo(3, by="b#0", recorded=1), rome(3, by="c#0")

    (span,) = compute_spans(standing([first, loser, again]), known=LATEST)

    assert span.claims == (first, again)


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ([(1, 5)], [(3, 9)], [(3, 5)]),
        ([(1, 5)], [(5, 9)], []),
        ([(1, 9)], [(2, 3), (4, 5), (8, 12)], [(2, 3), (4, 5), (8, 9)]),
        ([(0, OPEN)], [(0, OPEN)], [(0, OPEN)]),
        ([], [(1, 2)], []),
    ],
    ids=["they overlap", "they only meet", "one holds others", "without end", "one is empty"],
)
def test_both_hold_where_intervals_intersect(
    first: list[tuple[int, int]], second: list[tuple[int, int]], both: list[tuple[int, int]]
) -> None:
    left = [Span("x", start, end, ()) for start, end in first]
    right = [Span("y", start, end, ()) for start, end in second]

    assert [(span.start, span.end) for span in intersect_spans(left, right)] == both
    assert [(span.start, span.end) for span in intersect_spans(right, left)] == both


@settings(max_examples=example_count(35, thorough=100), deadline=None)
@given(claim_lists(types=("lives_in",)), st.integers(0, 9))
def test_spans_of_a_line_never_overlap_and_those_of_one_target_never_touch(claims: list[Claim], known: int) -> None:
    mine = [claim for claim in claims if claim.source == "a"]

    found = compute_spans(standing(mine), known=known)

    assert all(span.start < span.end for span in found)
    for one, two in pairwise(found):
        assert one.end <= two.start
        assert one.end < two.start or one.other != two.other


@settings(max_examples=example_count(35, thorough=100), deadline=None)
@given(claim_lists(types=("lives_in",), most=20))
def test_a_course_that_learns_bit_by_bit_tells_what_a_walk_from_scratch_tells(claims: list[Claim]) -> None:
    standings = standing([claim for claim in claims if claim.source == "a"])
    course = SpanHistory()
    held: dict[tuple[str, int], Span | None] = {}

    for known in range(10):
        came = [one for one in standings if one.claim.recorded == known < one.claim.retracted]
        went = [one for one in standings if one.claim.recorded < known == one.claim.retracted]
        for change in course.learn(came, went):
            held[change.other, change.start] = change.span

        told = [span for span in held.values() if span is not None]
        assert sorted(told) == sorted(compute_spans(standings, known=known))
