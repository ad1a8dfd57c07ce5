"""Search synthesised notes, and rank them by a composite score.

The formulas are those of "Self-Evolving Composite Memory Synthesis Architecture". Nothing here waits for anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from math import exp
from typing import NamedTuple, get_args

from sharedmem.config.settings import SynthesisSettings
from sharedmem.errors import InvalidError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Depth, Note, NoteHit, NoteStatus, Recall
from sharedmem.redis.scope import Scope
from sharedmem.redis.vectors import Vector
from sharedmem.synthesis.protocol import LEAST_WORD_SHARE, NoteRepository, SimilarNote
from sharedmem.synthesis.tasks import check_id
from sharedmem.text.analysis import query_terms

RECENCY_BOOST = 0.1
IMPORTANCE_BOOST = 0.1
"""What the best recency and the best importance add, as shares of the relevance."""
E_FOLDING_H = 10_950.0
"""Hours in which recency falls to 1/e: five years (43,800 h) by four."""
HALF_LIFE_H = 7_590.0
"""Hours in which it falls to a half: 10,950 h times ln 2."""
LEAST_RECENCY = 0.01
QUALITY_WEIGHT, FOLLOW_UP_WEIGHT, RICHNESS_WEIGHT = 0.5, 0.3, 0.2

RECALL_THRESHOLD = 0.3
SCORE_THRESHOLD = 0.4
LINK_THRESHOLD = 0.7
"""The numbers of the article, which are those of large models of embedding."""
RESULTS, LINKS = 10, 4
MOST_LINK_CANDIDATES = 100
_CANDIDATES_EACH = 3

_QUALITIES: dict[Depth | None, float] = {"high": 1.0, "medium": 0.6, "low": 0.2}
_UNKNOWN_QUALITY = 0.5
# From how many on, and what it is worth; most first.
_FOLLOW_UPS = ((3, 1.0), (2, 0.8), (1, 0.6))
_RICHNESS = ((10, 1.0), (5, 0.8), (2, 0.6))
_FEW = 0.3
_HOUR_S = 3600.0


class Thresholds(NamedTuple):
    """From where on a note counts."""

    recall: float = RECALL_THRESHOLD
    score: float = SCORE_THRESHOLD
    link: float = LINK_THRESHOLD


# Static vectors of words: what belongs together lies at 0.14 to 0.7, what does not at 0.04 on average.
_EMBEDDER_THRESHOLDS = {"wordllama": Thresholds(recall=0.1, score=0.1, link=0.3)}


def thresholds_of(settings: SynthesisSettings, embedder: str) -> Thresholds:
    """Return the thresholds by the settings, and where they say nothing, those that suit an embedder.

    Args:
        settings: of the hub.
        embedder: its name, such as `wordllama:l2_supercat-256`.
    """
    usual = _EMBEDDER_THRESHOLDS.get(embedder.partition(":")[0], Thresholds())
    chosen = {
        "recall": settings.synthesis_recall_threshold,
        "score": settings.synthesis_score_threshold,
        "link": settings.synthesis_link_threshold,
    }
    return usual._replace(**{name: threshold for name, threshold in chosen.items() if threshold is not None})


class ThresholdOverrides(NamedTuple):
    """What a caller has named, which holds also for what is found by words."""

    recall: float = 0.0
    """The least similarity."""
    threshold: float = 0.0
    """The least composite score."""


_NO_OVERRIDES = ThresholdOverrides()


class NoteScores(NamedTuple):
    """What a note is worth for a question, and why."""

    similarity: float
    recency: float
    importance: float
    composite: float


class ScoredNote(NamedTuple):
    """A note with its scores."""

    note: Note
    scores: NoteScores
    word_share: float = 0.0
    """Which share of the words of a query it holds, if it was found by these alone."""


def decay(created_at: datetime, updated_at: datetime, *, now: datetime) -> float:
    """Recency without its floor: `exp(-age_h / 10950)`, age counted from the later of the two moments; 0 to 1.

    Archiving compares this with 0.01: `recency` never falls below that.
    """
    age_h = (now - max(created_at, updated_at)).total_seconds() / _HOUR_S
    return exp(-max(age_h, 0.0) / E_FOLDING_H)


def recency(created_at: datetime, updated_at: datetime, *, now: datetime) -> float:
    """Return how recent a note is: `max(0.01, exp(-age_h / 10950))`, and 1.0 for one of the future.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", section 4.2 Recency Score. It calls 10,950 h a
    half-life. By its own formula that is the e-folding time, after which 0.37 is left; half is left after 7,590 h.
    The formula is kept, and the word is not.
    """
    return max(LEAST_RECENCY, decay(created_at, updated_at, now=now))


def quality_part(quality: Depth | None) -> float:
    """Return how deep the conversation went: high 1.0, medium 0.6, low 0.2, unknown 0.5 (source: see `importance`)."""
    return _QUALITIES.get(quality, _UNKNOWN_QUALITY)


def follow_up_part(follow_ups: int) -> float:
    """How much is left to do: 3 follow-ups or more 1.0, two 0.8, one 0.6, none 0.3 (source: see `importance`)."""
    return _step_value(follow_ups, _FOLLOW_UPS)


def richness_part(richness: int) -> float:
    """How much it touches: 10 tags and keywords or more 1.0, from 5 0.8, from 2 0.6, else 0.3 (see `importance`)."""
    return _step_value(richness, _RICHNESS)


def importance(quality: Depth | None, *, follow_ups: int, richness: int) -> float:
    """Return how important a note is: `0.5 quality + 0.3 follow-ups + 0.2 richness`; 0.25 to 1.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", section 4.3 Importance Score.

    Args:
        quality: how deep the conversation went; None when nobody has said so.
        follow_ups: how many there are.
        richness: tags and keywords together.
    """
    return (
        QUALITY_WEIGHT * quality_part(quality)
        + FOLLOW_UP_WEIGHT * follow_up_part(follow_ups)
        + RICHNESS_WEIGHT * richness_part(richness)
    )


def composite_score(relevance: float, *, recency: float, importance: float) -> float:
    """Return what a note is worth: `S = relevance * (1 + 0.1 recency + 0.1 importance)`, never above `1.2 * relevance`.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", sections 4.1 Formula and 4.4 Properties: the two
    boosts cannot save what is not relevant.

    Args:
        relevance: cosine; what is outside 0 to 1 is taken for the nearer end, and what is no number for 0.
        recency: 0 to 1.
        importance: 0 to 1.
    """
    # The boosts are added first: 1 + 0.1 + 0.1 is a little more than 1.2 to a computer.
    return _share(relevance) * (1 + (RECENCY_BOOST * recency + IMPORTANCE_BOOST * importance))


def score_note(note: Note, similarity: float, *, now: datetime) -> NoteScores:
    """Return the scores of a note that is so near to what was asked."""
    fresh = recency(note.created_at, note.updated_at, now=now)
    weight = importance(
        note.interaction_quality,
        follow_ups=len(note.follow_up_potential),
        richness=len(note.tags) + len(note.keywords),
    )
    similarity = _share(similarity)
    return NoteScores(similarity, fresh, weight, composite_score(similarity, recency=fresh, importance=weight))


def link_candidates(number: int) -> int:
    """Return how many notes to search for to find so many links: three times as many, at most 100."""
    return min(number * _CANDIDATES_EACH, MOST_LINK_CANDIDATES)


def query_candidates(number: int) -> int:
    """Return how many notes to search for to answer so many: three times as many."""
    return number * _CANDIDATES_EACH


def rank_links(
    near: Iterable[SimilarNote], *, now: datetime, threshold: float = LINK_THRESHOLD, number: int = LINKS
) -> list[ScoredNote]:
    """Return the notes that a new one is held against, best first; equals by their ids.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", Link Generation Algorithm.

    Args:
        near: candidates, in any order.
        now: when.
        threshold: least composite score.
        number: notes at most.
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
) -> list[NoteHit]:
    """Return the answers to a query, best first; equals by the share of words that they hold, then by their ids.

    Source: "Self-Evolving Composite Memory Synthesis Architecture", section 5.1 Query Pipeline. Words only add answers:
    a note that both thresholds let through is scored and placed as it would be without them.

    Args:
        near: candidates, in any order.
        now: when.
        recall: least similarity.
        threshold: least composite score.
        number: answers at most.
        named: what a note has to reach all the same that holds enough of the words of the query.
    """
    good = []
    for each in near:
        scored = ScoredNote(each.note, score_note(each.note, each.similarity, now=now))
        if each.similarity >= recall and scored.scores.composite >= threshold:
            good.append(scored)
        elif each.word_share >= LEAST_WORD_SHARE and _reaches(scored.scores, named):
            good.append(scored._replace(word_share=each.word_share))
    return [_hit(rank, each) for rank, each in enumerate(_first(good, number), 1)]


def _reaches(scores: NoteScores, named: ThresholdOverrides) -> bool:
    return scores.similarity >= named.recall and scores.composite >= named.threshold


def _best(near: Iterable[SimilarNote], *, now: datetime, threshold: float, number: int) -> list[ScoredNote]:
    scored = [ScoredNote(each.note, score_note(each.note, each.similarity, now=now)) for each in near]
    return _first([each for each in scored if each.scores.composite >= threshold], number)


def _first(scored: Iterable[ScoredNote], number: int) -> list[ScoredNote]:
    order = sorted(scored, key=lambda each: (-each.scores.composite, -each.word_share, each.note.id))
    return order[: max(number, 0)]


def _hit(rank: int, scored: ScoredNote) -> NoteHit:
    note, scores, share = scored
    return NoteHit(
        rank=rank,
        similarity_score=scores.similarity,
        composite_score=scores.composite,
        recency_score=scores.recency,
        importance_score=scores.importance,
        memory_note=note.memory_note,
        metadata=note,
        flagged=note.status != "active",
        by_words=share > 0,
    )


def _step_value(count: int, steps: tuple[tuple[int, float], ...]) -> float:
    return next((worth for least, worth in steps if count >= least), _FEW)


def _share(number: float) -> float:
    # In this order what is no number becomes 0.
    return min(1.0, max(0.0, number))


MOST_RESULTS = 1000
_LONGEST_QUERY = 100_000
# Whoever searches among what was retired searches among all that ever was.
_STATUSES: dict[Recall, tuple[NoteStatus, ...]] = {
    "current": ("active",),
    "flagged": ("active", "conflict_pending"),
    "all": ("active", "conflict_pending", "updated", "deleted"),
}


class NoteSearch:
    """Queries of the notes of a namespace.

    Args:
        context: dependencies that the hub shares with its stores.
        scope: the namespace and the actor, with the actor's rights.
        repository: stores the notes.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope, *, repository: NoteRepository) -> None:
        self._context = context
        self._embedder = context.embedder_of(scope.identity.namespace)
        self._repository = repository

    async def query(  # narrows and thresholds, all with defaults
        self,
        app_id: str,
        query: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        n: int | None = None,
        recall: Recall = "current",
        recall_threshold: float | None = None,
        score_threshold: float | None = None,
    ) -> list[NoteHit]:
        """Return the notes that answer a question, best first. Two round trips, and one call of the embedder.

        Three times as many candidates as are wanted are searched for, by meaning and by words; those above the recall
        threshold are scored, `S = relevance * (1 + 0.1 recency + 0.1 importance)`, and the best of those from the score
        threshold on told. A note that holds most words of the query (`LEAST_WORD_SHARE`) passes both thresholds unless
        the caller names them. Without an embedder notes are found by their words alone.

        Args:
            app_id: id of the app.
            query: the question, in words.
            user_id: only notes of this user; None means of all users of the app.
            session_id: only notes of this session.
            n: notes at most, 1 to 1000; None uses the settings, as the thresholds do (see `thresholds_of`).
            recall: `current` tells active notes; `flagged` also those that are not settled yet; `all` also those that
                were retired. What is not active is flagged.
            recall_threshold: least cosine similarity, 0 to 1, also of what is found by words; None uses the
                settings, and what is found by words need not reach it.
            score_threshold: least composite score, 0 to 1.2; likewise.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError, UnavailableError, LimitedError, ConfigError: as reading, and as the embedder.
        """
        check_id("app_id", app_id)
        settings = self._context.settings
        number = settings.synthesis_results if n is None else _check_number(n)
        usual = thresholds_of(settings, "" if self._embedder is None else self._embedder.name)
        recall_from = usual.recall if recall_threshold is None else recall_threshold
        score_from = usual.score if score_threshold is None else score_threshold
        _check_threshold("recall_threshold", recall_from)
        _check_threshold("score_threshold", score_from)
        terms = query_terms(_check_query(query))
        vector = await self._vector(query)
        if vector is None and not terms:
            return []
        near, _ = await self._repository.near(
            app_id,
            vector,
            terms=terms,
            user_id=None if user_id is None else check_id("user_id", user_id),
            session_id=None if session_id is None else check_id("session_id", session_id),
            statuses=_STATUSES[_check_recall(recall)],
            k=query_candidates(number),
        )
        return rank_hits(
            near,
            now=self._context.clock.now(),
            recall=recall_from,
            threshold=score_from,
            number=number,
            # What the caller names holds for every note; what suits the embedder, for what is found by meaning.
            named=ThresholdOverrides(recall_threshold or 0.0, score_threshold or 0.0),
        )

    async def _vector(self, query: str) -> Vector | None:
        if self._embedder is None:
            return None
        vectors, _ = await self._embedder.embed([query], purpose="query")
        return vectors[0] if vectors[0].any() else None


def _check_query(query: str) -> str:
    if not isinstance(query, str) or not query.strip():
        raise InvalidError("query", query, "ask something")
    if len(query) > _LONGEST_QUERY:
        raise InvalidError("query", query, f"ask in {_LONGEST_QUERY} characters at most")
    return query


def _check_number(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_RESULTS:
        raise InvalidError("n", n, f"give a whole number from 1 to {MOST_RESULTS}")
    return n


def _check_recall(recall: Recall) -> Recall:
    if recall not in get_args(Recall):
        raise InvalidError("recall", recall, f"choose one of {', '.join(get_args(Recall))}")
    return recall


def _check_threshold(field: str, threshold: float) -> None:
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 2:
        raise InvalidError(field, threshold, "give a number from 0 to 1; 2 answers nothing")
