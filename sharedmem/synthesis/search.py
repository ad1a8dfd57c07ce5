"""Find the notes that answer a question."""

from __future__ import annotations

from typing import get_args

from sharedmem.errors import InvalidError
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import NoteHit, NoteStatus, Recall
from sharedmem.redis.scope import Scope
from sharedmem.redis.vectors import Vector
from sharedmem.synthesis.protocol import NoteRepository
from sharedmem.synthesis.ranking import ThresholdOverrides, query_candidates, rank_hits, thresholds_of
from sharedmem.synthesis.tasks import check_id
from sharedmem.text.analysis import query_terms

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
        context: services that the hub shares with its stores.
        scope: the namespace and the actor, with the actor's rights.
        repository: where notes are kept.
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
        """The notes that answer a question, best first. Two round trips, and one call of the embedder.

        Three times as many candidates as are wanted are searched for, by meaning and by words; those above the recall
        threshold are scored, `S = relevance * (1 + 0.1 recency + 0.1 importance)`, and the best of those from the score
        threshold on told. A note that holds most words of the query (`LEAST_WORD_SHARE`) passes both thresholds unless
        the caller names them. Without an embedder notes are found by their words alone.

        Args:
            app_id: whose notes.
            query: the question, in words.
            user_id: only notes of this user; None means of all users of the app.
            session_id: only notes of this session.
            n: notes at most, 1 to 1000; None goes by the settings, as the thresholds do (see `thresholds_of`).
            recall: `current` tells active notes; `flagged` also those that are not settled yet; `all` also those that
                were retired. What is not active is flagged.
            recall_threshold: least cosine similarity, 0 to 1, also of what is found by words; None goes by the
                settings, and what is found by words need not reach it.
            score_threshold: least composite score, 0 to 1.2; likewise.

        Raises:
            InvalidError: an argument is refused.
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
