"""Search synthesised notes, and rank them by a composite score.

The formulas are those of "Self-Evolving Composite Memory Synthesis Architecture". The formulas do no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from math import exp
from typing import NamedTuple, Protocol, get_args

from sharedmem.config.setting_groups import SynthesisSettings
from sharedmem.errors import InvalidError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Depth, Note, NoteHit, NoteStatus, Recall
from sharedmem.providers.protocol import UNMEASURED, thresholds_of
from sharedmem.redis.scope import Scope
from sharedmem.redis.vectors import Vector
from sharedmem.synthesis.note_text import searchable_text
from sharedmem.synthesis.protocol import LEAST_WORD_SHARE, NoteRepository, SimilarNote
from sharedmem.synthesis.tasks import check_id
from sharedmem.text.analysis import query_terms
from sharedmem.text.statements import asked_by, best_match, is_about_another, rarity_of, related_terms

RECENCY_BOOST = 0.1
IMPORTANCE_BOOST = 0.1
"""The most that recency and importance add, as shares of the relevance."""
E_FOLDING_H = 10_950.0
"""Hours in which recency falls to 1/e: five years (43,800 h) by four."""
HALF_LIFE_H = 7_590.0
"""Hours in which it falls to a half: 10,950 h times ln 2."""
LEAST_RECENCY = 0.01
QUALITY_WEIGHT, FOLLOW_UP_WEIGHT, RICHNESS_WEIGHT = 0.5, 0.3, 0.2

RECALL_THRESHOLD, SCORE_THRESHOLD, LINK_THRESHOLD = UNMEASURED.recall, UNMEASURED.score, UNMEASURED.link
"""The numbers of the article, which fit large embedding models."""
WORDS_WEIGHT, FIT_WEIGHT = 0.6, 0.8
"""What the share of the question's words, and the fit to what it asks for, count in the order beside the similarity."""
LEAST_FIT = 0.5
"""Fit from which a note is a hit of a question about a person, however low its similarity."""
RESULTS, LINKS = 10, 4
MOST_LINK_CANDIDATES = 100
_CANDIDATES_EACH = 3
_RELATED_TERMS = 24
"""Words about what a question asks for that are searched for beside its own."""

_QUALITIES: dict[Depth | None, float] = {"high": 1.0, "medium": 0.6, "low": 0.2}
_UNKNOWN_QUALITY = 0.5
# Least number and its value; highest first.
_FOLLOW_UPS = ((3, 1.0), (2, 0.8), (1, 0.6))
_RICHNESS = ((10, 1.0), (5, 0.8), (2, 0.6))
_FEW = 0.3
_HOUR_S = 3600.0
_ROUNDING = 1e-9


class Thresholds(NamedTuple):
    """The least scores of a hit."""

    recall: float = RECALL_THRESHOLD
    score: float = SCORE_THRESHOLD
    link: float = LINK_THRESHOLD


def note_thresholds(settings: SynthesisSettings, embedder: str) -> Thresholds:
    """Return the thresholds of the settings, or else the ones that fit an embedder.

    Args:
        settings: settings of the hub.
        embedder: name of the embedder, such as `wordllama:l2_supercat-256`.
    """
    row = thresholds_of(embedder)
    usual = Thresholds(recall=row.recall, score=row.score, link=row.link)
    chosen = {
        "recall": settings.synthesis_recall_threshold,
        "score": settings.synthesis_score_threshold,
        "link": settings.synthesis_link_threshold,
    }
    return usual._replace(**{name: threshold for name, threshold in chosen.items() if threshold is not None})


class ThresholdOverrides(NamedTuple):
    """Thresholds of a caller, which also apply to hits by words."""

    recall: float = 0.0
    """The least similarity."""
    threshold: float = 0.0
    """The least composite score."""


_NO_OVERRIDES = ThresholdOverrides()


class NoteScores(NamedTuple):
    """The scores of a note for a question."""

    similarity: float
    recency: float
    importance: float
    composite: float


class ScoredNote(NamedTuple):
    """A note with its scores."""

    note: Note
    scores: NoteScores
    relevance: float = 0.0
    """What the order of a query follows."""
    by_words: bool = False
    """Whether only its words, or what they are about, found it."""


def decay(created_at: datetime, updated_at: datetime, *, now: datetime) -> float:
    """Return recency without its floor: `exp(-age_h / 10950)`, age since the later of the two moments; 0 to 1.

    The archive compares this with 0.01: `recency` never falls below that.
    """
    age_h = (now - max(created_at, updated_at)).total_seconds() / _HOUR_S
    return exp(-max(age_h, 0.0) / E_FOLDING_H)


def recency(created_at: datetime, updated_at: datetime, *, now: datetime) -> float:
    """Return the recency of a note: `max(0.01, exp(-age_h / 10950))`, and 1.0 for one in the future.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", section 4.2 Recency Score. It calls 10,950 h a
    half-life. By its own formula that is the e-folding time, after which 0.37 is left; half is left after 7,590 h.
    The formula is kept, and the word is not.
    """
    return max(LEAST_RECENCY, decay(created_at, updated_at, now=now))


def quality_part(quality: Depth | None) -> float:
    """Return the depth of the conversation: high 1.0, medium 0.6, low 0.2, unknown 0.5 (source: see `importance`)."""
    return _QUALITIES.get(quality, _UNKNOWN_QUALITY)


def follow_up_part(follow_ups: int) -> float:
    """Return the value of follow-ups: 3 or more 1.0, two 0.8, one 0.6, none 0.3 (source: see `importance`)."""
    return _step_value(follow_ups, _FOLLOW_UPS)


def richness_part(richness: int) -> float:
    """Return the value of tags and keywords: 10 or more 1.0, from 5 0.8, from 2 0.6, else 0.3 (see `importance`)."""
    return _step_value(richness, _RICHNESS)


def importance(quality: Depth | None, *, follow_ups: int, richness: int) -> float:
    """Return the importance of a note: `0.5 quality + 0.3 follow-ups + 0.2 richness`; 0.25 to 1.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", section 4.3 Importance Score.

    Args:
        quality: depth of the conversation; None if unknown.
        follow_ups: number of follow-ups.
        richness: number of tags and keywords.
    """
    return (
        QUALITY_WEIGHT * quality_part(quality)
        + FOLLOW_UP_WEIGHT * follow_up_part(follow_ups)
        + RICHNESS_WEIGHT * richness_part(richness)
    )


def composite_score(relevance: float, *, recency: float, importance: float) -> float:
    """Return the score of a note: `S = relevance * (1 + 0.1 recency + 0.1 importance)`, at most `1.2 * relevance`.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", sections 4.1 Formula and 4.4 Properties: the two
    boosts cannot make an irrelevant note relevant.

    Args:
        relevance: cosine similarity; clipped to 0 to 1, and NaN counts as 0.
        recency: 0 to 1.
        importance: 0 to 1.
    """
    # The boosts are added first: in floating point 1 + 0.1 + 0.1 is a little more than 1.2.
    return _share(relevance) * (1 + (RECENCY_BOOST * recency + IMPORTANCE_BOOST * importance))


def score_note(note: Note, similarity: float, *, now: datetime) -> NoteScores:
    """Return the scores of a note with this similarity to the query."""
    fresh = recency(note.created_at, note.updated_at, now=now)
    weight = importance(
        note.interaction_quality,
        follow_ups=len(note.follow_up_potential),
        richness=len(note.tags) + len(note.keywords),
    )
    similarity = _share(similarity)
    return NoteScores(similarity, fresh, weight, composite_score(similarity, recency=fresh, importance=weight))


def link_candidates(number: int) -> int:
    """Return how many notes to search for a number of links: three times as many, at most 100."""
    return min(number * _CANDIDATES_EACH, MOST_LINK_CANDIDATES)


def least_linked_similarity(threshold: float) -> float:
    """Return a similarity, -1 to 1, below which no composite score reaches a threshold, whatever the boosts are.

    It is the bound of `composite_score`, which takes a negative similarity for 0: a threshold of 0 admits all.
    """
    return threshold / (1 + (RECENCY_BOOST + IMPORTANCE_BOOST)) - _ROUNDING if threshold > 0 else -1.0


def query_candidates(number: int) -> int:
    """Return how many notes to search for a number of results: three times as many."""
    return number * _CANDIDATES_EACH


def rank_links(
    near: Iterable[SimilarNote], *, now: datetime, threshold: float = LINK_THRESHOLD, number: int = LINKS
) -> list[ScoredNote]:
    """Return the notes that a new one is compared with, best first; ties by id.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", Link Generation Algorithm.

    Args:
        near: candidates, in any order.
        now: the current time.
        threshold: least composite score.
        number: most notes.
    """
    return _best(near, now=now, threshold=threshold, number=number)


def rank_hits(
    near: Iterable[SimilarNote],
    *,
    now: datetime,
    recall: float = RECALL_THRESHOLD,
    threshold: float = SCORE_THRESHOLD,
    number: int = RESULTS,
    named: ThresholdOverrides = _NO_OVERRIDES,
    question: str = "",
) -> list[NoteHit]:
    """Return the hits of a query, most relevant first; ties by id.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", section 5.1 Query Pipeline. Scores and thresholds
    are its own; the order also counts the words of the question and what it asks for (`text.statements`).

    Args:
        near: candidates, in any order.
        now: the current time.
        recall: least similarity.
        threshold: least composite score.
        number: most hits.
        named: thresholds that also apply to notes with enough of the query's words, or of what it asks for.
        question: the query; empty for an order by scores and words alone.
    """
    candidates = list(near)
    good = []
    for each, (fit, of_words) in zip(candidates, _fits(question, candidates), strict=True):
        scores = score_note(each.note, each.similarity, now=now)
        boosts = RECENCY_BOOST * scores.recency + IMPORTANCE_BOOST * scores.importance
        relevance = (scores.similarity + of_words * each.word_share + FIT_WEIGHT * fit) * (1 + boosts)
        by_words = each.similarity < recall or scores.composite < threshold
        is_worded = each.word_share >= LEAST_WORD_SHARE or (fit >= LEAST_FIT and asked_by(question).is_personal)
        if not by_words or (is_worded and _reaches(scores, named)):
            good.append(ScoredNote(each.note, scores, relevance, by_words))
    return [_hit(rank, each) for rank, each in enumerate(_first(good, number), 1)]


def _fits(question: str, candidates: Sequence[SimilarNote]) -> list[tuple[float, float]]:
    """Return how well each note fits what the question asks for, and what the share of its words counts."""
    if not question or not asked_by(question).attributes:
        return [(0.0, WORDS_WEIGHT)] * len(candidates)
    texts = [searchable_text(each.note.memory_note) for each in candidates]
    rarity = rarity_of(texts)
    return [
        (
            best_match(question, text, speaker=each.note.user_id, rarity=rarity),
            WORDS_WEIGHT / 2 if is_about_another(question, text) else WORDS_WEIGHT,
        )
        for each, text in zip(candidates, texts, strict=True)
    ]


def _reaches(scores: NoteScores, named: ThresholdOverrides) -> bool:
    return scores.similarity >= named.recall and scores.composite >= named.threshold


def _best(near: Iterable[SimilarNote], *, now: datetime, threshold: float, number: int) -> list[ScoredNote]:
    scores = [(each.note, score_note(each.note, each.similarity, now=now)) for each in near]
    return _first([ScoredNote(note, of, of.composite) for note, of in scores if of.composite >= threshold], number)


def _first(scored: Iterable[ScoredNote], number: int) -> list[ScoredNote]:
    order = sorted(scored, key=lambda each: (-each.relevance, -each.scores.composite, each.note.id))
    return order[: max(number, 0)]


def _hit(rank: int, scored: ScoredNote) -> NoteHit:
    note, scores = scored.note, scored.scores
    is_archived = note.status == "archived"
    return NoteHit(
        rank=rank,
        similarity_score=scores.similarity,
        composite_score=scores.composite,
        recency_score=scores.recency,
        importance_score=scores.importance,
        memory_note=note.memory_note,
        metadata=note,
        flagged=note.next_id is not None if is_archived else note.status != "active",
        by_words=scored.by_words,
        relevance=round(scored.relevance, 6),
        archived=is_archived,
    )


def _step_value(count: int, steps: tuple[tuple[int, float], ...]) -> float:
    return next((worth for least, worth in steps if count >= least), _FEW)


def _share(number: float) -> float:
    # In this order NaN becomes 0.
    return min(1.0, max(0.0, number))


MOST_RESULTS = 1000
_LONGEST_QUERY = 100_000
# A search among retired notes covers all notes that ever existed.
_STATUSES: dict[Recall, tuple[NoteStatus, ...]] = {
    "current": ("active",),
    "flagged": ("active", "conflict_pending"),
    "all": ("active", "conflict_pending", "updated", "deleted"),
}


class NoteQuery(NamedTuple):
    """What is searched for."""

    app_id: str
    vector: Vector | None
    terms: tuple[str, ...]
    user_id: str | None
    session_id: str | None
    statuses: tuple[NoteStatus, ...]
    k: int
    """Most candidates."""

    def admits_archived(self, note: Note) -> bool:
        """Return whether an archived note may be a hit, as far as its metadata says: retired notes have a successor."""
        return (
            self.user_id in (None, note.user_id)
            and self.session_id in (None, note.session_id)
            and (note.next_id is None or "updated" in self.statuses)
        )


class ArchivedNotes(Protocol):
    """The archived notes of a namespace."""

    async def near(self, wanted: NoteQuery) -> list[SimilarNote]:
        """Return archived notes with their texts and their similarity to a query, in no order."""


class NoteSearch:
    """Queries the notes of a namespace.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace and the actor, with the actor's rights.
        repository: stores the notes.
        archives: finds archived notes.
    """

    def __init__(
        self, context: KnowledgeContext, scope: Scope, *, repository: NoteRepository, archives: ArchivedNotes
    ) -> None:
        self._archives = archives
        self._context = context
        self._embedder = context.embedder_of(scope.identity.namespace)
        self._repository = repository

    async def query(  # filters and thresholds, all with defaults
        self,
        app_id: str,
        query: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        n: int | None = None,
        recall: Recall = "current",
        archived: bool = False,
        recall_threshold: float | None = None,
        score_threshold: float | None = None,
    ) -> list[NoteHit]:
        """Return the notes that answer a question, best first. Two round trips, and one call of the embedder.

        Three times as many candidates as requested are searched for, by meaning and by words. Those above the recall
        threshold are scored, `S = relevance * (1 + 0.1 recency + 0.1 importance)`, and those above the score
        threshold are returned, in an order that also counts words and what the question asks for. A note that contains
        most words of the query (`LEAST_WORD_SHARE`), or is about what a question about a person asks for, passes both
        thresholds unless the caller sets them. Without an embedder notes are found by their words only.

        Args:
            app_id: id of the app.
            query: the question, in words.
            user_id: only notes of this user; None means all users of the app.
            session_id: only notes of this session.
            n: most notes, 1 to 1000; None uses the settings, as the thresholds do (see `note_thresholds`).
            recall: `current` for active notes; `flagged` also for notes that are not settled yet; `all` also for
                retired notes. Notes that are not active are flagged.
            archived: whether archived notes are searched too, with their texts (see `ArchivedNotes`).
            recall_threshold: least cosine similarity, 0 to 1, also for hits by words; None uses the
                settings, which do not apply to hits by words.
            score_threshold: least composite score, 0 to 1.2; None uses the settings in the same way.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError, UnavailableError, LimitedError, ConfigError: as for reads and the embedder.
        """
        check_id("app_id", app_id)
        _check_switch("archived", archived)
        settings = self._context.settings
        number = settings.synthesis_results if n is None else _check_number(n)
        usual = note_thresholds(settings, self._context.embedder_name)
        recall_from = usual.recall if recall_threshold is None else recall_threshold
        score_from = usual.score if score_threshold is None else score_threshold
        _check_threshold("recall_threshold", recall_from)
        _check_threshold("score_threshold", score_from)
        terms = query_terms(_check_query(query))
        vector = await self._vector(query)
        if vector is None and not terms:
            return []
        wanted = NoteQuery(
            app_id,
            vector,
            terms,
            user_id=None if user_id is None else check_id("user_id", user_id),
            session_id=None if session_id is None else check_id("session_id", session_id),
            statuses=_STATUSES[_check_recall(recall)],
            k=query_candidates(number),
        )
        near, _ = await self._repository.near(
            app_id,
            vector,
            terms=terms,
            related=related_terms(asked_by(query).attributes, most=_RELATED_TERMS),
            user_id=wanted.user_id,
            session_id=wanted.session_id,
            statuses=wanted.statuses,
            k=wanted.k,
        )
        if archived:
            near += await self._archives.near(wanted)
        return rank_hits(
            near,
            now=self._context.clock.now(),
            recall=recall_from,
            threshold=score_from,
            number=number,
            # The caller's thresholds apply to every note; those of the embedder, to hits by meaning.
            named=ThresholdOverrides(recall_threshold or 0.0, score_threshold or 0.0),
            question=query,
        )

    async def _vector(self, query: str) -> Vector | None:
        if self._embedder is None:
            return None
        vectors, _ = await self._embedder.embed([query], purpose="query")
        return vectors[0] if vectors[0].any() else None


def _check_query(query: str) -> str:
    if not isinstance(query, str) or not query.strip():
        raise InvalidError("query", query, "give a question")
    if len(query) > _LONGEST_QUERY:
        raise InvalidError("query", query, f"give at most {_LONGEST_QUERY} characters")
    return query


def _check_number(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_RESULTS:
        raise InvalidError("n_results", n, f"give a whole number from 1 to {MOST_RESULTS}")
    return n


def _check_switch(field: str, switch: bool) -> None:
    if not isinstance(switch, bool):
        raise InvalidError(field, switch, "give True or False")


def _check_recall(recall: Recall) -> Recall:
    if recall not in get_args(Recall):
        raise InvalidError("recall", recall, f"choose one of {', '.join(get_args(Recall))}")
    return recall


def _check_threshold(field: str, threshold: float) -> None:
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 2:
        raise InvalidError(field, threshold, "give a number from 0 to 1; 2 returns nothing")
