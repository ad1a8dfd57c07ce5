"""The formulas of synthesis, by tables of values worked out by hand, and the vectors of long notes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import exp, log
from threading import Event

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.example_budget import example_count

from sharedmem.clock import SystemClock
from sharedmem.errors import InvalidError
from sharedmem.models import Depth, Note
from sharedmem.providers.chunks import split_into_chunks
from sharedmem.providers.embedding import CachedEmbedder
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.runtime import Counters
from sharedmem.synthesis import search
from sharedmem.synthesis.protocol import SimilarNote
from sharedmem.synthesis.resolver import embed_note
from sharedmem.synthesis.search import composite_score, decay, importance, rank_hits, rank_links, recency, score_note

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=36_500)


def note(name: str, **fields: object) -> Note:
    given_fields = {
        "id": name,
        "app_id": "desk",
        "user_id": "ann",
        "memory_note": f"note {name}",
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Note.model_validate(given_fields | fields)


# -- recency --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age_h", "expected"),
    [
        (0, 1.0),
        (-1, 1.0),  # of the future
        (24, 0.997_810),  # e^-0.0021918
        (7_590, 0.499_998),  # the half-life: 10,950 ln 2 is 7,589.96
        (10_950, 0.367_879),  # the e-folding time
        (43_800, 0.018_316),  # five years: e^-4
        (50_427, 0.010_000),  # where the floor begins: 10,950 ln 100
        (87_600, 0.01),  # ten years
    ],
)
def test_recency_falls_to_a_third_in_fifteen_months_and_never_to_nothing(age_h: float, expected: float) -> None:
    made = NOW - timedelta(hours=age_h)

    assert recency(made, made, now=NOW) == pytest.approx(expected, abs=1e-6)


def test_the_half_life_is_not_the_e_folding_time() -> None:
    assert pytest.approx(search.E_FOLDING_H * log(2), abs=0.1) == search.HALF_LIFE_H


def test_recency_counts_from_the_later_of_two_moments() -> None:
    fresh = NOW - timedelta(hours=10_950)

    assert recency(LONG_AGO, fresh, now=NOW) == recency(fresh, LONG_AGO, now=NOW) == pytest.approx(exp(-1))


def test_what_archiving_looks_at_has_no_floor() -> None:
    made = NOW - timedelta(hours=87_600)

    assert decay(made, made, now=NOW) == pytest.approx(exp(-8))
    assert recency(made, made, now=NOW) == search.LEAST_RECENCY


# -- importance and the composite ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quality", "follow_ups", "richness", "expected"),
    [
        ("high", 3, 10, 1.0),
        ("high", 99, 99, 1.0),
        ("high", 0, 0, 0.65),  # 0.5 + 0.3 x 0.3 + 0.2 x 0.3
        ("medium", 2, 9, 0.70),  # 0.3 + 0.24 + 0.16
        ("medium", 1, 4, 0.60),  # 0.3 + 0.18 + 0.12
        ("low", 1, 5, 0.44),  # 0.1 + 0.18 + 0.16
        ("low", 0, 1, 0.25),  # 0.1 + 0.09 + 0.06
        (None, 0, 2, 0.46),  # 0.25 + 0.09 + 0.12
    ],
)
def test_importance_weighs_quality_follow_ups_and_richness(
    quality: Depth | None, follow_ups: int, richness: int, expected: float
) -> None:
    assert importance(quality, follow_ups=follow_ups, richness=richness) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("relevance", "fresh", "weight", "expected"),
    [
        (1.0, 1.0, 1.0, 1.2),
        (0.5, 0.0, 0.0, 0.5),
        (0.7, 1.0, 0.44, 0.8008),  # 0.7 x 1.144
        (0.4, 0.01, 0.25, 0.4104),  # 0.4 x 1.026
        (0.0, 1.0, 1.0, 0.0),
        (1.7, 1.0, 1.0, 1.2),
        (-0.3, 1.0, 1.0, 0.0),
        (float("nan"), 1.0, 1.0, 0.0),
    ],
)
def test_the_composite_score_is_relevance_and_up_to_a_fifth_more(
    relevance: float, fresh: float, weight: float, expected: float
) -> None:
    assert composite_score(relevance, recency=fresh, importance=weight) == pytest.approx(expected)


share = st.floats(0, 1)


@settings(max_examples=example_count(15, thorough=40), deadline=None)
@given(share, share, share)
def test_boosts_never_lift_a_score_beyond_a_fifth(relevance: float, fresh: float, weight: float) -> None:
    score = composite_score(relevance, recency=fresh, importance=weight)

    assert relevance <= score <= 1.2 * relevance


@settings(max_examples=example_count(15, thorough=40), deadline=None)
@given(st.floats(-1, 1), share, share)
def test_nothing_below_the_least_linked_similarity_reaches_the_threshold(
    similarity: float, fresh: float, weight: float
) -> None:
    reached = composite_score(similarity, recency=fresh, importance=weight)

    assert similarity >= search.least_linked_similarity(threshold=reached)


@settings(max_examples=example_count(15, thorough=40), deadline=None)
@given(st.integers(-9_999, 999_999), st.integers(0, 9_999))
def test_what_is_older_is_never_more_recent(age_h: int, more_h: int) -> None:
    younger, older = (NOW - timedelta(hours=hours) for hours in (age_h, age_h + more_h))

    assert 0.01 <= recency(older, older, now=NOW) <= recency(younger, younger, now=NOW) <= 1


def test_the_scores_of_a_note_come_from_its_fields() -> None:
    made = NOW - timedelta(hours=10_950)
    written = note(
        "a",
        created_at=made,
        updated_at=made,
        interaction_quality="medium",
        follow_up_potential=("call back",),
        tags=("refund", "order"),
        keywords=("invoice", "bank"),
    )

    scores = score_note(written, 0.8, now=NOW)

    assert scores == pytest.approx((0.8, exp(-1), 0.6, 0.8 * (1 + 0.1 * exp(-1) + 0.06)))


# -- choosing -------------------------------------------------------------------------------------


def test_links_are_the_best_of_those_above_the_threshold_and_equals_go_by_id() -> None:
    plain = 1 + 0.1 + 0.1 * 0.40  # new, of unknown quality, without anything else
    near = [
        SimilarNote(note(name), similarity) for name, similarity in [("d", 0.9), ("b", 0.8), ("a", 0.8), ("c", 0.5)]
    ]

    links = rank_links(near, now=NOW, number=3)

    assert [each.note.id for each in links] == ["d", "a", "b"]
    assert links[0].scores.composite == pytest.approx(0.9 * plain)
    assert rank_links(near[3:], now=NOW) == []
    assert rank_links(near, now=NOW, number=0) == []


def test_a_link_may_reach_the_threshold_by_its_boosts() -> None:
    linked = rank_links([SimilarNote(note("a"), 0.65)], now=NOW)

    assert [each.note.id for each in linked] == ["a"]


def test_answers_need_the_least_similarity_and_the_least_score() -> None:
    near = [
        SimilarNote(note("low"), 0.29),
        SimilarNote(note("weak"), 0.34),
        SimilarNote(note("good"), 0.36),
        SimilarNote(note("best"), 0.9),
    ]

    hits = rank_hits(near, now=NOW)

    assert [(hit.rank, hit.metadata.id, hit.flagged) for hit in hits] == [(1, "best", False), (2, "good", False)]
    assert [hit.metadata.id for hit in rank_hits(near, now=NOW, recall=0.0, threshold=0.0, number=3)] == [
        "best",
        "good",
        "weak",
    ]


def test_an_answer_carries_the_parts_of_its_score_and_a_flag_when_it_is_not_valid() -> None:
    pending = note("a", status="conflict_pending")

    (hit,) = rank_hits([SimilarNote(pending, 0.9)], now=NOW)

    assert (hit.similarity_score, hit.recency_score, hit.importance_score) == pytest.approx((0.9, 1.0, 0.4))
    assert hit.composite_score == pytest.approx(0.9 * 1.14)
    assert hit.flagged
    assert hit.memory_note == "note a"


@pytest.mark.parametrize(("links", "candidates"), [(1, 3), (4, 12), (33, 99), (34, 100), (500, 100)])
def test_three_candidates_are_looked_at_for_each_link_up_to_a_hundred(links: int, candidates: int) -> None:
    assert search.link_candidates(links) == candidates


def test_three_candidates_are_looked_at_for_each_answer() -> None:
    assert search.query_candidates(10) == 30


# -- vectors of notes -----------------------------------------------------------------------------


class Listening(HashingEmbedder):
    """The offline embedder, which remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(32)
        self.asked: list[list[str]] = []

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        self.asked.append(list(texts))
        return await super().embed(texts, purpose=purpose)


async def test_a_short_note_is_embedded_whole() -> None:
    embedder = Listening()

    vector = await embed_note(embedder, "The invoice was paid twice.")

    assert embedder.asked == [["The invoice was paid twice."]]
    assert vector is not None
    assert np.allclose(vector, (await embedder.embed(["The invoice was paid twice."])).vectors[0])


async def test_a_long_note_gets_the_mean_of_its_pieces_at_unit_length_in_one_call() -> None:
    embedder = Listening()
    text = " ".join(f"word{number}" for number in range(300))

    vector = await embed_note(embedder, text, tokens=100, overlap=10)

    (pieces,) = embedder.asked
    rows = (await embedder.embed(pieces)).vectors
    mean = rows.mean(axis=0)
    assert len(pieces) > 3
    assert vector is not None
    assert np.allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)
    assert vector.dtype == np.float32


async def test_a_very_long_note_is_cut_beside_the_event_loop_and_embedded_all_the_same() -> None:
    vector = await embed_note(HashingEmbedder(16), "the order is late. " * 2_000)

    assert vector is not None
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("text", ["", " \n\t "])
async def test_a_note_that_says_nothing_has_no_vector(text: str) -> None:
    assert await embed_note(HashingEmbedder(16), text) is None


def test_pieces_repeat_as_many_tokens_as_asked() -> None:
    text = " ".join("abcde" for _ in range(100))

    apart, overlapping = (split_into_chunks([text], longest=20, overlap=overlap) for overlap in (0, 10))

    assert sum(len(piece.text) for piece in apart) == len(text)
    assert len(overlapping) > len(apart)


@pytest.mark.parametrize("overlap", [-1, 20])
def test_pieces_cannot_repeat_more_than_they_hold(overlap: int) -> None:
    with pytest.raises(InvalidError, match="overlap"):
        split_into_chunks(["a text"], longest=20, overlap=overlap)


class Slow(HashingEmbedder):
    """The offline embedder; who asks first waits for another to be served."""

    def __init__(self) -> None:
        super().__init__(16)
        self.is_asked, self.may_answer = Event(), Event()

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        if not self.is_asked.is_set():
            self.is_asked.set()
            assert await asyncio.to_thread(self.may_answer.wait, 30)
        return await super().embed(texts, purpose=purpose)


async def test_threads_share_what_was_embedded_and_do_not_wait_for_each_other() -> None:
    slow = Slow()
    cached = CachedEmbedder(slow, clock=SystemClock(), ttl_s=60, items=8, counters=Counters())
    first = asyncio.create_task(asyncio.to_thread(asyncio.run, embed_note(cached, "the same text")))
    assert await asyncio.to_thread(slow.is_asked.wait, 30)

    async with asyncio.timeout(60):
        second = await embed_note(cached, "the same text")
        slow.may_answer.set()
        told = await first
    assert told is not None
    assert second is not None
    assert np.array_equal(told, second)
